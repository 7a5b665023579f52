"""Files that are whole or as they were, and folders that one process works in."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from dietlab.errors import RecordError, StudyError
from dietlab.files import append_line, cut_truncated, locked, replacing, write_json, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": "é"}, indent=None)
    assert path.read_text(encoding="utf-8") == '{"a": "\\u00e9"}\n'
    write_whole(path, "é")
    assert path.read_bytes() == "é".encode() and os.listdir(tmp_path) == ["value.json"]


def test_json_is_compressed_where_the_name_says_so(tmp_path: Path) -> None:
    plain, packed = tmp_path / "value.json", tmp_path / "value.json.gz"
    for path in (plain, packed):
        write_json(path, [1, 2])
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    first = packed.read_bytes()
    write_json(packed, [1, 2])
    assert packed.read_bytes() == first, "the same bytes for the same value"


def stopped(path: Path, error: type[BaseException]) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text("after")
        assert path.read_text() == "before"
        raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_stops_in_the_middle_leaves_the_file_as_it_was(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "value"
    write_whole(path, "before")
    with pytest.raises(error):
        stopped(path, error)
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["value"]


def test_a_truncated_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, {"number": 1}, "lines")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"num')
    assert cut_truncated(path) and path.read_bytes() == whole
    path.write_bytes(b'{"num')
    assert not cut_truncated(path) and path.read_bytes() == b""


def test_a_line_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        RecordError, match=r"lines can be written; got .*missing.*a path whose folder is there"
    ):
        append_line(tmp_path / "missing" / "lines", {}, "lines")


def test_a_folder_is_locked_for_a_second_worker(tmp_path: Path) -> None:
    rule = "one cook at a time works in a kitchen"
    refused = pytest.raises(StudyError, match=r"one cook at a time .*; got .*new.*another folder")
    with locked(tmp_path / "new", rule), refused, locked(tmp_path / "new", rule):
        pass
    with locked(tmp_path / "new", rule):
        pass
