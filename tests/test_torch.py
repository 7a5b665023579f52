"""Layers of a PyTorch model that run through a tuned library: right, compiled whole, the same model."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from conftest import in_turn
from layers_of_torch import EVERY, close, computed_with, shared_study

from dietlab.base.errors import DietlabError, StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dim, ShapeSet
from dietlab.tuning import load

torch = pytest.importorskip("torch")
prune = pytest.importorskip("torch.nn.utils.prune")

from dietlab.torch import Linear, optimize, replace_linears  # noqa: E402

LENGTHS = (1, 2, 3, 7, 17, 64, 100)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return shared_study(here, tmp_path_factory.getbasetemp() / "of torch")


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 100),
        torch.nn.GELU(),
        torch.nn.Linear(100, 96),
        torch.nn.GELU(approximate="tanh"),
        torch.nn.Linear(96, 50, bias=False),
        torch.nn.ReLU(),
        torch.nn.LayerNorm(50),
        torch.nn.Linear(50, 17),
    )


@pytest.fixture
def model(study: Study) -> torch.nn.Module:
    return replace_linears(network(), study)


@pytest.mark.parametrize(
    ("length", "form"), in_turn(LENGTHS, ("rows", "batches", "columns first", "every second"))
)
def test_a_replaced_model_computes_the_same(model: torch.nn.Module, length: int, form: str) -> None:
    x = {
        "rows": torch.randn(length, 32),
        "batches": torch.randn(2, 3, length, 32),
        "columns first": torch.randn(32, length).T,
        "every second": torch.randn(2 * length, 32)[::2],
    }[form]
    with torch.no_grad():
        close(model(x), network()(x))


def test_activations_are_computed_with_the_layer_before(model: torch.nn.Module) -> None:
    assert computed_with(model) == ["gelu_erf", "gelu_tanh", "relu", ""]
    assert [type(child).__name__ for child in model] == [type(child).__name__ for child in network()]
    assert type(model).__name__ == "Sequential" and isinstance(model, torch.nn.Sequential)


def test_gradients_are_pytorchs(model: torch.nn.Module) -> None:
    original, x = network(), torch.randn(7, 32)
    found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    model(found).square().sum().backward()
    original(wanted).square().sum().backward()
    close(found.grad, wanted.grad)
    for mine, theirs in zip(model.parameters(), original.parameters(), strict=True):
        close(mine.grad, theirs.grad)


def test_the_operator_keeps_pytorchs_rules(study: Study, model: torch.nn.Module) -> None:
    layer = model[0]
    x = torch.randn(3, 32, requires_grad=True)
    for activation, library in layer.libraries.items():
        arguments = (x, layer.weight, layer.bias, activation, library)
        torch.library.opcheck(torch.ops.dietlab.linear.default, arguments)


def test_exported_whole(model: torch.nn.Module) -> None:
    rows = torch.export.Dim("rows", min=2, max=1000)
    with torch.no_grad():
        exported = torch.export.export(model, (torch.randn(5, 32),), dynamic_shapes=({0: rows},))
        kept = [node.target for node in exported.graph.nodes if "dietlab" in str(node.target)]
        assert len(kept) == 4
        saved = io.BytesIO()
        torch.export.save(exported, saved)
        saved.seek(0)
        x = torch.randn(9, 32)
        close(torch.export.load(saved).module()(x), network()(x))


def test_its_state_is_the_originals(model: torch.nn.Module) -> None:
    state, original = model.state_dict(), network().state_dict()
    assert list(state) == list(original)
    assert all(torch.equal(state[name], original[name]) for name in original)


def test_a_weight_and_its_transpose_are_packed_apart(study: Study) -> None:
    library = replace_linears(torch.nn.Linear(48, 48, bias=False), study).libraries["none"]
    weight, x = torch.randn(48, 48), torch.randn(3, 48)
    for seen in (weight, weight.T, weight):
        close(torch.ops.dietlab.linear(x, seen, None, "none", library), x @ seen.T)


def test_tied_weights_stay_tied(study: Study) -> None:
    model = torch.nn.ModuleDict({"one": torch.nn.Linear(32, 32), "other": torch.nn.Linear(32, 32)})
    model["other"].weight = model["one"].weight
    model["again"] = model["one"]
    replaced = replace_linears(model, study)
    assert replaced["one"].weight is replaced["other"].weight
    assert replaced["again"] is replaced["one"] and isinstance(replaced["one"], Linear)


def test_a_layer_that_is_used_twice_has_the_activation_behind_it_each_time(study: Study) -> None:
    torch.manual_seed(3)
    shared = torch.nn.Linear(32, 32)
    before = torch.nn.Sequential(shared, torch.nn.GELU(), shared, torch.nn.ReLU())
    after = replace_linears(copy.deepcopy(before), study)
    assert after[0] is after[2] and computed_with(after) == ["gelu_erf", "relu"]
    x = torch.randn(5, 32)
    with torch.no_grad():
        close(after(x), before(x))


def test_a_model_that_was_replaced_stays_as_it_is(model: torch.nn.Module, study: Study) -> None:
    before = list(model)
    assert all(a is b for a, b in zip(before, replace_linears(model, study), strict=True))


def test_what_a_library_does_not_serve_stays_pytorchs(study: Study) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.Linear(8, 48).half())
    with pytest.warns(UserWarning, match="stays PyTorch") as told:
        replace_linears(model, study)
    assert [str(w.message) for w in told] == [
        "no layer of Sequential was replaced",
        "0 stays PyTorch's: N = 8, and the study was tuned for N = 16..256",
        "1 stays PyTorch's: its weights are torch.float16 on cpu, not float32 on the CPU",
    ]
    assert not any(isinstance(child, Linear) for child in model)


def test_studies_of_something_else_are_refused(here: Hardware, tmp_path: Path) -> None:
    far = Hardware.preset("haswell-1core")
    shapes = ShapeSet.layers([(48, 32)], lengths=[1, 8], workload=EVERY)
    elsewhere = Study.create(tmp_path / "far", EVERY, far, shapes, "smoke")
    with pytest.raises(StudyError, match="the study needs this processor"):
        replace_linears(network(), elsewhere)
    products = BatchMatmul(T=Dim(1, 64), B=2, D=16, form="nt")
    other = Study.create(tmp_path / "products", products, here, ShapeSet.uniform(products, 2), "smoke")
    with pytest.raises(StudyError, match="need a study of Dense; got batch-matmul"):
        replace_linears(network(), other)


def test_packed_weights_go_with_their_model(study: Study) -> None:
    def resident() -> int:
        return psutil.Process().memory_info().rss

    def call_and_drop() -> None:
        layer = replace_linears(torch.nn.Sequential(torch.nn.Linear(256, 256)), study)
        with torch.no_grad():
            layer(torch.randn(1, 256))

    for _ in range(20):
        call_and_drop()
    before = resident()
    for _ in range(200):  # of 256 KiB each
        call_and_drop()
    assert resident() - before < 10 * 2**20


def test_threads_share_a_model(model: torch.nn.Module) -> None:
    xs = [torch.randn(length, 32) for length in LENGTHS]
    with torch.no_grad():
        wanted = [network()(x) for x in xs]
    found: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                found[number] = model(xs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, y in enumerate(wanted):
        close(found[number], y)


class Pruned(torch.nn.Linear):
    """A linear layer of another class: somebody else's."""


