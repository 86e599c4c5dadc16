#!/usr/bin/env bash
# soak.sh [MINUTES]: users come, work, move and go for so long [60]; memory has to stay flat and no request may fail. Figures on stdout; scripts/soak.py says
# what is judged.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60}
[[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -ge 3 ] && [ "$minutes" -le 1440 ] || { echo "soak: MINUTES=$minutes: write 3 to 1440" >&2; exit 2; }
bin=${ELASTIC_POOL_BIN:-}
if [ -z "$bin" ]; then
  cargo build --release --locked --bins >&2
  bin=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release
fi
exec python3 scripts/soak.py "$bin/elastic-pool" "$bin/pool-load" "$minutes"
