#!/usr/bin/env bash
# apiserver.sh COMMAND...: a real etcd and kube-apiserver on free loopback ports, the command run beside them, and always the end of them.
# The command finds KUBECONFIG (cluster-admin) and kubectl and helm on PATH. No node, no controller: owner references collect nothing, pods stay Pending, and a namespace
# has no service account until somebody makes one.
#   APISERVER_LOGS=DIR  where the logs go when the command fails
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/versions.sh"
[ $# -ge 1 ] || { sed -n '2,5p' "$0"; exit 2; }
for tool in etcd kube-apiserver kubectl; do [ -x "$BIN/$tool" ] || { echo "apiserver: no $tool; run tests/cluster/build.sh" >&2; exit 3; }; done

dir=$(mktemp -d)
pids=()
finish() {
  local rc=$? pid
  trap '' INT TERM HUP
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ $rc -ne 0 ] && [ -n "${APISERVER_LOGS:-}" ]; then mkdir -p "$APISERVER_LOGS"; cp "$dir"/*.log "$APISERVER_LOGS/" || true; fi
  rm -rf "$dir"
  exit $rc
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,system:masters" > "$dir/tokens.csv"

# A port that is free now may be taken a moment later: both are tried again with other ports then.
start() {
  local ports client peer secure
  ports=$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
  read -r client peer secure <<<"$ports"
  etcd --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
    --unsafe-no-fsync > "$dir/etcd.log" 2>&1 & pids=($!)
  kube-apiserver --etcd-servers "http://127.0.0.1:$client" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$secure" \
    --cert-dir "$dir/certs" --token-auth-file "$dir/tokens.csv" --authorization-mode RBAC \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/sa.key" \
    --service-account-signing-key-file "$dir/sa.key" --service-cluster-ip-range 10.96.0.0/16 \
    --enable-admission-plugins OwnerReferencesPermissionEnforcement \
    > "$dir/apiserver.log" 2>&1 & pids+=($!)
  cat > "$dir/kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: t, cluster: {server: "https://127.0.0.1:$secure", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: t, context: {cluster: t, user: admin}}]
current-context: t
CONFIG
}
export KUBECONFIG=$dir/kubeconfig
up=
for _ in 1 2 3; do
  start
  deadline=$((SECONDS + 60))
  while [ $SECONDS -lt $deadline ] && kill -0 "${pids[0]}" 2>/dev/null && kill -0 "${pids[1]}" 2>/dev/null; do
    if kubectl get --raw /readyz >/dev/null 2>&1; then up=1; break 2; fi
    sleep 0.2
  done
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  rm -rf "$dir/etcd"
done
[ -n "$up" ] || { tail -5 "$dir"/*.log >&2; exit 1; }
"$@"
