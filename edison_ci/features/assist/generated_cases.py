"""Cases that models write: the price, the progress, the preview, and what becomes of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli import case_table, sessions
from edison_ci.cli import progress as cli_progress
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import case_origin, slices
from edison_ci.documents import json_text, marks
from edison_ci.errors import ConfigError, EdisonError
from edison_ci.features.assist import case_slots, verification
from edison_ci.numeric import counted, dollars, fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.features.assist.case_slots import CaseSlot
    from edison_ci.features.assist.drafting import Drafter
    from edison_ci.features.assist.generated_rows import GeneratedRows
    from edison_ci.features.assist.generation import Generated, GeneratedCase, Writers
    from edison_ci.records import Case, Json
    from edison_ci.results.case_likeness import KnownCases

    Decided = tuple[list[dict[str, Json]], list[EditedFile]]

_PREVIEW = 10
_LISTED = 5


@dataclass(frozen=True, slots=True)
class CaseOffer:
    """Cases that are ordered, shown, and added to a dataset if a person wants them."""

    terminal: Terminal
    file: GeneratedRows
    writers: Writers
    slots: Sequence[CaseSlot]
    known: KnownCases
    action: str
    verifier: Drafter | None = None
    ready: tuple[GeneratedCase, ...] = ()
    """Cases that need no model."""
    sift: Callable[[Generated], dict[str, Any]] | None = None
    """Leaves out cases for a reason of its own, and returns what is told about it."""
    told: Callable[[Generated], dict[str, Any]] | None = None
    """Says more about the cases before they are written."""

    def settle(self, *, yes: bool) -> None:
        """Have the cases written, show them, and add them if that is wanted."""
        confirm_writing(self.terminal, self.writers, self.slots, yes=yes)
        found = self._write()
        facts: dict[str, Any] = {}
        if self.sift is not None:
            facts |= self.sift(found)
        facts |= self._verify(found)
        if not self.terminal.json:
            self._show(found)
        if self.told is not None:
            facts |= self.told(found)
        rows = [case.row() for case in found.cases]
        added = 0
        if rows and (yes or self._asks):
            rows, edited = (rows, self.file.edited(rows)) if yes else self._decided(rows)
            added = self.file.write(edited, self.action)
        if self.terminal.json:
            self.terminal.document(self._document(found, rows, added) | facts)
        elif added:
            self.terminal.result("  ", StyledText("added", GOOD), f" {counted(added, 'case')} to "
                                 f"{self.file.path}")  # fmt: skip
            if added < len(rows):
                left = counted(len(rows) - added, "case")
                self.terminal.note(f"{left} came into {self.file.path} meanwhile")
        elif rows and yes:
            self.terminal.note("nothing is written: the dataset has all of them")
        elif rows and not self._asks:
            self.terminal.note("nothing is written; add them with --yes")

    @property
    def _asks(self) -> bool:
        return sys.stdin.isatty() and sys.stdout.isatty() and not self.terminal.json

    def _write(self) -> Generated:
        live = cli_progress.is_live(self.terminal)

        def progress(found: Generated) -> None:
            if live:
                done = found.calls + found.stored
                sys.stderr.write(
                    f"\r\x1b[2Kreplies: {done:,}; cases: {len(found.cases):,} of {found.wanted:,}"
                )
                sys.stderr.flush()

        try:
            found = self.writers.write(self.slots, self.known, progress)
        except KeyboardInterrupt:
            self._clear(live)
            self.terminal.note("nothing is written; replies so far are stored, and the same "
                               "command continues with them")  # fmt: skip
            raise
        self._clear(live)
        found.cases[:0] = self.ready
        found.wanted += len(self.ready)
        return found

    @staticmethod
    def _clear(live: bool) -> None:
        if live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _verify(self, found: Generated) -> dict[str, Any]:
        """Ask a second model about expected answers."""
        places = [n for n, case in enumerate(found.cases) if case.written.expected is not None]
        if self.verifier is None or not places:
            return {"unverified": len(places)}
        written = [found.cases[n].written for n in places]
        answers = [verification.CaseAnswer(case.inputs, case.expected) for case in written]
        jobs = verification.verification_jobs(self.verifier, self.writers.experiment, answers)
        verified = verification.verify(jobs, self.writers.left(found))
        found.cost_microusd += verified.cost_microusd
        doubts = []
        agreed = 0
        for place, opinion in verified.opinions.items():
            case = found.cases[places[place]]
            if opinion.model == case.origin.writer:
                continue  # a fallback that agrees with itself
            if opinion.agrees:
                agreed += 1
                origin = case.origin._replace(verified_by=opinion.model)
                found.cases[places[place]] = case._replace(origin=origin)
            else:
                doubts.append({"case": case.id, "by": opinion.model, "reason": opinion.reason})
        if not self.terminal.json:
            by = self.verifier.models[0].name
            self.terminal.note(f"{by} agrees with {agreed} of {len(places)} expected answers")
            for each in doubts[:_LISTED]:
                self.terminal.note(StyledText("  in doubt: ", ODD), f"{each['case']}: "
                                   f"{each['reason']}")  # fmt: skip
            for reason in verified.failed[:1]:
                self.terminal.note(StyledText("  not asked: ", ODD), reason)
        return {"unverified": len(places) - agreed, "doubts": doubts}

    # --- shown ------------------------------------------------------------------------------------

    def _show(self, found: Generated) -> None:
        terminal = self.terminal
        cases = [case.case(self.file.kind) for case in found.cases]
        if cases:
            case_table.show_cases(terminal, cases[:_PREVIEW])
            if len(cases) > _PREVIEW:
                terminal.note(f"and {len(cases) - _PREVIEW:,} more")
            terminal.result("")
        got = StyledText(counted(len(cases), "case"), GOOD if not found.missing else BAD, bold=True)
        terminal.result(got, f" of {found.wanted:,}", *self._counts(cases, found))
        if found.missing:
            told = "what is missing is not made up; another --seed writes others"
            terminal.note(StyledText("fewer than ordered: ", ODD), told)
        for about, counter in (("left out", found.refused), ("replies not used", found.failed)):
            for reason, n in counter.most_common(_LISTED):
                terminal.note(f"{about}: {n:,} {reason}")
        if found.wanted and cases and any(case.slot.edge for case in found.cases):
            share = 100 * found.edges / len(cases)
            if share < case_slots.EDGE_PERCENT:
                terminal.note(StyledText(f"only {fixed(share)}% are edge cases", ODD))
        written = [case for case in found.cases if case.written.expected is not None]
        unverified = sum(1 for case in written if not case.origin.verified_by)
        if unverified:
            terminal.note(f"{counted(unverified, 'expected answer')} not verified by anyone")
        cost = dollars(found.cost_microusd) if found.calls else "stored, no cost"
        names = [
            f"{name} instead of {other}" if other else name for name, other in found.models.items()
        ]
        simulated = all(
            model.simulated
            for drafter in self.writers.drafters
            for model in drafter.models
            if model.name in found.models
        )
        if names:
            terminal.note(f"by {', '.join(names)}; {cost}", *simulated_label(simulated))

    def _counts(self, cases: Sequence[Case], found: Generated) -> list[str]:
        lengths = Counter(slices.length_of(slices.words_in(case)) for case in cases)
        shown = ", ".join(f"{n} {size}" for size, n in sorted(lengths.items()))
        edges = f"; {counted(found.edges, 'edge case')}" if found.edges else ""
        return [f"; lengths: {shown}{edges}"] if cases else []

    def _document(self, found: Generated, rows: list[dict[str, Any]], added: int) -> dict[str, Any]:
        return {
            "path": self.file.path,
            "kind": self.file.kind,
            "wanted": found.wanted,
            "cases": rows,
            "missing": found.missing,
            "edges": found.edges,
            "left_out": dict(found.refused),
            "replies_not_used": dict(found.failed),
            "models": found.models,
            "by_meaning": self.known.by_meaning,
            "cost_microusd": found.cost_microusd,
            "calls": found.calls,
            "stored": found.stored,
            "seed": self.writers.seed,
            "added": added,
        }

    # --- decided ----------------------------------------------------------------------------------

    def _decided(self, rows: list[dict[str, Json]]) -> Decided:
        """Ask what becomes of the cases; return those to add, and the files with them."""
        shown = False
        while True:
            edited = self._files(rows)
            if not shown:
                self._show_diffs(edited or [])
                shown = True
            said = click.prompt(
                f"a adds them to {self.file.path}, e edits them first, d discards",
                default="a",
                err=True,
            )
            match said.strip().lower():
                case "a" if edited is not None:
                    return rows, edited
                case "a":
                    self.terminal.note("they cannot be added as they are")
                case "d":
                    self.terminal.note("discarded; nothing is written")
                    return [], []
                case "e":
                    rows = self._edited(rows)
                case _:
                    self.terminal.note(f"{said!r} is none of these")

    def _files(self, rows: list[dict[str, Json]]) -> list[EditedFile] | None:
        """Return the files with the rows; None, after saying why, if that cannot be."""
        try:
            return self.file.edited(rows)
        except ConfigError as error:
            self.terminal.problems(error.problems)
        except EdisonError as error:
            self.terminal.complaint(error)
        return None

    def _show_diffs(self, edited: Sequence[EditedFile]) -> None:
        """Show how the experiment changes; the cases were shown before."""
        for line in (line for each in edited[1:] for line in each.diff.splitlines()):
            self.terminal.result(StyledText(line, {"+": GOOD, "-": BAD}.get(line[:1])))

    def _edited(self, rows: list[dict[str, Json]]) -> list[dict[str, Json]]:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        edited = click.edit(text, extension=".jsonl")
        if edited is None:
            self.terminal.note("they were not changed")
            return rows
        found = []
        for number, line in enumerate(edited.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json_text.parse_json(line)
                if not isinstance(row, dict) or "id" not in row or "input" not in row:
                    raise marks.Fault("type", "not a case with id and input")
            except marks.Fault as fault:
                self.terminal.note(StyledText(f"line {number}: {fault.message}", BAD))
                return rows
            found.append(row)
        before = {row["id"]: row for row in rows}
        for row in found:  # a person who changes what is expected has looked at it
            old, metadata = before.get(row["id"], row), row.get("metadata")
            if isinstance(metadata, dict) and old.get("expected") != row.get("expected"):
                metadata["verified_by"] = case_origin.PERSON
        self.terminal.note(f"{counted(len(found), 'case')} after the edit")
        return found


def confirm_writing(
    terminal: Terminal, writers: Writers, slots: Sequence[CaseSlot], *, yes: bool
) -> None:
    """Print how many calls are made for cases and their highest cost; ask above a dollar."""
    jobs = writers.jobs(slots)
    calls = [
        (
            job.drafter.models[0],
            job.drafter.request(job.drafter.models[0], job.kind, job.question, job.number),
        )
        for job, _ in jobs
    ]
    tokens = max((case_slots.reply_tokens(group) for _, group in jobs), default=0)
    sessions.confirm_calls(terminal, writers.project, calls, yes=yes, output_tokens=tokens)
