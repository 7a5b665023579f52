"""What each PTX instruction does, as a call into ``ptx.h`` and ``wgmma.h``; without a rule it is an error."""

from __future__ import annotations

import re
from collections.abc import Callable

from .errors import EmulatorError
from .inline_asm import REGISTERS, Asm, Instruction, Operand, Scope, instructions, split, statements

Rule = Callable[[Instruction, "re.Match[str]", Scope], str]

_NAMES = {**REGISTERS, "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FORMATS = {"f16": "emu::F16", "bf16": "emu::BF16", "tf32": "emu::TF32"}
_DEPTHS = {"f16": ("8", "16"), "bf16": ("8", "16"), "tf32": ("4", "8")}


def translate_asm(source: str) -> str:
    """``source`` with every ``asm`` statement replaced by C++; lines keep their numbers."""
    parts, done = [], 0
    for start, end, asm in statements(source):
        parts += [source[done:start], _block(asm), "\n" * source.count("\n", start, end)]
        done = end
    return "".join(parts) + source[done:]


def _block(asm: Asm) -> str:
    operands = asm.outputs + asm.inputs
    scope = Scope(operands)
    lines = [line for instruction in instructions(asm.text, scope) for line in _statement(instruction, scope)]
    bound = [f"{operand.c_type} emu_{i} = {_first_value(operand)};" for i, operand in enumerate(operands)]
    declared = [f"{c_type} reg_{name} = {{}};" for name, c_type in scope.registers.items()]
    written = [f"emu::assign({operand.expression}, emu_{i});" for i, operand in enumerate(asm.outputs)]
    return "do { " + " ".join([*bound, *declared, *lines, *written]) + " } while (0)"


def _first_value(operand: Operand) -> str:
    """What an operand holds before the statement; an output that is only written holds NaN."""
    if operand.constraint.startswith("="):
        return f"emu::poison<{operand.c_type}>()"
    return f"({operand.c_type})({operand.expression})"


def _statement(instruction: Instruction, scope: Scope) -> list[str]:
    call = _call(instruction, scope)
    if instruction.guard is None:
        return [f"{{ {call} }}"]
    register, negated = instruction.guard
    return [f"if ({'!' if negated else ''}{scope.value(register)}) {{ {call} }}"]


def _call(instruction: Instruction, scope: Scope) -> str:
    for pattern, rule in RULES:
        match = re.fullmatch(pattern, instruction.opcode)
        if match:
            return rule(instruction, match, scope)
    raise _unknown(instruction)


def _unknown(instruction: Instruction) -> EmulatorError:
    text = " ".join([instruction.opcode, ", ".join(instruction.operands)]).strip()
    return EmulatorError(
        "every PTX instruction of a source is emulated",
        text,
        "Add a rule to tests/cuda_emulation/instructions.py.",
    )


def _cp_async(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    to, source, size, *rest = instruction.operands
    if match["hint"]:
        rest = rest[:-1]  # the cache policy
    size_bytes = scope.value(size)
    read_bytes = size_bytes
    if rest:
        value = scope.value(rest[0])
        read_bytes = f"({value} ? 0 : {size_bytes})" if scope.is_predicate(rest[0]) else value
    return f"emu::cp_async({scope.address(to)}, {scope.address(source)}, {size_bytes}, {read_bytes});"


def _results(scope: Scope, group: str, c_type: str, call: str) -> str:
    """A call that fills the array ``out``, whose elements go to registers (``_`` is a sink)."""
    names = [part.strip() for part in group.strip("{}").split(",")]
    kept = [f"emu::assign({scope.value(name)}, out[{i}]);" for i, name in enumerate(names) if name != "_"]
    return f"{c_type} out[{len(names)}]; {call} {' '.join(kept)}"


def _array(name: str, c_type: str, values: list[str]) -> str:
    return f"const {c_type} {name}[] = {{{', '.join(f'emu::as<{c_type}>({value})' for value in values)}}};"


def _matrix_address(text: str, match: re.Match[str], scope: Scope) -> str:
    """Without ``.shared`` the address is a generic one, which must point to shared memory."""
    address = scope.address(text)
    return address if match["space"] else f"emu::shared_address((const void*){address})"


def _ldmatrix(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    group, address = instruction.operands
    shape = f"{match['count']}, {'true' if match['trans'] else 'false'}"
    place = _matrix_address(address, match, scope)
    return _results(
        scope, group, "uint32_t", f'emu::ldmatrix<{shape}>("{instruction.opcode}", out, {place});'
    )


def _stmatrix(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    address, group = instruction.operands
    shape = f"{match['count']}, {'true' if match['trans'] else 'false'}"
    place = _matrix_address(address, match, scope)
    values = _array("in", "uint32_t", scope.values(group))
    return f'{values} emu::stmatrix<{shape}>("{instruction.opcode}", {place}, in);'


def _mma(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    d, a, b, c = instruction.operands
    if match["k"] not in _DEPTHS[match["type"]] or (match["to"] == "f16" and match["type"] != "f16"):
        raise _unknown(instruction)
    c_type = "float" if match["to"] == "f32" else "uint32_t"
    inputs = [
        _array("a", "uint32_t", scope.values(a)),
        _array("b", "uint32_t", scope.values(b)),
        _array("c", c_type, scope.values(c)),
    ]
    product = f'emu::mma<{_FORMATS[match["type"]]}, {match["k"]}>("{instruction.opcode}", out, a, b, c);'
    return " ".join([*inputs, _results(scope, d, c_type, product)])


def _wgmma(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    """Both operands in shared memory. The sums are written when a wait covers the product; until then the
    registers hold NaN."""
    sums, a, b, add, *how = instruction.operands
    if a.startswith("{") or how[:2] != ["1", "1"] or how[2:] not in [[m, n] for m in "01" for n in "01"]:
        raise _unknown(instruction)
    names = [part.strip() for part in sums.strip("{}").split(",")]
    places = ", ".join(f"&({scope.expression(name)})" for name in names)
    spoilt = " ".join(f"{scope.value(name)} = emu::poison<float>();" for name in names)
    across = ["true" if way == "1" else "false" for way in how[2:]]  # imm-trans-a, imm-trans-b
    shape = ", ".join([_FORMATS[match["type"]], match["cols"], *across])
    return (
        f"{_array('in', 'float', scope.values(sums))} float* const to[] = {{{places}}}; "
        f'emu::wgmma<{shape}>("{instruction.opcode}", to, in, {scope.value(a)}, {scope.value(b)}, '
        f"{scope.value(add)}); {spoilt}"
    )


def _load(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    group, address = instruction.operands
    place = _place(instruction, match, scope, address)
    return _results(scope, group, REGISTERS[match["type"]], f"emu::load(out, {place});")


def _store(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    address, group = instruction.operands
    values = _array("in", REGISTERS[match["type"]], scope.values(group))
    return f"{values} emu::store({_place(instruction, match, scope, address)}, in);"


def _place(instruction: Instruction, match: re.Match[str], scope: Scope, address: str) -> str:
    size = f"sizeof({REGISTERS[match['type']]}) * {match['lanes'] or 1}"
    return f'emu::{match["space"]}_at({scope.address(address)}, {size}, "{instruction.opcode}")'


def _barrier(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    number, *count = (scope.value(operand) for operand in instruction.operands)
    if count:
        return f"emu::sync_some_threads({number}, {count[0]});"
    if number != "0":  # a barrier of all threads is number 0 here
        raise _unknown(instruction)
    return "emu::sync_threads(-1);"


def _dp4a(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    to, a, b, c = (scope.value(operand) for operand in instruction.operands)
    left, right = (f"{'u' if match[side] == 'u32' else ''}int8_t" for side in ("a", "b"))
    terms = " + ".join(f"(int)({left})({a} >> {8 * i}) * ({right})({b} >> {8 * i})" for i in range(4))
    return f"{to} = {c} + ({terms});"


def _barrier_init(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    address, count = instruction.operands
    return f"emu::mbarrier_init({scope.address(address)}, {scope.value(count)});"


def _arrive(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    """The state that it returns is not emulated: only ``_`` takes it."""
    state, address, *count = instruction.operands
    if state != "_" or bool(count) != bool(match["tx"]):
        raise _unknown(instruction)
    value = scope.value(count[0]) if count else "0"
    return f'emu::mbarrier_arrive({scope.address(address)}, {value}, "{instruction.opcode}");'


def _try_wait(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    done, address, parity, *_ = instruction.operands  # at most a time limit comes behind them
    return f"{scope.value(done)} = emu::mbarrier_try_wait({scope.address(address)}, {scope.value(parity)});"


def _bulk_tensor(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
    to, source, barrier, *mask = instruction.operands
    blocks = scope.value(mask[0]) if mask else "1u << emu::cluster_rank"
    tensor_map, coordinates = split(source.strip()[1:-1], ",")
    element, line = scope.values(coordinates)
    return (
        f"emu::bulk_tensor_2d({scope.address(to)}, {scope.value(tensor_map)}, {element}, {line}, "
        f"{scope.address(barrier)}, {blocks});"
    )


def _call_of(text: str) -> Rule:
    """A rule of one call: ``{0}``, ``{1}``, ... are the operands' values, ``{opcode}`` is the instruction;
    groups of the pattern become types or comparisons in C++."""

    def rule(instruction: Instruction, match: re.Match[str], scope: Scope) -> str:
        values = [scope.value(operand) for operand in instruction.operands] if "{0}" in text else []
        named = {name: _NAMES.get(group, group) for name, group in match.groupdict().items()}
        return text.format(*values, opcode=instruction.opcode, **named)

    return rule


_SPACE = r"(?P<space>shared|global)(?:::cta)?"
_ORDER = r"(?:\.volatile|\.relaxed\.\w+|\.weak)?"
_MEMORY = rf"{_ORDER}\.{_SPACE}(?:\.nc)?(?:\.v(?P<lanes>[24]))?\.(?P<type>[busf]\d+)"
_MATRIX = r"\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<trans>\.trans)?(?P<space>\.shared(?:::cta)?)?\.b16"

_BARRIER_SPACE = r"\.shared(?:::cta|::cluster)?"
_BARRIER_ORDER = r"(?:\.(?:acquire|release|relaxed)\.(?:cta|cluster))?"

RULES: list[tuple[str, Rule]] = [
    (r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?P<hint>\.L2::cache_hint)?(?:\.L2::\d+B)?", _cp_async),
    (r"cp\.async\.commit_group", _call_of("emu::cp_async_commit_group();")),
    (r"cp\.async\.wait_group", _call_of("emu::cp_async_wait_group({0});")),
    (r"cp\.async\.wait_all", _call_of("emu::cp_async_wait_all();")),
    (rf"ldmatrix{_MATRIX}", _ldmatrix),
    (rf"stmatrix{_MATRIX}", _stmatrix),
    (
        r"mma\.sync\.aligned\.m16n8k(?P<k>4|8|16)\.row\.col\.(?P<to>f32|f16)\.(?P<type>f16|bf16|tf32)"
        r"\.(?P=type)\.(?P=to)",
        _mma,
    ),
    (
        r"wgmma\.mma_async\.sync\.aligned\.m64n(?P<cols>\d+)k16\.f32\.(?P<type>f16|bf16)\.(?P=type)",
        _wgmma,
    ),
    (r"wgmma\.fence\.sync\.aligned", _call_of("emu::wgmma_fence();")),
    (r"wgmma\.commit_group\.sync\.aligned", _call_of("emu::wgmma_commit_group();")),
    (r"wgmma\.wait_group\.sync\.aligned", _call_of("emu::wgmma_wait_group({0});")),
    (r"fence\.proxy\.async(?:\.shared::cta)?", _call_of("emu::fence_proxy_async();")),
    (rf"mbarrier\.init{_BARRIER_SPACE}\.b64", _barrier_init),
    (rf"mbarrier\.arrive(?P<tx>\.expect_tx)?{_BARRIER_ORDER}{_BARRIER_SPACE}\.b64", _arrive),
    (rf"mbarrier\.try_wait\.parity{_BARRIER_ORDER}{_BARRIER_SPACE}\.b64", _try_wait),
    (
        r"cp\.async\.bulk\.tensor\.2d\.shared::(?:cluster|cta)\.global(?:\.tile)?\.mbarrier::complete_tx::bytes"
        r"(?:\.multicast::cluster)?",
        _bulk_tensor,
    ),
    (r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", _call_of('emu::set_registers("{opcode}", {0});')),
    (rf"ld{_MEMORY}", _load),
    (rf"st{_MEMORY}", _store),
    (
        r"setp\.(?P<how>eq|ne|lt|le|gt|ge)\.(?P<type>[busf]\d+)",
        _call_of("{0} = emu::as<{type}>({1}) {how} emu::as<{type}>({2});"),
    ),
    (
        r"selp\.(?P<type>[busf]\d+)",
        _call_of("emu::assign({0}, {3} ? emu::as<{type}>({1}) : emu::as<{type}>({2}));"),
    ),
    (r"mov\.(?P<type>[busf]\d+)", _call_of("emu::assign({0}, emu::as<{type}>({1}));")),
    (r"cvta\.to\.shared\.u64", _call_of("{0} = emu::shared_address((const void*){1});")),
    (r"mapa\.u64", _call_of("{0} = emu::mapa({1}, {2});")),
    (r"mapa\.shared::cluster\.u32", _call_of("{0} = emu::mapa_shared({1}, {2});")),
    (r"barrier\.cluster\.arrive(?:\.release|\.relaxed)?(?:\.aligned)?", _call_of("emu::cluster_arrive();")),
    (r"barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?", _call_of("emu::cluster_wait();")),
    (r"cvt\.(?P<to>[us]\d+)\.(?P<type>[us]\d+)", _call_of("{0} = ({to})({type}){1};")),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", _barrier),
    (r"bar\.warp\.sync", _call_of("__syncwarp({0});")),
    (r"(?:fence|membar|prefetch|discard)\b.*", _call_of("")),
    (r"dp4a\.(?P<a>[us]32)\.(?P<b>[us]32)", _dp4a),
]
"""Opcodes (as patterns) and what they do; the first that fits is taken."""
