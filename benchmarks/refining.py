"""Does refining make prompts better, on cases that it never saw?

    python -m benchmarks.refining [--seeds N] [--templates NAME ...] [--write FILE]

Each template is refined once for each seed; a seed changes what the simulated models answer and
which cases are held out. What a method comes up with is then measured anew against the prompt as it
was, on the cases that were held out, with several answers to each: that is its true gain. A method
that comes up with nothing gains nothing.

A method is a function in METHODS that takes a bench and returns the diff it would merge.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.load import load_project
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.orders import Tools
from edison_ci.providers.adapters import provider_for
from edison_ci.refine.asking import refiner_of
from edison_ci.refine.candidate import change_of, subject_of
from edison_ci.refine.evidence import evidence_of
from edison_ci.refine.refining import Orders, refine
from edison_ci.refine.trying import Bench, Wallet
from edison_ci.store.database import open_reader
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parent.parent
TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
DRAWS = 4
"""Answers to each held-out case when a gain is measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method came up with in one template and seed."""

    template: str
    seed: int
    method: str
    accepted: bool
    gain: float
    """True gain on the holdout, 0-1; 0 where nothing was accepted."""
    low: float
    high: float
    calls: int
    """Answers that the method needed, those it found stored included."""


def refined(bench: Bench) -> str | None:
    """Refine once, as `edison refine` does; take what it proposes first."""
    model = bench.subject.project.models[str(bench.subject.limits.by)]
    found = refine(bench, refiner_of(model), Orders(bench.subject.limits.candidates))
    best = next((one for one in found.suggestions if one.status is Status.PROPOSED), None)
    return None if best is None else best.diff


Method = Callable[[Bench], str | None]
METHODS: dict[str, Method] = {"refine": refined}


# --- one template and seed ------------------------------------------------------------------------


@contextlib.contextmanager
def project(template: str, seed: int) -> Iterator[Path]:
    """Yield a copy of a template whose simulated models and holdout depend on the seed."""
    with tempfile.TemporaryDirectory(prefix="edison-refining-") as name:
        folder = Path(name) / template
        shutil.copytree(ROOT / "examples" / template, folder)
        models = folder / "models.yaml"
        seeded = rf"{{provider: sim, model: \1, options: {{seed: {seed}}}}}"
        text = re.sub(r"(?m)(?<=: )\{provider: sim, model: (\w+)\}", seeded, models.read_text())
        models.write_text(text)
        for file in (folder / "experiments").iterdir():
            text = re.sub(
                r"(?m)^split: .*$", f"split: {{holdout: 0.4, seed: {seed}}}", file.read_text()
            )
            file.write_text(text)
        yield folder


@contextlib.contextmanager
def tools() -> Iterator[Tools]:
    """Yield what sessions need; nobody is told anything."""
    yield Tools(provider_for, CellGrader.of)


def bench_in(folder: Path) -> Bench:
    """Return the bench of the template's only experiment."""
    loaded = load_project(folder)
    (experiment,) = loaded.experiments.values()
    subject = subject_of(loaded, experiment)
    return Bench(subject, tools, Wallet.of(subject, None), allow_code=True)


def outcome(template: str, seed: int, name: str) -> Outcome:
    """Let a method work on a template, and measure what it came up with."""
    with project(template, seed) as folder:
        bench = bench_in(folder)
        diff = METHODS[name](bench)
        calls = _calls(bench)
        if diff is None:
            return Outcome(template, seed, name, False, 0.0, 0.0, 0.0, calls)
        change = change_of(bench.subject, diff)
        tried = replace(bench, draws=DRAWS).try_out(change, "holdout")
        with closing(open_reader(bench.results)) as reader:
            shown = evidence_of(reader, change, tried.run_id).holdout
    assert shown is not None
    assert shown.gain is not None
    low, high = (math.nan if end is None else end for end in (shown.low, shown.high))
    return Outcome(template, seed, name, True, shown.gain, low, high, calls)


def _calls(bench: Bench) -> int:
    with closing(open_reader(bench.results)) as reader:
        row = reader.execute("select count(*) from attempt where state = 'settled'").fetchone()
        return int(row[0])


# --- all of them ----------------------------------------------------------------------------------


def table(found: Sequence[Outcome]) -> str:
    """Return a row for each template and method."""
    head = (
        "template",
        "method",
        "accepted",
        "better on the holdout",
        "true gain, mean",
        "from",
        "to",
        "calls",
    )
    rows = [head, tuple("---" for _ in head)]
    for template in dict.fromkeys(one.template for one in found):
        for method in dict.fromkeys(one.method for one in found):
            ours = [o for o in found if (o.template, o.method) == (template, method)]
            gains = [100 * one.gain for one in ours]
            rows.append(
                (
                    template,
                    method,
                    f"{sum(one.accepted for one in ours)} of {len(ours)}",
                    f"{sum(one.gain > 0 for one in ours)} of {len(ours)}",
                    f"{statistics.mean(gains):+.1f}",
                    f"{min(gains):+.1f}",
                    f"{max(gains):+.1f}",
                    f"{statistics.mean(one.calls for one in ours):,.0f}",
                )
            )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


PAGE = """# Refining

Written by `python -m benchmarks.refining`: {seeds} seeds for each template, all models simulated. A
gain is what the instructions are worth to the simulator, and no evidence about real models.

A method is given a template and comes up with a diff, or with nothing. Its true gain is measured
anew: the prompt with the diff against the prompt without, on the cases that were held out from the
method, {draws} answers to each. Nothing gains 0. Points are out of 100.

{table}
`refine` is `edison refine` as the template sets it up: one candidate, three in data-extraction,
whose answers vary so much that 50 training cases often do not show the gain of a single good diff.
`accepted` counts the seeds in which it proposed a change.
"""


def _said(one: Outcome, seconds: float) -> str:
    gain = f"{100 * one.gain:+.1f}" if one.accepted else "nothing"
    return f"{one.template} seed {one.seed} {one.method}: {gain} ({seconds:.0f} s)\n"


def main() -> None:
    """Measure and print, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--templates", nargs="+", default=TEMPLATES, choices=TEMPLATES)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    found: list[Outcome] = []
    for template in given.templates:
        for seed in range(given.seeds):
            for method in given.methods:
                begun = time.monotonic()
                found.append(outcome(template, seed, method))
                sys.stderr.write(_said(found[-1], time.monotonic() - begun))
    if given.write is not None:
        page = PAGE.format(seeds=given.seeds, draws=DRAWS, table=table(found))
        given.write.write_text(page, encoding="utf-8")
    sys.stdout.write(table(found))


if __name__ == "__main__":
    main()
