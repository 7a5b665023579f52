#!/usr/bin/env bash
# A class with a functools.cached_property that goes to another process by cloudpickle.
#
# Guess: cloudpickle takes a class that a script defines to another process whole, also one with a
#   cached_property, as frozen dataclasses have them.
# Versions: cloudpickle 3.1.2, CPython 3.11.7.
# Behaviour: on CPython 3.10 and 3.11 it does not: a cached_property has a lock there, which cannot be pickled.
#   CPython 3.12 took the lock away (python/cpython#87634), and the same class travels. A reducer in the pickler's
#   dispatch_table that makes the property anew, with its name, helps on all versions; dietlab/carried.py has one.
# Seen:
#   TypeError: cannot pickle '_thread.RLock' object
#   with a reducer: 4
# Needs Python 3.10 or 3.11 (PYTHON=...); with another it says so and ends. Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
case $version in
3.10 | 3.11) ;;
*)
    echo "skipped: Python $version has no lock in cached_property"
    exit 0
    ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudpickle==3.1.2

cat >"$folder/script.py" <<'PYTHON'
import io
import subprocess
import sys
from collections import ChainMap
from functools import cached_property

import cloudpickle


class Layer:
    @cached_property
    def axes(self):
        return 4


def made(func, name):
    found = cached_property(func)
    found.attrname = name
    return found


class Pickler(cloudpickle.Pickler):
    dispatch_table = ChainMap(
        {cached_property: lambda value: (made, (value.func, value.attrname))},
        cloudpickle.Pickler.dispatch_table,
    )


try:
    cloudpickle.dumps(Layer)
    changed = True
    print("the class was taken whole")
except TypeError as error:
    changed = False
    print("TypeError:", error)

file = io.BytesIO()
Pickler(file).dump(Layer)
read = "import pickle, sys; print(pickle.load(sys.stdin.buffer)().axes)"
there = subprocess.run([sys.executable, "-c", read], input=file.getvalue(), capture_output=True, check=True)
answer = there.stdout.decode().strip()
print("with a reducer:", answer)
sys.exit(changed or answer != "4")
PYTHON

"$folder/venv/bin/python" "$folder/script.py"
