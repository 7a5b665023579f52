"""Measurements that others published: read with their faults, chosen from, judged; and the tables of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import URLError
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import ModelError, RecordError, SpaceError
from dietlab.cli import main
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import OURS
from dietlab.cost.metrics import spearman
from dietlab.lab.published import autoheuristic
from dietlab.lab.published.autoheuristic import COLUMNS, download, read_autoheuristic
from dietlab.lab.published.choosing import (
    SIZES,
    Times,
    choose_tiles,
    folds,
    grid,
    judge_choice,
    judge_models,
    weighted_shapes,
)
from dietlab.lab.published.models import LearnedTiles, Smooth, models_of
from dietlab.lab.published.records import Operator, Published, PublishedRecord
from dietlab.lab.published.tables import (
    CHOICES,
    GPUS,
    LAYERS,
    RIVALS,
    derive_tables,
    read_table,
    recorded_reports,
    reduce_cuda_l2,
    summary,
    write_tables,
)
from dietlab.lab.published.triton_tile import LEAST_EXTENT, WARP_OUTPUTS, Pairs, TritonTile
from dietlab.lab.reproduce.paper import reported_report
from dietlab.machine import Hardware
from dietlab.problem import Shape
from dietlab.view import plot_latency, plot_layers, plot_lengths, plot_map, plot_speedup, render_text
from dietlab.view.widgets.speedup_explorer import by_setting, speedup_explorer

H100 = Hardware.preset("h100")
NT = Operator("float16", "nt")
TILES = tuple(
    TritonTile(rows, cols, 32, warps, 3)
    for rows, cols, warps in [(16, 32, 2), (32, 64, 4), (64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 128, 8)]
) + tuple(TritonTile(rows, 64, 64, 4, 4) for rows in (16, 64, 128))
LAYER_SIZES = ((768, 768), (3072, 768), (1000, 512))
SHAPES = (
    *(Shape.of(T=T, N=N, K=K) for N, K in LAYER_SIZES for T in (16, 100, 512, 4096)),
    Shape.of(T=64, N=24, K=256),
)
HEAD: Mapping[str, Any] = {"shared_memory": 232448, "device_capa": [9, 0]}


def choice_of(tile: TritonTile) -> str:
    return (
        f"type=triton_BLOCK-M={tile.rows}_BLOCK-K={tile.step}_BLOCK-N={tile.cols}"
        f"_numstages={tile.stages}_numwarps={tile.warps}"
    )


def row_of(shape: Shape, choice: str, ms: object, **changed: object) -> dict[str, object]:
    T, N, K = shape["T"], shape["N"], shape["K"]
    usual = dict(zip(COLUMNS, (T, K, N, *["torch.float16"] * 2, K, 1, 1, K, "x", choice, ms), strict=True))
    return usual | changed


def seconds_of(tile: TritonTile, shape: Shape) -> float:
    """A time that the bound almost tells, with a fault of its kind of tile."""
    bound = Pairs([tile], [shape], H100).bound.total[0]
    return float(bound * (1 + 0.1 * (tile.cols / 128) + 0.001 * (tile.rows * shape["T"] % 7)))


def rows() -> list[dict[str, object]]:
    found = []
    for shape in SHAPES:
        times = {tile.cut(shape): 1e3 * seconds_of(tile.cut(shape), shape) for tile in TILES}
        found += [row_of(shape, choice_of(tile), ms) for tile, ms in times.items()]
        found.append(row_of(shape, autoheuristic.VENDOR, 1.02 * min(times.values())))
    return found


def text_of(rows: Sequence[Mapping[str, object]], head: Mapping[str, Any] = HEAD) -> str:
    return f"{json.dumps(head)}\n{pd.DataFrame(rows).to_csv(index=False)}"


def archive(path: Path, text: str, name: str = "h100/h100_timm_train_mm.txt") -> Path:
    with ZipFile(path, "w") as file:
        file.writestr(name, text)
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("published")
    return read_autoheuristic(archive(folder / "h100_mm.zip", text_of(rows())), "h100")


@pytest.fixture(scope="module")
def times(published: Published) -> Times:
    return Times.of(published, NT, LAYERS)


# --- tiles ----------------------------------------------------------------------------------------


def test_a_tile_is_read_from_its_choice_and_its_key() -> None:
    tile = TritonTile(128, 64, 32, 4, 3)
    assert TritonTile.of_choice(choice_of(tile)) == tile
    assert TritonTile.parse(tile.key) == (tile, "", "") and tile.key == "128x64x32.warps4.s3"
    for unknown in ("extern_mm", "type=triton_BLOCK-M=48_BLOCK-K=16_BLOCK-N=32_numstages=3_numwarps=2", ""):
        assert TritonTile.of_choice(unknown) is None
    with pytest.raises(SpaceError, match=r"powers of two from 16 on as extents; got 8x64x32"):
        TritonTile(8, 64, 32, 4, 3)


@given(*[st.integers(1, 5000)] * 3, st.sampled_from(TILES))
def test_a_cut_tile_is_no_larger_and_is_cut_once(T: int, N: int, K: int, tile: TritonTile) -> None:
    shape = Shape.of(T=T, N=N, K=K)
    cut = tile.cut(shape)
    assert cut.cut(shape) == cut
    for extent, whole, room in zip(cut.tile.values(), tile.tile.values(), (T, N, K), strict=True):
        assert LEAST_EXTENT <= extent <= whole and extent < 2 * max(room, LEAST_EXTENT)
    assert 1 <= cut.warps <= tile.warps and cut.rows * cut.cols >= WARP_OUTPUTS * cut.warps


# --- reading --------------------------------------------------------------------------------------


def test_rows_become_records(published: Published) -> None:
    assert published.set_aside == () and published.gpu == "h100" and published.origin.commit == ""
    assert published.operators == (NT,) and published.shapes == len(SHAPES)
    vendor = [record for record in published.records if record.tile is None]
    assert len(vendor) == len(SHAPES) and {record.collection for record in vendor} == {"timm"}
    one = next(record for record in published.records if record.tile == TILES[0])
    assert one.seconds == pytest.approx(seconds_of(TILES[0], one.shape))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"feedback": ""}, "no time"),
        ({"feedback": "fast"}, "no time"),
        ({"feedback": "inf"}, "an infinite time: it did not run"),
        ({"feedback": "-1"}, "a time that is not positive"),
        ({"choice": "type=triton_BLOCK-M=17_BLOCK-K=16_BLOCK-N=32_numstages=3_numwarps=2"}, "unknown choice"),
        ({"choice": "__import__('os')"}, "an unknown choice"),
        ({"m": "1.5"}, "extents that are no whole positive numbers"),
        ({"n": "-16"}, "extents that are no whole positive numbers"),
        ({"mat1_dtype": "torch.int8"}, "operands of an unknown type, or of two"),
        ({"mat2_dtype": "torch.float32"}, "operands of an unknown type, or of two"),
        ({"mat1_stride_0": 7, "mat1_stride_1": 3}, "an operand stored neither by rows nor by columns"),
    ],
)
def test_a_bad_row_is_counted_with_its_reason(
    changed: dict[str, object], reason: str, tmp_path: Path
) -> None:
    bad = row_of(SHAPES[0], choice_of(TILES[0]), 1.0) | changed
    path = archive(tmp_path / "h100_mm.zip", text_of([*rows(), bad]))
    found = read_autoheuristic(path, "h100")
    assert [(reason in told, count) for told, count in found.set_aside] == [(True, 1)]
    assert len(found) == len(rows())


def test_repeats_become_one_record_with_their_spread(tmp_path: Path) -> None:
    path = tmp_path / "h100_mm.txt"
    path.write_text(text_of([row_of(SHAPES[0], "extern_mm", ms) for ms in (1.0, 1.2, 1.1, 1.1)]))
    (record,) = read_autoheuristic(path, "h100").records
    assert (record.collection, record.repeats) == ("random", 3)
    assert record.seconds == pytest.approx(1.1e-3) and record.spread == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (text_of(rows(), {**HEAD, "device_capa": [8, 0]}), r"must be of compute capability 9\.0.*got .*8\.0"),
        (text_of(rows(), {"shared_memory": 1}), "first line .* must be JSON with device_capa"),
        (text_of(rows())[:-30], "must end its line.*truncated"),
        (text_of([{"m": 1}]), "must have the columns m, k, n.*no k"),
        (text_of([row_of(SHAPES[0], "extern_mm", "inf")]), "must have rows with times"),
        (json.dumps(HEAD) + "\n", "must have the columns of its header"),
    ],
)
def test_a_file_of_another_kind_is_refused(content: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=complaint):
        read_autoheuristic(archive(tmp_path / "h100_mm.zip", content), "h100")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive(tmp_path / "h100_mm.zip", text_of(rows()))
    with pytest.raises(RecordError, match=r"h100_mm.zip or h100_\*mm.txt.*Download"):
        read_autoheuristic(tmp_path / "nothing", "h100")
    with pytest.raises(RecordError, match="GPUs of these records are h100, a100; got b200"):
        read_autoheuristic(whole, "b200")
    with pytest.raises(RecordError, match=r"named h100_"):
        read_autoheuristic(archive(tmp_path / "o.zip", text_of(rows()), "v100_mm.txt"), "h100")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\n")
    with pytest.raises(RecordError, match="must be UTF-8 text"):
        read_autoheuristic(tmp_path / "latin.txt", "h100")
    monkeypatch.setattr(autoheuristic, "MOST_BYTES", 10)
    with pytest.raises(RecordError, match="must have at most 10 bytes"):
        read_autoheuristic(whole, "h100")
    whole.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(RecordError, match=r"whole zip file.*download it again"):
        read_autoheuristic(tmp_path, "h100")


def test_a_record_needs_a_time() -> None:
    for wrong in ({"seconds": 0.0}, {"seconds": float("inf")}, {"repeats": 0}, {"spread": -1.0}):
        with pytest.raises(RecordError, match="positive, finite time"):
            replace(PublishedRecord(NT, SHAPES[0], "timm", None, 1.0), **wrong)  # type: ignore[arg-type]


def test_saved_records_are_the_same(published: Published, tmp_path: Path) -> None:
    path = tmp_path / "h100.jsonl.gz"
    published.save(path)
    first = path.read_bytes()
    assert Published.load(path) == published
    Published.load(path).save(path)
    assert path.read_bytes() == first
    path.write_bytes(first[:-20])
    for damaged in (path, tmp_path / "missing.jsonl.gz"):
        with pytest.raises(RecordError, match=r"jsonl.gz file of schema 1.*fetch-records"):
            Published.load(damaged)


# --- fetching -------------------------------------------------------------------------------------


class Answer(BytesIO):
    """What a server would send."""

    def __enter__(self) -> Answer:
        return self


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    asked: list[str] = []

    def answer(address: str, timeout: float) -> Answer:
        asked.append(address)
        if isinstance(content, Exception):
            raise content
        return Answer(content)

    monkeypatch.setattr(autoheuristic, "urlopen", answer)
    return asked


def test_downloads_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serve(monkeypatch, b"rows")
    assert download("https://there/x.zip", sha256(b"rows").hexdigest()) == b"rows"
    with pytest.raises(RecordError, match=r"SHA-256 0000.*--from FILE"):
        download("https://there/x.zip", "0000")
    with pytest.raises(RecordError, match="over https; got file:///etc/passwd"):
        download("file:///etc/passwd", "0000")
    assert asked == ["https://there/x.zip"] * 2


def test_the_command_reads_a_file_and_says_what_it_set_aside(tmp_path: Path) -> None:
    bad = row_of(SHAPES[0], choice_of(TILES[0]), "inf")
    source = archive(tmp_path / "h100_mm.zip", text_of([*rows(), bad]))
    asked = ["fetch-records", "autoheuristic", "--from", str(source), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert "set aside: 1 rows, an infinite time" in done.output and "licence: none stated" in done.output
    assert len(Published.load(tmp_path / "out" / "h100.jsonl.gz")) == len(rows())
    told = json.loads(CliRunner().invoke(main, [*asked, "--json"]).output)
    assert [(one["gpu"], one["operators"]) for one in told] == [("h100", ["float16 nt"])]


def test_the_command_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive(tmp_path / "a.zip", text_of(rows())).read_bytes()
    digest = sha256(content).hexdigest()
    monkeypatch.setattr(autoheuristic, "ARCHIVES", {"h100": ("h100_mm.zip", digest)})
    asked = serve(monkeypatch, content)
    out = ["--out", str(tmp_path / "out"), "--gpu", "h100"]
    done = CliRunner().invoke(main, ["fetch-records", "autoheuristic", *out])
    assert done.exit_code == 0, done.output
    assert asked == [f"{autoheuristic.RAW}/{autoheuristic.COMMIT}/h100_mm.zip"]
    assert f"commit {autoheuristic.COMMIT[:12]}" in done.output


def test_without_a_network_the_command_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, URLError("no route to host"))
    done = CliRunner().invoke(main, ["fetch-records", "autoheuristic", "--out", str(tmp_path)])
    assert done.exit_code != 0 and not list(tmp_path.iterdir())
    said = " ".join(done.output.split())
    assert "no route to host" in said and f"by hand from {autoheuristic.REPOSITORY}" in said


# --- times, models, choices -----------------------------------------------------------------------


def several_lengths(times: Times) -> np.ndarray:
    """Returns, for each shape, whether its layer has another T, too."""
    layers = [shape.without("T") for shape in times.shapes]
    return np.array([layers.count(layer) > 1 for layer in layers])


def test_times_are_of_tiles_measured_on_all_shapes(published: Published, times: Times) -> None:
    assert set(times.tiles) == set(TILES) and times.shapes == tuple(sorted(SHAPES))
    assert several_lengths(times).sum() == len(SHAPES) - 1
    pairs, seconds = times.measured()
    assert len(seconds) == len(published) - len(SHAPES)  # programs alone, each once
    assert seconds == pytest.approx([*map(seconds_of, pairs.tiles, pairs.shapes)])
    with pytest.raises(RecordError, match="measured on all shapes of tf32 nn"):
        Times.of(published, Operator("tf32", "nn"), LAYERS)


def test_models_learn_what_the_bound_misses(times: Times) -> None:
    pairs, seconds = times.measured()
    errors = {
        name: float(np.abs(np.log(model.fit(pairs, seconds).seconds(pairs) / seconds)).mean())
        for name, model in models_of().items()
    }
    assert errors["learned over bound"] < 0.03 < errors["bound"] < errors["paper"]
    with pytest.raises(ModelError, match="must be fitted to predict"):
        LearnedTiles().seconds(pairs)
    with pytest.raises(ModelError, match="fitting a model needs records"):
        LearnedTiles().fit(Pairs([], [], H100), np.zeros(0))


def test_the_process_goes_through_its_values() -> None:
    features = np.linspace(-1, 1, 40).reshape(20, 2)
    values = np.sin(3 * features[:, 0])
    smooth = Smooth.fit(features, values)
    assert smooth.expected(features) == pytest.approx(values, abs=0.05)
    between = (features[1:] + features[:-1]) / 2
    assert smooth.expected(between) == pytest.approx(np.sin(3 * between[:, 0]), abs=0.05)


def test_each_layer_of_several_lengths_is_held_out_shape_by_shape(times: Times) -> None:
    for seed in (0, 1):
        held = [test for _, test in folds(times, seed)]
        assert (np.sum(held, axis=0) == several_lengths(times)).all()
        assert all(not (train & test).any() for train, test in folds(times, seed))


def test_the_grid_has_the_shapes_and_others_as_heavy() -> None:
    weights = weighted_shapes(SHAPES, 0)
    assert set(SHAPES) < set(weights) and sum(weights.values()) == pytest.approx(1)
    assert sum(weights[shape] for shape in SHAPES) == pytest.approx(0.5)


def test_a_tree_over_few_tiles_comes_near_the_best(times: Times) -> None:
    chosen = choose_tiles(grid(times), times.hardware, max_tiles=4)
    assert len(chosen.schemes) <= 4 and set(chosen.workload.dims) == {"T", "N", "K"}
    lost = [
        times.seconds[times.tiles.index(chosen.scheme(shape).kernel), column] / times.best[column] - 1
        for column, shape in enumerate(times.shapes)
    ]
    assert 0 <= np.mean(lost) < 0.1


def test_judged_choices_are_ordered(times: Times) -> None:
    speedups, sizes = judge_choice(times)
    assert len(speedups) == several_lengths(times).sum()
    assert (speedups["best"] >= speedups["portfolio"]).all()
    assert (speedups["portfolio"] >= speedups[["tree", "one"]].max(axis=1)).all()
    assert sizes["tiles"].tolist() == list(SIZES) and sizes["regret"].iloc[-1] == pytest.approx(0)


def test_ranks() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 30])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3]), np.array([30.0, 20, 10])) == pytest.approx(-1)
    assert spearman(np.array([2.0, 2, 2]), np.array([30.0, 20, 10])) == 0


def test_learned_models_rank_better_than_none(times: Times) -> None:
    frame = judge_models(times, counts=(40,)).set_index("model")
    assert list(frame.index) == ["paper", "bound", "learned", "learned over bound", "both"]
    assert frame.loc["learned over bound", "pairwise"] > frame.loc["paper", "pairwise"]
    assert frame[["pairwise", "peak@1", "peak@5"]].stack().between(0, 1).all()


def test_tables_are_derived_and_written(published: Published, tmp_path: Path) -> None:
    told: list[str] = []
    tables = derive_tables(published, [0], told.append)
    write_tables(tmp_path, "h100", tables)
    names = {"speedups", "regret", "sizes", "models"}
    assert {path.stem for path in tmp_path.iterdir()} == {f"h100-{name}" for name in names} and len(told) == 1
    with pytest.raises(RecordError, match="float16 layers"):
        derive_tables(replace(published, records=()), [0])


# --- CUDA-L2 --------------------------------------------------------------------------------------


def test_ratios_are_reduced_to_means_by_rows(tmp_path: Path) -> None:
    table = pd.DataFrame({"mnk": ["64_64_64", "64_128_64", "128_64_64"], **dict.fromkeys(RIVALS, (1, 4, 3))})
    path = tmp_path / "cuda_l2_h100_F32F16F16F32_speedup_offline.csv"
    table.to_csv(path, index=False)
    found = reduce_cuda_l2(tmp_path)
    (setting,) = found[["gpu", "sums", "mode"]].drop_duplicates().to_numpy().tolist()
    assert setting == ["h100", "float32", "offline"]
    assert found["cuBLAS"].tolist() == pytest.approx([2, 3]) and found["shapes"].tolist() == [2, 1]
    table.assign(**{"cuBLAS-max": [0, 1, 1]}).to_csv(path, index=False)
    with pytest.raises(RecordError, match="positive and finite"):
        reduce_cuda_l2(tmp_path)
    table.drop(columns="cuBLAS-max").to_csv(path, index=False)
    with pytest.raises(RecordError, match="must have the columns mnk"):
        reduce_cuda_l2(tmp_path)
    path.unlink()
    with pytest.raises(RecordError, match="Name its eval_results"):
        reduce_cuda_l2(tmp_path)


# --- the tables that come with dietlab ------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS)
def test_shipped_tables_agree_with_each_other(gpu: str) -> None:
    speedups, regret = read_table(f"{gpu}-speedups"), read_table(f"{gpu}-regret")
    for (dtype, layout), part in speedups.groupby(["dtype", "layout"]):
        told = regret[(regret["dtype"] == dtype) & (regret["layout"] == layout) & (regret["seed"] == 0)]
        found = summary(part)
        assert told[[*found]].iloc[0].to_dict() == pytest.approx(found, abs=0.02)
        assert (part["best"] >= part[[*CHOICES]].max(axis=1)).all()
        assert all(TritonTile.parse(key) for key in part["tile"]) and part["tile"].nunique() <= 29
    assert set(read_table(f"{gpu}-sizes")["tiles"]) == set(SIZES)


def test_targets_on_recorded_shapes() -> None:
    """Means over layouts and seeds: the choice among eight tiles, by shape, and the cost model's ranks."""
    regret, models = read_table("h100-regret"), read_table("h100-models")
    assert np.average(regret["regret"], weights=regret["shapes"]) <= 3.0
    learned = models[(models["model"] == "both") & (models["told"] == 500)]
    assert learned["peak@1"].mean() >= 0.90 and learned["pairwise"].mean() >= 0.93


