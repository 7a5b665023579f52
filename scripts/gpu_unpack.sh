#!/bin/sh
# Unpacks what scripts/pack_for_gpu.sh packed, on the machine with the GPU; it needs no network.
#
#   sh scripts/gpu_unpack.sh .gpu1            keeps a part until the last one is here
#   site=$(sh scripts/gpu_unpack.sh .gpu2)    the last one: installs all, and prints the folder for PYTHONPATH
#
# Everything lies in $TMPDIR/dietlab-gpu (default: /tmp/dietlab-gpu); what is installed there already stays.

set -eu

fail() {
    echo "gpu_unpack.sh: $1" >&2
    exit 2
}

[ $# -eq 1 ] && [ "$1" != --help ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
part=$(ls "$1"/packages-*-of-* 2>/dev/null) || fail "no part of scripts/pack_for_gpu.sh lies in $1"
# packages-NAME-NUMBER-of-COUNT
count=${part##*-of-}
stem=$(basename "${part%-*-of-*}")
store=${TMPDIR:-/tmp}/dietlab-gpu
site=$store/${stem#packages-}
if [ ! -d "$site" ]; then
    mkdir -p "$store"
    cp -f "$part" "$store"
    case $part in
        *-"$count"-of-"$count") ;;
        *) echo "gpu_unpack.sh: kept $(basename "$part")" >&2; exit 0 ;;
    esac
    rm -rf "$store/wheels"
    mkdir "$store/wheels"
    number=1
    while [ "$number" -le "$count" ]; do
        cat "$store/$stem-$number-of-$count" 2>/dev/null >>"$store/wheels/packages.tar" ||
            fail "this machine has no part $number of $count: bring .gpu$number first"
        number=$((number + 1))
    done
    case $(sha256sum "$store/wheels/packages.tar") in
        "${stem#packages-}"*) ;;
        *) fail "the parts in $store are damaged: bring them all again" ;;
    esac
    (cd "$store/wheels" && tar -xf packages.tar && rm packages.tar)
    rm -rf "$site.new"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
        --target "$site.new" "$store"/wheels/*.whl >&2 || fail "pip installs the wheels; see above"
    mv "$site.new" "$site"
fi
echo "$site"
