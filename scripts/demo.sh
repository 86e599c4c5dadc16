#!/usr/bin/env bash
# demo.sh up: a real cluster, the chart, the sample groups and live users on them; leaves it up. demo.sh down: removes what was made and nothing else.
# demo.sh drain: a node of two is drained while users work, and comes back; on the cluster of `up` where it has two nodes, else on one made for it.
#   DEMO_NODES=1          nodes of the cluster that `up` makes (`drain` makes two)
#   DEMO_CLUSTER=own      a cluster of its own, built from source, named `demo` (the default)
#   DEMO_CLUSTER=kind     a kind cluster named elastic-pool-demo, where a container engine runs
#   DEMO_CLUSTER=current  the cluster of KUBECONFIG, in one new namespace; DEMO_IMAGE names an image that it can pull
#   DEMO_PROFILE, DEMO_LEGACY_PROFILE  the users over time, as USERSxTIME,...
#   DEMO_DRAIN_USERS=300  users who work while `drain` drains
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT"
PATH="$(scripts/tools.sh path):$PATH"; export PATH
export CLUSTER=demo
STATE=${DEMO_STATE:-/var/tmp/elastic-pool-demo}     # what was made, for `down`: cluster, namespaces, crds
IMAGE=${DEMO_IMAGE:-docker.io/elastic-pool/elastic-pool:dev}
PROFILE=${DEMO_PROFILE:-20x30s,300x240s,20x120s,4x150s} LEGACY_PROFILE=${DEMO_LEGACY_PROFILE:-5x30s,80x150s,5x120s}
SYSTEM=elastic-pool-system SHOP=shop LEGACY=legacy
export NODES=${DEMO_NODES:-1}
begin=$SECONDS step=0 archive=

say() { step=$((step + 1)); printf '[%4d s] %d. %s\n' $((SECONDS - begin)) $step "$*"; }
note() { echo "$1" >> "$STATE/made"; }
did() { grep -qx "$1" "$STATE/made" 2>/dev/null; }

