#!/usr/bin/env bash
# bench.sh [PART]...: lines `figure NAME VALUE UNIT` on stdout, all else on stderr. benches/figures says what each figure means, and
# engine/examples/{cost,simulate}.rs those of the parts `engine` and `simulate`; this adds the image's size.
# Parts: engine, simulate, pauses, proxy, memory, decision (these when none is named), crowd, drain; `moves` is pauses, crowd and drain. About six
# minutes after the build for the default and for `moves`. Wants a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
engine_part() { # example [argument]...: alone it needs nothing of the rest, and is built in seconds
  local example=$1; shift
  cargo build --release --locked -p elastic-pool-engine --example "$example" >&2
  "$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/$example" "$@"
}
wanted() { [[ " ${asked[*]:-$1} " == *" $1 "* ]]; }
asked=("$@")
! wanted engine || engine_part cost
! wanted simulate || engine_part simulate tests/traces 5
parts=()
[ $# -gt 0 ] || set -- pauses proxy memory decision
for part in "$@"; do
  case $part in
    engine | simulate) ;;
    moves) parts+=(pauses crowd drain) ;;
    *) parts+=("$part") ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || exit 0
# Flags and target as the image's, so that the same dependencies serve both and the figures are the shipped binary's.
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS='-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs' cargo build --profile dist --locked --target "$triple" --bins --example figures >&2
archive=$(ELASTIC_POOL_PROFILE=dist tests/cluster/image.sh | tail -1)
bin=$(readlink -f "$(dirname "$archive")/bin")
command -v setpriv taskset >/dev/null || { echo "bench: setpriv and taskset are missing (Debian: util-linux)" >&2; exit 1; }
result=0
timeout --foreground -k 20 600 "$bin/examples/figures" "$bin/elastic-pool" "${parts[@]}" || result=$?
echo "figure image_size $(stat -c %s "$archive") bytes"
exit $result
