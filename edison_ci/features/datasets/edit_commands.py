"""edison dataset add, tag, edit and remove: changes of the cases of a dataset file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import case_edits, counterexamples
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup
from edison_ci.cli.cases import CaseChange, case_yaml, is_terminal
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, StyledText, Terminal
from edison_ci.config import case_facts
from edison_ci.config import cases as config_cases
from edison_ci.documents import json_text, marks, yaml_text
from edison_ci.errors import ConfigError, EdisonError, UsageError
from edison_ci.records import CaseKind
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.api.case_edits import EditableFile, EditedFile
    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.marks import Json
    from edison_ci.records import Case


_YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_EXPERIMENT = click.option("--experiment", metavar="NAME", help="Experiment that has the case.")


@dataclass(frozen=True, slots=True)
class AddRequest:
    """The case to add, and the answer that it is like."""

    experiment: str | None
    cell: str | None
    run_id: str
    path: str | None
    values: tuple[str, ...]
    expected: str | None
    tags: tuple[str, ...]
    name: str
    yes: bool


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--from", "cell", metavar="CELL", help="Add a counterexample to this answer's case.")
@click.option("--run", "run_id", default="latest", metavar="RUN", help="Run of the answer.")
@click.option("--dataset", "path", metavar="FILE", help="Dataset file; default: the first one.")
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Value of an input; repeatable."
)
@click.option("--expected", metavar="TEXT", help="The answer that would be right.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag of the case; repeatable.")
@click.option("--id", "name", default="", metavar="ID", help="Id of the case.")
@_YES
@click.pass_obj
@takes(AddRequest)
def add(state: CliState, request: AddRequest) -> None:
    """Add a case to a dataset, from values or from an answer.

    With --from, the case is like that of an answer, with the inputs and the expected answer that
    are given, and the tag `counterexample`. The row is written in the format of its file, and only
    if the file can be read with it.

    Examples:
      edison dataset add --set message="Where is it?" --expected "2 days"
      edison dataset add --from return-how@small --expected "30 days"
    """
    terminal, project = Terminal(state), lookup.open_project(state, request.experiment)
    inputs = dict(map(_pair, request.values))
    expected: str | None
    if request.cell is None:
        experiment = lookup.find_experiment(project, request.experiment)
        origin = counterexamples.file_of(project, experiment, request.path)
        tags, expected = request.tags, request.expected or ""
    else:
        origin = counterexamples.origin_of_answer(project, request.run_id, request.cell)
        assert origin.case is not None
        tags = (counterexamples.TAG, *request.tags)
        expected = request.expected
        if expected is None:
            expected = case_edits.as_entered(origin.case.expected)
    added = counterexamples.extended(
        origin, counterexamples.CaseEntry(inputs, expected, tags=tags, name=request.name)
    )
    change = CaseChange(terminal, project, "add case", "added", yes=request.yes)
    change.settle([added.edited], [added.case])


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not a value", hint="write --set NAME=VALUE")
    return name, value


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """Which cases a command is about: those that match everything that is given."""

    tags: tuple[str, ...]
    kind: str | None
    difficulty: str | None
    length: str | None
    ids: tuple[str, ...]

    def matches(self, case: Case) -> bool:
        """Whether a case is meant."""
        return (
            (not self.tags or any(tag in self.tags for tag in case.tags))
            and (self.kind is None or case.kind == self.kind)
            and (self.difficulty is None or case_facts.level_of(case.difficulty) == self.difficulty)
            and (
                self.length is None
                or case_facts.length_of(case_facts.words_in(case)) == self.length
            )
            and (not self.ids or case.id in self.ids)
        )


def filter_options(verb: str, tag: str = "--tag") -> Callable[[Any], Any]:
    """Return the decorator of a command that is about some cases of an experiment."""
    options = (
        click.option(
            tag, "tags", multiple=True, metavar="TAG", help=f"{verb} only cases with this tag."
        ),
        click.option(
            "--kind",
            type=click.Choice([kind.value for kind in CaseKind]),
            help=f"{verb} only cases of this kind.",
        ),
        click.option(
            "--difficulty",
            type=click.Choice(list(dict.fromkeys(case_facts.LEVELS.values()))),
            help=f"{verb} only this difficulty: 1-2 easy, 3 medium, 4-5 hard.",
        ),
        click.option(
            "--length",
            type=click.Choice(list(case_facts.SIZES)),
            help=f"{verb} only inputs of this length.",
        ),
        click.option(
            "--case",
            "ids",
            multiple=True,
            metavar="ID",
            help=f"{verb} only the case with this id.",
        ),
    )

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class TagRequest(CaseFilter):
    """The tag, and the cases that get it."""

    words: tuple[str, ...]
    remove: bool
    yes: bool


@click.command(cls=EdisonCommand)
@click.argument("words", nargs=-1, required=True, metavar="[EXPERIMENT] TAG")
@filter_options("Tag", "--with")
@click.option("--remove", is_flag=True, help="Remove the tag instead.")
@_YES
@click.pass_obj
@takes(TagRequest)
def tag(state: CliState, request: TagRequest) -> None:
    """Tag the cases of an experiment, all or some of them.

    A CSV file without a column `tags` gets one. All other rows stay as they are.

    Examples:
      edison dataset tag reviewed
      edison dataset tag support-reply long --length XL
      edison dataset tag refunds --with billing --case refund-1 --remove
    """
    terminal, words, remove = Terminal(state), request.words, request.remove
    named = words[0] if len(words) == 2 else None
    project = lookup.open_project(state, named)
    if len(words) > 2:
        raise UsageError(f"{words[2]!r} is one word too many", hint="quote a tag with blanks")
    name = words[-1]
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 200:
        raise UsageError(f"{name!r} is not a tag", hint="write up to 200 characters on one line")
    experiment = lookup.find_experiment(project, named)
    run_sessions.require_editor(project, "tag cases")
    files, edited, cases = _files(project, experiment), [], list[str]()
    _refuse_unknown(experiment, files, request.ids)
    for file in files:
        changes = {
            index: _tagged(case, name, remove=remove)
            for index, case in enumerate(file.cases)
            if request.matches(case) and (name in case.tags) == remove
        }
        cases += [str(file.cases[index].id) for index in changes]
        if changes:
            edited.append(case_edits.change_cases(file, changes))
    word = "untagged" if remove else "tagged"
    change = CaseChange(terminal, project, "tag cases", word, {"tag": name}, yes=request.yes)
    change.settle(edited, cases)


def _tagged(case: Case, tag: str, *, remove: bool) -> Case:
    kept = tuple(name for name in case.tags if name != tag)
    return dataclasses.replace(case, tags=kept if remove else (*kept, tag))


def _files(project: Project, experiment: Experiment) -> list[EditableFile]:
    paths = dict.fromkeys(entry.path for entry in experiment.file.data)
    if not paths:
        raise UsageError(f"{experiment.id} has no dataset", hint="add data: to the experiment")
    return [case_edits.open_file(project, experiment, path) for path in paths]


def _refuse_unknown(
    experiment: Experiment, files: Sequence[EditableFile], ids: Sequence[str]
) -> None:
    existing = {str(case.id) for file in files for case in file.cases}
    for name in ids:
        if name not in existing:
            hint = did_you_mean(name, existing) or "list them with edison dataset show"
            raise UsageError(f"{experiment.id} has no case {name!r}", hint=hint)


@dataclass(frozen=True, slots=True)
class EditRequest:
    """The case to edit, and its new values."""

    case_id: str
    experiment: str | None
    values: tuple[str, ...]
    expected: str | None
    tags: tuple[str, ...]
    yes: bool


@click.command(cls=EdisonCommand)
@click.argument("case_id", metavar="CASE")
@_EXPERIMENT
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Value of an input; repeatable."
)
@click.option("--expected", metavar="TEXT", help="The answer that would be right.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Add a tag; repeatable.")
@_YES
@click.pass_obj
@takes(EditRequest)
def edit(state: CliState, request: EditRequest) -> None:
    """Edit a case, by options or in $EDITOR.

    Without --set, --expected and --tag the row opens in your editor, as YAML. The file keeps its
    format, and all other rows stay byte for byte. An expected answer that you set is marked as
    verified by a person if a model wrote the case.

    Examples:
      edison dataset edit return-how --expected "30 days" --tag reviewed
      edison dataset edit return-how --set message="May I return it?"
      edison dataset edit return-how
    """
    terminal, project = Terminal(state), lookup.open_project(state, request.experiment)
    run_sessions.require_editor(project, "edit case")
    homes = _homes(project, request.experiment)
    file = case_edits.case_file(project, homes, request.case_id)
    index = file.find(request.case_id)
    assert index is not None
    old = file.cases[index]
    edited: EditedFile | None
    if request.values or request.expected is not None or request.tags:
        edited = _edited_by_options(file, index, request)
    elif terminal.json or not is_terminal():
        raise UsageError(
            "an editor needs a terminal", hint="give --set, --expected or --tag instead"
        )
    else:
        edited = _edited_in_editor(terminal, file, index)
    if edited is None:
        return
    change = CaseChange(terminal, project, "edit case", "changed", yes=request.yes)
    change.settle([edited] if edited.diff else [], [str(old.id)] if edited.diff else [])


def _homes(project: Project, name: str | None) -> list[Experiment]:
    return [project.experiment(name)] if name else list(project.experiments.values())


def _edited_by_options(file: EditableFile, index: int, request: EditRequest) -> EditedFile:
    old = file.cases[index]
    inputs = dict(old.inputs)
    for name, text in map(_pair, request.values):
        if name not in inputs and name not in file.types:
            hint = did_you_mean(name, inputs, label="it has")
            raise UsageError(f"the case has no input {name!r}", hint=hint)
        is_text = isinstance(inputs.get(name, ""), str) and file.types.get(name) in (None, "string")
        inputs[name] = text if is_text else _json_value(name, text)
    expected: Json = old.expected
    if request.expected is not None:
        is_text = old.expected is None or isinstance(old.expected, str)
        expected = request.expected if is_text else _json_value("expected", request.expected)
        expected = None if expected == "" else expected
    tags = tuple(dict.fromkeys([*old.tags, *request.tags]))
    new = dataclasses.replace(old, inputs=inputs, expected=expected, tags=tags)
    return _changed(file, index, new, verified=request.expected is not None)


def _json_value(name: str, text: str) -> Json:
    try:
        return json_text.parse_json(text)
    except marks.Fault as fault:
        hint = "numbers, lists and objects are written as JSON"
        raise UsageError(f"{name} is not JSON: {fault.message}", hint=hint) from None


def _changed(file: EditableFile, index: int, new: Case, *, verified: bool) -> EditedFile:
    """Return the file with a changed case, marked as verified if a model had written it."""
    if verified and new.expected is not None and case_facts.writer_of(new.metadata):
        new = dataclasses.replace(new, metadata={**new.metadata, "verified_by": case_facts.PERSON})
    if new == file.cases[index]:
        return case_edits.change_cases(file, {})
    return case_edits.change_cases(file, {index: new})


def _edited_in_editor(terminal: Terminal, file: EditableFile, index: int) -> EditedFile | None:
    """Return the file as a person edited one row; None if they changed nothing, or gave up."""
    old = file.cases[index]
    text = start = case_yaml(old)
    while True:
        written = click.edit(text, extension=".yaml")
        if written is None or written == start:
            terminal.note("it was not changed")
            return None
        text = written
        try:
            new = dataclasses.replace(_case_of(file, text), line=old.line)
            return _changed(file, index, new, verified=new.expected != old.expected)
        except ConfigError as error:
            terminal.problems(error.problems)
        except EdisonError as error:
            terminal.note(StyledText("error:", BAD), f" {error.message}")
            if error.hint:
                terminal.note(f"  hint: {error.hint}")
        if not click.confirm("Edit it again?", default=True, err=True):
            terminal.note("nothing is written")
            return None


def _case_of(file: EditableFile, text: str) -> Case:
    try:
        document = yaml_text.read_yaml(text, "the row")
        if document.problems:
            raise ConfigError(document.problems)
        if not isinstance(document.value, dict) or not isinstance(
            document.value.get("input"), dict
        ):
            raise UsageError("the row has no input", hint="write input: with a name and a value")
        return config_cases.case_of(document.value, file.entry.kind, file.types)
    except marks.Fault as fault:
        line = f"line {fault.at[0] + 1}: " if fault.at != (0, 0) else ""
        raise UsageError(f"{line}{fault.message}", hint=fault.hint) from None


@click.command(cls=EdisonCommand)
@click.argument("case_ids", nargs=-1, required=True, metavar="CASE...")
@_EXPERIMENT
@_YES
@click.pass_obj
def remove(state: CliState, case_ids: tuple[str, ...], experiment: str | None, yes: bool) -> None:
    """Remove cases from their dataset.

    Shows the rows first, and asks. Stored results of the cases stay. Without a terminal, --yes is
    needed.

    Examples:
      edison dataset remove return-how
      edison dataset remove return-how refund-1 --yes --json
    """
    terminal, project = Terminal(state), lookup.open_project(state, experiment)
    run_sessions.require_editor(project, "remove case")
    homes = _homes(project, experiment)
    if not yes and (terminal.json or not is_terminal()):
        raise UsageError("removing cases needs a confirmation", hint="add --yes")
    files: dict[str, EditableFile] = {}
    gone: dict[str, list[int]] = {}
    for case_id in dict.fromkeys(case_ids):
        file = case_edits.case_file(project, homes, case_id)
        file = files.setdefault(file.entry.path, file)
        index = file.find(case_id)
        assert index is not None
        gone.setdefault(file.entry.path, []).append(index)
    edited = [case_edits.remove_cases(files[path], indexes) for path, indexes in gone.items()]
    change = CaseChange(terminal, project, "remove case", "removed", yes=yes, default=False)
    change.settle(edited, [*dict.fromkeys(case_ids)])
