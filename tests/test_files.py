"""Files that are whole or as they were, and folders that one process works in."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dietlab.base.errors import DietlabError, DietlabWarning, RecordError, StudyError
from dietlab.base.files import (
    append_line,
    cut_truncated,
    locked,
    read_json,
    read_lines,
    read_text,
    reading,
    replacing,
    write_json,
    write_whole,
)


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
    path.write_bytes(whole[:-1])
    assert cut_truncated(path) and path.read_bytes() == whole, "it only lacks its end"


def test_a_line_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    told = r"lines must be writable; got .*missing.*another path, in a folder that exists"
    with pytest.raises(RecordError, match=told):
        append_line(tmp_path / "missing" / "lines", {}, "lines")


def test_a_file_that_cannot_be_written_is_told_and_stays(tmp_path: Path) -> None:
    told = r"page must be writable; got .*missing.*another path, in a folder that exists"
    with pytest.raises(DietlabError, match=told):
        write_whole(tmp_path / "missing" / "page", "text")
    (tmp_path / "kept").mkdir()
    with pytest.raises(RecordError, match=r"kept must be writable; got .*kept: .*directory"):
        write_whole(tmp_path / "kept", b"bytes", RecordError)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_folder_is_locked_for_a_second_worker(tmp_path: Path) -> None:
    rule = "one cook at a time works in a kitchen"
    refused = pytest.raises(StudyError, match=r"one cook at a time .*; got .*new.*another folder")
    with locked(tmp_path / "new", rule), refused, locked(tmp_path / "new", rule):
        pass
    with locked(tmp_path / "new", rule):
        pass


LINES = "".join(f'{{"number": {number}, "word": "größe"}}\n' for number in range(500))


def test_of_a_cut_file_the_whole_lines_are_read(tmp_path: Path) -> None:
    path, packed = tmp_path / "lines.jsonl.gz", gzip.compress(LINES.encode())
    wanted = tuple(LINES.splitlines())
    counts = []
    for length in range(11, len(packed), 37):
        path.write_bytes(packed[:length])
        whole = zlib.decompressobj(31).decompress(packed[:length]).count(b"\n")
        if not whole:
            with pytest.raises(ValueError, match="is cut off, after 0 lines"):
                read_lines(path)
        else:
            with pytest.warns(DietlabWarning, match=r"lines\.jsonl\.gz: the compressed file is cut off"):
                found = read_lines(path)
            assert found == wanted[:whole], length
            counts.append(whole)
        with pytest.raises(ValueError, match="is cut off"):
            read_text(path)
    assert len({*counts}) > 3
    path.write_bytes(packed)
    assert read_lines(path) == wanted and read_text(path) == LINES


def test_a_plain_file_cut_within_a_character_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    data = LINES.encode()
    path.write_bytes(data[: data.rindex("ö".encode()) + 1])
    with pytest.warns(DietlabWarning, match="cut off|within a character"):
        assert read_lines(path) == tuple(LINES.splitlines()[:-1])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_marks_and_ends_of_other_systems_are_no_part_of_a_text(
    tmp_path: Path, pack: Callable[[bytes], bytes], mark: str, ending: str
) -> None:
    path = tmp_path / "value"
    path.write_bytes(pack((mark + '{"a": 1}\n[2]\n'.replace("\n", ending)).encode()))
    assert read_lines(path) == ('{"a": 1}', "[2]")
    path.write_bytes(pack((mark + '{"a":\n1}'.replace("\n", ending)).encode()))
    assert read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS .*git lfs pull"),
        (gzip.compress(b"version https://git-lfs.github.com/spec/v1\n", mtime=0), "Git LFS"),
        ('{"a": 1}\n'.encode("utf-16"), "UTF-16: save it as UTF-8"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x28\xb5\x2f\xfdrest", "by zstd"),
        (gzip.compress(b"{}\n", mtime=0)[:4] + b"\xff" * 40, "damaged|CRC|gzip|decompress"),
    ],
)
def test_what_is_no_text_is_told(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "value"
    path.write_bytes(data)
    for reader in (read_text, read_json, read_lines):
        refused = pytest.raises(RecordError, match=rf"it can be read; got .*value: .*({told}).*\. Bring it\.")
        with refused, reading(RecordError, "it can be read", path, "Bring it."):
            reader(path)
    if data and not data.startswith(b"\x1f"):
        with pytest.raises(RecordError, match=told):
            cut_truncated(path)
        assert path.read_bytes() == data


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"fields; got .*x: no 'name'"), reading(StudyError, "fields", "x"):
        {}["name"]
    with pytest.raises(RecordError, match="another"), reading(StudyError, "fields", tmp_path):
        raise RecordError("another")
