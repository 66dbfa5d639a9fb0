"""Statement coverage of the tests, package by package.

    make coverage

Reads the data of `coverage run`, subprocesses included; a process that is killed writes none. Exits
with 1 if a package is below its target.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ENGINE = ("decide", "execute", "judges", "plan", "providers", "stats", "store")
ENGINE_TARGET = 90
TARGET = 85


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = Path(name) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(found)]
        subprocess.run(command, check=True)
        files = json.loads(found.read_text(encoding="utf-8"))["files"]
    text, reached = report({name: each["summary"] for name, each in files.items()})
    print(text)
    if args.write:
        args.write.write_text(text + "\n", encoding="utf-8")
    if not reached:
        raise SystemExit("below the target: see the table")


def report(files: dict[str, dict[str, int]]) -> tuple[str, bool]:
    """Return the table, and whether every package and the whole reach their targets."""
    statements: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for name, summary in files.items():
        for group in ("all", package_of(name)):
            statements[group] += summary["num_statements"]
            covered[group] += summary["covered_lines"]
    lines = [
        "# Coverage",
        "",
        f"`make coverage`, Python {platform.python_version()}. Killed processes are not counted.",
        "",
        "| package | statements | run by tests | target |",
        "| --- | --- | --- | --- |",
    ]
    reached = True
    for group in sorted(statements, key=lambda each: (each == "all", each)):
        target = ENGINE_TARGET if group in ENGINE else TARGET
        enough = 100 * covered[group] >= target * statements[group]
        reached &= enough
        share = f"{100 * covered[group] / max(1, statements[group]):.1f}%"
        told = share if enough else f"{share} (too low)"
        lines.append(f"| {group} | {statements[group]:,} | {told} | {target}% |")
    return "\n".join(lines), reached


def package_of(name: str) -> str:
    """Return the package that a file belongs to; modules of the root are one."""
    parts = Path(name).parts
    return parts[1] if len(parts) > 2 else "edison_ci"


if __name__ == "__main__":
    main()