def test_hooks_stay_and_their_layers_keep_their_activation_apart(study: Study) -> None:
    model, seen = network(), list[torch.Tensor]()
    model[0].register_forward_hook(lambda module, args, y: seen.append(y))
    prune.random_unstructured(model[2], "weight", 0.5)
    model[7] = Pruned(50, 17)
    with pytest.warns(UserWarning, match="2 stays PyTorch's: its weight or bias is not its parameter"):
        replace_linears(model, study)
    assert computed_with(model) == ["", "relu"]
    assert (type(model[2]), type(model[7])) == (torch.nn.Linear, Pruned)
    x = torch.randn(3, 32)
    with torch.no_grad():
        model(x)
        close(seen[0], torch.nn.functional.linear(x, model[0].weight, model[0].bias))


def test_another_load_of_its_library_leaves_it_on_pytorchs_threads(study: Study) -> None:
    layer = replace_linears(torch.nn.Sequential(torch.nn.Linear(32, 100)), study)[0]
    x = torch.randn(9, 32)
    with torch.no_grad():
        before = layer(x)
        own = load(layer.libraries["none"]).pack(layer.weight.detach().numpy(), layer.bias.detach().numpy())
        close(torch.from_numpy(own(x.numpy())), before)
        close(layer(x), before)


def test_the_machines_study_serves_the_next_model(study: Study) -> None:
    replaced = optimize(network(), study.folder.parent)
    assert all(
        Path(child.libraries["none"]).is_relative_to(study.folder)
        for child in replaced
        if isinstance(child, Linear)
    )
    with pytest.raises(DietlabError, match=r"no library can compute: its weights are torch\.float16 on cpu"):
        optimize(network().half(), study.folder.parent)


