#!/usr/bin/env bash
# tools.sh TOOL...: installs what the build and the tests need beyond Rust and Go, once and by version, into a cache folder; prints what it does and how long.
#   base         C compiler for the few crates with C in them, git, Python (Debian packages)
#   nextest      cargo-nextest, the test runner
#   deny         cargo-deny (only `make deny` asks for it)
#   mutants      cargo-mutants (only `make mutants`)
#   fuzz         cargo-fuzz (only `make fuzz`)
#   helm         Helm, from the test cluster's build
#   prometheus   Debian's Prometheus, unpacked into the cache: its package would start a server of its own
# tools.sh path: prints the folders for PATH. ELASTIC_POOL_TOOLS names the cache (default ~/.cache/elastic-pool/tools).
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
TOOLS=${ELASTIC_POOL_TOOLS:-$HOME/.cache/elastic-pool/tools}
NEXTEST=0.9.151 DENY=0.20.2 MUTANTS=27.1.0 FUZZ=0.13.2

say() { echo "tools: $*" >&2; }
packages() { # those of the arguments that are not installed yet
  local missing=() p t=$SECONDS
  for p in "$@"; do dpkg -s "$p" >/dev/null 2>&1 || missing+=("$p"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "packages ${missing[*]} ..."
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  say "packages done in $((SECONDS - t)) s"
}
crate() { # name version [cargo install flags]
  local name=$1 version=$2 dir=$TOOLS/$1-$2 t=$SECONDS; shift 2
  [ ! -x "$dir/bin/$name" ] || return 0
  say "$name $version ..."
  # A target folder of its own: the project's may be locked by a build, or be thrown away. No CPU features of a project's RUSTFLAGS either.
  # Built once, run for seconds: hardly optimised, it is there in about half the time.
  env -u RUSTFLAGS CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false CARGO_TARGET_DIR="$TOOLS/build-$name" cargo install --quiet --locked --root "$dir" --version "$version" "$name" "$@"
  rm -rf "$TOOLS/build-$name"
  say "$name $version done in $((SECONDS - t)) s"
}
base() { packages gcc libc6-dev make git python3 ca-certificates; }
nextest() { base; crate cargo-nextest $NEXTEST --no-default-features --features default-no-update; }
deny() { base; crate cargo-deny $DENY; }
mutants() { base; crate cargo-mutants $MUTANTS; }
fuzz() { packages g++; base; crate cargo-fuzz $FUZZ; }
helm() { "$ROOT/tests/cluster/build.sh" helm >&2; }
prometheus() {
  local dir=$TOOLS/prometheus t=$SECONDS
  [ ! -x "$dir/usr/bin/prometheus" ] || return 0
  say "prometheus ..."
  local work; work=$(mktemp -d); chmod 755 "$work"
  apt-get update -qq
  # As root without the sandbox user, which could not write here.
  (cd "$work" && apt-get -o APT::Sandbox::User=root download -qq prometheus >/dev/null && dpkg-deb -x prometheus_*.deb "$work/root")
  mkdir -p "$TOOLS"; rm -rf "$dir"; mv "$work/root" "$dir"; rm -rf "$work"
  "$dir/usr/bin/prometheus" --version >/dev/null 2>&1 || { say "Debian's prometheus does not start here"; rm -rf "$dir"; return 1; }
  say "prometheus done in $((SECONDS - t)) s"
}
path() {
  . "$ROOT/tests/cluster/versions.sh"
  echo "$TOOLS/cargo-nextest-$NEXTEST/bin:$TOOLS/cargo-deny-$DENY/bin:$TOOLS/cargo-mutants-$MUTANTS/bin:$TOOLS/cargo-fuzz-$FUZZ/bin:$TOOLS/prometheus/usr/bin:$BIN"
}

[ $# -gt 0 ] || { sed -n '2,10p' "$0"; exit 2; }
for tool in "$@"; do
  case $tool in base|nextest|deny|mutants|fuzz|helm|prometheus|path) "$tool";; *) say "no tool '$tool'"; sed -n '2,10p' "$0"; exit 2;; esac
done
