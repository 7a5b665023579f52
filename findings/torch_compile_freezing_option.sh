#!/usr/bin/env bash
# Guess: torch.compile(model, dynamic=True, options={"freezing": True}) freezes and packs the weights of that
#   model, since "freezing" is an option that torch.compile accepts.
# Versions: torch 2.13.0 (CPU build), on an Intel Xeon; a C++ compiler is needed.
# Behaviour: PyTorch 2.13.0 takes the option and packs nothing: the layers are aten::addmm. Only the global
#   torch._inductor.config.freezing does it, and then dynamic rows go to oneDNN (mkldnn::_linear_pointwise). So
#   a comparison with torch.compile needs a process for each form (dietlab/models/runtimes.py).
# Seen:
#   by the option: aten::addmm
#   by the global setting: mkldnn::_linear_pointwise
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

if ! command -v g++ >/dev/null; then
    echo "skipped: there is no C++ compiler"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.2.6

cat >"$folder/seen.py" <<'PYTHON'
import sys

import torch
from torch.profiler import profile

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768)).eval()


def layers(options=None):
    """The operations that a compiled model computes its layers by, on a number of rows that it was not first
    called with."""
    torch._dynamo.reset()
    compiled = torch.compile(model, dynamic=True, options=options)
    with torch.no_grad():
        for rows in (3, 7):
            compiled(torch.randn(rows, 768))
        with profile() as seen:
            compiled(torch.randn(9, 768))
    names = {event.key for event in seen.key_averages()}
    return sorted(names & {"aten::addmm", "aten::linear", "mkldnn::_linear_pointwise", "mkl::_mkl_linear"})


by_option = layers({"freezing": True})
print("by the option:", *by_option)
import torch._inductor.config

torch._inductor.config.freezing = True
by_setting = layers()
print("by the global setting:", *by_setting)
sys.exit(0 if (by_option, by_setting) == (["aten::addmm"], ["mkldnn::_linear_pointwise"]) else 1)
PYTHON

if ! (cd "$folder" && "$folder/venv/bin/python" seen.py); then
    echo "changed: the option freezes, or the global setting does not"
    exit 1
fi
