"""Suites: named operators with the lengths they are tuned for and evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from dietlab.base.errors import DietlabError
from dietlab.compare.lineup import contenders_for, own_vendors
from dietlab.compare.suites.every_layer import OWN, EveryLayer
from dietlab.compare.suites.gpu import (
    bert_gpu_task,
    decoder_gpu_task,
    first_gpu,
    llm_gpu,
    paper_gpu,
    resnet50_gpu,
    tiny_gpu_tasks,
)
from dietlab.compare.suites.images import (
    depthwise,
    resnet50,
    resnet50_every_layer,
    speech,
    tiny,
)
from dietlab.compare.suites.lengths import (
    HELD_OUT_LENGTHS,
    LAYER_LENGTHS,
    LENGTHS,
    LOW_PRECISION_QUICK,
    OWN_LIBRARIES,
    PAPER_CPU_LENGTHS,
)
from dietlab.compare.suites.task import (
    DENSE_AGAINST,
    TINY,
    TINY_TUNED,
    Task,
    batch_tasks,
    dense_task,
    image_tasks,
    tuned_for,
)
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Conv1d, Conv2d, Dense, Dim
from dietlab.problem.layers import Layer
from dietlab.problem.shapes import drawn_layers

LOW_PRECISION_AGAINST: Mapping[str, tuple[str, ...]] = {
    "float32": ("mkl-packed", "onednn-packed", "oracle"),
    **{dtype: (*own_vendors("cpu", "dense", dtype), "oracle") for dtype in ("int8", "bfloat16")},
}
"""The vendors that multiply each type; for float32, some of the prepacked ones."""

LAYERS_AGAINST = (OWN, *(name for name in DENSE_AGAINST if name not in ("openblas", "torch", "zendnn")))

BERT_SIZES = ((768, 768), (2304, 768), (3072, 768), (768, 3072))
"""Columns and depth of BERT-base's dense layers."""


@dataclass(frozen=True)
class Suite:
    """Tasks that are run and reported together.

    Args:
        name: its name on the command line.
        tasks: operators with the shapes that they are tuned for and evaluated on.
        target: the kind of processor.
    """

    name: str
    tasks: tuple[Task, ...]
    target: str = "cpu"

    @property
    def caches(self) -> tuple[str, ...]:
        """The cache states that its contenders can be timed in."""
        return timing_target(self.target).CACHE_STATES

    @property
    def contenders(self) -> tuple[str, ...]:
        """The names of all contenders that can take part; with ``own`` if a task has layers."""
        many = any(task.layers is not None for task in self.tasks)
        return (*contenders_for(self.target), *((OWN,) if many else ()))

    def only(self, pattern: str) -> Suite:
        """Returns the suite with only the tasks whose names contain ``pattern`` (``*`` and ``?`` as in a
        shell).

        Raises:
            DietlabError: if there is none.
        """
        tasks = tuple(task for task in self.tasks if fnmatchcase(task.name, f"*{pattern}*"))
        if not tasks:
            names = ", ".join(task.name for task in self.tasks)
            raise DietlabError("a task of the suite must match", repr(pattern), f"{self.name} has {names}.")
        return replace(self, tasks=tasks)

    def against(self, contenders: tuple[str, ...], *, added: bool = False) -> Suite:
        """Returns the suite against these contenders, which replace its own or are ``added`` to them."""

        def meeting(task: Task) -> Task:
            own = task.against if added else ()
            return replace(task, against=tuple(dict.fromkeys((*own, *contenders))))

        return replace(self, tasks=tuple(map(meeting, self.tasks)))


def low_precision_tasks(cols: int, depth: int) -> tuple[Task, ...]:
    """Returns a dense layer of up to 128 rows in each type of :data:`LOW_PRECISION_AGAINST`."""
    lengths = {**LENGTHS, "quick": LOW_PRECISION_QUICK}
    return tuple(
        Task(f"dense-k{depth}-n{cols}-{dtype}", layer, tuned_for(128), LOW_PRECISION_AGAINST[dtype], lengths)
        for dtype in LOW_PRECISION_AGAINST
        for layer in [Dense(T=Dim(1, 128), N=cols, K=depth, dtype=dtype)]
    )


def own_task(task: Task, layer: Layer) -> Task:
    """Returns the task of one layer only, which is tuned for the same lengths."""
    rows = task.workload.dims["T"]
    return replace(dense_task(layer.N, layer.K, rows.high), tuned=task.tuned)


