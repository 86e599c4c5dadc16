# `make` lists the targets. Each does its own set-up; nothing but Rust, Go, Python 3 and Debian's packages is assumed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build check test test-long mutants fuzz model sim generate demo demo-drain demo-down local bench bench-moves bench-gateway soak conformance deny image clean
# Nothing here is built twice at the same time: cargo has its own parallelism.
.NOTPARALLEL:

TOOLS_PATH := $(shell scripts/tools.sh path)
export PATH := $(TOOLS_PATH):$(PATH)
SECONDS_EACH ?= 600
MINUTES ?= 60
SEEDS ?= 500
FROM ?= 1
FILE ?= manifests/samples/shop.yaml

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

build: ## the binaries, for development
	scripts/tools.sh base
	cargo build --locked --bins

check: ## the quick part: format, lints, licences, chart, drift of generated files, fast tests
	scripts/tools.sh base nextest helm
	scripts/check.sh
	cargo nextest run --workspace --locked -E 'not binary(cluster)'

test: ## all tests, those on a real cluster too; prints the stages' times and ends with the runner's summaries
	scripts/test.sh

test-long: ## the tests that take too long for `make test` (those marked ignored)
	scripts/test.sh --long

mutants: ## break the engine in every small way and say which tests notice; takes hours, goes on where it was stopped (figures: engine/MUTANTS.md)
	scripts/tools.sh base nextest mutants
	scripts/mutants.sh

fuzz: ## throw mutated bytes at whatever reads bytes, 10 min a target (SECONDS_EACH=n)
	scripts/tools.sh base fuzz
	scripts/fuzz.sh $(SECONDS_EACH)

model: ## moves, logins and changes of leader under a model checker, the large worlds too (SECONDS_EACH=n, WORLD=words of its name)
	scripts/tools.sh base
	cargo run --release --locked --quiet -p elastic-pool-model -- $(SECONDS_EACH) "$(WORLD)"

sim: ## the real commander, gateways and agents over a simulated network, one world per seed (SEEDS=n, FROM=m; HISTORY=file for one seed)
	scripts/tools.sh base
	scripts/sim.sh $(SEEDS) $(FROM)

generate: ## write CRDs, chart copies, install manifest and chart snapshots anew
	scripts/tools.sh base helm
	scripts/generate.sh

demo: ## a real cluster, the chart, the samples and live users; leaves it up (DEMO_CLUSTER=own|kind|current, own where it is not said)
	scripts/demo.sh up

demo-drain: ## a node of two is drained while 300 users work, and comes back; live counters, then the closing table
	scripts/demo.sh drain

demo-down: ## remove all that the demos made
	scripts/demo.sh down

local: ## the sample group as processes, without Kubernetes; Ctrl-C ends all (FILE=manifest)
	scripts/tools.sh base
	cargo build --locked --bin elastic-pool
	exec cargo run --quiet --locked --bin elastic-pool -- local -f $(FILE)

bench: ## measure; prints lines `figure NAME VALUE UNIT`
	scripts/tools.sh base
	scripts/bench.sh

bench-moves: ## measure moves: pauses, ten thousand under load, a drain; prints lines `figure NAME VALUE UNIT`
	scripts/tools.sh base
	scripts/bench.sh moves

bench-gateway: ## the gateway and the agent beside HAProxy, nginx and Envoy; prints lines `figure NAME VALUE UNIT`
	scripts/tools.sh base
	scripts/bench-gateway.sh

soak: ## an hour of users who come, work, move and go (MINUTES=n): flat memory and no failed request; prints lines `figure NAME VALUE UNIT`
	scripts/tools.sh base
	scripts/soak.sh $(MINUTES)

conformance: ## clients that others wrote (h2spec, curl, httpx, websockets, undici, grpc) against gateway and agent
	scripts/tools.sh base
	scripts/conformance.sh

deny: ## licences, bans, sources and advisories by cargo-deny (builds it first)
	scripts/tools.sh deny
	scripts/deny.sh

image: ## the image's archive from the static binary
	scripts/tools.sh base
	tests/cluster/image.sh

clean: ## remove what builds left here; the caches of tools and cluster binaries stay
	cargo clean
