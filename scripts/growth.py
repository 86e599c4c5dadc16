#!/usr/bin/env python3
"""growth.py: reads the operators' metrics on standard input, prints how long growth took from the report that asked for it, and the moves."""
import re
import sys

STAGES = {"created": "to the created pod", "routable": "to the routable worker", "first_user": "to its first user"}
sums, counts, moves = {}, {}, {}
for line in sys.stdin:
    found = re.match(r'elastic_pool_growth_seconds_(sum|count)\{stage="(\w+)"\} (\S+)', line)
    if found:
        kind, stage, value = found.groups()
        table = sums if kind == "sum" else counts
        table[stage] = table.get(stage, 0.0) + float(value)
    found = re.match(r'elastic_pool_moves_total\{result="(\w+)"\} (\S+)', line)
    if found:
        moves[found[1]] = moves.get(found[1], 0) + int(float(found[2]))
print("growth, from the report that asked for a worker (mean, seconds)")
for stage, name in STAGES.items():
    if counts.get(stage):
        print(f"  {name:<42} {sums[stage] / counts[stage]:.2f} ({counts[stage]:.0f})")
print("moves as the operator counts them")
for result, number in sorted(moves.items()):
    print(f"  {result:<42} {number}")
