#!/usr/bin/env bash
# conformance.sh: clients that others wrote, each at a pinned version, against gateway and agent as local processes in front of an echoing app:
# h2spec (Go) and curl (the system's) in cleartext and by TLS, Python's httpx, websockets and grpc, Node's undici. Prints a line `pass NAME` per client; anything else is a failure.
# What this machine has no means for (no Node, no module proxy) is said as `absent NAME: WHY`, and fails the run with CONFORMANCE_STRICT=1.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
TOOLS=${ELASTIC_POOL_TOOLS:-$HOME/.cache/elastic-pool/tools}/conformance
H2SPEC=v2.2.1+incompatible HTTPX=0.28.1 WEBSOCKETS=17.4 GRPC=1.85.3 UNDICI=7.30.2 WS=8.23.0
mkdir -p "$TOOLS"
work=$(mktemp -d)
pids=()
trap 'for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
absences=0 failures=0
failed() { echo "fail $1"; failures=$((failures + 1)); }
absent() { echo "absent $1: $2"; absences=$((absences + 1)); }

command -v node >/dev/null || { absent all "the app needs Node"; exit 1; }
if [ ! -d "$TOOLS/node-$UNDICI-$WS" ]; then
  mkdir -p "$work/node" && (cd "$work/node" && npm init -y >/dev/null && npm install --silent --no-fund --no-audit "undici@$UNDICI" "ws@$WS")
  mv "$work/node" "$TOOLS/node-$UNDICI-$WS"
fi
cp "$ROOT"/tests/conformance/*.mjs "$TOOLS/node-$UNDICI-$WS/"

packages=$TOOLS/python-$HTTPX-$WEBSOCKETS-$GRPC
if [ ! -d "$packages" ]; then
  python3 -m venv "$work/python"
  "$work/python/bin/pip" install -q "httpx[http2]==$HTTPX" "websockets==$WEBSOCKETS" "grpcio==$GRPC" --target "$work/packages" && mv "$work/packages" "$packages" ||
    absent "httpx, websockets, grpc" "no package index"
fi

binary=${ELASTIC_POOL_BINARY:-}
if [ -z "$binary" ]; then
  (cd "$ROOT" && cargo build --locked --bin elastic-pool)
  binary=$(cd "$ROOT" && cargo metadata --no-deps --format-version 1 --offline | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/debug/elastic-pool
fi
sed "/^#/d; s#APP#$TOOLS/node-$UNDICI-$WS/app.mjs#; s#PYTHON,#$(command -v python3),#; s#SERVICE#$ROOT/tests/conformance/service.py#; s#PACKAGES#$packages#" "$ROOT/tests/conformance/manifest.yaml" > "$work/manifest.yaml"
address() { # pool [state]
  python3 -c 'import json,sys; print(next(row["address"] for row in json.load(open(sys.argv[1]))["gateways"] if row["pool"].endswith(sys.argv[2])))' "$work/${2:-state}.json" "$1" 2>/dev/null
}
start() { # state scheme [flag]...: the parts as processes; sets gateway once it answers
  local state=$1 scheme=$2; shift 2
  "$binary" local -f "$work/manifest.yaml" --listen 127.0.0.1:0 --monitor 127.0.0.1:0 --state-file "$work/$state.json" "$@" > "$work/$state.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 300); do
    gateway=$(address echo "$state" || true)
    [ -z "$gateway" ] || [ "$(curl -sk -o /dev/null -w '%{http_code}' "$scheme://$gateway/" || true)" != 200 ] || return 0
    kill -0 "${pids[-1]}" || { cat "$work/$state.log"; exit 1; }
    sleep 0.1
  done
  cat "$work/$state.log"; exit 1
}
start state http

head -c 3000000 /dev/urandom > "$work/sent"
scheme=http
curl_echo() { # flags
  curl -sS "$@" "$scheme://$gateway/echo" -o "$work/got" && cmp "$work/sent" "$work/got"
}
name="curl $(curl --version | sed -n '1s/curl \([^ ]*\).*/\1/p')"
for version in --http1.0 --http1.1 --http2-prior-knowledge; do
  { curl_echo $version -H 'Expect: 100-continue' --data-binary @"$work/sent" &&
    { [ $version = --http1.0 ] || curl_echo $version -T - < "$work/sent"; } && echo "pass $name $version"; } || failed "$name $version"
