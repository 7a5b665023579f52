#!/bin/sh
# Rehearses on this machine, without a GPU, what is done on one that is lent for minutes: the commands that
# scripts/pack_for_gpu.sh prints, on Python 3.12 without a network, an emulated GPU and a stand-in for PyTorch.
#
#   scripts/gpu_rehearsal.sh [FOLDER]
#
# FOLDER (default: runs/rehearsal) gets bench.log and kit.log: what each call brought, in MiB, its command, what
# it printed, its status and its seconds. It takes some ten minutes.

set -eu
case ${1:-} in -*) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
logs=$(realpath -m "${1:-runs/rehearsal}")
cd "$(dirname "$0")/.."
REHEARSAL_LOGS=$logs ${PYTHON:-python3} -m pytest -m thorough tests/test_gpu_rehearsal.py tests/test_gpu_ready.py
echo "$logs"
