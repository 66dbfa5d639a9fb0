"""The report of a loop: result, cost and next steps, as Markdown, HTML and other files."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents import record_json
from edison_ci.documents.files import make_folder
from edison_ci.documents.text_diff import diff_of
from edison_ci.features.refine.loop_rows import (
    PhaseSpending,
    busy_spans,
    course_of,
    iterations_of,
    loop_spending,
)
from edison_ci.features.refine.weaknesses import weaknesses
from edison_ci.numeric import change, counted, dollars, fixed, score
from edison_ci.plan.versions import short
from edison_ci.report.document import Bullets, Code, Column, Name, Notice, Section, Sentence, Table
from edison_ci.report.files import write_whole
from edison_ci.report.html import document_page
from edison_ci.report.markdown import document_text
from edison_ci.report.spreadsheet import as_csv, rows_of
from edison_ci.results.cells import Cells
from edison_ci.results.report import SIMULATED, report_of
from edison_ci.stats.convergence import converged, verified
from edison_ci.stats.sentences import points, signed
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.experiment import Stop
    from edison_ci.features.refine.loop_rows import Iteration, Loop
    from edison_ci.features.refine.loop_start import LoopContext
    from edison_ci.features.refine.weaknesses import WeakComponent
    from edison_ci.report.document import Inline


NOT_VERIFIED = "Improvement not verified"
_UNCLEAR = "This may be chance: more held-out cases are needed to decide."
_DOUBTS = {
    "worse": "It is significantly worse than the first one: do not use it.",
    "same": "There is no practical difference.",
}


class File(NamedTuple):
    """A file of the final report."""

    kind: str
    path: Path


@dataclass(frozen=True, slots=True)
class PromptCourse:
    """The iterations of one prompt of a loop, and their evidence."""

    iterations: tuple[Iteration, ...]
    evidence: Mapping[str, Any]
    """Best against first version; empty if there is no better one."""

    @property
    def first(self) -> Iteration:
        """Its first version."""
        return self.iterations[0]

    @property
    def best(self) -> Iteration:
        """The version with the best training score."""
        return best_of(self.iterations)

    @property
    def better(self) -> bool:
        """Whether a later version is better than the first."""
        return self.best.version != self.first.version

    @property
    def dropped(self) -> str | None:
        """Why it was not measured to the end; None if it was."""
        return self.iterations[-1].dropped

    @property
    def holdout(self) -> dict[str, Any] | None:
        """Evidence of the held-out cases."""
        holdout = self.evidence.get("holdout")
        return holdout if isinstance(holdout, dict) else None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            **record_json.fields_of(self.first, "prompt", "path"),
            "iterations": len(self.iterations),
            "first": record_json.fields_of(self.first, "version", "score"),
            "best": record_json.fields_of(self.best, "version", "score", iteration="number"),
            **record_json.fields_of(self, "holdout", "dropped"),
        }


@dataclass(frozen=True, slots=True)
class LoopReport:
    """Result of a loop that stopped."""

    loop: Loop
    iterations: tuple[Iteration, ...]
    best: Iteration
    spending: tuple[PhaseSpending, ...]
    busy_s: float
    """Total duration of its runs, without waiting for decisions."""
    weaknesses: tuple[WeakComponent, ...]
    advice: tuple[str, ...]
    stop_reason: str
    files: tuple[File, ...] = ()

    @property
    def first(self) -> Iteration:
        """The best prompt as it was at first."""
        return course_of(self.iterations, self.best.prompt)[0]

    @property
    def better(self) -> bool:
        """Whether the best prompt is not the first one."""
        return self.best.version != self.first.version

    @property
    def courses(self) -> list[PromptCourse]:
        """The course of each prompt."""
        others = self.loop.evidence.get("others") or {}
        return [
            PromptCourse(
                tuple(course),
                self.loop.evidence if name == self.best.prompt else others.get(name) or {},
            )
            for name in self.loop.prompts
            if (course := course_of(self.iterations, name))
        ]

    @property
    def holdout(self) -> dict[str, Any] | None:
        """Evidence of the held-out cases, best prompt against first one."""
        holdout = self.loop.evidence.get("holdout")
        return holdout if isinstance(holdout, dict) else None

    @property
    def cost_microusd(self) -> int:
        """Total cost."""
        return sum(phase.microusd for phase in self.spending)

    @property
    def sentence(self) -> str:
        """Why it stopped, and the gain on held-out cases (STATS 16)."""
        listed = len({iteration.number for iteration in self.iterations})
        text = f"Stopped after {counted(listed, 'iteration')}: {self.stop_reason}."
        if not self.better:
            return f"{text} No better prompt was found."
        holdout = self.holdout
        difference = {} if holdout is None else holdout["difference"]
        if holdout is None or difference.get("estimate") is None:
            why = self.loop.evidence.get("doubt") or "no held-out cases"
            return f"{text} {NOT_VERIFIED}: {why}."
        likely = ""
        if difference["low"] is not None:
            likely = f" (likely {signed(difference['low'])} to {signed(difference['high'])})"
        new = f"the new {self.best.prompt}" if len(self.loop.prompts) > 1 else "the new prompt"
        text += f" On {holdout['n']:,} held-out cases {new} is "
        text += f"{signed(difference['estimate'])}{likely}."
        if not verified(holdout["n"]):
            return f"{text} {NOT_VERIFIED}: too few cases."
        return text if self.proven else f"{text} {_DOUBTS.get(holdout['decision'], _UNCLEAR)}"

    @property
    def proven(self) -> bool:
        """Whether the held-out cases show that the best prompt is better than the first one."""
        holdout = self.holdout
        return holdout is not None and holdout["decision"] == "better" and verified(holdout["n"])

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON value."""
        return {
            "stopped_by": self.loop.stopped_by,
            "sentence": self.sentence,
            "best": record_json.fields_of(
                self.best, "prompt", "version", "score", iteration="number"
            ),
            "prompts": [course.as_json() for course in self.courses],
            "train": self.loop.evidence.get("train"),
            **record_json.fields_of(
                self, "holdout", "spending", "cost_microusd", "busy_s", recommendation="advice"
            ),
            "weaknesses": [
                record_json.fields_of(weak, "name", "kind", "score") for weak in self.weaknesses
            ],
            "next_steps": next_steps(self),
            "files": {file.kind: str(file.path) for file in self.files},
        }


