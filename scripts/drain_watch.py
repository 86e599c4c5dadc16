#!/usr/bin/env python3
"""drain_watch.py API SYSTEM NAMESPACE GROUP PROGRESS: a line a second while a node is drained: workers per node, users, moves, held and failed requests.

API is the address of a `kubectl proxy`; PROGRESS is the file that pool-load writes its progress to. It runs until it is ended."""
import json
import re
import sys
import time
import urllib.error
import urllib.request

GROUP_LABEL = "elasticpool.dev%2Fgroup"


def read(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def items(api, path):
    return json.loads(read(f"{api}{path}"))["items"]


def total(text, metric, label=""):
    """The sum of a metric's samples whose labels contain `label`."""
    found = re.findall(rf"^{metric}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for labels, value in found if label in labels)


def leader(api, system):
    """Name and metrics of the operator that leads; empty while none does."""
    for pod in items(api, f"/api/v1/namespaces/{system}/pods"):
        try:
            text = read(f"{api}/api/v1/namespaces/{system}/pods/{pod['metadata']['name']}:9090/proxy/metrics")
        except (urllib.error.URLError, TimeoutError):
            continue
        if total(text, "elastic_pool_leader") == 1:
            return pod["metadata"]["name"], text
    return "", ""


def workers(api, namespace, group):
    """Text such as `node1 3, node2 1 and 2 that leave` of all nodes."""
    counts = {node["metadata"]["name"]: [0, 0, ""] for node in items(api, "/api/v1/nodes")}
    for node in items(api, "/api/v1/nodes"):
        if node["spec"].get("unschedulable"):
            counts[node["metadata"]["name"]][2] = " (cordoned)"
    for pod in items(api, f"/api/v1/namespaces/{namespace}/pods?labelSelector={GROUP_LABEL}%3D{group}"):
        count = counts.get(pod["spec"].get("nodeName"))
        if count:
            count[1 if "deletionTimestamp" in pod["metadata"] else 0] += 1
    told = (f"{name}{note} {stay}{f' + {go} leaving' if go else ''}" for name, (stay, go, note) in sorted(counts.items()))
    return "  ".join(f"{text:<28}" for text in told)


def line(moved, api, system, namespace, group, progress):
    """`moved` keeps the moves that each leader counted: a new one begins at nothing."""
    name, metrics = leader(api, system)
    users = total(metrics, "elastic_pool_group_users", f'namespace="{namespace}"')
    moved[name] = total(metrics, "elastic_pool_moves_total", 'result="moved"')
    moves = sum(moved.values())
    held = total(metrics, "elastic_pool_held_requests")
    with open(progress) as file:
        failed = re.findall(r"(\d+) failed", file.read())
    known = f"{users:4.0f} users  {moves:6.0f} moves  {held:3.0f} held" if metrics else "no operator leads just now"
    return f"{workers(api, namespace, group)}  {known}  {failed[-1] if failed else '0':>3} failed"


def main(api, *rest):
    begin, moved = time.monotonic(), {}
    while True:
        try:
            print(f"{time.monotonic() - begin:6.1f} s  {line(moved, api, *rest)}", flush=True)
        except (OSError, ValueError) as error:
            print(f"         no reading: {error}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (KeyboardInterrupt, BrokenPipeError):
        pass
