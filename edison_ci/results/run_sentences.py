"""Sentences and short texts about a run: headline, cost, names, and what its numbers do not show.

The terminal ends with the headline, the comment on a pull request begins with it, and so does a
run's page: what the run found, against what, and how the gates decided. Answers of fallback models
in a scheduled run are reported apart from its scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config import repeated_inputs
from edison_ci.git import repository as git
from edison_ci.numeric import change, counted, dollars, fixed, points, snap
from edison_ci.records import RunStatus, Side, Verdict
from edison_ci.results.scores import all_totals
from edison_ci.results.snapshot import UNDECIDED, outputs_of
from edison_ci.store import cells as store_cells

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.records import Json
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.runs import Run


class FallbackUse(NamedTuple):
    """What one fallback model answered in place of another."""

    instead_of: str
    """The model that was not reached, and its parameters."""
    model: str
    simulated: bool
    cells: int
    composite: float | None
    """Mean over its answers; None if none has a score."""
    passed: int
    failed: int

    @property
    def sentence(self) -> str:
        """What happened, and that it counts for nothing."""
        who = f"{self.model} (simulated)" if self.simulated else self.model
        score = "no score" if self.composite is None else f"score {fixed(100 * self.composite, 1)}"
        judged = self.passed + self.failed
        passes = f", {self.passed:,} of {judged:,} pass" if judged else ""
        are, stay = ("was", "It stays") if self.cells == 1 else ("were", "They stay")
        return (
            f"{counted(self.cells, 'cell')} of {self.instead_of} {are} answered by its fallback "
            f"{who} ({score}{passes}). {stay} in error: these answers count in no score and no "
            "gate."
        )

    def as_json(self) -> dict[str, Json]:
        """Return it as reports have it."""
        return self._asdict()


def fallbacks_of(connection: sqlite3.Connection, run_id: str) -> tuple[FallbackUse, ...]:
    """Return the fallback models that answered in a run, by the model that was not reached."""
    rows = connection.execute(
        "select c.model, f.model, f.simulated, count(*), avg(f.composite), "
        "sum(coalesce(f.passed, 0)), sum(coalesce(f.passed = 0, 0)) "
        "from cell c join fallback_answer f on f.cell_id = c.id "
        "where c.run_id = ? and c.status = 'error' group by 1, 2, 3 order by 1, 2",
        (run_id,),
    )
    return tuple(
        FallbackUse(instead_of, model, bool(simulated), *numbers)
        for instead_of, model, simulated, *numbers in rows
    )


_SIGNIFICANT = 0.05


class Headline(NamedTuple):
    """The verdict on a run, and the sentence that says why."""

    verdict: str
    """In capitals, such as FAIL; STOPPED for a part of a run, empty where no gate decided."""
    sentence: str
    amber: bool = False
    """Whether the run passes and begins with what is worse all the same."""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.sentence}" if self.verdict else self.sentence


_STANDS = {
    RunStatus.PENDING: "has not started",
    RunStatus.PAUSED: "is paused",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "was cancelled",
}


def headline_of(result: RunResult) -> Headline:
    """Return the headline of a run."""
    run = result.run
    if run.status not in (RunStatus.COMPLETED, RunStatus.REFINING, RunStatus.REVIEWING):
        why = f": {run.stopped_by}" if run.stopped_by else ""
        done = sum(count for name, count in result.cells.items() if name != "total")
        progress = f"{done:,} of {counted(result.cells['total'], 'cell')} done"
        word = "STOPPED" if run.status in (RunStatus.PAUSED, RunStatus.FAILED) else "RUNNING"
        stands = _STANDS.get(run.status, "is running")
        return Headline(word, f"{run.experiment} {stands}{why}, with {progress}.")
    verdict = "" if run.verdict in (None, Verdict.SKIPPED) else str(run.verdict).upper()
    sentences = [*result.notes, f"{_found(result)}.{_gates(result)}"]
    return Headline(verdict, " ".join(sentences), bool(result.notes))


def _found(result: RunResult) -> str:
    """Return the change from the base, or the score where there is none."""
    run, against, triage = result.run, result.against, result.triage(most=0)
    if against is None or against.estimate is None or run.base_commit is None:
        sentence = f"{run.experiment} scores {points(result.overall.composite)}"
        if result.overall.composite is None:
            sentence = f"{run.experiment} has no score"
        fail = "" if triage is None else f", {triage.failing:,} of {triage.cases:,} cases fail"
        return sentence + fail
    base = git.commit_names(str(run.base_ref), run.base_commit)[0]
    moved = change(against.estimate, against.low, against.high)
    if snap(against.estimate) == 0 and against.p == 1:
        sentence = f"{run.experiment} scores the same as {base} on every case"
    elif _shown(against.p, against.low, against.high):
        word = "better" if against.estimate > 0 else "worse"
        sentence = f"{run.experiment} is {word} than {base}: {moved}"
    else:
        sentence = f"{run.experiment} is not shown to differ from {base}: {moved}"
    if triage is None or triage.flips is None:
        return sentence
    return f"{sentence}; {triage.flips.counts} of {counted(triage.flips.n, 'case')}"


def _shown(p: float | None, low: float | None, high: float | None) -> bool:
    """Whether a change is significant."""
    if p is None or low is None or high is None:
        return False
    return p <= _SIGNIFICANT and (low > 0 or high < 0)


def _gates(result: RunResult) -> str:
    """Return which gates decided."""
    if result.run.verdict == Verdict.ERROR:
        return " Too few answers could be measured."
    for verdict, words in (
        (Verdict.FAIL, "Failed gates"),
        (Verdict.INCONCLUSIVE, "Gates without a decision yet"),
    ):
        names = dict.fromkeys(row.metric for row in result.gates if row.verdict == verdict)
        if names:
            return f" {words}: {', '.join(names)}."
    passed = sum(row.verdict == Verdict.PASS for row in result.gates)
    if not passed:
        return ""
    return " The gate passes." if passed == 1 else f" All {passed:,} gates that apply pass."


def run_word(run: Run) -> str:
    """Return the verdict of a run in a word; its status if it has none."""
    if run.verdict == Verdict.SKIPPED:
        return NOT_GATED
    if run.verdict is not None:
        return str(run.verdict)
    if run.moving:
        return "running"
    return "no gates" if run.status == RunStatus.COMPLETED else str(run.status).lower()


NOT_GATED = "not gated"
"""The word for a run of which no gate decided anything."""
LISTED = 5


class CutOff(NamedTuple):
    """Answers of a prompt with a model that ended at max_tokens."""

    side: str
    prompt: str
    model: str
    cut_off: int
    answers: int


def missing_sentences(result: RunResult) -> Iterator[str]:
    """Yield what the numbers of a run do not show."""
    run, cells = result.run, result.cells
    done = sum(count for name, count in cells.items() if name != "total")
    if run.status != RunStatus.COMPLETED:
        joint = ": " if run.status == RunStatus.FAILED else ", stopped by "
        by = f"{joint}{run.stopped_by}" if run.stopped_by else ""
        yield f"The run is {run.status}{by}: {done:,} of {cells['total']:,} cells are done."
    if cells["error"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.error_kinds.items())
        yield f"{cells['error']:,} of {cells['total']:,} cells ended in an error ({kinds})."
    yield from (used.sentence for used in result.fallbacks)
    yield from result.bounds
    yield from _cut_off_sentences(result.cut_off)
    for component in result.components:
        if component.errors:
            ungraded = counted(component.errors, "answer")
            yield f"No grade by {component.kind} {component.name}: {ungraded}."
    if cells["skipped"]:
        listed = "; ".join(f"{case}: {reason}" for case, reason in result.skips)
        more = ", ..." if cells["skipped"] > LISTED else ""
        yield f"Skipped: {counted(cells['skipped'], 'cell')}. {listed}{more}"
    if result.clusters and (
        repeated := repeated_inputs.repetition_sentence(_counted_cases(result), result.clusters)
    ):
        yield repeated
    yield from _partial(run)
    yield from _imported(run)
    if aside := len(result.quarantined):
        are = "is" if aside == 1 else "are"
        yield f"{counted(aside, 'case')} {are} in quarantine: run and shown, but never gating."
    if result.calls["unknown"]:
        lost = counted(result.calls["unknown"], "call")
        yield f"Of unknown fate, and counted at the most they can cost: {lost}."
    if run.status == RunStatus.COMPLETED and not result.gates and run.shard is None:
        yield "The experiment has no gates, so nothing was decided."


def _cut_off_sentences(cuts: Iterable[CutOff]) -> Iterator[str]:
    for cut in cuts:
        side = f"{cut.side}, " if cut.side != Side.HEAD else ""
        yield (
            f"Cut off at max_tokens: {cut.cut_off:,} of {counted(cut.answers, 'answer')} of "
            f"{side}{cut.prompt} with {cut.model}. Raise max_tokens, or ask for less."
        )


def _counted_cases(result: RunResult) -> list[str]:
    aside = result.quarantined
    return [
        case for case in store_cells.case_ids(result.connection, result.run.id) if case not in aside
    ]


def _partial(run: Run) -> Iterator[str]:
    if run.shard is not None:
        shard = run.shard.replace("/", " of ")
        yield f"Shard {shard}: this is a part of a run. {UNDECIDED}"
    elif run.partial:
        yield "Only a part of the cases was run."


def _imported(run: Run) -> Iterator[str]:
    origin = outputs_of(run)
    if origin is None:
        return
    yield f"The answers were imported from {origin['file']}: no model was called for them."
    for name, note in (("cost", "the cost counts as 0"), ("latency", "the latency is unknown")):
        if lacking := origin[f"without_{name}"]:
            yield f"Imported without a {name}: {counted(lacking, 'answer')}; {note}."


def bound_sentences(result: RunResult) -> Iterator[str]:
    """Yield the bounds of scores for any value of the missing answers."""
    rows = all_totals(result.connection, result.run.id)
    several = sum(bool(totals.model) for totals in rows) > 1
    for totals in rows:
        worst, best = totals.composite_worst, totals.composite_best
        if worst is None or best is None or (totals.model and not several):
            continue
        if totals.composite.estimate is None:
            continue  # nothing was graded, so the bounds would be those of the scale
        who = f"the score of {totals.prompt} with {totals.model}" if totals.model else "the score"
        without = counted(totals.missing, "answer")
        yield (
            f"With {without} missing, {who} lies between {fixed(100 * worst, 1)} and "
            f"{fixed(100 * best, 1)}."
        )


_STORED_CUTS = (
    "select side, prompt, model, cut_off, answers from rollup_model "
    "where run_id = ? and cut_off > 0"
)
_LIVE_CUTS = (
    "select side, prompt, model, count(distinct iif(a.finish_reason = 'length', a.attempt, null)) "
    "as cut_off, count(distinct a.attempt) from cell c join answer a "
    "on a.request_hash = c.request_hash and a.answer_no = c.answer_no where c.run_id = ? "
    "group by side, prompt, model having cut_off > 0"
)


def cut_off_answers(
    connection: sqlite3.Connection, run_id: str, *, ended: bool
) -> tuple[CutOff, ...]:
    """Return which answers of a run were cut off at max_tokens, head before base."""
    query = _STORED_CUTS if ended else _LIVE_CUTS
    rows = connection.execute(f"{query} order by side desc, prompt, model", (run_id,))
    return tuple(CutOff(*row) for row in rows.fetchall())


def suite_words(view: RunResult) -> str:
    """Return what is added to the name of a run that was measured with the base's eval suite."""
    return ", with the base's eval suite" if view.on == Side.BASE else ""


