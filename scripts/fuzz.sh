#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET...]]: runs the fuzz targets one after the other, each so long [600], over what was found before (fuzz/corpus) and the seeds.
# Stops at the first one that fails; fuzz/artifacts holds the input that did it. Make a named test of it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$(scripts/tools.sh path):$PATH"; export PATH
seconds=${1:-600}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd fuzz && cargo fuzz list)
# cargo-fuzz asks for unstable flags (the sanitizer, coverage); this lets the project's own compiler take them, no nightly is needed.
export RUSTC_BOOTSTRAP=1
for target in "${targets[@]}"; do
  seeds=fuzz/corpus/$target
  mkdir -p "$seeds"
  case $target in
    # One file a line, named by its number.
    case_reader) split -l 1 -a 4 -d tests/cases/decisions.jsonl "$seeds/case-";;
    trace_reader) cp tests/traces/*.csv "$seeds/" 2>/dev/null || true;;
    *) [ ! -d "fuzz/seeds/$target" ] || cp "fuzz/seeds/$target"/* "$seeds/";;
  esac
  echo "== $target, $seconds s"
  cargo fuzz run "$target" -- -max_total_time="$seconds" -max_len=20000 -timeout=10 -print_final_stats=1 -verbosity=0
done
