"""Puzzles: each has a text, hints, a picture, and cases that separate right answers from wrong ones.

The texts of the tasks stand in ``notebooks/puzzles.ipynb`` alone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from random import Random
from textwrap import fill
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, MissingDependencyError, RecordError
from dietlab.base.files import read_json, reading
from dietlab.base.shipped import shipped_folder
from dietlab.lab.puzzles.answers import WrongAnswer, kind, raised, said, same_number
from dietlab.lab.puzzles.pictures import Given, Look, Picture

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.view.widgets.explorer import Explorer

Answer = Callable[..., Any]
"""The function that a student writes."""

Fault = Callable[[Given, Any, Any], str]
"""A function that returns a text on what is wrong with a value, from the case, the value and the reference's
value. The text is empty if the value is right."""

Run = Callable[[Answer, Given], Any]
"""A call of an answer with the arguments of a case."""

CAPTION = 110
"""The number of characters in a line below a picture: about as wide as the figure."""

_given: Counter[str] = Counter()
"""The numbers of hints given so far, by the puzzle's name: puzzles are values and do not change."""


@cache
def _tasks() -> Mapping[str, tuple[str, str]]:
    """Returns title and text of each task in the notebook, by the function to write."""
    path = shipped_folder("notebooks") / "puzzles.ipynb"
    with reading(RecordError, "the puzzles' tasks must be in their notebook", path, "Install a full wheel."):
        cells = ["".join(cell["source"]) for cell in read_json(path)["cells"]]
    found, task = dict[str, tuple[str, str]](), ("", "")
    for cell in cells:
        if heading := re.match(r"## \d+ (.+)\n\n", cell):
            task = heading[1], cell[heading.end() :]
        elif function := re.search(r"(?m)^def (\w+)\(", cell):
            found[function[1]] = task
    return found


@dataclass(frozen=True)
class Score:
    """A count by which right answers are compared: less is better, unless ``what`` says otherwise.

    Args:
        what: the counted things, with their unit.
        yours: the answer's count, summed over the cases of the picture.
        reach: the count of the reference.
    """

    what: str
    yours: float
    reach: float

    def __str__(self) -> str:
        return f"{self.what}: yours {said(self.yours)}, to reach {said(self.reach)}"


