#!/usr/bin/env bash
# Tries the CRDs on the API server of KUBECONFIG: good.yaml is taken, each of bad-manifests/ is refused with the
# fragments of its "# expect:" lines, and the group that good.yaml made is untouched by all of them.
# It makes one namespace of its own and removes it; the CRDs stay.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${KUBECONFIG:?names the cluster to try on}"
namespace=crd-$$-$RANDOM
k() { kubectl -n "$namespace" "$@"; }
kubectl apply -f "$here/../../crds" >/dev/null
kubectl wait --for condition=Established --timeout 30s crd/poolgroups.elasticpool.dev crd/pools.elasticpool.dev >/dev/null
kubectl create namespace "$namespace" >/dev/null
trap 'kubectl delete namespace "$namespace" --wait=false >/dev/null' EXIT

failed=0
fail() { echo "FAIL $*"; failed=$((failed + 1)); }
group() { k get poolgroup/shop-blue pool/shop -o jsonpath='{.items[*].metadata.resourceVersion}'; }

k apply -f "$here/good.yaml" >/dev/null
before=$(group)
mode=$(k get poolgroup/shop-blue -o jsonpath='{.spec.mode} {.spec.class} {.spec.thresholds.receptionPercent} {.spec.moves.holdTimeout}')
[ "$mode" = "Active default 50 5s" ] || fail "defaults: $mode"
header=$(k get pgrp | sed -n 1p | tr -s ' ')   # all of it is read: head would end kubectl by a closed pipe
[ "$header" = "NAME VERSION READY DESIRED USERS HEADROOM RECEPTION MODE AGE" ] || fail "printer columns: $header"
for field in workers.min thresholds.receptionPercent template.spec.containers; do
  kubectl explain "poolgroup.spec.$field" >/dev/null || fail "kubectl explain poolgroup.spec.$field"
done

tried=0
for file in "$here"/bad-manifests/*.yaml; do
  name=$(basename "$file" .yaml) tried=$((tried + 1))
  if output=$(k apply -f "$file" 2>&1); then fail "$name was taken: $output"; continue; fi
  fragments=0
  while read -r fragment; do
    fragments=$((fragments + 1))
    grep -qF -- "$fragment" <<<"$output" || fail "$name does not say \"$fragment\": $output"
  done < <(sed -n 's/^# expect: //p' "$file")
  [ "$fragments" -gt 0 ] || fail "$name expects nothing"
  [ "$(group)" = "$before" ] || { fail "$name changed something"; before=$(group); }
  [ -z "${VERBOSE:-}" ] || printf '%s:\n%s\n\n' "$name" "$output"
done

# What stands only while workers live: who is placed.
k patch pgrp shop-blue --type merge -p '{"spec":{"users":"Session"}}' >/dev/null || fail "spec.users cannot be changed without workers"
k patch pgrp shop-blue --subresource status --type merge -p '{"status":{"workers":1}}' >/dev/null
for change in '{"spec":{"users":"Login"}}' '{"spec":{"users":null}}'; do
  if output=$(k patch pgrp shop-blue --type merge -p "$change" 2>&1); then fail "$change was taken with a worker"; continue; fi
  grep -qF "spec.users is fixed while the group has workers" <<<"$output" || fail "$change: $output"
done
echo "crd: $tried bad manifests, $failed failures"
[ "$failed" = 0 ]
