#!/usr/bin/env bash
# with.sh NAME COMMAND...: a cluster of that name with the project's image in it, the command run beside it, and always the end of it.
# The command finds KUBECONFIG, CLUSTER (for cluster.sh image, exec, address), ELASTIC_POOL_TEST_IMAGE, ELASTIC_POOL_BIN (the folder of the
# image's binaries), and kubectl and helm on PATH.
#   NODES=2            that many nodes
#   IMAGE_ARCHIVE=TAR  this image instead of the one that image.sh builds
#   CLUSTER_LOGS=DIR   where the logs go when the command fails (default: target/cluster-logs/NAME)
#   TEST_CLUSTER=current  no cluster is made or removed: the command runs against the one of KUBECONFIG, which must be able to pull the image
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
. "$HERE/versions.sh"
[ $# -ge 2 ] || { sed -n '2,8p' "$0"; exit 2; }
export CLUSTER=$1; shift
export ELASTIC_POOL_TEST_IMAGE=${ELASTIC_POOL_TEST_IMAGE:-docker.io/elastic-pool/elastic-pool:dev}
if [ "${TEST_CLUSTER:-own}" = current ]; then echo "cluster: the current one of KUBECONFIG" >&2; exec "$@"; fi

DIR=${CLUSTER_DIR:-/var/tmp/pool-cluster/$CLUSTER}
[ ! -e "$DIR" ] || { echo "cluster $CLUSTER is not ours to use: $DIR exists" >&2; exit 1; }
child=
run() { # in the background and waited for: bash handles no signal while a command runs in its foreground
  "$@" <&0 & child=$!
  local rc=0; wait "$child" || rc=$?
  child=; return $rc
}
finish() {
  local rc=$? t=$SECONDS
  trap '' INT TERM HUP
  if [ -n "$child" ]; then kill "$child" 2>/dev/null || true; wait "$child" 2>/dev/null || true; fi
  if [ $rc -ne 0 ] && [ -d "$DIR/log" ]; then
    local logs=${CLUSTER_LOGS:-${CARGO_TARGET_DIR:-$ROOT/target}/cluster-logs/$CLUSTER}
    rm -rf "$logs"; mkdir -p "$logs"; cp "$DIR"/log/* "$logs/"
    echo "cluster $CLUSTER: logs kept in $logs" >&2
  fi
  "$HERE/cluster.sh" down >&2
  echo "cluster $CLUSTER: down in $((SECONDS - t)) s" >&2
  exit $rc
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

run "$HERE/build.sh" >&2
[ -n "${IMAGE_ARCHIVE:-}" ] || { out=$(mktemp); run "$HERE/image.sh" > "$out"; IMAGE_ARCHIVE=$(tail -n 1 "$out"); rm -f "$out"; }
t=$SECONDS
run "$HERE/cluster.sh" up >&2
run "$HERE/cluster.sh" image "$IMAGE_ARCHIVE" >&2
echo "cluster $CLUSTER: up with ${NODES:-1} node(s) and the image in $((SECONDS - t)) s" >&2
export KUBECONFIG=$DIR/admin.kubeconfig
export ELASTIC_POOL_BIN; ELASTIC_POOL_BIN=$(dirname "$IMAGE_ARCHIVE")/bin
run "$@"