@pytest.mark.thorough
def test_tuning_that_was_stopped_goes_on(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = Study.create(tmp_path / "home" / "stopped", EVERY, study.hardware, study.shapes, "smoke")
    runner = lambda hardware, timing: nullcontext(SyntheticRunner(hardware))  # noqa: E731
    monkeypatch.setattr("dietlab.compare.suites.studies.LocalRunner", runner)
    replaced = optimize(network(), stopped.folder.parent, observers=[])
    assert Path(replaced[0].libraries["none"]).is_relative_to(stopped.folder)
    assert "tunes linear layers" in capsys.readouterr().err
    assert [path.name for path in stopped.folder.parent.iterdir()] == ["stopped"]


@pytest.mark.thorough
def test_a_model_is_optimized_without_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sizes = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 70))
    original = copy.deepcopy(sizes)
    optimize(sizes, effort="smoke")
    told = capsys.readouterr().err
    assert "once; it took" in told and " s on " in told and str(tmp_path) in told
    x = torch.randn(11, 64)
    with torch.no_grad():
        close(sizes(x), original(x))
    assert isinstance(optimize(original, effort="smoke")[0], Linear)
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def two_cores(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    shapes = ShapeSet.layers([(200, 100)], lengths=[1, 64], workload=EVERY)
    made = Study.create(tmp_path_factory.mktemp("torch") / "two", EVERY, here.with_cores(2), shapes, "smoke")
    made.tune(SyntheticRunner(made.hardware))
    return made


@pytest.mark.parametrize(
    "threads", [2, pytest.param(1, marks=pytest.mark.thorough), pytest.param(3, marks=pytest.mark.thorough)]
)
def test_parallel_loops_run_on_as_many_threads_as_pytorch_has(two_cores: Study, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    original = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.Linear(200, 256))
    if threads == 2:
        model = replace_linears(copy.deepcopy(original), two_cores)
    else:
        with pytest.warns(UserWarning, match=f"for 2 cores, and PyTorch runs {threads} threads"):
            model = replace_linears(copy.deepcopy(original), two_cores)
    with torch.no_grad():
        for length in LENGTHS:
            x = torch.randn(length, 100)
            close(model(x), original(x))


FORKED = """
import os, pickle, sys, torch
model, x, wanted = pickle.load(open(sys.argv[1], "rb"))
with torch.no_grad():
    model(x)
    child = os.fork()
    if not child:
        torch.set_num_threads(1)  # as PyTorch's own workers do: threads do not survive a fork
        ok = torch.allclose(model(x), wanted, rtol=1e-4, atol=1e-4)
        os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
sys.exit(status)
"""


def test_spawned_and_forked_processes_share_a_model(model: torch.nn.Module, tmp_path: Path) -> None:
    x = torch.randn(9, 32)
    with torch.no_grad():
        wanted = network()(x)
    (tmp_path / "model").write_bytes(pickle.dumps((model, x, wanted)))
    command = [sys.executable, "-c", FORKED, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
