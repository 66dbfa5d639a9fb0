"""Does the true cost lie in the range of the plan? (after ten answers, in nine of ten plans)

    python -m benchmarks.plans [--seeds 5] [--write docs/benchmarks/plans.md]

Each project of `edison init` gets priced simulated models of some seed, is run on ten cases, is
planned and run. What the plan said of the rest is compared with what the rest did cost.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
EDISON = (sys.executable, "-m", "edison_ci")


class Planned(NamedTuple):
    """Ranges of two plans and the true cost, in micro-dollars."""

    before: tuple[int, int]
    after: tuple[int, int]
    true: int

    @property
    def inside(self) -> bool:
        """Whether the plan after ten answers was right."""
        return self.after[0] <= self.true <= self.after[1]


def edison(folder: Path, *words: str) -> Any:
    """Return the JSON document of a command."""
    done = subprocess.run(
        [*EDISON, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout)


def measured(template: str, seed: int) -> Planned:
    """Plan and run a project of a template."""
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "project"
        subprocess.run(
            [*EDISON, "init", "--quiet", "--template", template, str(folder)], check=True
        )
        models = folder / "models.yaml"
        priced = f"provider: sim, price: {{in: 1.0, out: 5.0}}, options: {{seed: {seed}}}, "
        models.write_text(re.sub("provider: sim, ", priced, models.read_text()))
        before = _range(edison(folder, "plan"))
        edison(folder, "run", "--yes", "--limit", "10")
        after = _range(edison(folder, "plan"))
        (run,) = edison(folder, "run", "--yes")["runs"]
        return Planned(before, after, run["cost_microusd"])


def _range(plan: Any) -> tuple[int, int]:
    cost = plan["experiments"][0]["cost_microusd"]
    return cost["low"], cost["high"]


def report(seeds: int) -> str:
    """Return the table."""
    lines = [
        "| template | seed | plan without answers | plan after ten | true cost | inside |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = []
    for template in TEMPLATES:
        for seed in range(seeds):
            one = measured(template, seed)
            found.append(one)
            shown = [f"${low / 1e6:.2f}-{high / 1e6:.2f}" for low, high in one[:2]]
            inside = "yes" if one.inside else "no"
            lines.append(
                f"| {template} | {seed} | {shown[0]} | {shown[1]} | ${one.true / 1e6:.3f} "
                f"| {inside} |"
            )
    good = sum(one.inside for one in found)
    lines.append(f"\nThe true cost was inside the range in {good} of {len(found)} plans.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    text = "Measured with `python -m benchmarks.plans`.\n\n" + report(given.seeds)
    if given.write is not None:
        given.write.write_text(f"# Plans and true costs\n\n{text}")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
