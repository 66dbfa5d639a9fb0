"""edison dataset verify: agreement with expected answers that models wrote."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import case_edits
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import cases as cli_cases
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.config import case_facts
from edison_ci.errors import UsageError
from edison_ci.features.assist import generated_cases, generation
from edison_ci.numeric import counted
from edison_ci.records import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.case_edits import EditableFile, EditedFile
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.drafting import Drafter
    from edison_ci.records import Case, Json

_LISTED = 10


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The cases whose expected answers are checked, and by whom."""

    experiment: str | None
    ids: tuple[str, ...]
    by: str | None
    yes: bool


class _OpenCase(NamedTuple):
    """A case whose expected answer is not verified."""

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
@takes(VerifyRequest)
def verify_cases(state: CliState, request: VerifyRequest) -> None:
    """Agree with expected answers that models wrote.

    Without --by you see each case with its expected answer, and say whether it is right. With --by
    a second model answers on its own, and then says whether it agrees; no model agrees with its
    own cases. A case that is agreed with has `verified_by` in its metadata.

    Examples:
      edison dataset verify
      edison dataset verify support-reply --by judge --yes
      edison dataset verify --case gen-b47e52d97ce2 --yes
    """
    terminal, project = Terminal(state), lookup.open_project(state, request.experiment)
    experiment = lookup.find_experiment(project, request.experiment)
    run_sessions.require_editor(project, "verify case")
    cases = _open_cases(project, experiment, request.ids)
    if not cases:
        if terminal.json:
            terminal.document({"paths": [], "cases": [], "diff": "", "doubts": []})
        else:
            terminal.result("every expected answer is verified, or written by a person")
        return
    doubts: list[dict[str, str]] = []
    if request.by:
        context = run_sessions.run_context(project, offline=state.offline)
        (verifier,) = generation.writers_of(project, [request.by], context)
        agreed, doubts = _by_model(terminal, experiment, verifier, cases, yes=request.yes)
    elif request.yes and request.ids:
        agreed = [(case, case_facts.PERSON) for case in cases]
    elif sys.stdin.isatty() and sys.stdout.isatty() and not terminal.json:
        agreed = [(case, case_facts.PERSON) for case in _by_person(terminal, cases)]
    else:
        raise UsageError(
            f"{counted(len(cases), 'expected answer')} not verified",
            hint="on a terminal you are asked; elsewhere: --by MODEL, or --case ID --yes",
        )
    cli_cases.CaseChange(
        terminal,
        project,
        "verify case",
        "verified",
        yes=request.yes or not request.by,  # a person has agreed case by case
        facts={"doubts": doubts},
    ).settle(_verified(agreed), [str(open_case.case.id) for open_case, _ in agreed])


def _verified(agreed: Sequence[tuple[_OpenCase, str]]) -> list[EditedFile]:
    """Return the files in which cases name who agrees with them."""
    changes: dict[str, dict[int, Case]] = {}
    files: dict[str, EditableFile] = {}
    for open_case, name in agreed:
        path, case = open_case.file.entry.path, open_case.case
        files[path] = open_case.file
        metadata: dict[str, Json] = {**case.metadata, "verified_by": name}
        changes.setdefault(path, {})[open_case.place] = replace(case, metadata=metadata)
    return [case_edits.change_cases(files[path], cases) for path, cases in changes.items()]


def _open_cases(project: Project, experiment: Experiment, ids: Sequence[str]) -> list[_OpenCase]:
    paths = list(dict.fromkeys(entry.path for entry in experiment.file.data))
    files = [case_edits.open_file(project, experiment, path) for path in paths]
    by_id = {
        str(case.id): _OpenCase(file, place)
        for file in files
        for place, case in enumerate(file.cases)
    }
    for name in ids:
        if name not in by_id:
            raise UsageError(
                f"{experiment.id} has no case {name!r}", hint="see: edison dataset show"
            )
    return [
        open_case
        for name, open_case in by_id.items()
        if case_facts.is_unverified(open_case.case) and (not ids or name in ids)
    ]


def _by_person(terminal: Terminal, cases: Sequence[_OpenCase]) -> list[_OpenCase]:
    """Ask about each case; Ctrl-C and q keep what was agreed with."""
    agreed = []
    for number, open_case in enumerate(cases, start=1):
        case = open_case.case
        terminal.result("")
        head = f"{case.id}  {number} of {len(cases)}, by {case_facts.writer_of(case.metadata)}"
        terminal.result(StyledText(head, bold=True))
        for name, value in case.inputs.items():
            terminal.result(StyledText(f"  {name}: ", ODD), plain_text(value))
        terminal.result(StyledText("  expected: ", bold=True), plain_text(case.expected))
        answer = ""
        while answer not in ("y", "n", "q"):
            try:
                answer = click.prompt("y agrees, n leaves it open, q ends", default="y", err=True)
            except click.exceptions.Abort:
                answer = "q"
            answer = answer.strip().lower()
        if answer == "q":
            break
        if answer == "y":
            agreed.append(open_case)
    return agreed


def _by_model(
    terminal: Terminal,
    experiment: Experiment,
    verifier: Drafter,
    cases: Sequence[_OpenCase],
    *,
    yes: bool,
) -> tuple[list[tuple[_OpenCase, str]], list[dict[str, str]]]:
    """Return the cases that a model agrees with, and its doubts about others."""
    name = verifier.first.name
    asked = [
        open_case for open_case in cases if case_facts.writer_of(open_case.case.metadata) != name
    ]
    if not asked:
        raise UsageError(f"{name} wrote all of them", hint="another model has to agree: --by NAME")
    asked_cases = [open_case.case for open_case in asked]
    jobs = generation.verification_jobs(verifier, experiment, asked_cases)
    sessions.confirm_calls(terminal, verifier.project, [job.call for job in jobs], yes=yes)
    agreement = generation.verify(jobs, asked_cases)
    if not terminal.json:
        generated_cases.show_agreement(terminal, verifier, agreement, _LISTED)
    agreed = [(asked[place], model) for place, model in agreement.agreed.items()]
    return agreed, agreement.doubts
