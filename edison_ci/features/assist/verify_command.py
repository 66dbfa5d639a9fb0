"""edison dataset verify: agreement with expected answers that models wrote."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci.api import case_edits
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import case_change, lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.config import case_origin
from edison_ci.errors import UsageError
from edison_ci.features.assist import generation, verification
from edison_ci.numeric import counted
from edison_ci.records import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.case_edits import EditableFile
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case, Json

_LISTED = 10


class _Open(NamedTuple):
    """A case whose expected answer nobody agreed with."""

    file: EditableFile
    place: int

    @property
    def case(self) -> Case:
        return self.file.cases[self.place]


@click.command(name="verify", cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--case", "ids", multiple=True, metavar="ID", help="Only this case; repeatable.")
@click.option("--by", metavar="MODEL", help="Model that checks the answers instead of you.")
@click.option("--yes", is_flag=True, help="Agree with the named cases, or with the model.")
@click.pass_obj
def verify_cases(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Agree with expected answers that models wrote.

    Without --by you see each case with its expected answer, and say whether it is right. With --by
    a second model answers on its own, and then says whether it agrees; no model agrees with cases
    of its own. A case that is agreed with has `verified_by` in its metadata.

    Examples:
      edison dataset verify
      edison dataset verify support-reply --by judge --yes
      edison dataset verify --case gen-b47e52d97ce2 --yes
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    chosen = lookup.find_experiment(project, experiment)
    run_sessions.require_editor(project, "verify case")
    found = _open_cases(project, chosen, given["ids"])
    if not found:
        if terminal.json:
            terminal.document({"paths": [], "cases": [], "diff": "", "doubts": []})
        else:
            terminal.result("every expected answer is verified, or written by a person")
        return
    doubts: list[dict[str, str]] = []
    if given["by"]:
        agreed, doubts = _by_model(state, terminal, project, chosen, found, **given)
    elif given["yes"] and given["ids"]:
        agreed = [(each, case_origin.PERSON) for each in found]
    elif sys.stdin.isatty() and sys.stdout.isatty() and not terminal.json:
        agreed = [(each, case_origin.PERSON) for each in _by_person(terminal, found)]
    else:
        raise UsageError(
            f"{counted(len(found), 'expected answer')} not verified",
            hint="on a terminal you are asked; elsewhere: --by MODEL, or --case ID --yes",
        )
    changes: dict[str, dict[int, Case]] = {}
    files: dict[str, EditableFile] = {}
    for each, name in agreed:
        path = each.file.entry.path
        files[path] = each.file
        metadata: dict[str, Json] = {**each.case.metadata, "verified_by": name}
        changes.setdefault(path, {})[each.place] = dataclasses.replace(each.case, metadata=metadata)
    edited = [case_edits.change_cases(files[path], cases) for path, cases in changes.items()]
    names = [str(each.case.id) for each, _ in agreed]
    asked = not given["by"]  # a person has said it case by case
    case_change.CaseChange(
        terminal,
        project,
        "verify case",
        "verified",
        yes=given["yes"] or asked,
        facts={"doubts": doubts},
    ).settle(edited, names)


def _open_cases(project: Project, experiment: Experiment, ids: Sequence[str]) -> list[_Open]:
    paths = list(dict.fromkeys(entry.path for entry in experiment.file.data))
    files = [case_edits.open_file(project, experiment, path) for path in paths]
    every = [_Open(file, place) for file in files for place in range(len(file.cases))]
    known = {str(each.case.id) for each in every}
    for wanted in ids:
        if wanted not in known:
            raise UsageError(
                f"{experiment.id} has no case {wanted!r}", hint="see: edison dataset show"
            )
    return [
        each
        for each in every
        if case_origin.is_unverified(each.case) and (not ids or str(each.case.id) in ids)
    ]


def _by_person(terminal: Terminal, found: Sequence[_Open]) -> list[_Open]:
    """Ask about each case; Ctrl-C and q keep what was agreed with."""
    agreed = []
    for number, each in enumerate(found, start=1):
        case = each.case
        terminal.result("")
        head = f"{case.id}  {number} of {len(found)}, by {case_origin.writer_of(case.metadata)}"
        terminal.result(StyledText(head, bold=True))
        for name, value in case.inputs.items():
            terminal.result(StyledText(f"  {name}: ", ODD), plain_text(value))
        terminal.result(StyledText("  expected: ", bold=True), plain_text(case.expected))
        said = ""
        while said not in ("y", "n", "q"):
            try:
                said = click.prompt("y agrees, n leaves it open, q ends", default="y", err=True)
            except click.exceptions.Abort:
                said = "q"
            said = said.strip().lower()
        if said == "q":
            break
        if said == "y":
            agreed.append(each)
    return agreed


def _by_model(
    state: CliState, terminal: Terminal, project: Project, experiment: Experiment,
    found: Sequence[_Open], **given: Any,
) -> tuple[list[tuple[_Open, str]], list[dict[str, str]]]:  # fmt: skip
    (drafter,) = generation.writers_of(
        project, [given["by"]], run_sessions.run_context(project, offline=state.offline)
    )
    name = drafter.models[0].name
    asked = [each for each in found if case_origin.writer_of(each.case.metadata) != name]
    if not asked:
        raise UsageError(f"{name} wrote all of them", hint="another model has to agree: --by NAME")
    jobs = verification.verification_jobs(
        drafter,
        experiment,
        [verification.CaseAnswer(dict(e.case.inputs), e.case.expected) for e in asked],
    )
    calls = [(drafter.models[0], drafter.request(drafter.models[0], job.kind, job.question))
             for job in jobs]  # fmt: skip
    sessions.confirm_calls(terminal, project, calls, yes=given["yes"])
    verified = verification.verify(jobs)
    agreed, doubts = [], []
    for place, opinion in sorted(verified.opinions.items()):
        each = asked[place]
        if opinion.agrees and opinion.model != case_origin.writer_of(each.case.metadata):
            agreed.append((each, opinion.model))
        elif not opinion.agrees:
            doubts.append(
                {"case": str(each.case.id), "by": opinion.model, "reason": opinion.reason}
            )
    if not terminal.json:
        terminal.note(f"{name} agrees with {len(agreed)} of {len(asked)} expected answers")
        for doubt in doubts[:_LISTED]:
            terminal.note(StyledText("  in doubt: ", ODD), f"{doubt['case']}: {doubt['reason']}")
        for reason in verified.failed[:1]:
            terminal.note(StyledText("  not asked: ", ODD), reason)
    return agreed, doubts