def test_reference_curves_are_of_three_gpus() -> None:
    curves = read_table("cuda_l2")
    assert set(curves["gpu"].astype(str)) == {"3090", "a100", "h100"}
    assert curves[list(RIVALS.values())].stack().between(0.9, 2).all()


def test_the_explorer_opens_on_recorded_shapes() -> None:
    reports = recorded_reports()
    machines = {setting.hardware for setting in by_setting(reports)}
    assert machines == {"H100 (recorded by others, Triton tiles)"}
    explorer = speedup_explorer(reports)
    assert len(explorer.frame) and explorer.frame["seconds_median"].isna().all()
    mean = np.exp(np.log(explorer.frame["speedup"]).mean())
    assert 0.5 < mean < 2
    assert "NVIDIA" not in explorer.drawn.note


@pytest.mark.parametrize("whose", ["h100", "a100", "paper"])
def test_programs_of_others_are_named_after_who_made_them(whose: str) -> None:
    """No figure, table, page or widget gives dietlab the speedups of others."""
    report = replace(reported_report() if whose == "paper" else recorded_reports(whose)[0], notes=())
    explorer = speedup_explorer(report)
    layered = len(report.dims) > 1
    figures = [explorer.figure, plot_speedup(report), plot_latency(report)]
    figures += [plot_layers(report), plot_lengths(report), plot_map(report)] if layered else []
    for figure in figures:
        assert "dietlab" not in figure.to_json()
    titles = [figure.layout.title.text for figure in figures if figure is not figures[2]]
    assert all(f"Speedup of {report.maker} " in title for title in titles)
    told = [render_text(report), str(explorer.drawn.numbers), explorer.drawn.note, report.card.summary]
    assert not [text for text in told if "dietlab" in text]
    assert f"Speedup of {report.maker}" in report._repr_html_()
    assert "was not measured" not in str(explorer.drawn.numbers) + explorer.figure.to_json()
    assert set(report.to_frame()["contender"]) == {report.maker, *(c.name for c in report.contenders)}
    assert Report.from_json(report.to_json()).maker == report.maker != OURS
    # A GPU has no cores to choose from.
    assert report.used == explorer.controls["threads"].label == "one GPU"
    assert any(name.endswith(", one GPU") for name in explorer.drawn.numbers)
