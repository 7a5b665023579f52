"""Which names of dietlab are public, where each is defined and what its docstring begins with.

Sources are parsed, never imported: the site needs none of the extras.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LEFT_OUT = ("dietlab.cli", "dietlab.lab.puzzles")
"""Commands are in docs/study.md; puzzles are asked in their notebook, and a reference would solve them."""


@dataclass(frozen=True)
class Name:
    """A public name.

    ``home`` is the module that defines it, and ``path`` the shortest import of it besides the package's own,
    ``dietlab.NAME``, which there is if ``top``.
    """

    name: str
    path: str
    home: str
    top: bool
    summary: str
    """The first paragraph of its text, or its value as code where it has none."""

    @property
    def canonical(self) -> str:
        """Its name in the module that defines it."""
        return f"{self.home}.{self.name}"

    @property
    def identifier(self) -> str:
        """What the reference calls it: its import, or its place where a module has the name of the import."""
        return self.canonical if source(self.path) else self.path


def source(module: str) -> Path | None:
    """Returns the file of a module of dietlab, or None where there is none."""
    stem = ROOT.joinpath(*module.split("."))
    return next((p for p in (stem / "__init__.py", stem.with_suffix(".py")) if p.is_file()), None)


@cache
def parsed(module: str) -> ast.Module:
    """Returns the syntax tree of a module."""
    path = source(module)
    if path is None:
        raise LookupError(f"{module} is no module of dietlab")
    return ast.parse(path.read_text(encoding="utf-8"))


def assigned(module: str, name: str) -> ast.expr | None:
    """Returns what a module assigns to a name, or None."""
    for node in parsed(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return getattr(node, "value", None)
    return None


def exported(module: str) -> list[str]:
    """Returns what a module lists in ``__all__``, which may be made of its lazy names."""
    value = assigned(module, "__all__")
    if isinstance(value, (ast.List, ast.Tuple)):
        return [str(name) for name in ast.literal_eval(value)]
    return sorted(lazy(module)) if value else []


def lazy(module: str) -> dict[str, str]:
    """Returns the modules of the names that a package loads when they are first used: those that it imports
    as themselves, or all of another package's, if a type checker reads it (``dietlab/base/lazy.py``)."""
    imports = [node for block in parsed(module).body if isinstance(block, ast.If) for node in block.body]
    found = dict[str, str]()
    for node in (node for node in imports if isinstance(node, ast.ImportFrom)):
        home, names = str(node.module), [alias.name for alias in node.names if alias.asname == alias.name]
        found |= dict.fromkeys(lazy(home) if node.names[0].name == "*" else names, home)
    return {name: home for name, home in found.items() if name not in only_there(module)}


def only_there(module: str) -> tuple[str, ...]:
    """Returns the names of ``dietlab.view`` that ``dietlab`` itself leaves out."""
    names = assigned(module, "IN_VIEW_ONLY")
    return ast.literal_eval(names) if names else ()


def home_of(module: str, name: str) -> str:
    """Returns the module that defines what ``module`` calls ``name``."""
    if name in (homes := lazy(module)):
        return home_of(homes[name], name)
    for node in parsed(module).body:
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            return home_of(str(node.module), name)
    return module


