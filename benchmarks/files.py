"""What do starting, validating and planning cost? (rows 8, 9, 10 and 15 of the targets)

    python -m benchmarks.files [--quick] [--write docs/benchmarks/files.md]

Ratios are to `python -c pass` in the same run, so that a busy machine shows in both.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import EDISON, PASS, Measured, measure

ROOT = Path(__file__).parent.parent

PROJECT = {
    "edison.yaml": "version: 1\nproject: bench\n",
    "models.yaml": "small: {provider: sim, model: small}\n",
    "prompts/codeword.md": "---\nid: codeword\n---\n# user\nAnswer briefly. {{ q }}\n"
    "Name exactly one code word and add nothing else.\n",
    "experiments/codeword.yaml": "experiment: codeword\n"
    "objective: Name the code word of the item that is asked for.\n"
    "prompts: [prompts/codeword.md]\nmodels: [small]\n"
    "datasets:\n  - path: datasets/cases.{suffix}\n"
    "    limits: {{max_rows: 10000000, max_bytes: 10000000000}}\n"
    'checks:\n  - contains: "{{{{ expected }}}}"\n',
}


def make_project(folder: Path, suffix: str, rows: int) -> Path:
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(suffix=suffix) if "{suffix}" in text else text)
    data = folder / "datasets" / f"cases.{suffix}"
    data.parent.mkdir(exist_ok=True)
    with data.open("w") as stream:
        for index in range(rows):
            row = {
                "id": f"case-{index:07d}",
                "input": {"q": f"What is the code word for item {index * 7919 % 100003}?"},
                "expected": f"The answer is {index:08x}.",
            }
            stream.write(("- " if suffix == "yaml" else "") + json.dumps(row) + "\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="100,000 rows instead of a million")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = report(Path(name), million=100_000 if args.quick else 1_000_000)
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(text + "\n", encoding="utf-8")


def report(folder: Path, *, million: int) -> str:
    empty = measure(PASS, cwd=folder, repeat=11)
    support = folder / "support"
    shutil.copytree(ROOT / "examples" / "customer-support", support)
    jsonl = make_project(folder / "jsonl", "jsonl", 10_000)
    yaml = make_project(folder / "yaml", "yaml", 10_000)
    large = make_project(folder / "large", "jsonl", million)
    validate = [*EDISON, "validate"]
    rows = [
        ("8", "`edison --version`", "90 ms", measure([*EDISON, "--version"], cwd=folder)),
        ("8", "`edison --help`", "130 ms", measure([*EDISON, "--help"], cwd=folder)),
        ("9", "`validate`, example project", "250 ms", measure(validate, cwd=support)),
        ("10", "`validate`, 10,000 cases, JSONL", "450 ms", measure(validate, cwd=jsonl)),
        ("10", "`validate`, 10,000 cases, YAML", "1,000 ms", measure(validate, cwd=yaml)),
        (
            "15",
            f"`plan`, {million:,} cases, JSONL",
            "15 s, 200 MB for a million",
            measure([*EDISON, "plan"], cwd=large, repeat=1),
        ),
    ]
    lines = [
        f"Python {platform.python_version()}, {platform.machine()}, one core; medians. "
        f"`python -c pass` took {1000 * empty.wall_s:.0f} ms.",
        "",
        "| row | what | wall | x `python -c pass` | peak memory | target |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_line(number, what, target, got, empty) for number, what, target, got in rows]
    return "\n".join(lines)


def _line(number: str, what: str, target: str, got: Measured, empty: Measured) -> str:
    wall = f"{1000 * got.wall_s:,.0f} ms" if got.wall_s < 2 else f"{got.wall_s:.1f} s"
    ratio = got.wall_s / empty.wall_s
    return f"| {number} | {what} | {wall} | {ratio:.1f} | {got.peak_mb:.0f} MB | {target} |"


if __name__ == "__main__":
    main()
