#!/usr/bin/env bash
# deny.sh: cargo-deny over the tree. Advisories come from a git repository; where that cannot be fetched the rest is checked and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo deny --locked check bans licenses sources
if cargo deny fetch db >/dev/null 2>&1; then cargo deny --locked check advisories
else echo "deny: the advisory database cannot be fetched here; advisories not checked" >&2; fi
