"""What was compiled once is not compiled again, for any study; and nothing else is taken for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dietlab as dl
from dietlab.lower import store as stores
from dietlab.lower.store import Store
from dietlab.machine import Hardware
from dietlab.measure import build_worker
from dietlab.measure.build_worker import build, request_key
from dietlab.problem import Dense

HERE = Hardware.detect(measure=False)
WORK = Dense(T=dl.Dim(1, 16), N=32, K=8)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of the build worker in this process."""
    made = Store(tmp_path / "store")
    monkeypatch.setattr(build_worker, "STORE", made)
    return made


def request(path: Path, **changes: Any) -> dict[str, Any]:
    scheme = f"4x{2 * HERE.limits.lanes}.u2.ws.p0.even"
    asked = {"workload": WORK.to_json(), "hardware": HERE.to_json(), "scheme": scheme, "shapes": [{"T": 8}]}
    return {**asked, "path": str(path), **changes}


def test_what_is_kept_is_found_by_its_key_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "made" / "when kept")
    assert store.load("a") is None and store.size() == (0, 0)
    store.keep("a", {"told": 1}, b"\0code\n")
    assert store.load("a") == ({"told": 1}, b"\0code\n") and store.load("b") is None
    store.keep("a", {"told": 2}, b"other")
    assert store.load("a") == ({"told": 2}, b"other") and store.size()[0] == 1
    store.clear()
    assert store.load("a") is None and store.size() == (0, 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept[:-1],
        lambda kept: kept.replace(b"code", b"cope"),
        lambda kept: kept.replace(b"told", b"tale"),
        lambda _: b"",
        lambda _: b"[]\n",
        lambda _: b"{}\n",
        lambda _: b"\xff{\n",
    ],
)
def test_a_damaged_entry_is_none(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = Store(tmp_path)
    store.keep("a", {"told": 1}, b"code")
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert store.load("a") is None


def test_the_store_is_bounded_and_what_was_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    for number in range(8):
        store.keep(str(number), {}, bytes(1000))
    for entry in tmp_path.iterdir():
        os.utime(entry, (1, 1))
    assert store.load("2") and store.load("5")  # used now
    monkeypatch.setattr(stores, "MOST_BYTES", 6000)
    monkeypatch.setattr(stores, "LOOK_EVERY", 1)
    store.keep("new", {}, bytes(1000))
    assert 3000 < store.size()[1] <= stores.LEFT * 6000
    assert all(store.load(name) for name in ("2", "5", "new"))


def test_several_write_and_read_one_entry_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def work(number: int) -> bool:
        store.keep("same", {"by": number}, str(number).encode() * 5000)
        found = store.load("same")
        return found is not None and found[1] == str(found[0]["by"]).encode() * 5000

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(64)))
    assert store.size()[0] == 1


def test_a_library_that_was_built_is_built_again_without_tvm(tmp_path: Path) -> None:
    """A process of its own: this one has TVM."""
    home = {**os.environ, "HOME": str(tmp_path)}
    code = (
        "import json, sys\n"
        "if sys.argv[2] == 'again': sys.modules['tvm'] = None\n"
        "from dietlab.measure.build_worker import build\n"
        "print(json.dumps(build(json.loads(sys.argv[1]))))\n"
    )
    answers, built = [], [tmp_path / "1.so", tmp_path / "2.so"]
    for path, word in zip(built, ("first", "again"), strict=True):
        command = [sys.executable, "-c", code, json.dumps(request(path)), word]
        answers.append(json.loads(subprocess.run(command, env=home, capture_output=True, check=True).stdout))
    assert answers[0] == answers[1] and answers[0]["code_bytes"] > 0
    assert built[0].read_bytes() == built[1].read_bytes() and built[0].stat().st_ino != built[1].stat().st_ino


@pytest.mark.parametrize(
    "changes",
    [
        {"shapes": [{"T": 9}]},
        {"scheme": f"4x{2 * HERE.limits.lanes}.u2.ws.p0.rest"},
        {"hardware": HERE.with_cores(HERE.cores + 1).to_json()},
        {"workload": Dense(T=dl.Dim(1, 16), N=32, K=16).to_json()},
    ],
    ids=["shapes", "scheme", "cores", "depth"],
)
def test_another_request_has_another_key(changes: dict[str, Any], tmp_path: Path) -> None:
    same, other = request(tmp_path / "elsewhere"), request(tmp_path / "a", **changes)
    assert request_key(request(tmp_path / "a")) == request_key(same) != request_key(other)


def test_other_code_or_versions_have_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = request_key(request(tmp_path / "a"))
    monkeypatch.setattr(stores, "version", lambda name: f"{name} of tomorrow")
    stores.fingerprint.cache_clear()
    try:
        assert request_key(request(tmp_path / "a")) != before
        monkeypatch.undo()
        stores.fingerprint.cache_clear()
        source = tmp_path / "dietlab" / "lower" / "store.py"
        for room in (*stores.SOURCES, "targets/cpu"):
            (tmp_path / "dietlab" / room).mkdir(parents=True)
        monkeypatch.setattr(stores, "__file__", str(source))
        source.write_text("before")
        first = stores.fingerprint("cpu")
        stores.fingerprint.cache_clear()
        source.write_text("after")
        assert stores.fingerprint("cpu") != first
    finally:
        stores.fingerprint.cache_clear()


def test_code_of_others_is_not_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's class, or a target, that dietlab does not bring may change while its name stays."""
    assert request_key(request(tmp_path / "a"))
    assert stores.fingerprint("null") is None
    monkeypatch.setattr(Dense, "__module__", "mine")
    assert request_key(request(tmp_path / "a")) is None


def test_a_store_in_the_way_costs_time_only(store: Store, tmp_path: Path) -> None:
    store.folder.write_text("a file")
    assert build(request(tmp_path / "1.so"))["code_hash"] == build(request(tmp_path / "2.so"))["code_hash"]
    assert store.folder.read_text() == "a file" and store.size() == (0, 0)
