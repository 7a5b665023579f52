"""Questions of the notebooks have answers, and predictions that a reader enters are drawn or judged."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat
import pytest
from notebook_runs import NOTEBOOKS as FOLDER

from dietlab.lab import lessons

ANSWERED = [path for path in sorted(FOLDER.glob("*.ipynb")) if path.stem[:2].isdigit()]
CLIMBING = "21_from_loops_to_micro_kernel"
"""The lesson whose one figure takes a prediction at each step."""
FOLDED = re.compile(r"\n\n<details><summary>Answers</summary>\n\n(.*?)\n\n</details>", re.DOTALL)
PROMPT = re.compile(r"prediction = None  # yours[^:]*: (?P<what>.+), such as (?P<example>.+)")


def cells(path: Path, kind: str) -> list[str]:
    notebook: Any = nbformat.read(path, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def numbers(text: str) -> list[int]:
    """Returns the numbers of a numbered list, in their order."""
    return [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]


@pytest.mark.parametrize("path", ANSWERED, ids=lambda path: path.stem)
@pytest.mark.parametrize(("heading", "count"), [("Exercises", 3), ("Check yourself", 5)])
def test_each_question_has_an_answer(path: Path, heading: str, count: int) -> None:
    text = "\n\n".join(cells(path, "markdown"))
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    [answers] = FOLDED.findall(section)
    assert numbers(section.split("<details>", 1)[0]) == numbers(answers) == [*range(1, count + 1)]


@pytest.mark.parametrize("path", ANSWERED, ids=lambda path: path.stem)
def test_code_of_answers_is_python(path: Path) -> None:
    for answers in FOLDED.findall("\n\n".join(cells(path, "markdown"))):
        blocks = re.findall(r"```python\n(.*?)```", answers, re.DOTALL)
        assert answers.count("```") == 2 * len(blocks)
        for block in blocks:
            assert ast.parse(dedent(block)).body


@pytest.mark.parametrize("path", [p for p in ANSWERED if p.stem != CLIMBING], ids=lambda path: path.stem)
def test_predictions_are_entered_first_and_used(path: Path) -> None:
    """The example in the comment is one that the cell takes."""
    import plotly.graph_objects as go

    asking = [source for source in cells(path, "code") if "prediction" in source]
    assert 1 <= len(asking) <= 3
    for source in asking:
        first = next(line for line in source.splitlines() if "prediction" in line)
        prompt = PROMPT.fullmatch(first)
        assert prompt, first
        example = ast.literal_eval(prompt["example"])
        if isinstance(example, dict) or "with_prediction(" in source:
            assert "lessons.with_prediction(" in source
            assert lessons.with_prediction(go.Figure(), example) != go.Figure()
        else:
            assert "you predicted" in lessons.judged(example, 1.0)
            assert "lessons.judged(prediction," in source
