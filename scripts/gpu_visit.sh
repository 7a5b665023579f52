#!/bin/sh
# Prepares one visit of a GPU that is lent for minutes: builds here what the visit measures, packs it, and prints
# the two calls for the other machine (scripts/pack_for_gpu.sh --ready). Visits in order of what they can show:
#
#   halves       4096 x 4096 in bfloat16, T = 1..4096
#   products     both batched products of BERT, float32
#   layers       BERT-base's dense layers by one library, float32 and bfloat16, also at layers never tuned for
#   model        BERT-base end to end in PyTorch, batch 16 and 1, by the libraries in .gpulib of the visit layers
#   decoder      a 7B decoder's dense layers by one library, bfloat16
#   large        the paper's dense layer in float32, with tiles of 8 x 16 sums a thread
#   convolution  ResNet-50's 3x3 layers against cuDNN, float32 and bfloat16
#
# Each but model also runs small kernels of all units under compute-sanitizer.
#
#   scripts/gpu_visit.sh VISIT [--hardware NAME] [--candidates N] [--seconds N]
#
# NAME: of the GPU (default: h200). Candidates: libraries of each operator (default: 64; 16 for large and
# convolution, which have other schemes or many operators). Seconds: of each of the two calls (default: 300, in
# which some 50 libraries are measured at 14 lengths). The folders .gpukit, .gpulight, .gpustate and .gpulib of
# another visit must be gone before; for model, .gpulib is that of layers.
#
# Exit status: 0, or 2 for a wrong command or if something fails or does not fit.

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
seconds=300
visit=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --*=*)
            name=${1%%=*} value=${1#*=}
            shift
            set -- "$name" "$value" "$@"
            continue
            ;;
        --hardware | --candidates | --seconds) ;;
        -*) fail "there is no option $1; --help lists them" ;;
        *) [ -z "$visit" ] || fail "one visit at a time; got $visit and $1"; visit=$1; shift; continue ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in --candidates | --seconds) case $2 in *[!0-9]* | '' | 0) fail "$1 must be a number from 1 on; got $2" ;; esac ;; esac
    case $1 in
        --hardware) hardware=$2 ;;
        --candidates) candidates=$2 ;;
        --seconds) seconds=$2 ;;
    esac
    shift 2
done
[ -n "$visit" ] || { usage >&2; exit 2; }
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || fail "no Python at $python; PYTHON names one"
suite=first-gpu
more=
usual=64
case $visit in
    halves) only=dense-k4096-n4096 ;;
    products) only=batch-matmul more="--scheme 28x64x8.t4x16.s4.even" ;;
    layers) suite=bert-gpu only=dense-bert ;;
    model) only= ;;
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
    [ -d .gpu1 ] || fail "no packages in .gpu1; the visit layers packs them"
    for study in .gpulib/dense-bert-base-*; do
        [ -d "$study" ] || fail "no study in .gpulib; the visit layers measures it, and dietlab kit build makes it"
        "$python" scripts/gpu_bert.py "$study" --prepare >/dev/null || fail "its libraries cannot be built; see above"
        out=$(basename "$study")
        printf '\ncall, bring .gpu1 .gpulib .gpustate:\n    %s\n' "mkdir -p \"\$OUT/$out\"; cp -f .gpustate/$out/* \
\"\$OUT/$out\" 2>/dev/null; site=\$(sh scripts/gpu_unpack.sh .gpu1) || exit; PYTHONPATH=\"\$site:\$PWD\" python3 \
scripts/gpu_bert.py $study --out \"\$OUT/$out\""
    done
    exit
fi
for folder in .gpukit .gpulight .gpulib; do
    [ ! -d "$folder" ] || fail "$folder is there; rm -r .gpukit .gpulight .gpulib .gpustate removes the last visit"
done
# shellcheck disable=SC2086
"$python" -m dietlab kit pack --suite "$suite" --only "$only" --hardware "$hardware" \
    --candidates "${candidates:-$usual}" $more --out .gpukit || exit 2
"$python" scripts/gpu_first_light.py --pack .gpulight --hardware "$hardware" || exit 2
PYTHON=$python exec sh scripts/pack_for_gpu.sh --ready --suite "$suite" --seconds "$seconds" -- --only "$only"
