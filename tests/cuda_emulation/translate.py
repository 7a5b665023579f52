"""CUDA source as TVM generates it, turned into C++ that runs on fibers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import EmulatorError
from .inline_asm import closing, split
from .instructions import translate_asm

HEADERS = {
    "cuda.h",
    "cuda_runtime.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "math_constants.h",
    "sm_61_intrinsics.h",
    "mma.h",
    "cuda/std/cstdint",
    "cuda/std/type_traits",
}
"""CUDA headers that the emulator stands in for. The last two are for another compiler; ``mma.h`` is empty:
a kernel that uses its ``wmma`` does not compile."""

MAX_THREADS = 1024
SHARED_ALIGNMENT = 16
"""Bytes: the widest access to shared memory."""

_INCLUDE = re.compile(r"^([ \t]*)#[ \t]*include[ \t]*<([^>]+)>", re.MULTILINE)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s*(?:__launch_bounds__\((?P<bounds>[^)]*)\)\s*)?(?P<name>\w+)\s*\('
)
_ALIGN = r"(?:(?:alignas|__align__)\((\d+)\)\s*)?"
_DYNAMIC = re.compile(rf"extern\s+__shared__\s+{_ALIGN}([\w: ]+?)\s+(\w+)\s*\[\s*\]\s*;")
_STATIC = re.compile(rf"\b__shared__\s+{_ALIGN}([\w: ]+?)\s+(\w+)((?:\s*\[[^\]]+\])*)\s*;")
_PARAMETER = re.compile(r"(?P<type>.*?)(?P<name>\w+)", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(?:__restrict__|__grid_constant__|const)\b")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: ``float*`` (``constant`` if it is never written), ``int64_t``."""

    type: str
    name: str
    constant: bool = False

    @property
    def pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def element(self) -> str:
        """The type that a pointer points to."""
        return self.type.rstrip("*").strip()


@dataclass(frozen=True)
class Kernel:
    """A ``__global__`` function and the largest block that its ``__launch_bounds__`` allow, in threads."""

    name: str
    parameters: tuple[Parameter, ...]
    max_threads: int = MAX_THREADS


@dataclass(frozen=True)
class Translation:
    """C++ for the emulator, and the kernels in it."""

    text: str
    kernels: tuple[Kernel, ...]


def translate(source: str) -> Translation:
    """C++ that does what ``source`` does."""
    text = translate_asm(_INCLUDE.sub(_include, source))
    parts, kernels, done = ['#include "emulator.h"\n#line 1\n'], [], 0
    for kernel, start, body, end in _definitions(text):
        parts += [text[done:start], _with_shared_memory(kernel, text[start:body], text[body:end])]
        kernels.append(kernel)
        done = end
    if not kernels:
        raise EmulatorError('a source has kernels: extern "C" __global__ void name(...)', source[-200:])
    return Translation("".join([*parts, text[done:]]), tuple(kernels))


def _include(match: re.Match[str]) -> str:
    if match[2] in HEADERS:
        return match[1]
    if "cuda" in match[2] or match[2].startswith(("mma", "nvshmem", "cooperative_groups")):
        raise EmulatorError(f"the emulator stands in for {', '.join(sorted(HEADERS))}", f"<{match[2]}>")
    return match[0]


def _definitions(text: str) -> Iterator[tuple[Kernel, int, int, int]]:
    """Kernels with where their definition starts, where its body starts and where it ends."""
    for match in _KERNEL.finditer(text):
        end_of_parameters = closing(text, match.end() - 1)
        rest = text[end_of_parameters + 1 :]
        body = end_of_parameters + 1 + len(rest) - len(rest.lstrip())
        if text[body] != "{":  # a declaration
            continue
        parameters = tuple(
            _parameter(part) for part in split(text[match.end() : end_of_parameters], ",") if part.strip()
        )
        bound = (match["bounds"] or "").split(",")[0].strip()
        kernel = Kernel(match["name"], parameters, int(bound) if bound else MAX_THREADS)
        yield kernel, match.start(), body, closing(text, body) + 1


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text.strip())
    if not match:
        raise EmulatorError("a parameter of a kernel has a type and a name", text)
    kind = re.sub(r"\s+", " ", _QUALIFIERS.sub("", match["type"])).replace(" *", "*").strip()
    return Parameter(kind, match["name"], constant="const" in match["type"].split("*")[0].split())


def _with_shared_memory(kernel: Kernel, head: str, body: str) -> str:
    """The definition, after a struct of its arrays in shared memory and before what the library exports."""
    members, alignment = [], SHARED_ALIGNMENT
    struct = f"emu_shared_{kernel.name}"

    def dynamic(match: re.Match[str]) -> str:
        nonlocal alignment
        alignment = max(alignment, int(match[1] or 1))
        return f"{match[2]}* {match[3]} = ({match[2]}*)emu::dynamic_shared();"

    def static(match: re.Match[str]) -> str:
        aligned = f"alignas({match[1]}) " if match[1] else ""
        members.append(f"{aligned}{match[2]} {match[3]}{match[4]};")
        return f"auto& {match[3]} = emu::statics<{struct}>().{match[3]};"

    body = _STATIC.sub(static, _DYNAMIC.sub(dynamic, body))
    if "__shared__" in body:
        raise EmulatorError("the emulator knows a kernel's declarations of shared memory", kernel.name)
    declared = f"struct {struct} {{ {' '.join(members)} }}; " if members else ""
    exported = _exported(kernel, struct if members else None, alignment)
    return f"{declared}{head}{body} {exported}"  # on one line: lines keep their numbers


def _exported(kernel: Kernel, struct: str | None, alignment: int) -> str:
    """What Python and the stub driver find under ``emu_kernel_NAME``; see ``kernel.h``."""
    static_bytes, aligned_as = (f"sizeof({struct})", struct) if struct else ("0", "char")
    constants = ("const " if parameter.constant else "" for parameter in kernel.parameters)
    arguments = ", ".join(
        f"*({constant}{parameter.type}*)arguments[{i}]"
        for i, (constant, parameter) in enumerate(zip(constants, kernel.parameters, strict=True))
    )
    sizes = "".join(f"sizeof({parameter.type}), " for parameter in kernel.parameters)
    align = f"alignof({aligned_as}) > {alignment} ? alignof({aligned_as}) : {alignment}"
    return (
        f"static void emu_call_{kernel.name}(void** arguments) {{ {kernel.name}({arguments}); }} "
        f"static const unsigned emu_bytes_{kernel.name}[] = {{{sizes}0}}; "
        f"EMU_EXPORT emulated_kernel emu_kernel_{kernel.name}; emulated_kernel emu_kernel_{kernel.name} = "
        f'{{"{kernel.name}", emu::launch, emu::failure, emu_call_{kernel.name}, {static_bytes}, '
        f"(unsigned)({align}), {kernel.max_threads}, emu_bytes_{kernel.name}}};"
    )
