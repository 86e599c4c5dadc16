#!/usr/bin/env bash
# generate.sh: writes everything that is generated and committed. generate.sh --check: changes nothing, fails and shows the difference where it has drifted.
#   crds/*.yaml                          from the Rust types, by `elastic-pool crd`
#   charts/elastic-pool/files/crds/      the same, marked so that Helm keeps them at an uninstall: a chart reads only what is inside it
#   manifests/install.yaml               the chart with its defaults, for people without Helm
#   tests/chart/*.yaml                   the chart with the values beside it, as the tests expect it
#   tests/traces/*.csv                   made-up days for `elastic-pool simulate`, by scripts/traces.py
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT"
PATH="$(scripts/tools.sh path):$PATH"; export PATH
command -v helm >/dev/null || { echo "generate: no helm; scripts/tools.sh helm builds it" >&2; exit 1; }
out=$ROOT check=false
if [ "${1:-}" = --check ]; then check=true; out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; fi

mkdir -p "$out/crds" "$out/manifests" "$out/tests/chart" "$out/tests/traces" "$out/charts"
$check && cp -a charts/elastic-pool "$out/charts/"
cargo run --quiet --locked --bin elastic-pool -- crd | python3 scripts/crds.py "$out/crds" "$out/charts/elastic-pool/files/crds"
render() { helm template elastic-pool "$out/charts/elastic-pool" --namespace elastic-pool-system --kube-version 1.36.0 "$@"; }
{ echo '# Generated from charts/elastic-pool by `make generate`. Use: kubectl apply --server-side -f install.yaml'
  render --set namespace.create=true | sed '/^# Source: /d; s#app.kubernetes.io/managed-by: Helm#app.kubernetes.io/managed-by: kubectl#; /^ *helm.sh\//d'; } > "$out/manifests/install.yaml"
render --set crds.install=false > "$out/tests/chart/defaults.yaml"
render --set crds.install=false -f tests/chart/all-values.in > "$out/tests/chart/all-values.yaml"
python3 scripts/traces.py "$out/tests/traces"

if $check; then
  for f in crds charts/elastic-pool/files/crds manifests/install.yaml tests/chart/defaults.yaml tests/chart/all-values.yaml \
      tests/traces/{office,flash-crowd,sawtooth}.csv; do
    diff -ru "$f" "$out/$f" || { echo "generate: $f has drifted; make generate" >&2; exit 1; }
  done
  echo "generate: nothing has drifted" >&2
fi