def best_of(iterations: Sequence[Iteration]) -> Iteration:
    """Return the iteration with the best training score; the first of equals."""
    measured = [iteration for iteration in iterations if iteration.score is not None]
    if not measured:
        return iterations[0]
    return measured[converged([iteration.score or 0.0 for iteration in measured]).best]


def loop_report(connection: sqlite3.Connection, context: LoopContext, loop: Loop) -> LoopReport:
    """Return the result of a loop."""
    iterations = iterations_of(connection, loop)
    best = best_of(iterations)
    weak: tuple[WeakComponent, ...] = ()
    if best.run_id is not None:
        weak = weaknesses(connection, context.at(best), best.run_id).targets
    return LoopReport(
        loop=loop,
        iterations=tuple(iterations),
        best=best,
        spending=tuple(loop_spending(connection, loop)),
        busy_s=_busy(connection, loop),
        weaknesses=weak,
        advice=tuple(context.advise(connection)),
        stop_reason=stop_reason(loop, context.stop),
    )


def stop_reason(loop: Loop, stop: Stop | None = None) -> str:
    """Return why a loop stopped, without a full stop; `stop` adds the limits of convergence."""
    converged_text = "the last iterations gained almost nothing"
    if stop is not None:
        last = f"the last {stop.window}" if stop.window > 1 else "the last one"
        converged_text = f"{last} gained less than {points(stop.min_delta)} points"
    reasons = {
        "converged": converged_text,
        "max_iterations": f"the limit of {counted(loop.max_iterations, 'iteration')} is reached",
        "no_refinement": "no suggestion is shown to help",
        "no_weakness": "every criterion, check and grader gives full marks",
        "cancelled": "its run was cancelled",
        "not_measured": "no training case has a score",
        "budget": f"the budget of {dollars(loop.budget_microusd)} is used up",
    }
    return reasons.get(loop.stopped_by or "", loop.stopped_by or "it is not done")


def _busy(connection: sqlite3.Connection, loop: Loop) -> float:
    """Return the total duration of the loop's runs in seconds, from their events."""
    times = busy_spans(connection, loop)
    spans = ((dt.datetime.fromisoformat(a), dt.datetime.fromisoformat(b)) for a, b in times)
    return round(sum((last - first).total_seconds() for first, last in spans), 1)


