#!/usr/bin/env python3
"""licences.py: fails where a crate in the tree has a licence that deny.toml does not allow.

The quick half of `make deny`: it reads `cargo metadata` alone, so it needs no tool that takes minutes to build."""
import json
import re
import subprocess
import sys
import tomllib


def holds(expression, allowed):
    """Whether an SPDX expression can be met by allowed licences: OR, AND (binding tighter), WITH, parentheses, and the older a/b for OR."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def peek():
        return tokens[position] if position < len(tokens) else None

    def take():
        nonlocal position
        position += 1
        return tokens[position - 1]

    def either():
        result = both()
        while peek() == "OR":
            take()
            right = both()
            result = result or right
        return result

    def both():
        result = one()
        while peek() == "AND":
            take()
            right = one()
            result = result and right
        return result

    def one():
        if peek() == "(":
            take()
            result = either()
            take()
            return result
        name = take()
        if peek() == "WITH":
            take()
            exception = take()
            # A licence with an exception grants more than the licence alone.
            return name in allowed or f"{name} WITH {exception}" in allowed
        return name in allowed

    return either()


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    allowed = set(rules["licenses"]["allow"])
    banned = {entry["name"] for entry in rules["bans"]["deny"]}
    targets = [flag for target in rules["graph"]["targets"] for flag in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *targets]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    faults = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence given'}"
        for package in packages
        if not (package["license"] and holds(package["license"], allowed))
    ]
    faults += [f"{package['name']} {package['version']}: banned" for package in packages if package["name"] in banned]
    for fault in faults:
        print("licences:", fault, file=sys.stderr)
    print(f"licences: {len(packages)} crates, {len(faults)} faults", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
