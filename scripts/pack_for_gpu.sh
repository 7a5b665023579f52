#!/bin/sh
# Packs dietlab for a machine that has a GPU and PyTorch, but neither TVM nor a network, and that is reached by
# commands which bring a copy of this working tree along: at most 64 MiB a call, ten minutes a command.
#
#   scripts/pack_for_gpu.sh                     packs, and prints the commands for the other machine
#   scripts/pack_for_gpu.sh scipy pandas        packs these packages, too
#   scripts/pack_for_gpu.sh --suite paper-gpu -- --effort quick
#                                               what follows -- goes to `dietlab bench` there
#   scripts/pack_for_gpu.sh --ready             packs TVM's runtime without its compiler: libraries are built
#                                               here and measured there, in two visits (dietlab kit)
#
# The wheels of TVM, xgboost and what else dietlab needs are downloaded for the other machine's Python, in the
# versions of constraints.txt, and split into the folders .gpu1, .gpu2, ... (ignored by git), each of which
# fits into one call beside the working tree, which travels with every call. The other machine must have:
#
#   x86-64 Linux, Python of the version below with pip, PyTorch for CUDA 13, NumPy, pandas, SciPy
#   but for --ready, nvcc and a C compiler to link libraries with; compute-sanitizer if memory errors and races
#   are looked for
#
# Options:
#   --python VERSION     of the other machine (default: 3.12)
#   --limit MIB          of one call (default: 64)
#   --suite NAME         what the commands run (default: first-gpu)
#   --seconds N          of a slice of the bench (default: 330, which leaves time to unpack and to begin; 480
#                        for --ready, where little is to begin)
#   --ready              what is described above; the folders .gpukit, .gpulight and .gpulib, if they are
#                        there, count
#   --no-download        pack the wheels that an earlier call downloaded
#
# Exit status: 0, or 2 for a wrong command or if something does not fit.

set -eu

python=3.12
limit=64
suite=first-gpu
seconds=
ready=no
download=yes
packages="apache-tvm apache-tvm-ffi xgboost-cpu click cloudpickle filelock psutil threadpoolctl tqdm ml-dtypes typing-extensions"
spare=2 # MiB of a call that stay free: for .gpustate, and for what is edited after packing
least=8 # MiB; parts below would need more calls than anybody makes

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "pack_for_gpu.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --no-download) download=no; shift; continue ;;
        --ready) ready=yes; shift; continue ;;
        --) shift; break ;;
        --python | --limit | --suite | --seconds) ;;
        -*) fail "there is no option $1; --help lists them" ;;
        *) packages="$packages $1"; shift; continue ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --python) python=$2 ;;
        --limit) limit=$2 ;;
        --suite) suite=$2 ;;
        --seconds) seconds=$2 ;;
    esac
    shift 2
done

cd "$(dirname "$0")/.."
if [ "$ready" = yes ]; then
    wheels=.gpu-wheels-ready
    carried=".gpukit .gpulight"
    returned=.gpulib
    fewest=1
    seconds=${seconds:-480}
else
    wheels=.gpu-wheels
    carried=
    returned=
    fewest=2
    seconds=${seconds:-330}
fi

# Leaves out of TVM's wheel what only compiling and developing need.
strip_compiler() {
    ${PYTHON:-python3} - "$wheels" <<'END'
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

(whole,) = Path(sys.argv[1]).glob("apache_tvm-*.whl")
needless = [f"tvm/{name}" for name in ("lib/libtvm_compiler", "3rdparty/", "include/", "src/", "relax/", "web/")]
with ZipFile(whole) as old, ZipFile(whole.with_suffix(".new"), "w", ZIP_DEFLATED, compresslevel=9) as new:
    for entry in old.infolist():
        if not entry.filename.startswith(tuple(needless)):
            new.writestr(entry, old.read(entry), ZIP_DEFLATED, 9)
whole.with_suffix(".new").replace(whole)
END
}

if [ "$download" = yes ]; then
    rm -rf "$wheels"
    # pip takes these names of platforms literally: all that a wheel for x86-64 of the last years may have.
    # shellcheck disable=SC2086
    ${PYTHON:-python3} -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python" \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --platform manylinux2010_x86_64 --platform manylinux1_x86_64 \
        -c constraints.txt -d "$wheels" $packages || fail "pip finds no wheel for Python $python; see above"
    [ "$ready" = no ] || strip_compiler || fail "TVM's wheel cannot be made smaller; see above"
fi
[ -d "$wheels" ] || fail "no wheels in $wheels; leave --no-download out"