def every_layer_task() -> Task:
    """Returns a dense operator that serves all layers of up to 4096 features."""
    workload = Dense(T=Dim(1, 2048), N=Dim(64, 4096), K=Dim(64, 4096))
    layers = EveryLayer(
        "bert-base", tuple(drawn_layers(workload, 12)), LAYER_LENGTHS, HELD_OUT_LENGTHS, OWN_LIBRARIES
    )
    return Task("dense-every-layer", workload, tuned_for(2048), LAYERS_AGAINST, layers=layers, max_kernels=12)


def tiny_layers_task() -> Task:
    """Returns a dense operator that serves four tiny layers."""
    workload = replace(TINY, N=Dim(16, 96), K=Dim(16, 64))
    tuned, own = dict.fromkeys(LENGTHS, (1, 7)), dict.fromkeys(LENGTHS, (1, 1))
    held_out = dict.fromkeys(LENGTHS, (5,))
    layers = EveryLayer(((64, 32), (96, 64)), ((37, 19), (50, 61)), tuned, held_out, own)
    return Task("dense-tiny-layers", workload, TINY_TUNED, (OWN, "openblas", "oracle"), layers=layers)


def paper_cpu() -> tuple[Task, ...]:
    """Returns the paper's operators at its lengths: both batched products, and the dense layer, also against
    per-shape tuning. Rows of the dense layer are tokens of one sentence."""
    dense = dense_task(2304, 768, 2048)
    dense = replace(dense, against=(*dense.against, "ansor"))
    return tuple(
        replace(task, against=(*task.against, "largest-shape"), lengths=PAPER_CPU_LENGTHS)
        for task in (dense, *batch_tasks())
    )


def tiny_convolutions() -> tuple[Task, ...]:
    """Returns one tiny layer of each class, and an operator for several."""
    image = Conv2d(N=1, H=Dim(5, 12), W=Dim(5, 12), IC=8, OC=16, padding=1)
    layers: dict[str, Conv1d | Conv2d] = {
        "conv3x3-tiny": image,
        "conv1x1-tiny": replace(image, kernel=1, padding=0),
        "depthwise3x3-tiny": replace(image, IC=16, groups=16),
        "conv3x3-tiny-layers": replace(image, IC=Dim(4, 16), OC=Dim(8, 24)),
        "conv3-tiny": Conv1d(N=1, L=Dim(20, 90), IC=8, OC=16, padding=1),
    }
    return image_tasks({name: (work, tiny(work)) for name, work in layers.items()})


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("bert-cpu", (*(dense_task(*sizes, 2048) for sizes in BERT_SIZES), *batch_tasks())),
        Suite("layers", (every_layer_task(), *batch_tasks())),
        Suite("paper-cpu", paper_cpu()),
        Suite("low-precision", (*low_precision_tasks(2304, 768), *low_precision_tasks(768, 3072))),
        Suite("llm-cpu", (dense_task(4096, 4096, 512),)),
        Suite("resnet50", image_tasks(resnet50())),
        Suite("resnet50-layers", image_tasks(resnet50_every_layer())),
        Suite("speech", image_tasks(speech())),
        Suite("depthwise", image_tasks(depthwise())),
        Suite("smoke-conv", tiny_convolutions()),
        Suite("smoke", (Task("dense-tiny", TINY, TINY_TUNED, ("openblas", "oracle")),)),
        Suite("smoke-layers", (tiny_layers_task(),)),
        Suite("smoke-gpu", tiny_gpu_tasks(), "cuda"),
        Suite("paper-gpu", paper_gpu(), "cuda"),
        Suite("bert-gpu", (bert_gpu_task("float32"), bert_gpu_task("bfloat16")), "cuda"),
        Suite("llm-gpu", llm_gpu(), "cuda"),
        Suite("decoder-gpu", (decoder_gpu_task(),), "cuda"),
        Suite("first-gpu", first_gpu(), "cuda"),
        Suite("resnet50-gpu", resnet50_gpu(), "cuda"),
    )
}
"""Suites by name."""


def suite_named(name: str) -> Suite:
    """Returns the suite ``name``, a key of :data:`SUITES`.

    Raises:
        DietlabError: if there is none.
    """
    if name not in SUITES:
        raise DietlabError(f"a suite is one of {', '.join(SUITES)}", repr(name))
    return SUITES[name]
