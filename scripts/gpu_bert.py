#!/usr/bin/env python3
"""BERT-base end to end on a GPU: PyTorch eager, compiled and in CUDA graphs, and with dietlab's layers.

    python3 scripts/gpu_bert.py STUDY [STUDY ...] --prepare        # anywhere: builds their libraries
    python3 scripts/gpu_bert.py STUDY [STUDY ...] --out runs/bert  # on the GPU: needs PyTorch, no compiler

The studies are of ``Dense`` and together serve N, K = 768, 768; 3072, 768 and 768, 3072, in one type, in
which the model computes. Writes bert.jsonl into --out, lines for each batch and length as soon as it is
measured: the seconds of a contender's call in blocks that take turns with the others', and the largest error
against the model in float64 on the CPU. Stopped, it goes on from the last whole length. TF32 is off. The
model has the layers of BERT-base and random weights. torch.compile needs Triton's compiler on the GPU's
machine; `--contenders` leaves it out.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import dietlab.torch
from dietlab.base.errors import DietlabError
from dietlab.base.files import cut_truncated
from dietlab.compare.study import Study
from dietlab.problem.dims import holds
from dietlab.torch.libraries import library_of

BLOCK_SECONDS = 0.02
"""The time of a block of calls, in seconds."""

LENGTHS = [5, 24, 43, 62, 81, 100, 119, 128]
"""The lengths of the paper's figure 8."""

CONTENDERS = tuple(
    f"{model}-{form}"
    for model in ("torch", "dietlab")
    for form in ("eager", "compile", "graph", "compile-graph")
)

Call = Callable[[], Tensor]


class Layer(nn.Module):
    """A layer of BERT: attention and two dense layers, each with a residual and a layer norm."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.wide = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU())
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        split = [
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        seen = nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        x = self.first(x + self.out(seen))
        normed: Tensor = self.second(x + self.narrow(self.wide(x)))
        return normed


def bert(hidden: int, heads: int, layers: int) -> nn.Module:
    """Returns BERT from its embedded words to its last hidden state."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(hidden, heads) for _ in range(layers))).eval()