cluster_own() {
  say "the test cluster's binaries (first time about 14 min on two cores, then a second)"
  tests/cluster/build.sh
  say "the image from the static binary (first time some minutes)"
  archive=$(tests/cluster/image.sh)
  say "a cluster in a network namespace of its own, nodes: $NODES (about 20 s)"
  note cluster; tests/cluster/cluster.sh up >/dev/null
  tests/cluster/cluster.sh image "$archive"
  export KUBECONFIG=/var/tmp/pool-cluster/demo/admin.kubeconfig
}
cluster_kind() {
  command -v kind >/dev/null || { echo "demo: no kind on PATH" >&2; return 1; }
  scripts/tools.sh helm
  say "the image from the static binary (first time some minutes)"
  archive=$(tests/cluster/image.sh)
  say "a kind cluster named elastic-pool-demo"
  export KUBECONFIG=$STATE/kubeconfig
  ! kind get clusters 2>/dev/null | grep -qx elastic-pool-demo || { echo "demo: a kind cluster elastic-pool-demo exists and is not ours" >&2; return 1; }
  note cluster; kind create cluster --name elastic-pool-demo --kubeconfig "$KUBECONFIG"
  kind load image-archive "$archive" --name elastic-pool-demo
}
cluster_current() {
  scripts/tools.sh helm
  [ -n "${DEMO_IMAGE:-}" ] || { echo "demo: DEMO_IMAGE must name an image that the cluster can pull" >&2; return 1; }
  SYSTEM=elastic-pool-demo SHOP=elastic-pool-demo LEGACY=elastic-pool-demo
  export KUBECONFIG=${KUBECONFIG:-$HOME/.kube/config}
  say "the current cluster, $(kubectl config current-context), in the new namespace $SYSTEM"
  say "the load program (first time some minutes)"
  archive=$(tests/cluster/image.sh)
  ! kubectl get namespace "$SYSTEM" >/dev/null 2>&1 || { echo "demo: the namespace $SYSTEM exists and is not ours" >&2; return 1; }
}
install() {
  say "helm install"
  local crds=true scope=()
  if kubectl get crd poolgroups.elasticpool.dev >/dev/null 2>&1; then crds=false; else note crds; fi
  [ "$kind" != current ] || scope=(--set "watchNamespaces={$SYSTEM}" --set readNodes=false --set class=demo)
  note "release"
  kubectl create namespace "$SYSTEM" >/dev/null
  kubectl label namespace "$SYSTEM" pod-security.kubernetes.io/enforce=restricted >/dev/null
  helm install elastic-pool charts/elastic-pool --namespace "$SYSTEM" --wait --timeout 3m \
    --set image.repository="${IMAGE%:*}" --set-string image.tag="${IMAGE##*:}" --set crds.install=$crds "${scope[@]}" >/dev/null
}
sample() { # file namespace: the sample as it stands; in a cluster that is not ours, in our one namespace and class
  if [ "$kind" != current ]; then kubectl apply -f "manifests/samples/$1.yaml"; return; fi
  awk -v RS='---\n' '!/\nkind: Namespace\n/ && NF' ORS='---\n' "manifests/samples/$1.yaml" |
    sed -E "s#^  namespace: .*#  namespace: $2#; s#image: docker.io/elastic-pool/elastic-pool:dev#image: $IMAGE#; s#^  pool: .*#&\n  class: demo#" | kubectl apply -f -
}
service() { # namespace pool local-port: the address at which the load program finds the pool's gateway
  local end=$((SECONDS + 120))
  until kubectl -n "$1" get service "$2" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "demo: no service $1/$2 after 120 s" >&2; return 1; }; sleep 0.5; done
  kubectl -n "$1" rollout status deployment -l "elasticpool.dev/pool=$2" --timeout=120s >&2
  if [ "$kind" = own ]; then kubectl -n "$1" get service "$2" -o jsonpath='http://{.spec.clusterIP}:{.spec.ports[0].port}'; return; fi
  kubectl -n "$1" port-forward "service/$2" "$3:$(kubectl -n "$1" get service "$2" -o jsonpath='{.spec.ports[0].port}')" >/dev/null 2>&1 & echo $! >> "$STATE/forwards"
  echo "http://127.0.0.1:$3"
}
stop_forwards() {
  local p
  for p in watcher load proxy.pid; do [ ! -f "$STATE/$p" ] || { kill "$(cat "$STATE/$p")" 2>/dev/null || true; rm -f "$STATE/$p"; }; done
  [ ! -f "$STATE/forwards" ] || while read -r p; do ! grep -aq port-forward "/proc/$p/cmdline" 2>/dev/null || kill "$p" 2>/dev/null || true; done < "$STATE/forwards"
  rm -f "$STATE/forwards"
}
watch_pods() { # writes a line a second and group: seconds, group, workers that are not going
  local end=$((SECONDS + 3600)) g
  while [ $SECONDS -lt $end ]; do
    for g in "$SHOP/shop-blue" "$LEGACY/legacy-green"; do
      echo "$((SECONDS - begin)) ${g#*/} $(kubectl -n "${g%/*}" get pods -l "elasticpool.dev/group=${g#*/}" -o json 2>/dev/null |
        python3 -c 'import json,sys; print(sum(1 for p in json.load(sys.stdin)["items"] if not p["metadata"].get("deletionTimestamp")))' 2>/dev/null || echo '?')"
    done >> "$STATE/pods"
    sleep 1
  done
}
load() {
  say "users: guests arrive, log in, work, a third with a WebSocket; few, many, few again ($PROFILE; beside it $LEGACY_PROFILE for the app without contract)"
  local shop legacy inside=() rc=0 first second program; program=$(dirname "$archive")/bin/pool-load
  shop=$(service $SHOP shop 18080); legacy=$(service $LEGACY legacy 18081)
  [ "$kind" != own ] || inside=(tests/cluster/cluster.sh exec)
  watch_pods & echo $! > "$STATE/watcher"
  "${inside[@]}" "$program" --url "$legacy" --users-profile "$LEGACY_PROFILE" --arrivals 2 --think-ms 2000 --cpu-ms 4 --mode session --prefix legacy --assert > "$STATE/legacy.log" 2>&1 & second=$!
  "${inside[@]}" "$program" --url "$shop" --users-profile "$PROFILE" --arrivals 3 --think-ms 3000 --cpu-ms 6 --prefix shop --json "$STATE/shop.json" --assert & first=$!
  wait $first || { rc=1; echo "demo: the shop's users were not all served" >&2; }
  wait $second || { rc=1; echo "demo: the legacy app's clients were not all served" >&2; }
  echo; echo "The app without contract:"; tail -n 25 "$STATE/legacy.log"
  say "the last workers above min go (at most 3 min)"
  local end=$((SECONDS + 180))
  until [ "$(tail -n 2 "$STATE/pods" | awk '{s+=$3} END{print s}')" = 2 ] || [ $SECONDS -ge $end ]; do sleep 1; done
  kill "$(cat "$STATE/watcher")" 2>/dev/null || true; rm -f "$STATE/watcher"
  local pod
  for pod in $(kubectl -n "$SYSTEM" get pods -l app.kubernetes.io/name=elastic-pool -o name); do
    kubectl get --raw "/api/v1/namespaces/$SYSTEM/pods/${pod#pod/}:9090/proxy/metrics" 2>/dev/null || true
  done > "$STATE/metrics"
  echo; python3 scripts/growth.py < "$STATE/metrics"
  echo; python3 scripts/pods_chart.py "$STATE/pods" shop-blue:3:1 legacy-green:2:1 || rc=1
  return $rc
}
closing() {
  local k="kubectl --kubeconfig $KUBECONFIG"
  cat <<K

The cluster is up. From this machine:
  export KUBECONFIG=$KUBECONFIG
  $k get pgrp --all-namespaces
  $k -n $SYSTEM port-forward deployment/elastic-pool 9090      then: curl -s 127.0.0.1:9090/metrics
  $k -n $SYSTEM port-forward deployment/elastic-pool 7070      then: curl -s 127.0.0.1:7070/_commander/state
  $k -n $SHOP port-forward service/shop 8080:80                then: a browser at 127.0.0.1:8080
make demo-down removes it.
K
}
up() {
  kind=${DEMO_CLUSTER:-own}
  case $kind in own|kind|current) ;; *) echo "DEMO_CLUSTER '$kind': own, kind or current" >&2; exit 2;; esac
  [ ! -e "$STATE" ] || { echo "demo: one is up already (or was left so): make demo-down" >&2; exit 1; }
  mkdir -p "$STATE"; echo "$kind" > "$STATE/kind"; : > "$STATE/made"
  trap 'rc=$?; stop_forwards; [ $rc -eq 0 ] || echo "demo: failed; what was made is still up, make demo-down removes it" >&2' EXIT
  scripts/tools.sh base
  "cluster_$kind"; echo "$KUBECONFIG" > "$STATE/kubeconfig-path"
  install
  say "kubectl apply of both sample groups"
  sample shop "$SHOP"; sample legacy "$LEGACY"
  local rc=0; load || rc=$?
  closing
  exit $rc
}
drain() {
  kind=own
  if [ -e "$STATE" ]; then
    [ "$(cat "$STATE/kind")" = own ] || { echo "demo: no node of a cluster that is not ours is drained" >&2; exit 1; }
    KUBECONFIG=$(cat "$STATE/kubeconfig-path"); export KUBECONFIG
    [ "$(kubectl get nodes -o name | wc -l)" = 2 ] || { echo "demo: the one that is up has no second node: make demo-down, then make demo-drain" >&2; exit 1; }
    archive=$(tests/cluster/image.sh)
  else
    NODES=2
    mkdir -p "$STATE"; echo own > "$STATE/kind"; : > "$STATE/made"
    scripts/tools.sh base
    cluster_own; echo "$KUBECONFIG" > "$STATE/kubeconfig-path"
    install
    say "kubectl apply of the sample group"
    sample shop "$SHOP"
  fi
  say "four workers, so that both nodes have some"
  kubectl -n "$SHOP" patch pgrp shop-blue --type merge -p '{"spec":{"workers":{"min":4}}}'
  trap 'rc=$?; stop_forwards; [ $rc -eq 0 ] || echo "demo: failed; what was made is still up, make demo-down removes it" >&2' EXIT
  local rc=0; drained || rc=$?
  closing
  exit $rc
}
users_now() { # users who live in the shop, by its status
  kubectl -n "$SHOP" get pgrp shop-blue -o jsonpath='{.status.users}' 2>/dev/null || true
}
on_node() { # node: the shop's workers there, those that leave too
  kubectl -n "$SHOP" get pods -l elasticpool.dev/group=shop-blue --field-selector "spec.nodeName=$1" -o name | wc -l
}
drained() {
  local users=${DEMO_DRAIN_USERS:-300} url program node began end rc=0; program=$(dirname "$archive")/bin/pool-load
  url=$(service "$SHOP" shop 18080)
  say "$users users come and work, a third with a WebSocket (at most 4 min)"
  : > "$STATE/progress"
  tests/cluster/cluster.sh exec "$program" --url "$url" --users-profile "${users}x15m" --arrivals 6 --think-ms 3000 --cpu-ms 4 --prefix "drain-$$" --assert > "$STATE/progress" 2>&1 &
  local load=$!; echo $load > "$STATE/load"
  kubectl proxy --port 0 > "$STATE/proxy" 2>/dev/null & echo $! > "$STATE/proxy.pid"
  end=$((SECONDS + 30))
  until grep -q 'Starting to serve' "$STATE/proxy"; do [ $SECONDS -lt $end ] || { echo "demo: kubectl proxy does not start" >&2; return 1; }; sleep 0.2; done
  scripts/drain_watch.py "http://$(sed -n 's/^Starting to serve on //p' "$STATE/proxy")" "$SYSTEM" "$SHOP" shop-blue "$STATE/progress" & echo $! > "$STATE/watcher"
  # The status is written each half minute at most; the workers stand still when growth is over.
  end=$((SECONDS + 240))
  until [ "$(users_now)" = "$users" ] && [ "$(on_node node1)" -gt 0 ] && [ "$(on_node node2)" -gt 0 ]; do
    [ $SECONDS -lt $end ] || { echo "demo: not $users users on two nodes after 240 s" >&2; return 1; }; sleep 2
  done
  node=node2; [ "$(kubectl -n kube-system get pods -l k8s-app=kube-dns -o jsonpath='{.items[0].spec.nodeName}')" != node2 ] || node=node1
  say "kubectl drain $node: $(on_node $node) workers, gateways and operators there must go"
  began=$SECONDS
  kubectl drain $node --ignore-daemonsets --delete-emptydir-data --timeout=240s 2>&1 | sed 's/^/          /' || rc=1
  say "drained in $((SECONDS - began)) s; the users go on for 15 s"
  sleep 15
  say "kubectl uncordon $node"
  kubectl uncordon $node | sed 's/^/          /'
  sleep 15
  kill "$(cat "$STATE/watcher")" 2>/dev/null || true; rm -f "$STATE/watcher"
  say "the users go home"
  kill -INT $load; wait $load || { rc=1; echo "demo: the users were not all served" >&2; }
  rm -f "$STATE/load"
  echo; sed -n '/^$/,$p' "$STATE/progress"
  [ "$(on_node $node)" = 0 ] || echo "$node has workers again: $(on_node $node)"
  return $rc
}
down() {
  [ -d "$STATE" ] || { echo "demo: none is up" >&2; exit 0; }
  local kind; kind=$(cat "$STATE/kind")
  stop_forwards
  case $kind in
    own) ! did cluster || tests/cluster/cluster.sh down;;
    kind) ! did cluster || kind delete cluster --name elastic-pool-demo --kubeconfig "$STATE/kubeconfig";;
    current)
      export KUBECONFIG; KUBECONFIG=$(cat "$STATE/kubeconfig-path")
      # Only what was noted before it was made; nodes and other namespaces are never touched.
      if did release; then
        kubectl -n elastic-pool-demo delete poolgroups,pools --all --ignore-not-found --timeout=120s || true
        helm uninstall elastic-pool --namespace elastic-pool-demo || true
        kubectl delete namespace elastic-pool-demo --ignore-not-found --timeout=180s
      fi
      ! did crds || kubectl delete crd poolgroups.elasticpool.dev pools.elasticpool.dev --ignore-not-found;;
  esac
  rm -rf "$STATE"
  echo "demo: removed"
}
case ${1:-} in up|down|drain) "$1";; *) sed -n '2,10p' "$0"; exit 2;; esac