# What travels anyway: tracked files, untracked ones that git does not ignore, and the larger part of the
# libraries: those that one visit measures, or those that the next one does.
tree=$(git ls-files -z --cached --others --exclude-standard | xargs -0 cat 2>/dev/null | wc -c)
mib=1048576
bytes_in() {
    for folder in "$@"; do
        [ ! -d "$folder" ] || find "$folder" -type f -exec cat {} +
    done | wc -c
}
# shellcheck disable=SC2086
libraries=$(bytes_in $carried) others=$(bytes_in $returned)
[ "$libraries" -ge "$others" ] || libraries=$others
tree=$((tree + libraries))
room=$((limit * mib - spare * mib - tree))
[ "$room" -ge $((least * mib)) ] ||
    fail "the working tree takes $((tree / mib)) of $limit MiB; ignore what the GPU does not need (git status)"

packed=$wheels/packages.tar
rm -f "$packed"
(cd "$wheels" && tar --sort=name --mtime=@0 --owner=0 --group=0 -cf packages.tar -- *.whl)
bytes=$(wc -c <"$packed")
count=$(((bytes + room - 1) / room))
[ "$count" -ge "$fewest" ] || count=$fewest
each=$(((bytes + count - 1) / count))
name=$(sha256sum "$packed" | cut -c1-12)
rm -rf .gpu[0-9]*
number=1
while [ "$number" -le "$count" ]; do
    mkdir ".gpu$number"
    tail -c +$(((number - 1) * each + 1)) "$packed" | head -c "$each" \
        >".gpu$number/packages-$name-$number-of-$count"
    number=$((number + 1))
done
rm "$packed"
mkdir -p .gpustate

tenths() {
    echo "$(($1 / mib)).$(($1 % mib * 10 / mib)) MiB"
}

echo "A call brings the working tree${carried:+, libraries} ($(tenths "$tree")) and the folders named:" \
    "$(tenths $((tree + each))) of $limit MiB. \$OUT is a folder whose files come back; it begins empty."
number=1
while [ "$number" -lt "$count" ]; do
    printf '\ncall %s, bring .gpu%s:\n    %s\n' "$number" "$number" "sh scripts/gpu_unpack.sh .gpu$number"
    number=$((number + 1))
done
begin="mkdir -p \"\$OUT\"; cp -f .gpustate/* \"\$OUT\" 2>/dev/null; \
site=\$(sh scripts/gpu_unpack.sh .gpu$count) || exit; export PYTHONPATH=\"\$site:\$PWD\"; "
slice="sh scripts/gpu_slices.sh --once --suite $suite --seconds $seconds --state \"\$OUT/state.tar.gz\" \
--pack \"\$OUT/$suite.csv.gz\" --dietlab 'python3 -m dietlab'"
if [ "$ready" = yes ]; then
    if [ ! -d .gpukit ] || [ ! -d .gpulight ]; then
        cat <<END

before:
    dietlab kit pack --suite $suite --hardware h200 --out .gpukit
    python3 scripts/gpu_first_light.py --pack .gpulight --hardware h200
END
    fi
    cat <<END

call $count, bring .gpu$count .gpukit .gpulight .gpustate:
    ${begin}python3 -m dietlab kit measure .gpukit --out "\${TMPDIR:-/tmp}/dietlab-gpu/kit" --seconds $seconds --state "\$OUT/kit.tar.gz"; status=\$?; [ \$status -ne 0 ] || python3 scripts/gpu_first_light.py --ready .gpulight --seconds 120 --out "\$OUT"; exit \$status

between, when .gpustate has what came back:
    dietlab kit build .gpustate/kit.tar.gz --out .gpulib

call $((count + 1)), bring .gpu$count .gpulib .gpustate:
    $begin$slice --out .gpulib${*:+ -- $*}

A call that ends with status 75 has left something: copy what came back into .gpustate and make it again. One
that was killed loses the turn that it was measuring. To begin anew, empty .gpustate, .gpukit, .gpulight and .gpulib.
END
    exit
fi
printf '\ncall %s, bring .gpu%s .gpustate:\n    %s' "$count" "$count" "$begin"
printf '%s' '[ -e "$OUT/first_light.json" ] || python3 scripts/gpu_first_light.py --seconds 120 --out "$OUT"; '
printf '%s\n' "$slice${*:+ -- $*}"
cat <<END

The last call ends with status 75 if something is left: copy what came back into .gpustate and make it again;
on another machine, make all calls again. A call that was killed loses the turn that it was measuring. To begin
anew, empty .gpustate.
END
