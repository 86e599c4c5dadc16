#!/usr/bin/env bash
# bench.sh: lines `figure NAME VALUE UNIT` on stdout, all else on stderr. Every program in benches/ prints its own; this adds the image's size.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet
archive=$(tests/cluster/image.sh)
echo "figure image_size $(stat -c %s "$archive") bytes"