def eval_suite_sentence(view: RunResult) -> str:
    """Return with which eval suite both sides were measured, as a sentence."""
    if view.twice:
        return "Both sides were measured with head's and with base's; the worse verdict counts."
    return "Both sides were measured with head's eval suite only."


def version_names(label: str | None, version: str) -> list[str]:
    """Return the label of a prompt version and its short hash, unless the label has it."""
    short = version[:8]
    return [name for name in ([label] if label and short in label else [label, short]) if name]


def prompt_versions(view: RunResult) -> str:
    """Return the prompts of a run, each with the label of its version and its short hash."""
    texts = []
    for prompt, version in view.prompts:
        label, digits = view.run.labels.get(prompt, ""), version[:8]
        texts.append(f"{prompt} {label}" if digits in label else f"{prompt} {label} ({digits})")
    return ", ".join(texts)


def cost_text(runs: Iterable[RunResult]) -> str:
    """Return the cost of runs, marked if a part is estimated, and what is reserved."""
    runs = tuple(runs)
    estimated = any(
        view.calls["unknown"] or view.calls["estimated"] or view.run.moving for view in runs
    )
    reserved = sum(view.reserved_microusd for view in runs)
    spent = dollars(sum(view.cost_microusd for view in runs) - reserved)
    total = f"~{spent}" if estimated else spent
    return f"{total}, {dollars(reserved)} reserved for batches" if reserved else total


