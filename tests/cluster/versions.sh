# shellcheck shell=bash disable=SC2034
# What the test cluster is made of, and where its parts are kept. Sourced by build.sh and cluster.sh.
# A version changed here rebuilds that component alone: each binary has a stamp that names its version.
K8S=36.3 ETCD=v3.6.16 CONTAINERD=v2.2.9 CNI=v1.9.1 HELM=v3.20.2 COREDNS=v1.15.0 PAUSE=1
CACHE=${CLUSTER_CACHE:-$HOME/.cache/pool-cluster/v1.$K8S}
BIN=$CACHE/bin
export PATH=$BIN:$PATH
