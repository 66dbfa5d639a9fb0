"""The result of a loop: what it found, what it cost, and what to do with it."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.formatting import change, counted, dollars, score
from edison_ci.loop.pages import Piece, Table, html_report, markdown_report
from edison_ci.plan.versions import short
from edison_ci.refine.patch import diff_of
from edison_ci.refine.weaknesses import weaknesses
from edison_ci.report.spreadsheet import as_csv, rows_of
from edison_ci.report.writing import write_whole
from edison_ci.results.cells import Cells
from edison_ci.results.report import report_of
from edison_ci.rounding import fixed
from edison_ci.stats.convergence import converged, verified
from edison_ci.stats.sentences import points, signed
from edison_ci.store.database import open_reader
from edison_ci.store.loops import PhaseSpending, busy_spans, iterations_of, loop_spending
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edison_ci.loop.place import Place
    from edison_ci.refine.weaknesses import Target
    from edison_ci.store.loops import Iteration, Loop

NOT_VERIFIED = "Improvement not verified"
_UNCLEAR = "That may be luck: more unseen cases would tell."
_DOUBTS = {
    "worse": "It is shown worse than the first one: do not take it.",
    "same": "That is practically the same.",
}


class File(NamedTuple):
    """A file of the final report."""

    kind: str
    path: Path


@dataclass(frozen=True, slots=True)
class Final:
    """What there is to say about a loop that stopped."""

    loop: Loop
    iterations: tuple[Iteration, ...]
    best: Iteration
    spending: tuple[PhaseSpending, ...]
    busy_s: float
    """From start to end of its runs; waiting for people is not in it."""
    weaknesses: tuple[Target, ...]
    advice: tuple[str, ...]
    because: str
    """Why it stopped."""
    files: tuple[File, ...] = ()

    @property
    def rounds(self) -> int:
        """How often the prompt was measured again after the first time."""
        return max(len([one for one in self.iterations if one.run_id]) - 1, 0)

    @property
    def better(self) -> bool:
        """Whether there is another prompt than the first one to speak of."""
        return self.best.version != self.iterations[0].version

    @property
    def holdout(self) -> dict[str, Any] | None:
        """What unseen cases say of the best prompt against the first one."""
        found = self.loop.evidence.get("holdout")
        return found if isinstance(found, dict) else None

    @property
    def cost_microusd(self) -> int:
        """What all of it cost."""
        return sum(one.microusd for one in self.spending)

    @property
    def sentence(self) -> str:
        """Why it stopped, and what was gained on unseen cases (STATS 16)."""
        said = f"Stopped after {counted(self.rounds, 'round')}: {self.because}."
        if not self.better:
            return f"{said} No better prompt was found: the first one stays."
        found = self.holdout
        difference = {} if found is None else found["difference"]
        if found is None or difference.get("estimate") is None:
            why = self.loop.evidence.get("doubt") or "no unseen cases"
            return f"{said} {NOT_VERIFIED}: {why}."
        likely = ""
        if difference["low"] is not None:
            likely = f" (likely {signed(difference['low'])} to {signed(difference['high'])})"
        said += f" On {found['n']:,} unseen cases the new prompt is "
        said += f"{signed(difference['estimate'])}{likely}."
        if not verified(found["n"]):
            return f"{said} {NOT_VERIFIED}: too few cases."
        return said if self.shown else f"{said} {_DOUBTS.get(found['decision'], _UNCLEAR)}"

    @property
    def shown(self) -> bool:
        """Whether unseen cases show that the best prompt is better than the first one."""
        found = self.holdout
        return found is not None and found["decision"] == "better" and verified(found["n"])

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        return {
            "stopped_by": self.loop.stopped_by,
            "sentence": self.sentence,
            "best": {
                "iteration": self.best.number,
                "version": self.best.version,
                "score": self.best.score,
            },
            "holdout": self.holdout,
            "train": self.loop.evidence.get("train"),
            "spending": [one._asdict() for one in self.spending],
            "cost_microusd": self.cost_microusd,
            "busy_s": self.busy_s,
            "weaknesses": [
                {"name": one.name, "kind": one.kind, "score": one.score} for one in self.weaknesses
            ],
            "recommendation": [*self.advice],
            "next_steps": next_steps(self),
            "files": {file.kind: str(file.path) for file in self.files},
        }


def best_of(iterations: Sequence[Iteration]) -> Iteration:
    """Return the iteration with the best score on the training cases, the first of several."""
    measured = [one for one in iterations if one.score is not None]
    if not measured:
        return iterations[0]
    return measured[converged([one.score or 0.0 for one in measured]).best]


# --- gathering ------------------------------------------------------------------------------------


def final_of(connection: sqlite3.Connection, place: Place, loop: Loop) -> Final:
    """Return what there is to say about a loop."""
    iterations = iterations_of(connection, loop)
    best = best_of(iterations)
    weak: tuple[Target, ...] = ()
    if best.run_id is not None:
        weak = weaknesses(connection, place.at(best.text), best.run_id).targets
    return Final(
        loop=loop,
        iterations=tuple(iterations),
        best=best,
        spending=tuple(loop_spending(connection, loop)),
        busy_s=_busy(connection, loop),
        weaknesses=weak,
        advice=tuple(place.advise(connection)),
        because=_because(place, loop),
    )


def _because(place: Place, loop: Loop) -> str:
    stop = place.stop
    last = f"last {stop.window}" if stop.window > 1 else "the last one"
    said = {
        "converged": f"{last} gained less than {points(stop.min_delta)} points",
        "max_iterations": f"{counted(loop.max_iterations, 'iteration')} are the most",
        "no_refinement": "nothing new was suggested that is shown to help",
        "no_weakness": "no criterion, check or grader finds a fault",
        "cancelled": "somebody cancelled its run",
        "not_measured": "no training case has a score",
        "budget": f"the budget of {dollars(loop.budget_microusd)} has no more room",
    }
    return said.get(loop.stopped_by or "", loop.stopped_by or "it is not done")


def _busy(connection: sqlite3.Connection, loop: Loop) -> float:
    """Return for how long runs of the loop were at work, by their events."""
    times = busy_spans(connection, loop)
    spans = ((dt.datetime.fromisoformat(a), dt.datetime.fromisoformat(b)) for a, b in times)
    return round(sum((last - first).total_seconds() for first, last in spans), 1)


def next_steps(final: Final) -> list[str]:
    """Return what somebody may do now."""
    loop, found = final.loop, final.holdout
    steps: list[str] = []
    if final.better and loop.branch is not None:
        steps.append(f"Look at it: `git diff {(loop.base_commit or 'HEAD')[:8]} {loop.branch}`")
        steps.append(f"Offer it as a pull request: `git push origin {loop.branch}`")
    elif final.better:
        steps.append("The suggestions that were approved are in the repository already.")
    if found is not None and not verified(found["n"]):
        steps.append(f"Add cases: {found['n']} are held out, and 16 are needed to verify a gain.")
    elif found is not None and found["decision"] == "unclear":
        steps.append("Add cases: those that are held out do not tell whether it is better.")
    if found is not None and found["broken"]:
        steps.append(f"Look at what broke: {', '.join(found['broken'][:5])}.")
    if loop.stopped_by == "budget":
        steps.append(f"Go on with more: `edison loop {loop.experiment} --budget USD`")
    if loop.stopped_by == "max_iterations":
        then = "Once it is merged, go" if loop.branch is not None else "Go"
        steps.append(f"{then} further: `edison loop {loop.experiment} --iterations N`")
    if final.weaknesses:
        steps.append(f"Work on what is weak still: {final.weaknesses[0].name}.")
    if loop.simulated:
        steps.append("Set up a real model in models.yaml: all of this was simulated.")
    return steps


# --- writing --------------------------------------------------------------------------------------


def folder_of(place: Place, loop: Loop) -> Path:
    """Return where the files of a loop are; Git is told to leave the folder alone."""
    loops = place.project.root / ".edison" / "loops"
    folder = loops / loop.id
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(loops / ".gitignore", "*\n")
    return folder


def write_final(place: Place, loop: Loop) -> Final:
    """Write the report of a loop, its best prompt and its results; return what it says."""
    folder = folder_of(place, loop)
    private = place.project.file.settings.private
    with closing(open_reader(place.results)) as connection:
        final = final_of(connection, place, loop)
        said = list(pieces_of(final))
        title = f"Loop of {loop.experiment}"
        write_whole(folder / "report.md", markdown_report(title, said, simulated=loop.simulated))
        write_whole(folder / "report.html", html_report(title, said, simulated=loop.simulated))
        write_whole(folder / "prompt.md", final.best.text)
        write_whole(folder / "prompt.txt", _body_of(place, final.best))
        runs = [find_run(connection, one.run_id) for one in final.iterations if one.run_id]
        cells = Cells(connection, texts=not private)
        write_whole(folder / "results.csv", as_csv(rows_of(report_of(connection, runs), cells)))
    names = ("report.md", "report.html", "prompt.md", "prompt.txt", "results.csv")
    files = tuple(File(name.replace(".", "_"), folder / name) for name in names)
    return replace(final, files=files)


def _body_of(place: Place, iteration: Iteration) -> str:
    """Return a prompt as it is sent, without its front matter."""
    sections = place.at(iteration.text).prompt.sections
    texts = [f"{one.role.upper()}\n\n{one.template.source.strip()}\n" for one in sections]
    return "\n".join(texts)


# --- telling --------------------------------------------------------------------------------------


def pieces_of(final: Final) -> Iterator[Piece]:
    """Yield the parts of the report, the most important first."""
    yield Piece("", (final.sentence, *_opening(final)))
    yield Piece("First against best", tuple(_verdict(final)), _evidence(final))
    yield Piece("Iterations", ("Scores are means over the training cases.",), _iterations(final))
    yield Piece("Cost", (f"{_busy_said(final)}.",), _spending(final))
    if final.advice:
        yield Piece("Which model", final.advice)
    if final.weaknesses:
        rows = tuple((one.name, one.kind, score(one.score)) for one in final.weaknesses)
        yield Piece("What is weak still", (), Table(("name", "kind", "score"), rows))
    yield Piece("Next steps", tuple(next_steps(final)))
    if final.better:
        first, path = final.iterations[0], final.loop.path
        diff = diff_of(path, first.text, final.best.text)
        yield Piece(
            "The change",
            (f"Version {short(first.version)} became {short(final.best.version)}",),
            text=diff,
        )


def _opening(final: Final) -> Iterator[str]:
    loop, best = final.loop, final.best
    which = "The best prompt is the first one," if not final.better else "The best prompt is"
    yield f"{which} version {short(best.version)} of {loop.path} in iteration {best.number}."
    if loop.mode == "auto":
        yield f"Nobody reviewed the changes: they are on the branch {loop.branch} only."


def _verdict(final: Final) -> Iterator[str]:
    if not final.better:
        yield "There is nothing to compare: no other prompt was measured to be better."
        return
    said = final.loop.evidence.get("sentence") or final.loop.evidence.get("doubt")
    yield str(said or "It was not measured.")
    yield "Only the unseen cases tell the improvement; training cases flatter it."


def _evidence(final: Final) -> Table | None:
    rows = []
    for word, key in (("unseen", "holdout"), ("training", "train")):
        found = final.loop.evidence.get(key)
        if isinstance(found, dict):
            sides = [found[side] and found[side]["estimate"] for side in ("before", "after")]
            told = found["difference"]
            moved = change(told["estimate"], told["low"], told["high"])
            rows.append((word, str(found["n"]), *map(score, sides), moved, found["decision"]))
    head = ("cases", "n", "first", "best", "change", "decision")
    return Table(head, tuple(rows)) if rows else None


def _iterations(final: Final) -> Table:
    rows = tuple(
        (
            str(one.number),
            short(one.version),
            score(one.score),
            str(one.cases or 0),
            one.run_id or "not measured",
            one.suggestion or "",
            "best" if one is final.best or one == final.best else "",
        )
        for one in final.iterations
    )
    return Table(("iteration", "version", "score", "cases", "run", "suggestion", ""), rows)


def _busy_said(final: Final) -> str:
    return f"{dollars(final.cost_microusd)} in all, {fixed(final.busy_s, grouped=True)} s at work"


def _spending(final: Final) -> Table:
    rows = tuple(
        (
            one.phase,
            f"{one.calls:,}",
            dollars(one.microusd),
            f"{one.tokens_in:,}",
            f"{one.tokens_out:,}",
            fixed(one.call_s, 1, grouped=True),
        )
        for one in final.spending
    )
    return Table(("phase", "calls", "cost", "tokens in", "tokens out", "seconds of calls"), rows)