@dataclass(frozen=True, repr=False)
class CheckResult:
    """The result of a check, with a sentence about it. The result is true if an answer is right on every
    case. In a notebook it shows the sentence and a picture of the answer beside the expected values.

    Args:
        solved: whether all cases are right.
        passed: the number of cases that were right before the first wrong one.
        text: the sentence about the result.
        score: the answer's score, where the puzzle counts something.
        picture: the kind of picture; None draws nothing.
        looks: the cases of the picture.
    """

    solved: bool
    passed: int
    text: str
    score: Score | None = None
    picture: Picture | None = field(default=None, compare=False)
    looks: tuple[Look, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return self.solved

    def __repr__(self) -> str:
        return self.text

    @property
    def figure(self) -> go.Figure | None:
        """The picture of the answer: a figure of plotly."""
        return None if self.picture is None else _explorer(self.picture, self.looks, self.text).figure

    def _repr_mimebundle_(self, **options: Any) -> Any:
        from dietlab.view.static.picture import picture

        try:
            shown = None if self.picture is None else _explorer(self.picture, self.looks, self.text)
        except MissingDependencyError:  # without the extra lab, the sentence is there still
            shown = None
        if shown is None:
            return {"text/plain": self.text}
        data, metadata = shown._repr_mimebundle_(**options)
        image = b64encode(picture(shown.figure, fill(self.text, CAPTION))).decode("ascii")
        return {**data, "image/png": image, "text/plain": self.text}, metadata


class Hint(str):
    """A hint, which a notebook shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: a small function to write.

    Args:
        name: the function's name; the notebook's cell that defines it follows the task.
        hints: the hints in their order, the last one nearly the solution.
        reference: a right answer.
        arguments: the names of the arguments in a case, in their order.
        tried: a function that yields the arguments to try, simple ones first, then others drawn from a source
            of random numbers.
        shown: the arguments of the picture.
        picture: the picture of the values.
        praise: one sentence for the student who solved it.
        fault: a function that says what is wrong with a value (default: that it is not the expected number).
        run: a function that calls an answer with a copy of a case's arguments, in their order.
        counts: the name of what the score counts, and the function that counts it in a case and a value.
    """

    name: str
    hints: tuple[str, ...]
    reference: Answer = field(repr=False)
    arguments: str
    tried: Callable[[Random], Iterable[tuple[Any, ...]]] = field(repr=False)
    shown: Sequence[tuple[Any, ...]] = field(repr=False)
    picture: Picture = field(repr=False)
    praise: str
    fault: Fault = field(default=lambda given, found, expected: same_number(found, expected), repr=False)
    run: Run = field(default=lambda answer, given: answer(*deepcopy(dict(given)).values()), repr=False)
    counts: tuple[str, Callable[[Given, Any], float]] | None = field(default=None, repr=False)

    def cases(self, random: Random) -> Iterator[Given]:
        """Yields the cases to try, for a source of random numbers."""
        return map(self._given, self.tried(random))

    def _given(self, values: tuple[Any, ...]) -> Given:
        return dict(zip(self.arguments.split(), values, strict=True))

    @property
    def title(self) -> str:
        return _tasks()[self.name][0]

    @property
    def text(self) -> str:
        """The task in Markdown, as it stands in the notebook."""
        return _tasks()[self.name][1]

    @property
    def minutes(self) -> int:
        """The minutes that a reader of the lesson needs."""
        (minutes,) = re.findall(r"\*About .* (\d+) minutes", self.text)
        return int(minutes)

    @property
    def plain(self) -> str:
        """The task without Markdown, in one paragraph."""
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.text)
        return " ".join(re.sub(r"(?m)^- |\*\*|`|(?<!\S)\*(?=\S)|(?<=\S)\*(?!\S)", "", text).split())

    def show(self) -> Explorer:
        """Returns the task below a picture of what is expected, to display in a notebook."""
        return _explorer(self.picture, self._looks(None), f"{self.title}. {self.plain}")

    def hint(self, number: int | None = None) -> Hint:
        """Returns the next hint, or one by its number.

        Args:
            number: the hint's number, 1 for the first (default: the number after the last that was given).

        Raises:
            DietlabError: for a number that is not positive.
        """
        if number is None:
            _given[self.name] += 1
            number = _given[self.name]
        if not isinstance(number, int) or number < 1:
            raise DietlabError("hints are numbered 1, 2, 3 and so on", repr(number))
        if number > len(self.hints):
            return Hint(f"{self.title}: no more hints. solutions.ipynb has a solution.")
        return Hint(f"{self.title}, hint {number} of {len(self.hints)}: {self.hints[number - 1]}")

    def check(self, answer: Answer, seed: int = 0) -> CheckResult:
        """Tries an answer on every case and reports the first that fails.

        Args:
            answer: a function; its arguments are given by position, so their names are free.
            seed: the seed of the random cases.

        Returns:
            A value that is true if all cases are right, and shows the answer's picture.
        """
        passed, begin = 0, f"{self.title}:"
        if not callable(answer):
            return CheckResult(False, 0, f"{begin} not yet. {self.name} is a function; got {kind(answer)}.")
        for given in self.cases(Random(seed)):
            try:
                fault = self._fault(answer, given)
            except NotImplementedError:
                text = f"{begin} not solved yet."
                return CheckResult(False, passed, text, picture=self.picture, looks=self._looks())
            if fault:
                before = f" (Cases before it that are right: {passed}.)" if passed else ""
                call = ", ".join(f"{name}={said(value)}" for name, value in given.items())
                fault = f"{self.name}({call}): {fault.rstrip('.')}"
                return self._judged(answer, False, passed, f"{begin} not yet. {fault}.{before}")
            passed += 1
        text = f"{begin} solved, all {passed} cases are right. {self.praise}"
        return self._judged(answer, True, passed, text)

    def _fault(self, answer: Answer, given: Given) -> str:
        """Returns a sentence on what is wrong with an answer on one case, or on the error that it raises."""
        try:
            return self.fault(given, self.run(answer, given), self.run(self.reference, given))
        except NotImplementedError:
            raise
        except WrongAnswer as error:
            return str(error)
        except Exception as error:  # whatever a student's function raises is news for the student
            return raised(error)

    def _judged(self, answer: Answer, solved: bool, passed: int, text: str) -> CheckResult:
        looks = self._looks(answer)
        score = self._score(looks)
        said_too = f" {str(score)[0].upper()}{str(score)[1:]}." if score else ""
        return CheckResult(solved, passed, text + said_too, score, self.picture, looks)

    def _looks(self, answer: Answer | None = None) -> tuple[Look, ...]:
        """Returns the cases of the picture, each with the answer's value; None where the answer fails."""
        looks = []
        for given in map(self._given, self.shown):
            expected, yours = self.run(self.reference, given), None
            if answer is not None:
                try:
                    yours = self.run(answer, given)
                except Exception:  # the check's sentence says what is wrong
                    yours = None
            looks.append(Look(given, expected, yours, answer is not None))
        return tuple(looks)

    def _score(self, looks: tuple[Look, ...]) -> Score | None:
        """Returns the score; None if the puzzle counts nothing, or if a value of the picture cannot be
        counted."""
        if self.counts is None:
            return None
        what, count = self.counts
        try:
            yours = sum(count(look.given, look.yours) for look in looks)
        except Exception:  # an answer of another kind has no score
            return None
        return Score(what, yours, sum(count(look.given, look.expected) for look in looks))


def _explorer(picture: Picture, looks: tuple[Look, ...], note: str) -> Explorer:
    """Returns a live view of a picture above a sentence."""
    from dietlab.view.lab import lab_imports

    with lab_imports("pictures of puzzles"):
        from dietlab.view.widgets.explorer import Drawn, Explorer

    frame = picture.frame(looks)
    attempted = any(look.answered for look in looks)
    drawn = Drawn(picture.figure(frame, attempted), frame, note=note)
    return Explorer(lambda: drawn, {})


def score_table(puzzles: Iterable[Puzzle], answers: Iterable[Answer]) -> pd.DataFrame:
    """Checks an answer to each puzzle and returns the results as a table.

    Args:
        puzzles: the puzzles, in any order.
        answers: a function for each puzzle, in the same order.

    Returns:
        A row for each puzzle: its title, its minutes, whether it is solved, the number of cases that are
        right before the first wrong one, and the score, in three columns.
    """
    import pandas as pd

    rows = []
    for puzzle, answer in zip(puzzles, answers, strict=True):
        result = puzzle.check(answer)
        score = result.score
        counted = (score.what, said(score.yours), said(score.reach)) if score else ("", "", "")
        rows.append((puzzle.title, puzzle.minutes, "yes" if result else "", result.passed, *counted))
    names = ["puzzle", "minutes", "solved", "right cases", "counted", "yours", "to reach"]
    return pd.DataFrame(rows, pd.RangeIndex(1, len(rows) + 1, name="number"), names)
