#!/usr/bin/env bash
# Guess: a server of TVM's RPC that was without its tracker for some minutes joins again once the tracker is
#   back, as one that was without it for some seconds does.
# Versions: apache-tvm 0.27.0.post1, apache-tvm-ffi 0.1.14.post1, tornado 6.5.10, CPython 3.11.7.
# Behaviour: apache-tvm 0.27.0.post1 does not: after a minute of refused connections
#   tvm.rpc.base.connect_with_retry raises RuntimeError, which ends the thread that lets clients in
#   (tvm/rpc/server.py, _listen_loop). The process lives, its port listens, and no tracker lists it ever again.
#   `dietlab serve` looks whether that thread lives.
# Seen:
#   with its tracker: listed 1, lets clients in True
#   tracker away for 70 s, back for 20 s: listed 0, lets clients in False, process lives True, port listens True
# Takes two minutes. Exit status 1: the behaviour changed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1 tornado==6.5.10 cloudpickle==3.1.2 psutil==7.2.2 numpy==2.2.6

cat >"$folder/lost.py" <<'PYTHON'
import socket
import sys
import time

from tvm import rpc
from tvm.rpc.tracker import Tracker

AWAY, BACK = 70, 20


def lets_in():
    from tvm.rpc.server import PopenRPCServerState

    return PopenRPCServerState.current.thread.is_alive()


def listed(port):
    servers = rpc.connect_tracker("127.0.0.1", port).summary()["server_info"]
    return sum(server["key"] == "server:lab" for server in servers)


def asked(server):
    server.proc.send(lets_in)
    return server.proc.recv()


def listens(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    tracker = Tracker("127.0.0.1", 9290, 9390, silent=True)
    port = tracker.port
    server = rpc.Server("127.0.0.1", 9490, 9590, tracker_addr=("127.0.0.1", port), key="lab", silent=True)
    time.sleep(3)
    before = listed(port), asked(server)
    print("with its tracker: listed {}, lets clients in {}".format(*before))
    tracker.terminate()
    time.sleep(AWAY)
    again = Tracker("127.0.0.1", port, port + 1, silent=True)
    time.sleep(BACK)
    after = listed(port), asked(server), server.proc.is_alive(), listens(server.port)
    print(
        f"tracker away for {AWAY} s, back for {BACK} s: listed {after[0]}, lets clients in {after[1]}, "
        f"process lives {after[2]}, port listens {after[3]}"
    )
    server.terminate()
    again.terminate()
    sys.exit(0 if (before, after) == ((1, True), (0, False, True, True)) else 1)
PYTHON

cd "$folder"
if ! "$folder/venv/bin/python" lost.py; then
    echo "changed: the server joins its tracker again, or the first looks went otherwise"
    exit 1
fi
