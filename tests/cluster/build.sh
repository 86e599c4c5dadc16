#!/usr/bin/env bash
# Builds every binary of the test cluster from Go modules, once: about 14 minutes on two cores, a second when all is cached.
#   build.sh              packages, then every component that is missing or of another version; prints what it does and how long it took
#   build.sh COMPONENT... only these: packages kubernetes etcd containerd cni helm coredns pause
# Needs Go 1.26 or newer, and root for the packages.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/versions.sh"
export CGO_ENABLED=0

say() { echo "cluster build: $*"; }
stamp() { echo "$CACHE/built/$1@$2"; }
have() { [ -x "$BIN/$1" ] && [ -e "$(stamp "$1" "$2")" ]; }
# The stamp comes after the binary, so that a build cut off in the middle is built again.
built() { mkdir -p "$CACHE/built"; rm -f "$CACHE/built/$1@"*; touch "$(stamp "$1" "$2")"; }
quiet() { local out; out=$("$@" 2>&1) || { echo "$out" >&2; say "failed: $*"; return 1; }; }
compile() { # binary version package [go build flags]: builds it and says how long that took
  local out=$1 version=$2 package=$3 t=$SECONDS; shift 3
  say "$out $version ..."
  go build -trimpath -ldflags "-s -w ${LDFLAGS:-}" "$@" -o "$BIN/$out.part" "$package"
  mv "$BIN/$out.part" "$BIN/$out"; built "$out" "$version"
  say "$out $version done in $((SECONDS - t)) s"
}

packages() {
  local need=(runc iptables conntrack nftables openssl iproute2 procps python3 curl)
  dpkg -s "${need[@]}" >/dev/null 2>&1 && return 0
  local t=$SECONDS; say "packages ${need[*]} ..."
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  say "packages done in $((SECONDS - t)) s"
}

kubernetes() {
  local all=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl) todo=() c
  for c in "${all[@]}"; do have "$c" "v1.$K8S" || todo+=("$c"); done
  [ ${#todo[@]} -gt 0 ] || return 0
  # k8s.io/kubernetes cannot be `go install`ed: its go.mod points at staging folders that the module does not carry.
  # The same go.mod under another name, with the staging paths turned into the published modules, builds everything.
  local src=$CACHE/k8s orig t=$SECONDS; rm -rf "$src"; mkdir -p "$src"; cd "$src"
  say "kubernetes v1.$K8S modules ..."
  orig=$(go mod download -json "k8s.io/kubernetes@v1.$K8S" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  sed -E -e 's#^module k8s.io/kubernetes#module cluster#' -e "s#=> \./staging/src/(k8s\.io/[a-z0-9-]+)#=> \1 v0.$K8S#" \
      -e "0,/^require \(/s##require (\n\tk8s.io/kubernetes v1.$K8S#" "$orig" > go.mod
  { echo '//go:build tools'; echo 'package tools'; echo 'import ('
    for c in "${all[@]}"; do echo "_ \"k8s.io/kubernetes/cmd/$c\""; done; echo ')'; } > tools.go
  quiet go mod tidy
  say "kubernetes v1.$K8S modules done in $((SECONDS - t)) s"
  local version=k8s.io/component-base/version
  local LDFLAGS="-X $version.gitVersion=v1.$K8S -X $version.gitMajor=1 -X $version.gitMinor=${K8S%%.*} -X k8s.io/client-go/pkg/version.gitVersion=v1.$K8S"
  for c in "${todo[@]}"; do compile "$c" "v1.$K8S" "k8s.io/kubernetes/cmd/$c"; done
}

module() { # module version binary=package...: builds main packages of a module inside a module of its own
  local m=$1 version=$2 todo=() p; shift 2
  for p in "$@"; do have "${p%%=*}" "$version" || todo+=("$p"); done
  [ ${#todo[@]} -gt 0 ] || return 0
  local d; d=$CACHE/modules/$(basename "$m"); rm -rf "$d"; mkdir -p "$d"; cd "$d"
  quiet go mod init build
  export GOFLAGS=-mod=mod
  quiet go get "$m@$version"
  for p in "${todo[@]}"; do compile "${p%%=*}" "$version" "${p#*=}" -tags no_btrfs,no_devmapper; done
  unset GOFLAGS
}
etcd() { module go.etcd.io/etcd/server/v3 $ETCD etcd=go.etcd.io/etcd/server/v3; }
containerd() {
  local m=github.com/containerd/containerd/v2 p=(); for c in containerd containerd-shim-runc-v2 ctr; do p+=("$c=$m/cmd/$c"); done
  module "$m" $CONTAINERD "${p[@]}"
}
cni() {
  local m=github.com/containernetworking/plugins p=(); for c in main/bridge main/loopback ipam/host-local meta/portmap; do p+=("$(basename "$c")=$m/plugins/$c"); done
  module "$m" $CNI "${p[@]}"
}
helm() {
  # Unless told, Helm takes itself for a client of Kubernetes 1.20 and refuses charts that ask for more.
  local m=helm.sh/helm/v3 p
  local LDFLAGS="-X $m/internal/version.version=$HELM"
  for p in pkg/chartutil pkg/lint/rules; do LDFLAGS+=" -X $m/$p.k8sVersionMajor=1 -X $m/$p.k8sVersionMinor=${K8S%%.*}"; done
  module "$m" $HELM "helm=$m/cmd/helm"
}

own() { # binary version folder: a main package of ours
  have "$1" "$2" && return 0
  local d=$CACHE/modules/$1; rm -rf "$d"; mkdir -p "$d"; cp "$3"/main.go "$d/"; cd "$d"
  quiet go mod init "cluster-$1"
  export GOFLAGS=-mod=mod
  [ "$1" != coredns ] || quiet go get "github.com/coredns/coredns@$2"
  quiet go mod tidy
  compile "$1" "$2" .
  unset GOFLAGS
}
# The stock CoreDNS with all its plugins takes more than twice as long to build.
coredns() { own coredns $COREDNS "$HERE/dns"; }
pause() { own pause $PAUSE "$HERE/pause"; }

mkdir -p "$BIN"
exec 9> "$CACHE/lock"
flock -n 9 || { say "another build is running, waiting for it"; flock 9; }
t=$SECONDS
parts=("$@"); [ ${#parts[@]} -gt 0 ] || parts=(packages kubernetes etcd containerd cni helm coredns pause)
for part in "${parts[@]}"; do
  case $part in packages|kubernetes|etcd|containerd|cni|helm|coredns|pause) (set -e; "$part");; *) say "no component '$part'"; sed -n '2,5p' "$0"; exit 2;; esac
done
say "complete in $((SECONDS - t)) s, binaries in $BIN"
