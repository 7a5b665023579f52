"""Measuring on servers of TVM's RPC: real ones on the loopback address, and all that fails."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from conftest import ROOT
from schemes import cpu_scheme
from tvm.rpc import base
from workers.rpc_hasty import give_up_soon

from dietlab.base.errors import MeasureError
from dietlab.cli.main import main
from dietlab.cli.parameters import ADDRESS
from dietlab.machine import Hardware
from dietlab.measure import Record, RemoteRunner, Timing, Trial
from dietlab.measure.rpc import client as rpc_client
from dietlab.measure.rpc import worker as rpc_worker
from dietlab.measure.rpc.client import DeviceLostError, RemoteDevice, Servers, remote_hardware
from dietlab.measure.rpc.server import Served, serving, start_tracker
from dietlab.measure.rpc.tracker import is_here, listed
from dietlab.problem import Dense, Dim, Shape

WORK = Dense(T=Dim(1, 16), N=40, K=12, bias=True)
FAST = Timing(2, 0.0005)
SHAPES = tuple(Shape.of(T=t) for t in (1, 5, 8, 9))

Address = tuple[str, int]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without PyTorch, whose import is most of what a server's start takes."""
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "torch.py").write_text("raise ImportError('hidden')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (hidden, ROOT / "tests", ROOT)))}


@pytest.fixture(scope="module", autouse=True)
def workers_see_no_pytorch(environment: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment["PYTHONPATH"])
        yield


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not left, [child.cmdline() for child in left]


@contextmanager
def served(environment: dict[str, str], *options: str) -> Iterator[tuple[Address, psutil.Process]]:
    """``dietlab serve`` in a process; yields the tracker's address."""
    command = [sys.executable, "-m", "dietlab", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        tree = psutil.Process(process.pid)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "tracker at" in line, line
            yield ADDRESS.convert(line.split()[-1], None, None), tree
        finally:
            end(tree)
            process.communicate()


def end(tree: psutil.Process) -> None:
    """Kills a process and all that it started."""
    if tree.is_running():
        for process in (*tree.children(recursive=True), tree):
            with suppress(psutil.NoSuchProcess):  # the session of a client that has just left
                process.kill()


@pytest.fixture(scope="module")
def tracker(environment: dict[str, str]) -> Iterator[Address]:
    """A tracker with one server of the key ``lab``."""
    with served(environment, "--key", "lab", "--name", "first") as (address, _):
        yield address


@pytest.fixture(scope="module")
def strangers(tracker: Address, environment: dict[str, str]) -> Iterator[Address]:
    """The same tracker, with servers that are none of ours."""
    command = [sys.executable, "-m", "workers.rpc_strangers", tracker[0], str(tracker[1])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield tracker
        end(psutil.Process(process.pid))


@pytest.fixture
def joined(tracker: Address, environment: dict[str, str]) -> Iterator[Callable[..., psutil.Process]]:
    """Starts more servers at the tracker."""
    with ExitStack() as stack:

        def join(name: str, key: str = "lab") -> psutil.Process:
            address = f"{tracker[0]}:{tracker[1]}"
            options = ("--key", key, "--name", name, "--tracker", address)
            _, tree = stack.enter_context(served(environment, *options))
            return tree

        yield join


def trials(here: Hardware, rows: tuple[int, ...] = (4, 5)) -> list[Trial]:
    return [Trial(cpu_scheme(height, here.limits.lanes, edge="even"), SHAPES) for height in rows]


def runner(here: Hardware, tracker: Address, key: str = "lab", **changed: Any) -> RemoteRunner:
    return RemoteRunner(here, tracker, key, FAST, builders=1, **changed)


def refused(remote: RemoteRunner, here: Hardware, complaint: str) -> None:
    """Asserts that a runner cannot measure, and why."""
    with remote, pytest.raises(MeasureError, match=complaint):
        list(remote.measure(WORK, trials(here)))


def before_each_question(monkeypatch: pytest.MonkeyPatch, act: Callable[[RemoteDevice, Any], None]) -> None:
    """Calls a function before each question to a device."""
    ask = RemoteDevice.ask

    def asked(device: RemoteDevice, request: Any) -> dict[str, Any]:
        act(device, request)
        return ask(device, request)

    monkeypatch.setattr(RemoteDevice, "ask", asked)


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def all_free(tracker: Address, key: str, count: int) -> None:
    """Waits until a tracker knows that so many servers are free."""
    with Servers(tracker, key) as servers:
        until = monotonic() + 30
        while servers.queue().free < count:
            assert monotonic() < until, servers.queue()
            sleep(0.1)


def test_rpc_servers_of_a_key_measure_at_the_same_time(
    here: Hardware, tracker: Address, joined: Callable[..., psutil.Process]
) -> None:
    joined("second")
    all_free(tracker, "lab", 2)
    with runner(here, tracker) as remote:
        first = list(remote.measure(WORK, trials(here)))
        again = list(remote.measure(WORK, trials(here, (6,))))
    assert {(r.scheme, r.shape) for r in first} == {(t.scheme, s) for t in trials(here) for s in SHAPES}
    assert all(r.ok and r.seconds and r.code_bytes and r.phases.measure > 0 for r in (*first, *again))
    assert {r.device for r in first} == {"first", "second"}
    by_shape = {shape: {r.device for r in first if r.shape == shape} for shape in SHAPES}
    assert all(len(devices) == 1 for devices in by_shape.values()), "rivals stay together"
    assert all(Record.from_json(json.loads(json.dumps(r.to_json()))).device == r.device for r in first)


def test_rpc_server_killed_during_a_measurement_costs_nothing_but_time(
    here: Hardware,
    tracker: Address,
    joined: Callable[..., psutil.Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doomed = joined("doomed")
    all_free(tracker, "lab", 2)

    def kill(device: RemoteDevice, request: Any) -> None:
        if device.name == "doomed" and request["op"] == "time":
            end(doomed)

    before_each_question(monkeypatch, kill)
    with runner(here, tracker) as remote:
        found = list(remote.measure(WORK, trials(here)))
    assert len(found) == 8 and all(r.ok and r.device == "first" for r in found)


@pytest.mark.thorough
def test_rpc_candidate_that_ends_every_server_is_recorded_alone(
    here: Hardware, tracker: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rivals on T=5 are lost on two servers; all others are measured."""
    lost = []

    def lose(device: RemoteDevice, request: Any) -> None:
        if request["shape"]["T"] == 5 and request["op"] == "time":
            lost.append(device)
            raise DeviceLostError(f"the server {device.name} answers", "nothing")

    before_each_question(monkeypatch, lose)
    with runner(here, tracker) as remote:
        found = list(remote.measure(WORK, trials(here)))
    assert [r.status for r in found if r.shape["T"] == 5] == ["crashed"] * 2 and len(lost) == 2
    assert all(r.reason == "the server first answers; got nothing" for r in found if not r.ok)
    assert len(found) == 8 and all(r.ok for r in found if r.shape["T"] != 5)


def test_rpc_device_slower_than_the_timeout_is_a_record(here: Hardware, tracker: Address) -> None:
    large = Dense(T=Dim(1, 4096), N=2048, K=2048)
    trial = Trial(cpu_scheme(1, here.limits.lanes, edge="even"), (Shape.of(T=4096),))
    with runner(here, tracker, time_timeout=0.6) as remote:
        (slow,) = remote.measure(large, [trial])
        (quick,) = remote.measure(WORK, [Trial(trial.scheme, SHAPES[:1])])
    assert slow.status == "timeout" and "within 0.6 s" in slow.reason and slow.device == "first"
    assert quick.ok, "the server goes on"


@pytest.mark.thorough
def test_rpc_server_that_joins_takes_part(
    here: Hardware, tracker: Address, joined: Callable[..., psutil.Process]
) -> None:
    """There is none of its key at first."""
    joining = Thread(target=joined, args=("late", "later"))
    with runner(here, tracker, key="later", patience=30.0) as remote:
        joining.start()
        found = list(remote.measure(WORK, trials(here, (4,))))
    joining.join()
    assert len(found) == 4 and {r.device for r in found} == {"late"}


@pytest.mark.thorough
def test_rpc_clients_of_one_tracker_take_turns(here: Hardware, tracker: Address) -> None:
    """Both tune twice on the only server: who has it gives it back between two calls."""
    all_free(tracker, "lab", 1)
    done: list[int] = []

    def client(number: int) -> None:
        with runner(here, tracker) as remote:
            for rows in (4, 5, 6):
                assert all(r.ok for r in remote.measure(WORK, trials(here, (rows,))))
                done.append(number)

    clients = [Thread(target=client, args=(number,)) for number in range(2)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert sorted(done) == [0, 0, 0, 1, 1, 1]
    assert done not in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]), "none waits until the other ends"


def test_rpc_tracker_that_is_absent_is_told_at_once(here: Hardware) -> None:
    port = unused_port()
    answers = rf"tracker of TVM's RPC must answer at 127.0.0.1:{port}; got .*serve"
    refused(runner(here, ("127.0.0.1", port)), here, answers)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20, b""])
def test_rpc_tracker_that_is_something_else_is_told(
    greeting: bytes, here: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One says something else, one nothing at all."""
    monkeypatch.setattr(rpc_client, "NETWORK_SECONDS", 6.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(greeting)
                connection.recv(1 << 10)
                sleep(0 if greeting else 7)

        thread = Thread(target=answer)
        thread.start()
        refused(runner(here, listening.getsockname()), here, "a tracker of TVM's RPC must answer at")
        thread.join()


def test_rpc_wrong_key_is_told_with_those_there_are(here: Hardware, tracker: Address) -> None:
    said = r"key lap must have joined the tracker .*; got those of .*lab.*--key lap"
    refused(runner(here, tracker, key="lap", patience=0.0), here, said)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("foreign", r"key foreign must have been started by dietlab serve; got .*Stop the others"),
        ("garbage", "no JSON"),
    ],
)
def test_rpc_server_of_others_is_refused(key: str, said: str, here: Hardware, strangers: Address) -> None:
    refused(runner(here, strangers, key), here, said)


def test_rpc_server_that_never_answers_is_given_up(
    here: Hardware, strangers: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_client, "NETWORK_SECONDS", 6.0)
    said = r"key silent must be free and answer within 0\.5 s; got none"
    refused(runner(here, strangers, "silent", patience=0.5), here, said)


def test_rpc_server_of_another_processor_is_refused(here: Hardware, tracker: Address) -> None:
    said = r"the tuned processor, .*; got first with .*another key"
    refused(runner(Hardware.preset("haswell-1core"), tracker), here, said)


@pytest.mark.thorough
def test_rpc_hardware_is_measured_where_the_server_is(here: Hardware, tracker: Address) -> None:
    found = remote_hardware(tracker, "lab", cores=1)
    assert found.is_same_as(here) and found.cores == 1 and found.peak_gflops and found.dram_gbps


@pytest.mark.thorough
def test_rpc_tunes_from_the_command_line(tracker: Address, tmp_path: Path) -> None:
    address, folder = f"{tracker[0]}:{tracker[1]}", tmp_path / "study"
    command = (
        f"tune dense --dim T=1:8 --dim N=40 --dim K=12 --effort smoke --shapes 1,8 --out {folder} --quiet"
    )
    done = CliRunner().invoke(main, [*command.split(), "--rpc", address, "--key", "lab"])
    assert done.exit_code == 0, done.output
    assert '"device":"first"' in (folder / "records.jsonl").read_text().replace(" ", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rpc", "127.0.0.1:9190"], "--rpc and --key need each other; got only --rpc"),
        (["--key", "lab"], "--rpc and --key need each other; got only --key"),
        (["--rpc", "9190", "--key", "lab"], "an address reads HOST:PORT"),
        (["--rpc", "host:99999", "--key", "lab"], "an address reads HOST:PORT"),
        (["--rpc", "::1:9190", "--key", "lab"], "as in 127.0.0.1:9190 or [::1]:9190; got '::1:9190'"),
        (["--rpc", "[::1]", "--key", "lab"], "an address reads HOST:PORT"),
    ],
)
def test_rpc_address_and_key_are_checked_at_the_door(options: list[str], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["tune", "--out", str(tmp_path / "x"), *options])
    assert done.exit_code == 2 and said in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "at which other machines reach it; got 0.0.0.0, which means every address"),
        (["--host", "::"], "got ::, which means every address of this machine"),
        (
            ["--host", "192.0.2.1"],
            "a server must listen on an address of the machine that it runs on; got 192.0.2.1",
        ),
        (["--host", "nowhere.invalid"], "a host must have an address; got 'nowhere.invalid'"),
        (["--tracker", "192.0.2.1:9190"], "the tracker of 192.0.2.1; got 127.0.0.1, which only this machine"),
    ],
)
def test_rpc_server_that_others_cannot_reach_is_refused_at_once(options: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["serve", "--key", "lab", *options])
    assert done.exit_code == 2 and said in done.output


def test_rpc_tracker_lists_the_address_that_the_server_listens_on(tracker: Address) -> None:
    servers = [address for key, address in listed(tracker).servers if key == "lab"]
    assert servers and {host for host, _ in servers} == {"127.0.0.1"}


@pytest.mark.skipif(not is_here("::1"), reason="this machine has no IPv6")
def test_rpc_address_may_be_of_ipv6(environment: dict[str, str]) -> None:
    assert ADDRESS.convert("[::1]:9190", None, None) == ("::1", 9190)
    with (
        served(environment, "--key", "six", "--host", "::1", "--name", "sixth") as (address, _),
        Servers(address, "six") as servers,
    ):
        assert address[0] == "::1" and servers.address == f"[::1]:{address[1]}"
        device = servers.connect(10.0, 10.0)
        assert device.name == "sixth"
        device.close()


def test_rpc_server_that_is_not_where_it_is_listed_is_told_at_once(here: Hardware, tracker: Address) -> None:
    port = unused_port()
    with socket.create_connection(tracker) as connection:
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        base.recvall(connection, 4)
        for told in (
            [base.TrackerCode.UPDATE_INFO, {"key": "server:moved", "addr": ["127.0.0.1", port]}],
            [base.TrackerCode.PUT, "moved", [port, "moved:0.1"], "127.0.0.1"],
        ):
            base.sendjson(connection, told)
            assert base.recvjson(connection) == base.TrackerCode.SUCCESS
        said = rf"at the address in the tracker .*; got 127.0.0.1:{port}: .*serve --host ADDRESS"
        refused(runner(here, tracker, "moved", patience=5.0), here, said)


def test_rpc_server_of_another_machine_is_not_on_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a server that listens on all addresses is listed by a tracker beside it."""
    monkeypatch.setattr(rpc_worker, "free_server", lambda tracker, key: (("127.0.0.1", 9090), "lab:0.1"))
    answer = rpc_worker.Client()({"op": "connect", "tracker": ["192.0.2.1", 9190], "key": "lab"})
    assert answer == {"unreached": "127.0.0.1:9090", "why": "every machine calls itself so"}


def test_rpc_server_joins_a_tracker_that_was_away() -> None:
    """TVM's server gives up after a minute, lives, listens, and is never listed again; here after half a
    second."""
    with ExitStack() as first, ExitStack() as second:
        port = start_tracker(first)
        with serving("back", tracker=("127.0.0.1", port), name="patient") as server:
            server.server.proc.send(give_up_soon)
            server.server.proc.recv()
            looks(server)
            first.close()
            until = monotonic() + 60
            while server._listens():
                assert monotonic() < until
                sleep(0.1)
            at = f"127.0.0.1:{port}"
            said = f"No tracker answers at {at}: clients cannot find this server. It joins once one answers."
            assert server.look() == said
            assert start_tracker(second, port=port) == port
            assert looks(server)[-1] == f"Listed at {at} again."
            assert server.look() == "", "told once"
            with Servers(("127.0.0.1", port), "back") as servers:
                device = servers.connect(10.0, 10.0)
                assert device.name == "patient"
                device.close()


def looks(server: Served) -> list[str]:
    """Looks until a tracker lists a server; returns what was said."""
    until, told = monotonic() + 60, list[str]()
    while server._state():
        assert monotonic() < until
        told.append(server.look())
        sleep(0.1)
    return [*filter(None, (*told, server.look()))]
