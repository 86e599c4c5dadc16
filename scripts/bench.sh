#!/usr/bin/env bash
# bench.sh [PART]...: lines `figure NAME VALUE UNIT` on stdout, all else on stderr. benches/figures says what each figure means; this adds the image's size.
# Parts: moves, proxy, memory, decision (default all, within six minutes after the build). Wants a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
# Flags and target as the image's, so that the same dependencies serve both and the figures are the shipped binary's.
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target "$triple" --bins --example figures >&2
archive=$(tests/cluster/image.sh | tail -1)
bin=$(readlink -f "$(dirname "$archive")/bin")
command -v setpriv taskset >/dev/null || { echo "bench: setpriv and taskset are missing (Debian: util-linux)" >&2; exit 1; }
result=0
timeout --foreground -k 20 360 "$bin/examples/figures" "$bin/elastic-pool" "$@" || result=$?
echo "figure image_size $(stat -c %s "$archive") bytes"
exit $result
