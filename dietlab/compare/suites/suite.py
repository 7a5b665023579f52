"""Suites: named operators with the lengths they are tuned for and evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

from dietlab.base.errors import DietlabError
from dietlab.compare.lineup import contenders_for, own_vendors
from dietlab.compare.suites.every_layer import OWN, EveryLayer
from dietlab.compare.suites.images import (
    Images,
    Layers,
    depthwise,
    resnet50,
    resnet50_every_layer,
    speech,
    tiny,
)
from dietlab.compare.suites.lengths import (
    BERT_GPU_LENGTHS,
    HELD_OUT_LENGTHS,
    LAYER_LENGTHS,
    LENGTHS,
    LLM_GPU_LENGTHS,
    LLM_TUNED,
    LONG_LENGTHS,
    LONG_WEIGHT,
    LOW_PRECISION_QUICK,
    OWN_LIBRARIES,
    PAPER_CPU_LENGTHS,
    PAPER_GPU_LENGTHS,
    PAPER_LENGTHS,
    PAPER_ROWS,
    lengths_named,
)
from dietlab.measure.timing.target import timing_target
from dietlab.problem import USUAL, BatchMatmul, Conv1d, Conv2d, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.problem.layers import Layer
from dietlab.problem.shapes import drawn_layers
from dietlab.tuning import usual_kernels

DENSE_AGAINST = (*own_vendors("cpu", "dense"), "oracle")
BATCH_AGAINST = (*own_vendors("cpu", "batch-matmul"), "oracle")
"""Contenders of batched products, all plain: their operands are activations, which nobody prepacks."""

LOW_PRECISION_AGAINST: Mapping[str, tuple[str, ...]] = {
    "float32": ("mkl-packed", "onednn-packed", "oracle"),
    **{dtype: (*own_vendors("cpu", "dense", dtype), "oracle") for dtype in ("int8", "bfloat16")},
}
"""The vendors that multiply each type; for float32, some of the prepacked ones."""

NVIDIA_AGAINST = ("cublas", "cublaslt", "cublaslt-tuned")
"""Contenders on a GPU that need no compiler."""
GPU_AGAINST = (*own_vendors("cuda", "dense"), "largest-shape", "oracle")

GPU_KERNELS = 16
"""The largest number of micro-kernels in a GPU's library. An even split of the rows needs a micro-kernel for
each height of a tile, and shapes of few blocks need many heights. By the records of an H200 (``data/h200``),
8 micro-kernels lose 4.5 % in float32, 16 lose 1.1 % and 32 lose 0.3 %."""

LAYERS_AGAINST = (OWN, *(name for name in DENSE_AGAINST if name not in ("openblas", "torch", "zendnn")))

BERT_SIZES = ((768, 768), (2304, 768), (3072, 768), (768, 3072))
"""Columns and depth of BERT-base's dense layers."""

TINY = Dense(T=Dim(1, 16), N=64, K=32)
TINY_TUNED = ((1, 1.0), (8, 1.0), (16, 1.0))
"""The lengths that :data:`TINY` is tuned for, with weights; its calls take next to no time."""


