#!/usr/bin/env bash
# mutants.sh [FLAGS of cargo mutants]: cargo-mutants on a copy of the engine, in target/mutants. Takes hours. Stop it at any time: it goes on where it was.
# First every mutant against the properties, which are quick and see most of them; then those that they let live against all tests of the engine.
# Prints how many were tried and how many live; the list is target/mutants/missed.txt, each of them is explained in engine/MUTANTS.md.
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
PATH="$(scripts/tools.sh path):$PATH"; export PATH
work=${CARGO_TARGET_DIR:-$ROOT/target}/mutants
scripts/mutations.py --copy "$work/engine"
export CARGO_TARGET_DIR=$work/target CARGO_PROFILE_DEV_DEBUG=false ELASTIC_POOL_CASES=${ELASTIC_POOL_CASES:-500} RUST_BACKTRACE=0
run() { # folder of results, flags and tests...
  local out=$1; shift
  # 2: some live; 3: some ran out of time. Both are results.
  cargo mutants --dir "$work/engine" --in-place --output "$out" --no-shuffle --test-tool nextest --timeout 60 --cap-lints true --colors never "$@" || { rc=$?; [ $rc = 2 ] || [ $rc = 3 ] || exit $rc; }
}
run "$work/first" --iterate "$@" -- --test properties
# Names hold brackets and signs, so they are asked for by their place.
run "$work/second" --iterate --re "^($(sed -E 's/[^A-Za-z0-9:_/. ]/./g' "$work/first/mutants.out/missed.txt" | paste -sd '|'))$" "$@"
cp "$work/second/mutants.out/missed.txt" "$work/missed.txt"
echo "mutants: $(wc -l < "$work/missed.txt") of $(cargo mutants --dir "$work/engine" --list "$@" | wc -l) live"