def next_steps(final: LoopReport) -> list[str]:
    """Return recommended next steps."""
    loop, holdout = final.loop, final.holdout
    steps: list[str] = []
    if final.better and loop.branch is not None:
        steps.append(f"Review it: `git diff {(loop.base_commit or 'HEAD')[:8]} {loop.branch}`")
        steps.append(f"Push it for a pull request: `git push origin {loop.branch}`")
    elif final.better:
        steps.append("The approved suggestions are already in the repository.")
    if holdout is not None and not verified(holdout["n"]):
        steps.append(f"Add cases: {holdout['n']} are held out, but 16 are needed to verify a gain.")
    elif holdout is not None and holdout["decision"] == "unclear":
        steps.append("Add cases: the held-out ones do not show whether it is better.")
    if holdout is not None and holdout["newly_failing"]:
        steps.append(f"Check the newly failing cases: {', '.join(holdout['newly_failing'][:5])}.")
    if loop.stopped_by == "budget":
        steps.append(f"Continue with more budget: `edison loop {loop.experiment} --budget USD`")
    if loop.stopped_by == "max_iterations":
        then = "After merging it, continue" if loop.branch is not None else "Continue"
        steps.append(f"{then}: `edison loop {loop.experiment} --iterations N`")
    if final.weaknesses:
        steps.append(f"Work on the weakest component: {final.weaknesses[0].name}.")
    if loop.simulated:
        steps.append("Configure a real model in models.yaml: these results are simulated.")
    return steps


def folder_of(context: LoopContext, loop: Loop) -> Path:
    """Return the folder of a loop's files, which Git ignores."""
    folder = context.project.root / ".edison" / "loops" / loop.id
    make_folder(folder)
    return folder


def write_report(context: LoopContext, loop: Loop) -> LoopReport:
    """Write the report, the best prompt and the results of a loop."""
    folder = folder_of(context, loop)
    private = context.project.file.settings.private
    with closing(open_reader(context.results)) as connection:
        final = loop_report(connection, context, loop)
        title, sections = f"Loop of {loop.experiment}", list(sections_of(final))
        write_whole(folder / "report.md", document_text(title, sections))
        write_whole(folder / "report.html", document_page(title, sections))
        kept = {"prompt": final.best}
        if len(loop.prompts) > 1:
            kept |= {f"prompt-{course.first.prompt}": course.best for course in final.courses}
        for name, best in kept.items():
            write_whole(folder / f"{name}.md", best.text)
            write_whole(folder / f"{name}.txt", _body_of(context, best))
        ids = dict.fromkeys(course.run_id for course in final.iterations if course.run_id)
        runs = [find_run(connection, run_id) for run_id in ids]
        cells = Cells(connection, texts=not private)
        write_whole(folder / "results.csv", as_csv(rows_of(report_of(connection, runs), cells)))
    prompts = (f"{name}.{kind}" for name in kept for kind in ("md", "txt"))
    names = ("report.md", "report.html", *prompts, "results.csv")
    files = tuple(File(name.replace(".", "_"), folder / name) for name in names)
    return replace(final, files=files)


def _body_of(context: LoopContext, iteration: Iteration) -> str:
    """Return a prompt by role, without its front matter."""
    sections = context.at(iteration).prompt.sections
    texts = (f"{part.role.upper()}\n\n{part.template.source.strip()}\n" for part in sections)
    return "\n".join(texts)


def sections_of(final: LoopReport) -> Iterator[Section]:
    """Yield the sections of the report, the most important first."""
    if final.loop.simulated:
        yield Section(blocks=(Notice("Simulated", SIMULATED),))
    yield Section(blocks=tuple(map(Sentence, (final.sentence, *_opening(final)))))
    yield _section("First and best prompt", _verdict(final), _evidence(final))
    courses = final.courses
    if len(courses) > 1:
        dropped = (f"{course.dropped}." for course in courses if course.dropped)
        yield _section("Prompts", dropped, _courses(final))
    means = "Scores are means over the training cases."
    yield _section("Iterations", (means,), iterations_table(final.loop, final.iterations))
    yield _section("Cost", (f"{_busy_text(final)}.",), _spending(final))
    if final.advice:
        yield _section("Model recommendation", final.advice)
    if final.weaknesses:
        rows = ((Name(weak.name), weak.kind, score(weak.score)) for weak in final.weaknesses)
        yield _section("Remaining weaknesses", (), Table.of(("name", "kind", "score"), rows))
    yield Section("Next steps", (Bullets(tuple(map(Sentence, next_steps(final)))),), level=2)
    for course in courses:
        if course.better and not course.dropped:
            yield _change_of(course, alone=len(courses) == 1)


