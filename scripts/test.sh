#!/usr/bin/env bash
# test.sh: all tests in stages, each with its time; ends with the table of stages and the test runner's summaries. test.sh --long: the long ones.
# Stops at the first stage that fails. CI and `make test` call this.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT" || exit
PATH="$(scripts/tools.sh path):$PATH"; export PATH
export CARGO_TERM_PROGRESS_WHEN=never
summaries=$(mktemp) table=$(mktemp)
trap 'rm -f "$summaries" "$table"' EXIT
begin=$SECONDS

finish() { # exit code
  echo; echo "stages:"; cat "$table"; printf '  %-40s %5d s\n' "in all" $((SECONDS - begin))
  cat "$summaries"
  exit "$1"
}
stage() { # name command...
  local name=$1 t=$SECONDS rc=0; shift
  echo "== $name"
  "$@" || rc=$?
  printf '  %-40s %5d s%s\n' "$name" $((SECONDS - t)) "$([ $rc -eq 0 ] || echo '  FAILED')" | tee -a "$table"
  [ $rc -eq 0 ] || finish $rc
}
tests() { # command...: a nextest run whose summary is kept for the end
  local log rc=0; log=$(mktemp)
  "$@" 2>&1 | tee "$log" || rc=$?
  grep -aE '^ *Summary \[' "$log" >> "$summaries" || true
  rm -f "$log"
  return $rc
}
trap 'finish 130' INT TERM

run=(cargo nextest run --workspace --locked --no-fail-fast)
properties() { # cases seed: how many cases each property of the engine tries, and where they begin
  ELASTIC_POOL_CASES=$1 ELASTIC_POOL_SEED=$2 tests "${run[@]}" -E 'binary(properties)'
}
if [ "${1:-}" = --long ]; then
  stage "tools and cluster" scripts/tools.sh base nextest helm
  stage "properties, 10^6 cases" properties 1000000 random
  stage "rust, the image's static binaries" tests/cluster/image.sh
  stage "long tests on a cluster of two nodes" tests env NODES=2 tests/cluster/with.sh "long-$$" "${run[@]}" --run-ignored only -E 'binary(cluster)'
  finish 0
fi

stage "tools" scripts/tools.sh base nextest prometheus
stage "cluster binaries" tests/cluster/build.sh
stage "rust, debug build of all tests" cargo nextest run --workspace --locked --no-run
stage "format, lints, licences, generated files" scripts/check.sh
stage "fast tests" tests "${run[@]}" -E 'not binary(cluster) and not binary(properties)'
stage "properties, 10^5 cases" properties 100000 1
stage "simulation, 500 seeds" tests cargo nextest run --locked --no-fail-fast --cargo-profile netsim --features netsim --test netsim
stage "named mutations of the engine" scripts/mutations.py
stage "CRDs on a real API server" tests/cluster/apiserver.sh tests/cluster/crd.sh
stage "tests on a real API server" tests tests/cluster/apiserver.sh "${run[@]}" --run-ignored only -E 'binary(apiserver)'
stage "rust, the image's static binaries" tests/cluster/image.sh
stage "cluster tests on two nodes" tests env NODES=2 tests/cluster/with.sh "test-$$" "${run[@]}" -E 'binary(cluster)'
finish 0
