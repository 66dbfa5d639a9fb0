"""Cases that models write, on a terminal: price, progress, preview, and what is added."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli import cases as cli_cases
from edison_ci.cli import progress as cli_progress
from edison_ci.cli import sessions
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import case_facts
from edison_ci.documents import json_text, marks
from edison_ci.errors import ConfigError, EdisonError
from edison_ci.features.assist import case_slots, generation
from edison_ci.numeric import counted, dollars, fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.features.assist.case_slots import CaseSlot
    from edison_ci.features.assist.drafting import Drafter
    from edison_ci.features.assist.generation import (
        Agreement,
        Generated,
        GeneratedCase,
        Writers,
    )
    from edison_ci.features.assist.writing_session import GeneratedRows, WritingSession
    from edison_ci.records import Case, Json
    from edison_ci.results.case_likeness import KnownCases

    Decided = tuple[list[dict[str, Json]], list[EditedFile]]

_PREVIEW = 10
_LISTED = 5


@dataclass(frozen=True, slots=True)
class CaseDialog:
    """Cases that are ordered, shown, and added to a dataset if a person accepts them."""

    session: WritingSession
    writers: Writers
    slots: Sequence[CaseSlot]
    known: KnownCases
    ready: tuple[GeneratedCase, ...] = ()
    """Cases that need no model."""
    sift: Callable[[Generated], dict[str, Any]] | None = None
    """Leaves out some cases, and returns facts about it."""
    report: Callable[[Generated], dict[str, Any]] | None = None
    """Shows more about the cases before they are written, and returns it as facts."""

    @property
    def _terminal(self) -> Terminal:
        return self.session.terminal

    @property
    def _file(self) -> GeneratedRows:
        return self.session.file

    def settle(self) -> None:
        """Have the cases written, show them, and add them if they are accepted."""
        yes = self.session.options.yes
        confirm_writing(self._terminal, self.writers, self.slots, yes=yes)
        result = self._write()
        facts: dict[str, Any] = {}
        if self.sift is not None:
            facts |= self.sift(result)
        facts |= self._verify(result)
        if not self._terminal.json:
            self._show(result)
        if self.report is not None:
            facts |= self.report(result)
        rows = [case.row() for case in result.cases]
        asks = sys.stdin.isatty() and sys.stdout.isatty() and not self._terminal.json
        added = 0
        if rows and (yes or asks):
            rows, edited = (rows, self._file.edited(rows)) if yes else self._decided(rows)
            added = self._file.write(edited, self.session.action)
        if self._terminal.json:
            self._terminal.document(self._document(result, rows, added) | facts)
        elif added:
            text = f" {counted(added, 'case')} to {self._file.path}"
            self._terminal.result("  ", StyledText("added", GOOD), text)
            if added < len(rows):
                left = counted(len(rows) - added, "case")
                self._terminal.note(f"{left} came into {self._file.path} meanwhile")
        elif rows and yes:
            self._terminal.note("nothing is written: the dataset has all of them")
        elif rows and not asks:
            self._terminal.note("nothing is written; add them with --yes")

    def _write(self) -> Generated:
        live = cli_progress.is_live(self._terminal)

        def progress(result: Generated) -> None:
            if live:
                replies, cases = result.calls + result.stored, len(result.cases)
                text = f"replies: {replies:,}; cases: {cases:,} of {result.wanted:,}"
                sys.stderr.write(f"\r\x1b[2K{text}")
                sys.stderr.flush()

        try:
            result = self.writers.write(self.slots, self.known, progress)
        except KeyboardInterrupt:
            _clear(live=live)
            self._terminal.note(
                "nothing is written; replies so far are stored, and the same command continues "
                "with them"
            )
            raise
        _clear(live=live)
        result.cases[:0] = self.ready
        result.wanted += len(self.ready)
        return result

    def _verify(self, result: Generated) -> dict[str, Any]:
        """Ask a second model about expected answers."""
        places = [n for n, case in enumerate(result.cases) if case.written.expected is not None]
        verifier = self.session.verifier
        if verifier is None or not places:
            return {"unverified": len(places)}
        cases = [result.cases[n].case(self._file.kind) for n in places]
        jobs = generation.verification_jobs(verifier, self.session.experiment, cases)
        agreement = generation.verify(jobs, cases, self.writers.left(result))
        result.cost_microusd += agreement.cost_microusd
        for place, model in agreement.agreed.items():
            case = result.cases[places[place]]
            origin = case.origin._replace(verified_by=model)
            result.cases[places[place]] = case._replace(origin=origin)
        if not self._terminal.json:
            show_agreement(self._terminal, verifier, agreement)
        unverified = len(places) - len(agreement.agreed)
        return {"unverified": unverified, "doubts": agreement.doubts}

    def _show(self, result: Generated) -> None:
        terminal = self._terminal
        cases = [case.case(self._file.kind) for case in result.cases]
        if cases:
            cli_cases.show_cases(terminal, cases[:_PREVIEW])
            if len(cases) > _PREVIEW:
                terminal.note(f"and {len(cases) - _PREVIEW:,} more")
            terminal.result("")
        got = StyledText(
            counted(len(cases), "case"), GOOD if not result.missing else BAD, bold=True
        )
        terminal.result(got, f" of {result.wanted:,}", *self._counts(cases, result))
        if result.missing:
            advice = "the model wrote no more valid cases; try another --seed"
            terminal.note(StyledText("fewer than requested: ", ODD), advice)
        for about, counter in (("left out", result.refused), ("replies not used", result.failed)):
            for reason, n in counter.most_common(_LISTED):
                terminal.note(f"{about}: {n:,} {reason}")
        if result.wanted and cases and any(case.slot.edge for case in result.cases):
            share = 100 * result.edges / len(cases)
            if share < case_slots.EDGE_PERCENT:
                terminal.note(StyledText(f"only {fixed(share)}% are edge cases", ODD))
        written = [case for case in result.cases if case.written.expected is not None]
        unverified = sum(1 for case in written if not case.origin.verified_by)
        if unverified:
            terminal.note(f"{counted(unverified, 'expected answer')} not verified by anyone")
        cost = dollars(result.cost_microusd) if result.calls else "stored, no cost"
        names = [
            f"{name} instead of {other}" if other else name for name, other in result.models.items()
        ]
        simulated = all(
            model.simulated
            for drafter in self.writers.drafters
            for model in drafter.models
            if model.name in result.models
        )
        if names:
            terminal.note(f"by {', '.join(names)}; {cost}", *simulated_label(simulated))

    def _counts(self, cases: Sequence[Case], result: Generated) -> list[str]:
        lengths = Counter(case_facts.length_of(case_facts.words_in(case)) for case in cases)
        text = ", ".join(f"{n} {size}" for size, n in sorted(lengths.items()))
        edges = f"; {counted(result.edges, 'edge case')}" if result.edges else ""
        return [f"; lengths: {text}{edges}"] if cases else []

    def _document(
        self, result: Generated, rows: list[dict[str, Any]], added: int
    ) -> dict[str, Any]:
        return {
            "path": self._file.path,
            "kind": self._file.kind,
            "wanted": result.wanted,
            "cases": rows,
            "missing": result.missing,
            "edges": result.edges,
            "left_out": dict(result.refused),
            "replies_not_used": dict(result.failed),
            "models": result.models,
            "by_meaning": self.known.by_meaning,
            "cost_microusd": result.cost_microusd,
            "calls": result.calls,
            "stored": result.stored,
            "seed": self.writers.seed,
            "added": added,
        }

    def _decided(self, rows: list[dict[str, Json]]) -> Decided:
        """Ask whether the cases are added; return those, and the files with them."""
        diffs_printed = False
        while True:
            edited = self._files(rows)
            if not diffs_printed:
                self._show_diffs(edited or [])
                diffs_printed = True
            answer = click.prompt(
                f"a adds them to {self._file.path}, e edits them first, d discards",
                default="a",
                err=True,
            )
            match answer.strip().lower():
                case "a" if edited is not None:
                    return rows, edited
                case "a":
                    self._terminal.note("they cannot be added as they are")
                case "d":
                    self._terminal.note("discarded; nothing is written")
                    return [], []
                case "e":
                    rows = self._edited(rows)
                case _:
                    self._terminal.note(f"{answer!r} is none of these")

    def _files(self, rows: list[dict[str, Json]]) -> list[EditedFile] | None:
        """Return the files with the rows; None, after saying why, if that cannot be."""
        try:
            return self._file.edited(rows)
        except ConfigError as error:
            self._terminal.problems(error.problems)
        except EdisonError as error:
            self._terminal.complaint(error)
        return None

    def _show_diffs(self, edited: Sequence[EditedFile]) -> None:
        """Show how the experiment changes; the cases were shown before."""
        for line in (line for file in edited[1:] for line in file.diff.splitlines()):
            self._terminal.result(StyledText(line, {"+": GOOD, "-": BAD}.get(line[:1])))

    def _edited(self, rows: list[dict[str, Json]]) -> list[dict[str, Json]]:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        edited = click.edit(text, extension=".jsonl")
        if edited is None:
            self._terminal.note("they were not changed")
            return rows
        changed_rows = []
        for number, line in enumerate(edited.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json_text.parse_json(line)
                if not isinstance(row, dict) or "id" not in row or "input" not in row:
                    raise marks.Fault("type", "not a case with id and input")
            except marks.Fault as fault:
                self._terminal.note(StyledText(f"line {number}: {fault.message}", BAD))
                return rows
            changed_rows.append(row)
        before = {row["id"]: row for row in rows}
        for row in changed_rows:  # a person who changes what is expected has looked at it
            old, metadata = before.get(row["id"], row), row.get("metadata")
            if isinstance(metadata, dict) and old.get("expected") != row.get("expected"):
                metadata["verified_by"] = case_facts.PERSON
        self._terminal.note(f"{counted(len(changed_rows), 'case')} after the edit")
        return changed_rows


def _clear(*, live: bool) -> None:
    if live:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def show_agreement(
    terminal: Terminal, verifier: Drafter, agreement: Agreement, listed: int = _LISTED
) -> None:
    """Print with how many expected answers a second model agrees, and its doubts."""
    count = f"{len(agreement.agreed)} of {agreement.asked} expected answers"
    terminal.note(f"{verifier.first.name} agrees with {count}")
    for doubt in agreement.doubts[:listed]:
        terminal.note(StyledText("  in doubt: ", ODD), f"{doubt['case']}: {doubt['reason']}")
    for reason in agreement.failed[:1]:
        terminal.note(StyledText("  not asked: ", ODD), reason)


def confirm_writing(
    terminal: Terminal, writers: Writers, slots: Sequence[CaseSlot], *, yes: bool
) -> None:
    """Print how many calls are made for cases and their highest cost; ask above a dollar."""
    jobs = writers.jobs(slots)
    calls = [job.call for job, _ in jobs]
    tokens = max((case_slots.reply_tokens(group) for _, group in jobs), default=0)
    sessions.confirm_calls(terminal, writers.project, calls, yes=yes, output_tokens=tokens)
