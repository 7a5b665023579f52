#!/bin/sh
# Prepares one visit of a GPU that is lent for minutes: builds here what the visit measures, packs it, and prints
# the calls for the other machine (scripts/pack_for_gpu.sh --ready). Visits in order of what they can show:
#
#   halves       4096 x 4096 in bfloat16, T = 1..4096, and small kernels of all units under compute-sanitizer
#   products     both batched products of BERT, float32
#   layers       BERT-base's dense layers by one library, float32 and bfloat16, also at layers never tuned for
#   model        BERT-base end to end in PyTorch, batch 16 and 1: needs .gpulib of the visit `layers`
#   decoder      a 7B decoder's dense layers by one library, bfloat16
#   large        2304 x 768 in float32 with 128 x 128 tiles of 8 x 16 sums a thread; T = 512 to 4096 of `halves`
#   convolution  ResNet-50's 3x3 layers against cuDNN, float32 and bfloat16
#
#   scripts/gpu_visit.sh VISIT [--hardware NAME] [--candidates N]
#
# NAME: of the GPU (default: h200). N: libraries of each operator (default: 64, or 16 of large and convolution,
# which have other schemes or many operators; 490 s measure some 90 libraries at 14 lengths). Empty .gpukit, .gpustate and .gpulib before another visit, but for `model`.
#
# Exit status: 0, or 2 for a wrong command or if something does not fit.

set -eu

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "gpu_visit.sh: $1" >&2
    exit 2
}

hardware=h200
candidates=
[ $# -gt 0 ] || { usage >&2; exit 2; }
case $1 in -h | --help) usage; exit 0 ;; esac
visit=$1
shift
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --hardware) hardware=$2 ;;
        --candidates) candidates=$2 ;;
        *) fail "there is no option $1; --help lists them" ;;
    esac
    shift 2
done
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
suite=first-gpu
more=
usual=64
case $visit in
    halves) only=dense-k4096-n4096 ;;
    products) only=batch-matmul more="--scheme 28x64x8.t4x16.s4.even" ;;
    layers) suite=bert-gpu only=dense-bert ;;
    model) ;;
    decoder) suite=decoder-gpu only=dense-decoder ;;
    large)
        only=dense-k768-n2304 usual=16
        for tile in 128x128x8.t16x8 128x256x8.t16x16 64x128x8.t8x8 64x256x8.t8x16; do
            for stages in s3 s4; do more="$more --scheme $tile.$stages.even"; done
        done
        ;;
    convolution) suite=resnet50-gpu only=conv3x3 usual=16 ;;
    *) fail "there is no visit $visit; --help lists them" ;;
esac

if [ "$visit" = model ]; then
    set -- .gpulib/dense-bert-base-*
    [ -d "$1" ] || fail "no study in .gpulib; the visit layers measures it, and dietlab kit build makes it"
    "$python" scripts/gpu_bert.py "$1" --prepare
    echo "call, bring .gpu1 .gpulib .gpustate:"
    echo "    mkdir -p \"\$OUT\"; cp -f .gpustate/* \"\$OUT\" 2>/dev/null; site=\$(sh scripts/gpu_unpack.sh .gpu1) ||" \
        "exit; PYTHONPATH=\"\$site:\$PWD\" python3 scripts/gpu_bert.py $1 --out \"\$OUT\""
    exit
fi
# shellcheck disable=SC2086
"$python" -m dietlab kit pack --suite "$suite" --only "$only" --hardware "$hardware" --candidates "${candidates:-$usual}" \
    $more --out .gpukit
[ -d .gpulight ] || "$python" scripts/gpu_first_light.py --pack .gpulight --hardware "$hardware"
PYTHON=$python exec sh scripts/pack_for_gpu.sh --ready --suite "$suite" -- --only "$only"
