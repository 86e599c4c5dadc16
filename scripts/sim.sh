#!/usr/bin/env bash
# sim.sh SEEDS FROM: worlds of the simulation (tests/netsim) from seed FROM on, spread over all cores; prints how far it is and every
# seed that fails with the command that runs it again. HISTORY=file, for one seed: the whole history of its world.
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=$1 from=$2
messages=$(cargo test --locked --profile netsim --features netsim --test netsim --no-run --message-format=json-render-diagnostics)
program=$(python3 -c '
import json, sys
found = [json.loads(line).get("executable") for line in sys.stdin if line.startswith("{")]
print([path for path in found if path][-1])' <<< "$messages")
cores=$(nproc)
[ "$seeds" -ge "$((cores * 100))" ] || cores=1
pids=()
stop() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; }
trap stop EXIT
for ((core = 0; core < cores; core++)); do
  first=$((from + seeds * core / cores)) next=$((from + seeds * (core + 1) / cores))
  SEEDS=$((next - first)) FROM=$first "$program" --exact every_user_has_one_owner_and_every_request_one_outcome_whatever_breaks --nocapture &
  pids+=($!)
done
rc=0
for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
exit $rc
