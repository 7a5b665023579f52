"""Inline PTX becomes C++: every ``asm(...)`` statement of a source turns into a block of calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .errors import EmulatorError

C_TYPES = {"r": "uint32_t", "n": "uint32_t", "l": "uint64_t", "h": "uint16_t", "f": "float", "d": "double"}
"""The C++ type that each constraint letter binds (CUDA, "Inline PTX Assembly", constraints)."""

REGISTERS = {
    "pred": "bool",
    "b8": "uint8_t",
    "b16": "uint16_t",
    "u16": "uint16_t",
    "s16": "int16_t",
    "b32": "uint32_t",
    "u32": "uint32_t",
    "s32": "int32_t",
    "f32": "float",
    "b64": "uint64_t",
    "u64": "uint64_t",
    "s64": "int64_t",
    "f64": "double",
}
"""PTX types, of ``.reg`` declarations and of instructions, as C++ types."""

SPECIAL = {
    "laneid": "emu::lane()",
    "warpid": "(emu::current / emu::LANES % emu::warp_count)",
    "cluster_ctarank": "emu::cluster_rank",
    "cluster_ctaid.x": "emu::cluster_rank",
    "cluster_nctarank": "emu::cluster_count",
} | {
    f"{name}.{axis}": f"{variable}.{axis}"
    for name, variable in zip(
        ("tid", "ntid", "ctaid", "nctaid"), ("threadIdx", "blockDim", "blockIdx", "gridDim"), strict=True
    )
    for axis in "xyz"
}

_START = re.compile(r"\b(?:asm|__asm__)\b\s*(?:(?:volatile|__volatile__)\b\s*)?\(")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_OPERAND = re.compile(r'\s*"([^"]*)"\s*\((.*)\)\s*', re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)(%*[\w$]+)\s+)?([\w.:]+)\s*(.*)", re.DOTALL)
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)")


@dataclass(frozen=True)
class Operand:
    """A C++ expression bound to ``%0``, ``%1``, ... by a constraint such as ``=r``."""

    constraint: str
    expression: str

    @property
    def c_type(self) -> str:
        letter = self.constraint.lstrip("=+&")
        if letter not in C_TYPES:
            raise EmulatorError(f"operands of inline PTX are bound by {', '.join(C_TYPES)}", self.constraint)
        return C_TYPES[letter]


@dataclass(frozen=True)
class Asm:
    """One ``asm`` statement: its PTX text and its operands, outputs first."""

    text: str
    outputs: tuple[Operand, ...]
    inputs: tuple[Operand, ...]


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction; ``guard`` is ``(register, negated)`` of ``@p`` or ``@!p``."""

    opcode: str
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None = None


@dataclass(frozen=True)
class Scope:
    """The names that the text of one statement can use: bound operands and declared registers."""

    bound: tuple[Operand, ...]
    registers: dict[str, str] = field(default_factory=dict)

    def value(self, text: str) -> str:
        """The C++ expression that a PTX operand stands for, which is a variable if it is a register."""
        text = text.strip()
        name = text.lstrip("%")
        if text == f"%{name}" and name.isdigit() and int(name) < len(self.bound):
            return f"emu_{name}"
        if _INTEGER.fullmatch(text):
            return text
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return f"__uint_as_float(0x{text[2:]}u)"
        if name in self.registers:
            return f"reg_{name}"
        if name in SPECIAL:
            return SPECIAL[name]
        raise EmulatorError("every operand of inline PTX is bound, declared or known", text)

    def expression(self, text: str) -> str:
        """The C++ expression that a PTX operand is bound to: what instructions write that end later."""
        name = text.strip().lstrip("%")
        if not name.isdigit() or int(name) >= len(self.bound):
            raise EmulatorError("a register that is written later is bound to a variable", text)
        return self.bound[int(name)].expression

    def values(self, text: str) -> list[str]:
        """The same for a group ``{a, b}``, or a single operand as a group of one."""
        text = text.strip()
        inner = text[1:-1] if text.startswith("{") else text
        return [self.value(part) for part in split(inner, ",")]

    def address(self, text: str) -> str:
        """The address in ``[register]`` or ``[register+16]``."""
        base, _, offset = text.strip().strip("[]").partition("+")
        return f"({self.value(base)} + ({offset.strip() or 0}))"

    def is_predicate(self, text: str) -> bool:
        return self.registers.get(text.strip().lstrip("%")) == "bool"


def split(text: str, separator: str) -> list[str]:
    """``text`` cut at every ``separator`` outside of brackets and string literals."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        literal = _LITERAL.match(text, at) if text[at] == '"' else None
        if literal:
            at = literal.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def closing(text: str, opening: int) -> int:
    """Where the bracket that opens at ``opening`` closes."""
    depth, at = 0, opening
    while at < len(text):
        literal = _LITERAL.match(text, at) if text[at] == '"' else None
        if literal:
            at = literal.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
        at += 1
    raise EmulatorError("every bracket of the source is closed", text[opening : opening + 60])


def statements(source: str) -> Iterator[tuple[int, int, Asm]]:
    """The ``asm`` statements of ``source``: where each starts and ends (before its semicolon)."""
    for match in _START.finditer(source):
        end = closing(source, match.end() - 1)
        yield match.start(), end + 1, _parse(source[match.end() : end])


def _parse(body: str) -> Asm:
    sections = [*split(body, ":"), "", "", ""]
    text = "".join(_LITERAL.findall(sections[0]))
    for escape, character in (("\\n", "\n"), ("\\t", " "), ('\\"', '"'), ("%%", "%")):
        text = text.replace(escape, character)
    return Asm(text, _operands(sections[1]), _operands(sections[2]))


def _operands(section: str) -> tuple[Operand, ...]:
    found = []
    for part in split(section, ","):
        if not part.strip():
            continue
        match = _OPERAND.fullmatch(part)
        if not match:
            raise EmulatorError('operands of inline PTX read like "r"(x)', part.strip())
        found.append(Operand(match[1], match[2].strip()))
    return tuple(found)


def instructions(text: str, scope: Scope) -> Iterator[Instruction]:
    """The instructions of a PTX text; ``.reg`` declarations go into ``scope``."""
    for piece in re.sub(r"//[^\n]*", "", text).split(";"):
        line = piece.strip().lstrip("{").strip()
        if not line.strip("}").strip():
            continue
        if line.startswith(".reg"):
            _, kind, names = line.split(None, 2)
            for name in names.split(","):
                scope.registers[name.strip().lstrip("%")] = _register_type(kind.lstrip("."))
            continue
        match = _INSTRUCTION.fullmatch(line)
        if not match:
            raise EmulatorError("inline PTX consists of instructions and declarations", line)
        guard = (match[2], match[1] == "!") if match[2] else None
        operands = tuple(part.strip() for part in split(match[4], ",") if part.strip())
        yield Instruction(match[3], operands, guard)


def _register_type(kind: str) -> str:
    if kind not in REGISTERS:
        raise EmulatorError(f"registers have one of the types {', '.join(REGISTERS)}", f".{kind}")
    return REGISTERS[kind]