def calls_text(calls: Mapping[str, int]) -> str:
    """Return how many calls were made, and how many answers were reused."""
    return f"{counted(calls['made'], 'call')}, {calls['reused']:,} reused"


def one_prompt(gates: Iterable[GateRow]) -> bool:
    """Whether all decisions are about the same prompt, so that it need not be named."""
    return len({row.prompt for row in gates if row.prompt}) <= 1


def gate_name(row: GateRow, *, short: bool = False) -> str:
    """Return metric, prompt and model of a gate; `short` leaves out the prompt."""
    metric = row.metric if not row.gate.get("slices") else f"{row.metric}, worst slice"
    fixed = row.gate.get("no_worse_than") or "base"
    if fixed != "base":
        metric += f", against {fixed if isinstance(fixed, str) else fixed['anchor']}"
    names = (row.model,) if short and row.model else (row.prompt, row.model)
    variant = " with ".join(filter(None, names))
    return f"{metric}, {variant}" if variant else metric


def cell_counts(view: RunResult) -> str:
    """Return how many cells ended in each status, and how many answers were cut off."""
    counts = [
        f"{count:,} {name}" for name, count in view.cells.items() if name != "total" and count
    ]
    if view.cut_off_count:
        counts.append(f"{view.cut_off_count:,} cut off at max_tokens")
    return ", ".join(counts)
