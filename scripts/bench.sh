#!/usr/bin/env bash
# bench.sh: lines `figure NAME VALUE UNIT` on stdout, all else on stderr. Every program in benches/ prints its own; this adds the image's size.
set -euo pipefail
cd "$(dirname "$0")/.."
# Flags and target as the image's, so that the same dependencies serve both and the figures are the shipped code's.
RUSTFLAGS='-C target-feature=+crt-static' cargo bench --locked --quiet --target "$(rustc -vV | sed -n 's/^host: //p')"
archive=$(tests/cluster/image.sh)
echo "figure image_size $(stat -c %s "$archive") bytes"
