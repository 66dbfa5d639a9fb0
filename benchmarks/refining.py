"""Does refining make prompts better, on cases that it never saw?

    python -m benchmarks.refining [--seeds FROM-TO] [--templates NAME ...] [--methods NAME ...]
                                  [--add FILE] [--write FILE]

Each outcome is a line of the file given by `--add`, and is not measured again when it is there.

Each template is refined once for each seed; a seed changes what the simulated models answer and
which cases are held out. What a method comes up with is then measured anew against the prompt as it
was, on the cases that were held out, with several answers to each: that is its true gain. A method
that comes up with nothing gains nothing.

A method is a function in METHODS that takes a bench and returns the diff it would merge.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sim import random_edit
from edison_ci.config.load import load_project
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.run_options import RunContext
from edison_ci.features.refine.evidence import evidence_of
from edison_ci.features.refine.optimize import OptimizeOptions as SearchOrders
from edison_ci.features.refine.optimize import optimize
from edison_ci.features.refine.refinement import RefineOptions, refine
from edison_ci.features.refine.refiner import refiner_of
from edison_ci.features.refine.search import SearchLimits
from edison_ci.features.refine.trials import Allowance, TrialRunner
from edison_ci.features.simulator.options import random_stream
from edison_ci.features.simulator.refiner import parse_task, unified_diff
from edison_ci.proposals.candidate import change_of, target_of
from edison_ci.providers.adapters import provider_for
from edison_ci.records import Completion, SuggestionStatus
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.features.refine.evidence import SplitEvidence
    from edison_ci.judges.judge import Judge
    from edison_ci.records import Request
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.suggestions import Suggestion

ROOT = Path(__file__).parent.parent
TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
REACH = SearchLimits(population=4, generations=5)
"""Of the searches: half as wide as `edison optimize` goes by default, and half as long."""
AFRESH = 1_000
"""Added to the seed of the models when a gain is measured, so that no answer is an old one."""
REPEATS = 4
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


def refined(bench: TrialRunner) -> str | None:
    """Refine once, as `edison refine` does; take what it proposes first."""
    found = refine(bench, _refiner(bench), RefineOptions(bench.target.limits.candidates))
    return _proposed(found.suggestions)


def optimized(bench: TrialRunner) -> str | None:
    """Search, as `edison optimize` does; take what it proposes."""
    return _searched(bench, provider_for)


def aimless(bench: TrialRunner) -> str | None:
    """Search in the same way, with a refiner that edits without an idea: the control."""
    refiner = _refiner(bench).model.name
    return _searched(bench, lambda m: Aimless(m) if m.name == refiner else provider_for(m))


def nothing(_: TrialRunner) -> str | None:
    """Leave the prompt as it is."""
    return None


Method = Callable[[TrialRunner], str | None]
METHODS: dict[str, Method] = {
    "optimize": optimized,
    "refine": refined,
    "random edits": aimless,
    "nothing": nothing,
}


def _refiner(bench: TrialRunner) -> Judge:
    return refiner_of(bench.target.project.models[str(bench.target.limits.by)])


def _proposed(suggestions: Sequence[Suggestion]) -> str | None:
    best = next((one for one in suggestions if one.status is SuggestionStatus.PROPOSED), None)
    return None if best is None else best.diff


def _searched(bench: TrialRunner, provider: Callable[[Model], Provider]) -> str | None:
    def opened(cap: SpendingCap) -> contextlib.AbstractContextManager[RunContext]:
        return contextlib.nullcontext(RunContext(provider, CellGrader.of, loop=cap))

    orders = SearchOrders(REACH, allow_code=True)
    return _proposed(optimize(bench.target, _refiner(bench), opened, orders).suggestions)


class Aimless:
    """A refiner whose diffs have no idea behind them."""

    def __init__(self, model: Model) -> None:
        self._seed = model.options.get("seed")

    async def complete(self, request: Request) -> Completion:
        """Return a reply with one edit, decided by the request and the seed."""
        task = parse_task(request)
        text = random_edit(task.text, random_stream(request.request_hash, self._seed, "aimless"))
        told = {"note": "Another wording.", "diff": unified_diff(task.text, text, task.path)}
        return Completion(json.dumps(told), tokens_in=0, tokens_out=0, served_model=request.model)


# --- one template and seed ------------------------------------------------------------------------


@contextlib.contextmanager
def project(template: str, seed: int, *, models_seed: int | None = None) -> Iterator[Path]:
    """Yield a copy of a template whose simulated models and holdout depend on the seed."""
    own = seed if models_seed is None else models_seed
    with tempfile.TemporaryDirectory(prefix="edison-refining-") as name:
        folder = Path(name) / template
        shutil.copytree(ROOT / "examples" / template, folder)
        models = folder / "models.yaml"
        seeded = rf"{{provider: sim, model: \1, options: {{seed: {own}}}}}"
        text = re.sub(r"(?m)(?<=: )\{provider: sim, model: (\w+)\}", seeded, models.read_text())
        models.write_text(text)
        for file in (folder / "experiments").iterdir():
            text = re.sub(
                r"(?m)^split: .*$", f"split: {{holdout: 0.4, seed: {seed}}}", file.read_text()
            )
            file.write_text(text)
        yield folder


@contextlib.contextmanager
def tools() -> Iterator[RunContext]:
    """Yield what sessions need; nobody is told anything."""
    yield RunContext(provider_for, CellGrader.of)


def bench_in(folder: Path) -> TrialRunner:
    """Return the bench of the template's only experiment."""
    loaded = load_project(folder)
    (experiment,) = loaded.experiments.values()
    target = target_of(loaded, experiment)
    return TrialRunner(target, tools, Allowance.of(target, None), allow_code=True)


