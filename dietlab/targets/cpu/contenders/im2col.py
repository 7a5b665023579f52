"""Convolutions by explicit im2col: an ablation that shows the cost of a copy of whole images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

from dietlab.compare.torch_convolution import Unarranged
from dietlab.compare.vendor import CONVOLUTIONS, Call, Kind, NoFormError, Operands
from dietlab.measure.timing.contender import Prepared, WithConstants
from dietlab.problem import Dense, FloatArray, Shape, Workload, extents
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders.pytorch import OneDnnPacked, tensors


@dataclass
class Patches:
    """Copies images to a matrix with a row for each output pixel, and keeps the memory of the largest matrix
    and of the largest image with zeros around it, so that no call waits for new memory.

    A row has the elements under the kernel in the order of images with the channels last, so that one line
    of the kernel is copied as a whole. A kernel of one element without stride and padding needs no copy.
    """

    torch: Any
    _kept: dict[str, Any] = field(default_factory=dict)

    def memory(self, name: str, size: tuple[int, ...], like: Any) -> Any:
        """Returns memory of a size, the same as before if it was large enough."""
        count = prod(size)
        if name not in self._kept or self._kept[name].numel() < count:
            self._kept[name] = self.torch.empty(count, dtype=like.dtype)
        return self._kept[name][:count].view(size)

    def of(self, work: Convolution, x: Any, size: tuple[int, ...]) -> tuple[Any, Callable[[], object] | None]:
        """Returns the matrix of images ``x[N, H, W, C]`` or ``x[N, L, C]``, and the call that fills it (None:
        the matrix is ``x`` itself).

        Args:
            size: the positions of the kernel, ``[N, OH, OW]`` or ``[N, OL]``.
        """
        depth = prod(work.kernel) * x.shape[-1]
        if not any(window.moves for window in work.windows):
            return x.reshape(prod(size), depth), None
        image, pad = self._padded(work, x)
        pitch = image.stride()
        steps = [pitch[at + 1] * step for at, step in enumerate(work.stride)]
        taps = [pitch[at + 1] * step for at, step in enumerate(work.dilation)]
        view = image.as_strided((*size, *work.kernel, x.shape[-1]), (pitch[0], *steps, *taps, 1))
        matrix = self.memory("matrix", (prod(size), depth), x)
        write, under = matrix.view(view.shape).copy_, view
        if pad is None:
            return matrix, lambda: write(under)
        return matrix, lambda: (pad(), write(under))

    def _padded(self, work: Convolution, x: Any) -> tuple[Any, Callable[[], object] | None]:
        """Returns images with zeros around them, and the call that copies them there (None: ``x`` itself)."""
        if not any(map(any, work.padding)):
            return x, None
        sides = list(zip(x.shape[1:-1], work.padding, strict=True))
        image = self.memory("image", (len(x), *(size + sum(pair) for size, pair in sides), x.shape[-1]), x)
        inner = image
        for dim, (size, pair) in enumerate(sides, 1):
            inner = inner.narrow(dim, pair[0], size)
        clear, copy = image.zero_, inner.copy_  # other images may use the same memory
        return image, lambda: (clear(), copy(x))


class Im2col(OneDnnPacked):
    """A copy to a matrix, in the call, and oneDNN's product with weights packed for its number of rows.

    oneDNN's product stands in for our own, which would need a library that was tuned for this depth.
    """

    name, default = "im2col", CONVOLUTIONS
    computes = CONVOLUTIONS
    adds_before = ()
    dtypes = ("float32",)

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self._patches = Patches(self._torch)

    def version(self) -> str:
        return f"PyTorch's copy, {super().version()}"

    def kind(self, workload: Workload) -> Kind:
        if getattr(workload, "groups", 1) > 1:
            rule = "im2col must have one group, since each group needs a separate product"
            raise NoFormError(rule, workload, "Compare with onednn-packed.")
        return super().kind(workload)

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        work, size = cast("Convolution", workload), extents(workload, shape)
        rows, cols, depth = (size[role] for role in ("rows", "cols", "depth"))
        product = Dense(rows, cols, depth, work.bias, activation=work.activation, residual=work.residual)
        given = tensors(self._torch, constants)
        given["w"] = given["w"].movedim(1, -1).reshape(cols, depth).contiguous()
        layer = super().prepare(product, given, Shape(()))

        def bound(operands: Operands, out: FloatArray) -> Call:
            variable = tensors(self._torch, operands)
            matrix, fill = self._patches.of(work, variable["x"], out.shape[:-1])
            operand = {"x": matrix}
            if work.residual:
                operand["residual"] = variable["residual"].reshape(rows, cols)
            multiply: Any = layer.bind(operand, out.reshape(rows, cols))
            shape_of = out.shape

            def call() -> Unarranged:
                if fill is not None:
                    fill()
                return Unarranged(multiply(), shape_of)

            return call

        return WithConstants(bound)
