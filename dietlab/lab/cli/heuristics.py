"""``dietlab heuristics``: a second opinion on how the cost model ranks a GPU's micro-kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.operators import workload_options
from dietlab.cli.options import (
    cover_option,
    hardware_option,
    json_option,
    parse_shapes,
    processor,
    shapes_option,
    show,
)
from dietlab.cli.parameters import OUT_FILE
from dietlab.compare.study import Study
from dietlab.cost import CostModel
from dietlab.lab.heuristics.agreement import (
    Comparison,
    add_rows,
    compare_with_heuristics,
    frame_drafts,
    frame_heuristics,
    medians,
)
from dietlab.lab.heuristics.nvidia import COUNT, TARGETS, Heuristics, KernelLibrary
from dietlab.problem import Workload
from dietlab.scheme import Cover, Space, build_space, edges_of

if TYPE_CHECKING:
    import pandas as pd


@click.command("heuristics")
@workload_options
@cover_option
@hardware_option
@click.option(
    "--study",
    type=click.Path(exists=True, file_okay=False),
    help="Rank by this study's fitted cost model: its operator and its GPU count, not those given here. "
    "Without, what is expected before anything is measured ranks: the bound of the GPU's throughputs.",
)
@click.option(
    "--drafts",
    is_flag=True,
    help="Instead, rank by each draft, of which nothing was measured: the paper's waves, and the bound.",
)
@click.option("--csv", "path", type=OUT_FILE, help="With --drafts: add the rows here.")
@shapes_option()
@click.option("--top", default=COUNT, show_default=True, type=click.IntRange(1), help="Choices a shape.")
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    default="cutlass",
    show_default=True,
    help="Whose programs NVIDIA's heuristics choose among; cutlass is nearest to ours.",
)
@json_option
def heuristics_command(
    workload: Workload,
    cover: Cover,
    hardware: str | None,
    study: str | None,
    drafts: bool,
    path: str | None,
    shapes: str | None,
    top: int,
    target: KernelLibrary,
    as_json: bool,
) -> None:
    """Rank what NVIDIA's heuristics would choose: needs no GPU.

    For each shape: the tile that NVIDIA's matmul heuristics choose first, the scheme of ours that is
    nearest to it, its rank in our space, and how much slower than our own choice it is predicted to be. A
    bad rank is a question to measure, not an answer. Needs the package nvidia-matmul-heuristics.

    dietlab heuristics dense --dim T=16:2048 --dim N=2304 --dim K=768 --hardware h200
    """
    if (study and drafts) or (path and not drafts):
        given = "--study" if study else "--csv"
        raise DietlabError("--drafts can have no study, and --csv needs it", given, "Leave one of them out.")
    if study is not None:
        run = Study.open(study).run()
        space, model = run.space, run.model
    else:
        if hardware is None:
            raise DietlabError("--hardware must name a GPU", "this machine", "For example --hardware h200.")
        chip, model = processor(hardware, None), None
        space = build_space(workload, chip, edges_of(cover, workload, chip))
    reference = Heuristics(space.hardware, target)
    wanted = parse_shapes(shapes, space.workload)
    if drafts:
        table = frame_drafts(space, wanted, reference, top)
        if path:
            add_rows(Path(path), table)
        rows: list[dict[str, Any]] = table.astype(object).where(table.notna(), None).to_dict("records")
        show(rows, as_json, _drafts_text(space, table))
        return
    found = compare_with_heuristics(space, wanted, model, reference, top)
    show([one.row() for one in found], as_json, _text(space, model, reference, found))


def _drafts_text(space: Space, table: pd.DataFrame) -> str:
    shown = table.drop(columns=["hardware", "workload"])
    rows = shown.astype(object).where(shown.notna(), "-").to_string(index=False)
    lines = [
        f"{draft}: in the median NVIDIA's first choice is among the best {100 * found['share']:.1f} %, the "
        f"best of its choices among {100 * found['best_share']:.2f} %"
        for draft, found in medians(table).items()
    ]
    head = f"{space.workload} on {space.hardware.name}: {len(space)} schemes"
    return "\n\n".join([head, rows, "\n".join(lines)])


def _text(space: Space, model: CostModel | None, reference: Heuristics, found: Sequence[Comparison]) -> str:
    frame = frame_heuristics(found)
    table = frame.astype(object).where(frame.notna(), "-").to_string(index=False)
    ranked = f"the model of {model.samples} schemes" if model else "the bound alone"
    held, proposed = sum(one.in_space for one in found), sum(len(one.matches) for one in found)
    head = f"{space.workload} on {space.hardware.name}: {len(space)} schemes, ranked by {ranked}"
    whose = f"NVIDIA's choices are those for {reference.gpu}, {reference.target}"
    return f"{head}\n\n{table}\n\n{whose}: the space has the tiles of {held} of {proposed}"