def outcome(template: str, seed: int, name: str) -> Outcome:
    """Let a method work on a template, and measure what it came up with."""
    with project(template, seed) as folder:
        bench = bench_in(folder)
        diff = METHODS[name](bench)
        calls = _calls(bench)
    if diff is None:
        return Outcome(template, seed, name, False, 0.0, 0.0, 0.0, calls)
    shown = _true_gain(template, seed, diff)
    assert shown.gain is not None
    low, high = (math.nan if end is None else end for end in (shown.low, shown.high))
    return Outcome(template, seed, name, True, shown.gain, low, high, calls)


def _true_gain(template: str, seed: int, diff: str) -> SplitEvidence:
    with project(template, seed, models_seed=seed + AFRESH) as folder:
        bench = bench_in(folder)
        change = change_of(bench.target, diff)
        tried = replace(bench, repeats=REPEATS).try_out(change, "holdout")
        with closing(open_reader(bench.results)) as reader:
            shown = evidence_of(reader, change, tried.run_id).holdout
    assert shown is not None
    return shown


def _calls(bench: TrialRunner) -> int:
    if not bench.results.exists():
        return 0
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
        for method in METHODS:
            ours = [o for o in found if (o.template, o.method) == (template, method)]
            if not ours:
                continue
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

Written by `python -m benchmarks.refining`, all models simulated. A gain is what the instructions
are worth to the simulator, and no evidence about real models.

A method is given a template and comes up with a diff, or with nothing. Its true gain is measured
anew, with other answers than those it chose by: the prompt with the diff against the prompt
without, on the cases that were held out from the method, {repeats} answers to each. Nothing gains
0. Points are out of 100. `accepted` counts the seeds in which the method proposed a change, `calls`
the answers of models, judges and refiners that it needed.

- `optimize` is `edison optimize` with {population} versions and at most {generations} generations,
  half of its defaults.
- `refine` is `edison refine` as the template sets it up: one candidate, three in data-extraction,
  whose answers vary so much that 50 training cases often do not show the gain of one good diff.
- `random edits` is the same search as `optimize`, with a refiner that edits without an idea. What
  it proposes is luck.
- `nothing` leaves the prompt as it is.

A seed changes what the simulated models answer and which cases are held out.
{tables}"""
_NOTES = {
    range(10): "The simulator was made while looking at these seeds, and one of them is why the\n"
    "last look of a search takes three answers to each case.",
    range(10, 20): "Nobody had looked at these seeds before.",
}


def compared(found: Sequence[Outcome]) -> str:
    """Say how searching does beside refining, where both were measured."""
    known = {(one.template, one.seed, one.method): one for one in found}
    pairs = [
        (one, other)
        for one in found
        if one.method == "optimize"
        and (other := known.get((one.template, one.seed, "refine"))) is not None
    ]
    if not pairs:
        return ""
    ahead = sum(one.gain > other.gain for one, other in pairs)
    gain = statistics.mean(100 * (one.gain - other.gain) for one, other in pairs)
    dear = sum(one.calls for one, _ in pairs) / sum(other.calls for _, other in pairs)
    return (
        f" `optimize` gains more than\n`refine` in {ahead} of {len(pairs)} pairs of template and "
        f"seed, {gain:+.1f} points on average, for {dear:.1f} times the calls."
    )


def page(found: Sequence[Outcome]) -> str:
    """Return the page, with a table for each ten seeds."""
    tables = ""
    for seeds, note in _NOTES.items():
        ours = [one for one in found if one.seed in seeds]
        if ours:
            told = f"{note}{compared(ours)}"
            tables += f"\n## Seeds {seeds[0]} to {seeds[-1]}\n\n{told}\n\n{table(ours)}"
    return PAGE.format(
        repeats=REPEATS, population=REACH.population, generations=REACH.generations, tables=tables
    )


def _said(one: Outcome, seconds: float) -> str:
    gain = f"{100 * one.gain:+.1f}" if one.accepted else "nothing"
    return f"{one.template} seed {one.seed} {one.method}: {gain} ({seconds:.0f} s)\n"


def seeds_of(text: str) -> range:
    """Return the seeds of FROM-TO, both included; of N, the first N."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def _known(path: Path | None) -> dict[tuple[str, int, str], Outcome]:
    if path is None or not path.exists():
        return {}
    rows = [Outcome(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return {(one.template, one.seed, one.method): one for one in rows}


def measured(given: argparse.Namespace) -> Iterator[Outcome]:
    """Yield what was asked for, measured unless it is known."""
    known = _known(given.add)
    for template in given.templates:
        for seed in given.seeds:
            for method in given.methods:
                if (template, seed, method) not in known:
                    begun = time.monotonic()
                    found = outcome(template, seed, method)
                    sys.stderr.write(_said(found, time.monotonic() - begun))
                    if given.add is not None:
                        with given.add.open("a", encoding="utf-8") as stream_:
                            stream_.write(json.dumps(asdict(found)) + "\n")
                    known[template, seed, method] = found
                yield known[template, seed, method]


def main() -> None:
    """Measure and print, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=seeds_of, default=range(10), metavar="FROM-TO")
    parser.add_argument("--templates", nargs="+", default=TEMPLATES, choices=TEMPLATES)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--add", type=Path, help="file that keeps the outcomes, line by line")
    parser.add_argument("--write", type=Path, help="page to write")
    given = parser.parse_args()
    found = [*measured(given)]
    if given.write is not None:
        known = {**_known(given.add), **{(o.template, o.seed, o.method): o for o in found}}
        given.write.write_text(page([*known.values()]), encoding="utf-8")
    sys.stdout.write(table(found))


if __name__ == "__main__":
    main()
