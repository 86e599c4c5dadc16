#!/usr/bin/env python3
"""soak.py ELASTIC_POOL POOL_LOAD MINUTES: users come, work, move and go for that long on a pool of processes, whose memory has to stay flat.

Prints lines `figure NAME VALUE UNIT`. Ends with 1 when a request failed, a user was lost, or a part grew by more than 10 % (and 2 MiB) between the
second fifth of the run and its last. RSS is sampled every 5 s; a part that was started anew in between is measured from then on and not judged."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

LEAST = 2 * 1024 * 1024
MOST_PERCENT = 10.0
EACH = 5.0
MANIFEST = pathlib.Path(__file__).parent.parent / "tests" / "local" / "fast.yaml"


def rss(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    line = next((line for line in text.splitlines() if line.startswith("VmRSS:")), None)
    return int(line.split()[1]) * 1024 if line else None


def parts(state_file, operator):
    """Name to process id of all that must not grow."""
    table = json.loads(state_file.read_text())
    found = {"operator": operator}
    found.update({f"gateway {row['address']}": row["pid"] for row in table["gateways"]})
    found.update({f"agent of {row['name']}": row["agent_pid"] for row in table["workers"]})
    return found


def until(what, limit, holds):
    end = time.monotonic() + limit
    while not (value := holds()):
        if time.monotonic() > end:
            sys.exit(f"soak: never: {what}")
        time.sleep(0.2)
    return value


def growth(samples):
    """Percent and bytes from the second fifth's median to the last's."""
    fifth = len(samples) // 5
    before = statistics.median(samples[fifth : 2 * fifth])
    after = statistics.median(samples[-fifth:])
    return 100.0 * (after - before) / before, after - before


def profile(minutes):
    """Days of two minutes: few, many, few; so that the pool grows, moves and shrinks all the time."""
    days = max(1, round(minutes / 2))
    seconds = minutes * 60 / days / 4
    return ",".join(f"8x{seconds:.0f}s,40x{2 * seconds:.0f}s,8x{seconds:.0f}s" for _ in range(days))


def main():
    program, load_program, minutes = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = pathlib.Path(name)
        log = open(folder / "log", "w")
        arguments = ["local", "-f", str(MANIFEST), "--listen", "127.0.0.1:0", "--monitor", "127.0.0.1:0"]
        vehicle = subprocess.Popen([program, *arguments, "--state-file", str(folder / "state")], stdout=log, stderr=log)
        try:
            address = until("a gateway", 60, lambda: gateway(folder / "state"))
            until("an answer", 60, lambda: subprocess.run(
                ["curl", "-sfo", "/dev/null", f"http://{address}/healthz"], check=False).returncode == 0)
            result = soak(folder, vehicle.pid, load_program, address, minutes)
        finally:
            vehicle.terminate()
            try:
                vehicle.wait(30)
            except subprocess.TimeoutExpired:
                vehicle.kill()
        sys.exit(result)


def gateway(state_file):
    try:
        rows = json.loads(state_file.read_text())["gateways"]
    except (OSError, ValueError):
        return None
    return rows[0]["address"] if rows else None


def soak(folder, operator, load_program, address, minutes):
    flags = ["--cpu-ms", "4", "--think-ms", "700", "--arrivals", "4", "--assert", "--json", str(folder / "summary")]
    load = subprocess.Popen([load_program, "--url", f"http://{address}", "--users-profile", profile(minutes), *flags],
                            stdout=sys.stderr)
    samples = {}
    end = time.monotonic() + minutes * 60 + 120
    while load.poll() is None:
        if time.monotonic() > end:
            load.kill()
            print("soak: the load did not end in time", file=sys.stderr)
            return 1
        for part, pid in parts(folder / "state", operator).items():
            if (size := rss(pid)) is not None:
                samples.setdefault((part, pid), []).append(size)
        time.sleep(EACH)
    summary = json.loads((folder / "summary").read_text())
    whole = max(map(len, samples.values()))
    # Workers come and go; judged is what was there from the beginning to the end.
    lasting = {part: sizes for (part, _), sizes in samples.items() if len(sizes) >= whole - 1 and len(sizes) >= 10}
    faults = 0 if load.returncode == 0 else 1
    for kind in ("gateway", "agent", "operator"):
        grown = [(growth(sizes), part) for part, sizes in lasting.items() if part.startswith(kind)]
        if not grown:
            print(f"soak: no {kind} lasted", file=sys.stderr)
            faults += kind != "agent"
            continue
        (percent, grew), part = max(grown)
        print(f"figure soak_{kind}_rss_growth_percent {percent:.1f} percent")
        if percent > MOST_PERCENT and grew > LEAST:
            print(f"soak: {part} grew by {grew / 1048576:.1f} MiB", file=sys.stderr)
            faults += 1
    for figure, field in [("requests", "requests"), ("failed_requests", "failed"), ("lost_users", "users_lost"),
                          ("moves_after_login", "placement_moves"), ("moves_later", "live_moves")]:
        print(f"figure soak_{figure} {summary[field]} count")
    print(f"figure soak_minutes {summary['seconds'] / 60:.1f} min", flush=True)
    return 1 if faults else 0


main()
