#!/bin/sh
# Runs a suite of `dietlab bench` in slices of a few minutes, for machines that lend a GPU for ten minutes at
# a time, or that may take it away at any moment. Every slice goes on where the last one stopped; one that was
# killed loses the turn that it was measuring, nothing else.
#
#   scripts/gpu_slices.sh                          first-gpu, slice after slice, until nothing is left
#   scripts/gpu_slices.sh --suite llm-gpu --pack llm.csv.gz
#   scripts/gpu_slices.sh --once --state gpu.tar.gz --pack gpu.csv.gz
#                                                  one slice; the next machine goes on from gpu.tar.gz
#   scripts/gpu_slices.sh -- --effort full --only batch
#                                                  what follows -- goes to `dietlab bench`
#
# Options:
#   --suite NAME         what to run (default: first-gpu)
#   --out FOLDER         where results and studies lie (default: runs/NAME)
#   --seconds N          of one slice (default: 330); a shape that was begun is finished within it, but the
#                        start of a workload (libraries, the first compilation) is waited for
#   --once               one slice only
#   --state FILE.tar.gz  unpacked into a new FOLDER at the start, written after every turn: measured rows and
#                        records without compiled libraries, which are made again
#   --pack FILE.csv.gz   written after every slice: the table, and what it was measured with as FILE.json
#   --dietlab COMMAND    one word or several (default: dietlab), as in --dietlab "python3 -m dietlab"
#
# Exit status: 0 if all is measured, 75 if something is left (after --once, or if two slices in a row
# measured nothing), otherwise that of `dietlab bench`: 1 if a study failed or a result was wrong, 2 for a
# wrong command or a machine without a GPU.

set -uf # no file names are made of the words of --dietlab

suite=first-gpu
out=
seconds=330
once=no
state=
pack=
dietlab=dietlab
left_over=75

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "gpu_slices.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --once) once=yes; shift; continue ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        --suite | --out | --seconds | --state | --pack | --dietlab) ;;
        *) fail "there is no option $1; --help lists them" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --suite) suite=$2 ;;
        --out) out=$2 ;;
        --seconds) seconds=$2 ;;
        --state) state=$2 ;;
        --pack) pack=$2 ;;
        --dietlab) dietlab=$2 ;;
    esac
    shift 2
done
[ -n "$out" ] || out=runs/$suite

# The number of lines of rows and records on disk.
measured() {
    find "$out" -name rows.jsonl -o -name records.jsonl 2>/dev/null | while read -r file; do
        cat "$file"
    done | wc -l
}

keep() {
    [ -n "$pack" ] && [ -f "$out/rows.jsonl" ] || return 0
    $dietlab bench --out "$out" --pack "$pack"
}

idle=0
while :; do
    before=$(measured)
    $dietlab bench --suite "$suite" --out "$out" --seconds "$seconds" ${state:+--state "$state"} "$@"
    status=$?
    keep || exit $?
    [ "$status" -eq "$left_over" ] || exit "$status"
    [ "$once" = no ] || exit "$status"
    if [ "$(measured)" -gt "$before" ]; then
        idle=0
    else
        idle=$((idle + 1))
    fi
    if [ "$idle" -ge 2 ]; then
        echo "gpu_slices.sh: two slices measured nothing; a longer --seconds may help" >&2
        exit "$left_over"
    fi
done