def summary(module: str, name: str) -> str:
    """Returns the first paragraph of a docstring, on one line; of a constant, that of the text below it."""
    body = parsed(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            if text := ast.get_docstring(node):  # an overload has none
                return first_paragraph(text)
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            text = getattr(getattr(after, "value", None), "value", "")
            if isinstance(text, str) and text:
                return first_paragraph(text)
            return f"`{ast.unparse(node.value)}`" if getattr(node, "value", None) else ""
    return ""


def module_summary(module: str) -> str:
    """Returns the first paragraph of a module's docstring."""
    return first_paragraph(ast.get_docstring(parsed(module)) or "")


def first_paragraph(text: str) -> str:
    """Returns a text up to its first empty line, on one line."""
    return " ".join(text.strip().split("\n\n")[0].split()).removesuffix("::")


@cache
def modules() -> tuple[str, ...]:
    """Returns the modules that have public names, parents first: those with ``__all__`` and the homes of
    the package's own names."""
    found = set(lazy("dietlab").values())
    for path in (ROOT / "dietlab").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if module != "dietlab" and assigned(module, "__all__") is not None:
            found.add(module)
    return tuple(sorted(module for module in found if not module.startswith(LEFT_OUT)))


@cache
def pages() -> dict[str, tuple[Name, ...]]:
    """Returns the public names of each part of dietlab; each name is on one page only, that of its shortest
    import."""
    lazily = lazy("dietlab")
    tops = {(home_of("dietlab", name), name) for name in lazily}
    found = dict[tuple[str, str], Name]()
    for module in sorted(modules(), key=lambda module: (module.count("."), module)):
        names = exported(module) or [name for name, home in lazily.items() if home == module]
        for name in names:
            home = home_of(module, name)
            found.setdefault(
                (home, name),
                Name(name, f"{module}.{name}", home, (home, name) in tops, summary(home, name)),
            )
    grouped = dict[str, list[Name]]()
    for value in sorted(found.values(), key=lambda value: (not value.top, value.name.lower())):
        grouped.setdefault(value.path.split(".")[1], []).append(value)
    return {part: tuple(grouped[part]) for part in sorted(grouped)}


@cache
def linkable() -> dict[str, str]:
    """Returns what a docstring may refer to: the path in the reference by each way to write a name."""
    ways = dict[str, str]()
    for name in (name for names in pages().values() for name in names):
        ways |= {name.path: name.identifier, name.canonical: name.identifier}
        ways |= {f"dietlab.{name.name}": name.identifier} if name.top else {}
    return ways


# --- what docstrings describe --------------------------------------------------------------------

SECTION = re.compile(r"(\w+):$")
ENTRY = re.compile(r"    (\*{0,2}\w+(?:, \*{0,2}\w+)*): \S")


def described(text: str) -> set[str]:
    """Returns the names that the sections Args and Attributes of a docstring describe."""
    found, section = set[str](), ""
    for line in text.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
        elif section in ("Args", "Attributes") and (entry := ENTRY.match(line)):
            found |= {name.strip().lstrip("*") for name in entry[1].split(",")}
    return found


def parameters(function: ast.FunctionDef) -> list[str]:
    """Returns the parameters of a function, but for ``self`` and ``cls``."""
    given = function.args
    found = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [arg.arg for arg in found if arg and arg.arg not in ("self", "cls")]


def undescribed(module: str, name: str) -> list[str]:
    """Returns what the reference would show of a public name without saying what it is.

    Of a function, parameters that are neither in Args nor named as code in its text. Of a class, such fields
    and parameters of its constructor that no text follows either, and methods without a text; a method that
    only gives another type to an inherited one has that one's.
    """
    nodes = [node for node in parsed(module).body if getattr(node, "name", "") == name]
    if not nodes:
        return []
    node = nodes[-1]  # overloads stand before
    text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
    if isinstance(node, ast.FunctionDef):
        said = described(text) | _as_code(text)
        return [f"{name}({parameter})" for parameter in parameters(node) if parameter not in said]
    found = list[str]()
    for inner, after in zip(node.body, [*node.body[1:], None], strict=True):  # type: ignore[attr-defined]
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            told = described(text) | described(ast.get_docstring(inner) or "") | _as_code(text)
            found += [f"{name}({parameter})" for parameter in parameters(inner) if parameter not in told]
        elif isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
            typed = any(ast.unparse(d) in ("overload", f"{inner.name}.setter") for d in inner.decorator_list)
            found += [] if typed or ast.get_docstring(inner) else [f"{name}.{inner.name}"]
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            field = inner.target.id
            if "ClassVar" in ast.unparse(inner.annotation):
                continue
            below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if not (field.startswith("_") or below or field in described(text) | _as_code(text)):
                found.append(f"{name}.{field}")
    return found


def _as_code(text: str) -> set[str]:
    """Returns the names in double backticks."""
    return set(re.findall(r"``(\w+)``", text))
