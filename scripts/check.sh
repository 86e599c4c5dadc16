#!/usr/bin/env bash
# check.sh: everything about the tree that is checked without running it: formatting, lints, licences, shell syntax, chart, generated files.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$(scripts/tools.sh path):$PATH"; export PATH
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
python3 scripts/licences.py
scripts/mutations.py --texts
for script in scripts/*.sh tests/cluster/*.sh .ci/run; do bash -n "$script"; done
helm lint --quiet charts/elastic-pool
scripts/generate.sh --check
