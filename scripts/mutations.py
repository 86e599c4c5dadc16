#!/usr/bin/env python3
"""Breaks the engine on purpose, one named mutation at a time, and asks that the test that guards the rule goes red.

    scripts/mutations.py [NAME...]     all of engine/tests/mutations.toml, or those named
    scripts/mutations.py --texts       only checks that each text to be replaced stands where the table says
    scripts/mutations.py --copy FOLDER only makes the copy of the engine, a workspace of its own (scripts/mutants.sh)

Works on a copy of engine/ in target/mutations. Fails when the unbroken copy is not green, when a text to be replaced
does not stand in its file exactly once, when a broken engine does not compile, and when its test stays green.
"""
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "engine/tests/mutations.toml"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "mutations"
CASES = "4000"
# A broken engine may never come to an end.
LIMIT_SECONDS = 120
# Compiled often and run for a second: nothing is optimised, and no debug information is written.
QUICK = {
    "CARGO_TARGET_DIR": str(WORK / "target"),
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_DEV_DEBUG": "false",
    "CARGO_TERM_COLOR": "never",
    "ELASTIC_POOL_CASES": CASES,
    "RUST_BACKTRACE": "0",
}


class Fault(Exception):
    """Something that makes the table or the tests worthless."""


def copy(work: Path) -> Path:
    """A workspace of the engine alone, its sources as they are now."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    lines = (ROOT / "Cargo.toml").read_text().split("\n[package]\n")[0]
    assert "engine" in manifest["workspace"]["members"]
    work.mkdir(parents=True, exist_ok=True)
    (work / "Cargo.toml").write_text(lines + "\n")
    shutil.copy(ROOT / "Cargo.lock", work / "Cargo.lock")
    for folder in ["engine", "tests/cases", "tests/traces"]:
        if (ROOT / folder).is_dir():
            mirror(ROOT / folder, work / folder)
    return work / "engine/src"


def mirror(source: Path, target: Path) -> None:
    """Writes what differs and nothing else, so that what is built stays built."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for path in [path for path in target.rglob("*") if path.is_file()]:
        if path.relative_to(target) not in wanted:
            path.unlink()
    for path in wanted:
        text, to = (source / path).read_bytes(), target / path
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != text:
            to.write_bytes(text)


def cargo(*arguments: str) -> subprocess.CompletedProcess:
    command = ["cargo", "test", "--offline", "--quiet", "-p", "elastic-pool-engine", *arguments]
    try:
        return subprocess.run(
            command, cwd=WORK, env=os.environ | QUICK, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired as late:
        raise Fault(f"{' '.join(command)} takes longer than {LIMIT_SECONDS} s") from late


def of(binary: str) -> list[str]:
    return ["--lib"] if binary == "lib" else ["--test", binary]


def is_red(binary: str, test: str) -> bool:
    """Whether that test fails (all that begin with its name); it must be there and the engine must compile."""
    built = cargo(*of(binary), "--no-run")
    if built.returncode != 0:
        raise Fault("does not compile:\n" + built.stderr[-3000:])
    run = cargo(*of(binary), "--", test)
    if "running 0 tests" in run.stdout:
        raise Fault(f"no test {test} in {binary}")
    return run.returncode != 0


def whole(file: Path, mutation: dict) -> str:
    """The file's text, in which the text to be replaced stands exactly once."""
    text = file.read_text() if file.exists() else ""
    if (found := text.count(mutation["find"])) != 1:
        raise Fault(f"the text stands {found} times in {mutation['file']}, must be once: {mutation['find']!r}")
    return text


def check_texts(mutations: list[dict]) -> int:
    wrong = 0
    for mutation in mutations:
        try:
            whole(ROOT / "engine/src" / mutation["file"], mutation)
        except Fault as fault:
            print(f"{TABLE.relative_to(ROOT)}: {mutation['name']}: {fault}")
            wrong = 1
    return wrong


def breaks(mutation: dict, sources: Path) -> bool:
    file = sources / mutation["file"]
    text = whole(file, mutation)
    file.write_text(text.replace(mutation["find"], mutation["replace"]))
    try:
        binary, test = mutation["red"].split(" ")
        return is_red(binary, test)
    finally:
        file.write_text(text)


def check_whole(mutations: list[dict]) -> None:
    for binary in sorted({mutation["red"].split(" ")[0] for mutation in mutations}):
        tests = [m["red"].split(" ")[1] for m in mutations if m["red"].startswith(binary + " ")]
        built = cargo(*of(binary), "--no-run")
        if built.returncode != 0:
            raise Fault(f"the unbroken engine does not compile:\n{built.stderr[-3000:]}")
        run = cargo(*of(binary), "--", *tests)
        if run.returncode != 0:
            raise Fault(f"{binary} of the unbroken engine is not green:\n{run.stdout[-3000:]}")


def main() -> int:
    if sys.argv[1:2] == ["--copy"]:
        copy(Path(sys.argv[2]))
        return 0
    mutations = tomllib.loads(TABLE.read_text())["mutation"]
    if sys.argv[1:] == ["--texts"]:
        return check_texts(mutations)
    if names := sys.argv[1:]:
        if unknown := set(names) - {mutation["name"] for mutation in mutations}:
            print(f"no mutation {', '.join(sorted(unknown))} in {TABLE.relative_to(ROOT)}", file=sys.stderr)
            return 2
        mutations = [mutation for mutation in mutations if mutation["name"] in names]
    sources, begin, wrong = copy(WORK), time.monotonic(), 0
    try:
        check_whole(mutations)
        print(f"mutations: the unbroken engine is green ({time.monotonic() - begin:.0f} s)", flush=True)
    except Fault as fault:
        print(f"mutations: {fault}")
        return 1
    for mutation in mutations:
        begun = time.monotonic()
        try:
            red = breaks(mutation, sources)
            said = "red" if red else f"STAYS GREEN: {mutation['red']}"
        except Fault as fault:
            red, said = False, f"FAULT: {fault}"
        wrong += not red
        took = time.monotonic() - begun
        print(f"  {mutation['rule']:<4} {mutation['name']:<52} {said}  {took:.1f} s", flush=True)
    print(f"mutations: {len(mutations) - wrong} of {len(mutations)} turn their test red, {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