def graphed(model: nn.Module, x: Tensor) -> Call:
    """Returns a call that replays a CUDA graph of the model, captured for this length."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)

    def replay() -> Tensor:
        graph.replay()
        return y

    return replay


def seconds_of(calls: Mapping[str, Call], device: str, repeats: int) -> dict[str, list[float]]:
    """Returns the seconds of calls by name, in blocks that take turns."""
    wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def block(call: Call, count: int) -> float:
        wait()
        started = perf_counter()
        for _ in range(count):
            call()
        wait()
        return (perf_counter() - started) / count

    counts = {name: max(1, round(BLOCK_SECONDS / max(block(call, 3), 1e-6))) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            found[name].append(block(call, counts[name]))
    return found


def contenders(
    plain: nn.Module, tuned: nn.Module, device: str
) -> Iterator[tuple[str, Callable[[Tensor], Call]]]:
    """Yields each contender with a function that returns its call on an input."""
    for name, model in (("torch", plain), ("dietlab", tuned)):
        compiled = torch.compile(model, dynamic=True)
        yield f"{name}-eager", lambda x, model=model: lambda: model(x)
        yield f"{name}-compile", lambda x, model=compiled: lambda: model(x)
        if device == "cuda":
            yield f"{name}-graph", lambda x, model=model: graphed(model, x)
            yield f"{name}-compile-graph", lambda x, model=compiled: graphed(model, x)


def measured(folders: Sequence[str], out: Path, options: argparse.Namespace) -> None:
    """Measures whatever is missing in bert.jsonl.

    Raises:
        DietlabError: if studies do not serve all layers, the file is of another setting, or there is no GPU.
    """
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        raise DietlabError("PyTorch must see a GPU", "none", "--device cpu rehearses with studies of a CPU.")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    studies = opened(folders, options.hidden)
    dtype = getattr(torch, studies[0].workload.dtype)
    original = bert(options.hidden, options.heads, options.layers)
    plain = copy.deepcopy(original).to(device, dtype)
    tuned = dietlab.torch.replace_layers(copy.deepcopy(plain), *studies)
    if lost := [n for n, m in tuned.named_modules() if type(m) is nn.Linear]:
        raise DietlabError("every linear layer must be served by a study", f"{len(lost)} are not: {lost[0]}")
    exact, kept = original.double(), out / "bert.jsonl"
    setting = {
        "studies": [study.name for study in map(Path, folders)], "dtype": str(dtype), "device": device,
        "hidden": options.hidden, "heads": options.heads, "layers": options.layers,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    if kept.is_file():
        cut_truncated(kept)
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    if other := [row["setting"] for row in rows if row["setting"] != setting]:
        raise DietlabError(f"{kept} must be of {setting}", other[0], "Name another --out.")
    known = {(row["batch"], row["T"], row["contender"]) for row in rows}
    every = [
        (name, made)
        for name, made in contenders(plain, tuned, device)
        if name in (options.contenders or CONTENDERS)
    ]
    with torch.no_grad(), kept.open("a") as file:
        for batch in options.batch:
            for length in options.lengths:
                if {(batch, length, name) for name, _ in every} <= known:
                    continue
                x = torch.randn(batch, length, options.hidden, dtype=dtype)
                wanted, x = exact(x.double()), x.to(device)
                calls = {name: made(x) for name, made in every}
                outputs = {name: call().cpu().double() for name, call in calls.items()}
                for name, seconds in seconds_of(calls, device, options.repeats).items():
                    if (batch, length, name) in known:
                        continue
                    error = float((outputs[name] - wanted).abs().max())
                    row: dict[str, object] = {"batch": batch, "T": length, "contender": name}
                    row |= {"seconds": seconds, "error": error, "setting": setting}
                    print(json.dumps(row), file=file, flush=True)
                    took = f"{1e6 * median(seconds):9.1f} us"
                    print(f"batch {batch:2} T {length:4} {name:22} {took}  error {error:.1e}")


def opened(folders: Sequence[str], hidden: int) -> list[Study]:
    """Returns the studies, which together serve every layer.

    Raises:
        DietlabError: if they do not.
    """
    studies = [Study.open(folder) for folder in folders]
    for cols, depth in ((hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)):
        if not any(holds(s.workload.N, cols) and holds(s.workload.K, depth) for s in studies):
            raise DietlabError("a study must serve each layer of BERT", f"none has N = {cols}, K = {depth}")
    return studies


def prepare(folders: Sequence[str], hidden: int) -> None:
    """Builds the libraries that the model needs, beside their studies."""
    for study in opened(folders, hidden):
        for activation in ("none", "gelu_erf"):
            print(library_of(study, bias=True, activation=activation, residual=False))


def numbers(text: str) -> list[int]:
    """Returns numbers from 1 on, as in ``16,1``."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def names(text: str) -> list[str]:
    """Returns contenders, as in ``torch-graph,dietlab-graph``."""
    found = text.split(",")
    if not set(found) <= set(CONTENDERS):
        raise argparse.ArgumentTypeError(f"they are {', '.join(CONTENDERS)}; got {text}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--prepare", action="store_true", help="build the libraries, and measure nothing")
    parser.add_argument("--out", type=Path, default=Path("runs/bert"))
    parser.add_argument("--batch", type=numbers, default=[16, 1])
    parser.add_argument("--lengths", type=numbers, default=LENGTHS)
    parser.add_argument("--contenders", type=names, help=f"some of {', '.join(CONTENDERS)}")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cuda", help="cpu for a rehearsal, with studies of a CPU")
    for name, value in (("hidden", 768), ("heads", 12), ("layers", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.hidden % options.heads:
        parser.error(f"--hidden must be a multiple of --heads; got {options.hidden} and {options.heads}")
    try:
        if options.prepare:
            prepare(options.studies, options.hidden)
        else:
            measured(options.studies, options.out, options)
    except DietlabError as error:
        parser.exit(2, f"gpu_bert.py: {error}\n")


if __name__ == "__main__":
    main()
