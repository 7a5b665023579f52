"""``dietlab compile``: compiles a GPU's micro-kernels without a GPU, and shows what they use."""

from __future__ import annotations

from pathlib import Path
from random import Random

import click

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.cli.operators import workload_options
from dietlab.cli.options import cover_option, hardware_option, processor, show
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.telling import Telling, quiet_option
from dietlab.problem import Workload
from dietlab.scheme import Cover, build_space, edges_of
from dietlab.targets.cuda.compiler_report import COLUMNS, MACHINE_CODE, frame_compiled, named_scheme
from dietlab.targets.cuda.limits import gpu_of


@click.command("compile")
@workload_options
@cover_option
@hardware_option
@click.option(
    "--sample", default=32, show_default=True, type=click.IntRange(0), help="Micro-kernels; 0 for all."
)
@click.option("--scheme", "named", multiple=True, metavar="KEY", help="Compile this one; may be repeated.")
@click.option("--seed", default=0, show_default=True, help="Which ones.")
@click.option("--csv", "path", type=OUT_FILE, help="Also write the table here.")
@click.option(
    "--machine-code",
    is_flag=True,
    help="Also read the machine code: the main loop's instructions, how many of 100 multiply, divisions in "
    "loops, stores of two bytes. Needs cuobjdump.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
def compile_command(
    workload: Workload,
    cover: Cover,
    hardware: str | None,
    sample: int,
    named: tuple[str, ...],
    seed: int,
    path: str | None,
    machine_code: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compile micro-kernels and show what they use: needs nvcc.

    The table has registers of a thread, spilled bytes, shared memory of a block, and how many blocks fit a
    multiprocessor, as the compiler reports them; and for refused micro-kernels the reason. Fails if all are
    refused.

    dietlab compile dense --dim T=1:128 --dim N=2304 --dim K=768 --hardware h200 --sample 32

    dietlab compile dense --hardware h200 --scheme 128x64x16.t16x16.s3 --machine-code
    """
    if hardware is None:
        raise DietlabError("--hardware must name a GPU", "this machine", "For example --hardware h200.")
    chip = processor(hardware, None)
    arch = gpu_of(chip).arch
    space = build_space(workload, chip, edges_of(cover, workload, chip))
    kernels = [named_scheme(key, workload, chip) for key in named] or list(space)
    if not named and 0 < sample < len(kernels):
        kernels = sorted(Random(seed).sample(kernels, sample))
    with Telling("compile", ("compile",), quiet) as telling:
        table = frame_compiled(workload, chip, kernels, telling.observers, machine_code=machine_code)
    table.insert(0, "arch", arch)
    table.insert(1, "dtype", workload.dtype)
    table = table[["arch", "dtype", "scheme", *COLUMNS, *(MACHINE_CODE if machine_code else ())]]
    if path:
        drawn = "named" if named else f"of {len(space)} schemes, seed {seed}"
        head = f"# {workload} on {chip.name}: {len(kernels)} {drawn}\n"
        write_whole(Path(path), head + table.to_csv(index=False))
    facts = {"space": len(space), "compiled": table.to_dict("records")}
    refused = table[table["status"] != "ok"]
    of = "" if named else f" of {len(space)}"
    show(facts, as_json, f"{table.to_string(index=False)}\n{len(kernels)}{of} tried, {len(refused)} refused")
    if len(refused) == len(kernels):
        (reason, count), *_ = refused["reason"].value_counts().items()
        raise DietlabError("one of the micro-kernels must compile", f"{reason} ({count} of {len(kernels)})")
