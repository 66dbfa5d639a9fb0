"""The data step of the wizard: cases that are generated, typed or imported."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.config import project_files, validation
from edison_ci.errors import CallFailed, ConfigError, UsageError
from edison_ci.features.assist import (
    case_replies,
    case_slots,
    draft_dialog,
    generated_cases,
    generation,
    new_project,
)
from edison_ci.features.assist.draft_kinds import Proposal
from edison_ci.numeric import counted
from edison_ci.results import case_likeness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.cli.options import CliState
    from edison_ci.features.assist.draft_dialog import Questions
    from edison_ci.features.assist.generation import Generated
    from edison_ci.features.assist.new_project import ProjectDraft, SavedDraft
    from edison_ci.records import Json

_SHOWN = 8
_WIDE, _NARROW = 72, 24
_FEWEST = 2
_EXPECTED = "what a right answer contains (Enter: nothing certain)"


@dataclass(frozen=True, slots=True)
class CaseSource:
    """Gets the cases of a new project."""

    state: CliState
    questions: Questions
    saved: SavedDraft
    draft: ProjectDraft
    keep: Callable[[], None]
    """Saves the answers so far."""

    def settle(self) -> None:
        """Ask for cases until some are accepted."""
        draft = self.draft
        if draft.data:
            self.questions.settle(self._offering(), self._offer(draft.data), self._number)
            return
        while True:
            if not draft.source:
                self._ask_source()
            try:
                self.questions.settle(self._offering(), None, self._number)
            except draft_dialog.GoBack:  # to the question where cases come from
                self._take("")
            else:
                return

    @property
    def _number(self) -> int:
        return self.draft.redone.get("data", 0)

    def _offering(self) -> draft_dialog.DraftStep:
        return draft_dialog.DraftStep(self._get, self._accept, self._own, ".jsonl", self._again)

    def _again(self) -> int:
        self.draft.redone["data"] = self._number + 1
        if self.draft.source != "generate":
            self._take("")
            self._ask_source()
        self.keep()
        return self._number

    def _take(self, source: str, rows: Sequence[dict[str, Any]] = ()) -> None:
        self.draft.source, self.draft.rows = source, [*rows]
        self.keep()
        self.questions.terminal.result()

    def _ask_source(self) -> None:
        """Ask where the cases come from."""
        fewest, most = case_slots.COUNTS
        question = (
            f"Enter generates {self.draft.count} cases ({fewest} to {most}: another number), "
            "t types a few, or name a file to import"
        )
        while True:
            answer = self.questions.ask(question)
            if answer.isascii() and answer.isdigit():
                if not fewest <= int(answer) <= most:
                    self.questions.wrong(f"{answer} is not a number from {fewest} to {most}")
                    continue
                self.draft.count, answer = int(answer), ""
            if not answer or answer.lower() in ("g", "t"):
                self._take("type" if answer.lower() == "t" else "generate")
                return
            try:
                rows = self._imported(answer)
            except draft_dialog.GoBack:  # from the question about a column
                continue
            if rows:
                self._take("import", rows)
                return

    def _get(self, number: int) -> Sequence[Proposal]:
        match self.draft.source:
            case "type":
                self._type()
                rows: Sequence[dict[str, Any]] = self.draft.rows
            case "import":
                rows = self.draft.rows
            case _:
                rows = self._generated(number)
        return (self._offer("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)),)

    def _generated(self, number: int) -> list[dict[str, Json]]:
        project, experiment = self.saved.project(self.draft)
        hints = self.draft.hints
        hints = (
            hints
            if len(hints) >= case_slots.HINTS[0]
            else experiment.file.objective[: case_slots.HINTS[1]]
        )
        order = case_slots.CaseOrder(self.draft.count, hints, number)
        form = case_replies.form_of(experiment, (), {})
        context = run_sessions.run_context(project, offline=self.state.offline)
        drafters = generation.writers_of(
            project, (new_project.SIMULATOR,) if self.state.offline else (), context
        )
        writers = generation.Writers(
            project, experiment, form, drafters, order.hints, order.diversity, order.seed
        )
        slots = order.slots()
        generated_cases.confirm_writing(self.questions.terminal, writers, slots, yes=False)
        present = case_likeness.KnownCases((), form.types, order.diversity)
        generated = writers.write(slots, present, lambda _: None)
        for line in _shortfall_notes(generated):
            self.questions.terminal.note(line)
        if not generated.cases:
            raise CallFailed("no case could be used", hint="r tries again, o types your own")
        return [case.row() for case in generated.cases]

    def _type(self) -> None:
        """Ask for cases one by one; each is saved."""
        names = self.draft.inputs or ["message"]
        self.questions.terminal.note(f"Type at least {_FEWEST} cases; an empty {names[0]} ends.")
        while True:
            number = len(self.draft.rows) + 1
            values = {}
            for place, name in enumerate(names):
                answer = self.questions.ask(f"case {number}, {name}")
                if not answer and place == 0:
                    if len(self.draft.rows) >= _FEWEST:
                        return
                    self.questions.wrong(f"at least {_FEWEST} cases are needed")
                    break
                values[name] = answer
            else:
                row: dict[str, Any] = {"id": f"case-{number}", "input": values}
                if expected := self.questions.ask(_EXPECTED):
                    row["expected"] = expected
                self.draft.rows.append(row)
                self.keep()

    def _imported(self, answer: str) -> list[dict[str, Json]]:
        """Return the cases of a file; none, with what is wrong, if it cannot be used."""
        path = Path(answer.strip("\"'")).expanduser()
        try:
            names = self.draft.inputs or ["message"]
            read = feature.required("cases_of_file", "importing")
            rows: list[dict[str, Json]] = read(self.state, path, names, self._column)
        except ConfigError as error:
            self.questions.terminal.problems(error.problems)
            return []
        except UsageError as error:
            self.questions.wrong(error.message)
            self.questions.terminal.note(f"  {error.hint}" if error.hint else "")
            return []
        return rows

    def _column(self, name: str, free: Sequence[str]) -> str:
        """Ask for the column of an input that no column is named after."""
        while True:
            answer = self.questions.ask(f"Which column is {name}? ({', '.join(free[:20])})")
            if answer in free:
                return answer
            self.questions.wrong(f"{answer!r} is no column of the file")

    def _offer(self, text: str) -> Proposal:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        lines = [_line(row) for row in islice(rows, _SHOWN)]
        if len(rows) > _SHOWN:
            lines.append(f"and {len(rows) - _SHOWN:,} more")
        return Proposal(text, counted(len(rows), "case"), summary=tuple(lines))

    def _own(self) -> Proposal | None:
        self._take("type")
        return self._get(0)[0]

    def _accept(self, offer: Proposal) -> None:
        draft = self.draft
        kind = "synthetic" if draft.source == "generate" else "golden"
        tried = replace(draft, data=offer.text, data_kind=kind)
        project, experiment = self.saved.project(tried)
        check = validation.DataCheck(project, experiment)
        count = sum(1 for _ in check)
        if wrong := project_files.only_errors(check.problems):
            raise ConfigError(wrong)
        lacking = sum(check.skipped_count.values())
        if lacking or not count:
            message = f"{counted(lacking, 'case')} of {count} lack an input of the prompt"
            raise UsageError(message, hint=f"inputs: {', '.join(draft.inputs)}")
        draft.data, draft.data_kind = tried.data, kind


def _shortfall_notes(generated: Generated) -> Iterator[str]:
    """Yield what is answer about generated cases."""
    if generated.missing <= 0:
        return
    yield f"{generated.missing} of {generated.wanted} are missing; r tries again with another seed"
    for why, count in generated.refused.most_common(3):
        yield f"left out: {count} {why}"


def _line(row: dict[str, Any]) -> str:
    """Return a case on one line."""
    inputs, expected = row.get("input"), row.get("expected")
    values = inputs.values() if isinstance(inputs, dict) else ()
    text = " | ".join(" ".join(str(value).split()) for value in values)
    right = f" -> {expected}" if isinstance(expected, str) and len(expected) <= _NARROW else ""
    wide = _WIDE - len(right)
    if len(text) > wide:  # generated cases often begin alike
        text = f"{text[: wide // 2 - 5]} ... {text[-wide // 2 :]}"
    return f"{text}{right}"