@dataclass(frozen=True)
class Task:
    """One operator of a suite.

    Args:
        name: a name that is unique in the suite; the name of its study's folder begins with it.
        workload: an operator with one dynamic dimension, the length; with ``layers``, Dense with T, N and K;
            with ``images``, a convolution.
        tuned: lengths that tuning sees, with their weights; with ``layers``, those of each layer; with
            ``images``, none.
        against: contenders, unless the caller names others.
        lengths: the evaluated lengths by effort, of which those in the range count; ``layers`` and ``images``
            have their own.
        layers: the layers of an operator that serves many.
        images: what a convolution is tuned for and evaluated on.
        max_kernels: the largest number of micro-kernels in the library.

    Raises:
        DietlabError: if the operator has other dynamic dimensions.
    """

    name: str
    workload: Workload
    tuned: tuple[tuple[int, float], ...]
    against: tuple[str, ...]
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: LENGTHS, hash=False, repr=False)
    layers: EveryLayer | None = field(default=None, hash=False, repr=False)
    max_kernels: int = 8
    images: Images | None = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        dims = list(self.workload.dims)
        if self.images is not None:
            if self.layers is not None or self.tuned:
                raise DietlabError("a task must have either images, or lengths", self.name)
            return
        if self.layers is None and len(dims) != 1:
            raise DietlabError("a task without layers needs one dynamic dimension", dims, "Name its layers.")
        if self.layers is not None and dims != ["T", "N", "K"]:
            raise DietlabError("a task with layers must have the dynamic dimensions T, N and K", dims)

    @property
    def shapes(self) -> ShapeSet:
        """The shapes to tune for."""
        if self.images is not None:
            return self.images.tuned
        if self.layers is not None:
            return ShapeSet.layers(self.layers.tuned, dict(self.tuned), self.workload)
        return ShapeSet.weighted(self.workload, dict(self.tuned))

    def evaluated(self, effort: str) -> tuple[Shape, ...]:
        """Returns the shapes that an effort evaluates, in ascending order."""
        if self.images is not None:
            return self.images.named(effort)
        if self.layers is not None:
            bound = self.layers.evaluated(effort)
            return tuple(sorted(Shape.of(T=length, N=layer.N, K=layer.K) for layer, length in bound))
        ((name, dim),) = self.workload.dims.items()
        chosen = lengths_named(effort, self.lengths)
        return tuple(Shape.of(**{name: length}) for length in chosen if length in dim)


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


def dense_task(cols: int, depth: int, high: int) -> Task:
    """Returns a dense layer of ``T = 1..high`` rows, with constant weights ``w[cols, depth]``."""
    return Task(
        f"dense-k{depth}-n{cols}", Dense(T=Dim(1, high), N=cols, K=depth), _tuned(high), DENSE_AGAINST
    )