def _section(title: str, sentences: Iterable[str], table: Table | None = None) -> Section:
    return Section(title, tuple(map(Sentence, sentences)), table, level=2)


def _change_of(course: PromptCourse, *, alone: bool) -> Section:
    first, best = course.first, course.best
    title: Inline = "The change" if alone else ("The change of ", Name(first.prompt))
    versions = f"From version {short(first.version)} to {short(best.version)}."
    diff = diff_of(first.path, first.text, best.text)
    return Section(title, (Sentence(versions), Code(diff)), level=2)


def _opening(final: LoopReport) -> Iterator[str]:
    loop, best = final.loop, final.best
    which = "The best prompt is the first one," if not final.better else "The best prompt is"
    yield f"{which} version {short(best.version)} of {best.path} in iteration {best.number}."
    if loop.mode == "auto":
        yield f"The changes were not reviewed; they are only on the branch {loop.branch}."


def _verdict(final: LoopReport) -> Iterator[str]:
    if not final.better:
        yield "There is nothing to compare: no better prompt was found."
        return
    text = final.loop.evidence.get("sentence") or final.loop.evidence.get("doubt")
    yield str(text or "It was not measured.")
    yield "Only the held-out cases estimate the improvement; training cases overstate it."


def _evidence(final: LoopReport) -> Table | None:
    rows = []
    for word, key in (("held-out", "holdout"), ("training", "train")):
        evidence = final.loop.evidence.get(key)
        if isinstance(evidence, dict):
            sides = [evidence[side] and evidence[side]["estimate"] for side in ("before", "after")]
            difference = evidence["difference"]
            moved = change(difference["estimate"], difference["low"], difference["high"])
            rows.append((word, str(evidence["n"]), *map(score, sides), moved, evidence["decision"]))
    head = ("cases", "n", "first", "best", "change", "decision")
    return Table.of(head, rows) if rows else None


def iterations_table(loop: Loop, iterations: Sequence[Iteration]) -> Table:
    """Return the iterations of a loop, each with its score on the training cases."""
    best = best_of(iterations) if iterations else None
    columns = (
        Column("iteration", numeric=True),
        Column("prompt"),
        Column("version"),
        Column("score", numeric=True),
        Column("cases", numeric=True),
        Column("run"),
        Column("suggestion"),
        Column(""),
    )
    rows = tuple(
        (
            str(iteration.number),
            Name(iteration.prompt),
            short(iteration.version),
            score(iteration.score),
            f"{iteration.cases or 0:,}",
            Name(iteration.run_id) if iteration.run_id else "not measured",
            Name(iteration.suggestion) if iteration.suggestion else "",
            "best" if iteration == best else "dropped" if iteration.dropped else "",
        )
        for iteration in iterations
    )
    table = Table(columns, rows)
    return table if len(loop.prompts) > 1 else table.without(["prompt"])


def _courses(final: LoopReport) -> Table:
    rows: list[tuple[Inline, ...]] = []
    for course in final.courses:
        holdout = course.holdout
        moved, decision = "", "dropped" if course.dropped else "no better version"
        if holdout is not None:
            difference = holdout["difference"]
            moved = change(difference["estimate"], difference["low"], difference["high"])
            decision = holdout["decision"]
        iterations = str(len(course.iterations))
        scores = score(course.first.score), score(course.best.score)
        rows.append((Name(course.first.prompt), iterations, *scores, moved, decision))
    head = ("prompt", "iterations", "first", "best", "change on held-out cases", "decision")
    return Table.of(head, rows)


def _busy_text(final: LoopReport) -> str:
    return f"{dollars(final.cost_microusd)} in total, {fixed(final.busy_s, grouped=True)} s of runs"


def _spending(final: LoopReport) -> Table:
    rows = (
        (
            spending.phase,
            f"{spending.calls:,}",
            Name(dollars(spending.microusd)),
            f"{spending.tokens_in:,}",
            f"{spending.tokens_out:,}",
            fixed(spending.call_s, 1, grouped=True),
        )
        for spending in final.spending
    )
    names = ("phase", "calls", "cost", "tokens in", "tokens out", "seconds of calls")
    return Table.of(names, rows)