done

if [ -d "$packages" ]; then
  PYTHONPATH=$packages python3 "$ROOT/tests/conformance/clients.py" "$gateway" || failed "httpx, websockets"
  PYTHONPATH=$packages python3 "$ROOT/tests/conformance/grpc_client.py" "$(address calls)" || failed grpc
fi
(cd "$TOOLS/node-$UNDICI-$WS" && node clients.mjs "$gateway") || failed undici

if command -v go >/dev/null && { [ -x "$TOOLS/h2spec-$H2SPEC/h2spec" ] || GOBIN=$TOOLS/h2spec-$H2SPEC go install "github.com/summerwind/h2spec/cmd/h2spec@$H2SPEC"; }; then
  h2spec=$TOOLS/h2spec-$H2SPEC/h2spec
  "$h2spec" --host "${gateway%:*}" --port "${gateway##*:}" --timeout 5 > "$work/h2spec" || true
  # The port speaks HTTP/1.1 too: to what is no preface it answers 400 in that, and closes, where h2spec wants a bare close.
  faults=$(grep -E '^ *× ' "$work/h2spec" | sed 's/^ *× *//' | sort -u | grep -vFx '2: Sends invalid connection preface' || true)
  summary=$(grep -E '^[0-9]+ tests' "$work/h2spec" || echo 'no summary')
  if [ -z "$faults" ] && [[ $summary = 145\ tests* ]]; then echo "pass h2spec $H2SPEC: $summary"; else cat "$work/h2spec"; failed "h2spec: $faults"; fi
else
  h2spec=
  absent h2spec "no Go, or no module proxy"
fi

# The same by TLS, in front of an app of its own.
if command -v openssl >/dev/null; then
  mkdir "$work/tls"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=shop.test -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$work/tls/tls.key" -out "$work/tls/tls.crt" 2>/dev/null
  start secured https --tls-dir "$work/tls"
  scheme=https
  for version in --http1.0 --http1.1 --http2 "--http1.1 --tls-max 1.2" "--http2 --tlsv1.3"; do
    # shellcheck disable=SC2086
    { curl_echo --cacert "$work/tls/tls.crt" $version --data-binary @"$work/sent" && echo "pass $name https $version"; } || failed "$name https $version"
  done
  if curl -s --cacert "$work/tls/tls.crt" --tls-max 1.1 -o /dev/null "https://$gateway/"; then failed "TLS 1.1 was spoken"; else echo "pass $name: no TLS 1.1"; fi
  if [ -n "$h2spec" ]; then
    "$h2spec" -t -k --host "${gateway%:*}" --port "${gateway##*:}" --timeout 5 > "$work/h2spec" || true
    faults=$(grep -E '^ *× ' "$work/h2spec" | sed 's/^ *× *//' | sort -u | grep -vFx '2: Sends invalid connection preface' || true)
    summary=$(grep -E '^[0-9]+ tests' "$work/h2spec" || echo 'no summary')
    if [ -z "$faults" ] && [[ $summary = 145\ tests* ]]; then echo "pass h2spec $H2SPEC by TLS: $summary"; else cat "$work/h2spec"; failed "h2spec by TLS: $faults"; fi
  fi
else
  absent "https" "no openssl to make a certificate"
fi
[ "$failures" = 0 ] && { [ "$absences" = 0 ] || [ "${CONFORMANCE_STRICT:-0}" = 0 ]; }