def low_precision_tasks(cols: int, depth: int) -> tuple[Task, ...]:
    """Returns a dense layer of up to 128 rows in each type of :data:`LOW_PRECISION_AGAINST`."""
    lengths = {**LENGTHS, "quick": LOW_PRECISION_QUICK}
    return tuple(
        Task(f"dense-k{depth}-n{cols}-{dtype}", layer, _tuned(128), LOW_PRECISION_AGAINST[dtype], lengths)
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
    return Task("dense-every-layer", workload, _tuned(2048), LAYERS_AGAINST, layers=layers, max_kernels=12)


def tiny_layers_task() -> Task:
    """Returns a dense operator that serves four tiny layers."""
    workload = replace(TINY, N=Dim(16, 96), K=Dim(16, 64))
    tuned, own = dict.fromkeys(LENGTHS, (1, 7)), dict.fromkeys(LENGTHS, (1, 1))
    held_out = dict.fromkeys(LENGTHS, (5,))
    layers = EveryLayer(((64, 32), (96, 64)), ((37, 19), (50, 61)), tuned, held_out, own)
    return Task("dense-tiny-layers", workload, TINY_TUNED, (OWN, "openblas", "oracle"), layers=layers)


def batch_tasks() -> tuple[Task, ...]:
    """Returns both batched products of BERT-base's attention, for a batch of 16 sentences."""
    scores = BatchMatmul(T=Dim(1, 128), B=192, D=64)
    both = (scores, replace(scores, form="nn"))
    return tuple(Task(workload.operator, workload, _tuned(128), BATCH_AGAINST) for workload in both)


def paper_cpu() -> tuple[Task, ...]:
    """Returns the paper's operators at its lengths: both batched products, and the dense layer, also against
    per-shape tuning. Rows of the dense layer are tokens of one sentence."""
    dense = dense_task(2304, 768, 2048)
    dense = replace(dense, against=(*dense.against, "ansor"))
    return tuple(
        replace(task, against=(*task.against, "largest-shape"), lengths=PAPER_CPU_LENGTHS)
        for task in (dense, *batch_tasks())
    )


def paper_gpu() -> tuple[Task, ...]:
    """Returns the paper's operators in its precision: a dense layer of 16 T rows, and both batched
    products."""
    rows = {effort: tuple(PAPER_ROWS * t for t in lengths) for effort, lengths in PAPER_GPU_LENGTHS.items()}
    dense = Task(
        "dense-k768-n2304",
        Dense(T=Dim(PAPER_ROWS, 128 * PAPER_ROWS), N=2304, K=768),
        tuple((PAPER_ROWS * length, 1.0) for length in PAPER_LENGTHS),
        GPU_AGAINST,
        rows,
        max_kernels=GPU_KERNELS,
    )
    on_gpu = partial(replace, against=GPU_AGAINST, lengths=PAPER_GPU_LENGTHS, max_kernels=GPU_KERNELS)
    return (dense, *map(on_gpu, batch_tasks()))


def gpu_dense_task(
    cols: int,
    depth: int,
    dtype: str,
    tuned: tuple[tuple[int, float], ...],
    lengths: Mapping[str, tuple[int, ...]],
) -> Task:
    """Returns a dense layer on a GPU for all of ``lengths``; its name ends with the type, if that is not
    float32."""
    high = max(max(chosen) for chosen in lengths.values())
    return Task(
        f"dense-k{depth}-n{cols}" if dtype == USUAL else f"dense-k{depth}-n{cols}-{dtype}",
        Dense(T=Dim(1, high), N=cols, K=depth, dtype=dtype),
        tuned,
        GPU_AGAINST,
        lengths,
        max_kernels=GPU_KERNELS,
    )


def llm_gpu() -> tuple[Task, ...]:
    """Returns three layers of a served model in bfloat16."""
    sizes = ((4096, 4096), (4096, 14336), (14336, 4096))
    return tuple(gpu_dense_task(*size, "bfloat16", LLM_TUNED, LLM_GPU_LENGTHS) for size in sizes)


def first_gpu() -> tuple[Task, ...]:
    """Returns the operators of the paper and of a served model for a GPU that is available for minutes only,
    the most informative first: the paper's dense layer, a layer in bfloat16, then the rest."""
    (dense, *batched), (layer, *layers) = paper_gpu(), llm_gpu()
    return tuple(replace(task, against=NVIDIA_AGAINST) for task in (dense, layer, *batched, *layers))


def image_tasks(layers: Layers) -> tuple[Task, ...]:
    """Returns a task for each convolution."""
    return tuple(
        Task(
            name,
            work,
            (),
            (*own_vendors("cpu", work.operator), "oracle"),
            images=images,
            max_kernels=usual_kernels(work),
        )
        for name, (work, images) in layers.items()
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


def _tuned(high: int) -> tuple[tuple[int, float], ...]:
    weights = dict.fromkeys(PAPER_LENGTHS, 1.0) | dict.fromkeys(LONG_LENGTHS, LONG_WEIGHT)
    return tuple((length, weight) for length, weight in weights.items() if length <= high)


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
        Suite("smoke-gpu", (Task("dense-tiny", TINY, TINY_TUNED[::2], ("largest-shape", "oracle")),), "cuda"),
        Suite("paper-gpu", paper_gpu(), "cuda"),
        Suite(
            "bert-gpu",
            tuple(
                gpu_dense_task(*sizes, dtype, _tuned(2048), BERT_GPU_LENGTHS)
                for dtype in ("float32", "float16")
                for sizes in BERT_SIZES
            ),
            "cuda",
        ),
        Suite("llm-gpu", llm_gpu(), "cuda"),
        Suite("first-gpu", first_gpu(), "cuda"),
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
