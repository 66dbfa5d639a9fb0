"""edison dataset import: rows of any table as cases of a dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import case_edits
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import cases as cli_cases
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal
from edison_ci.documents import files as document_files
from edison_ci.documents import marks
from edison_ci.errors import UsageError
from edison_ci.features.importing import tables
from edison_ci.features.importing.exports import FORMATS
from edison_ci.features.importing.outputs import file_to_import
from edison_ci.features.importing.tables import (
    DELIMITERS,
    SUFFIXES,
    TABLE,
    CaseShape,
    ImportRules,
    check_name,
    guessed_names,
    imported_cases,
    missing_inputs,
    read_table,
)
from edison_ci.numeric import counted
from edison_ci.records import CaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.api.case_edits import EditableFile, EditedFile
    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.tables import Duplicate, ImportedCases, Table

_ACTION = "import cases"
_SHOWN = 10
_WIDE = 40
_ENDINGS = (".jsonl", ".csv", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class CasesRequest:
    """The file, how its rows become cases, and where they go."""

    file: Path
    experiment: str | None
    path: str | None
    """The dataset file; the first of the experiment if None."""
    columns: tuple[str, ...]
    """COLUMN=NAME for columns with another name than that of their input."""
    tags: tuple[str, ...]
    prefix: str
    delimiter: str | None
    form: str | None
    """The format; recognised if None."""
    kind: str | None
    skip_duplicates: bool
    yes: bool


@click.command("import", cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--experiment", metavar="NAME", help="Experiment that gets the cases.")
@click.option(
    "--dataset", "path", metavar="PATH", help="Dataset file, or a new one; default: the first."
)
@click.option(
    "--map",
    "columns",
    multiple=True,
    metavar="COLUMN=NAME",
    help="What a column is: an input, id, expected, tags, difficulty, cluster or "
    "metadata.NAME; empty leaves it out. Repeatable.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag all cases; repeatable.")
@click.option("--prefix", default="", metavar="TEXT", help="Number the ids: TEXT1, TEXT2, ...")
@click.option(
    "--delimiter", type=click.Choice(list(DELIMITERS)), help="Separator of a CSV file, if unclear."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([TABLE, *FORMATS]),
    help="Tool that wrote the file, or table; recognised by default.",
)
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in CaseKind]),
    help="Kind of the cases of a new dataset file.",
)
@click.option("--skip-duplicates", is_flag=True, help="Leave out cases that are there already.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
@takes(CasesRequest)
def import_cases(state: CliState, request: CasesRequest) -> None:
    """Import rows of a CSV, JSON, JSONL or YAML file as cases.

    Also results of promptfoo, goldens of DeepEval, logs of Inspect, specifications of Vally, and
    exports of Langfuse and LangSmith.

    A column is the input of the same name; on a terminal you are asked for inputs that no column
    has, and --map says it elsewhere. Ids come from a column `id`, from --prefix, or from a hash of
    the content. The first 10 cases are shown before anything is written, and a file is written
    whole or not at all. With --dataset NEW a file is made, and added to the experiment.

    Examples:
      edison dataset import cases.csv
      edison dataset import faq.json --map question=message --map answer=expected
      edison dataset import old.tsv --dataset datasets/old.jsonl --tag old --yes
      edison dataset import results.json --format promptfoo
    """
    terminal, project = Terminal(state), lookup.open_project(state, request.experiment)
    experiment = lookup.find_experiment(project, request.experiment)
    run_sessions.require_editor(project, _ACTION)
    path, is_new = _target(project, experiment, request.path, request.file)
    if request.kind and not is_new:
        raise UsageError(
            f"--kind is for a new file; {path} has a kind already",
            hint="give a new file with --dataset, or leave out --kind",
        )
    paths = dict.fromkeys(entry.path for entry in experiment.file.data)
    files = [case_edits.open_file(project, experiment, dataset) for dataset in paths]
    shape = _shape(experiment, files)
    tree, source = file_to_import(state, request.file, SUFFIXES)
    table = read_table(tree, source, request.delimiter, request.form)
    names = guessed_names(table, shape, dict(map(_pair, request.columns)))
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (terminal.json or request.yes)
    names = _asked(terminal, names, table, shape) if asks else names
    if missing := missing_inputs(names, shape):
        raise UsageError(
            f"no column is the input {missing[0]!r}",
            hint=f"--map COLUMN={missing[0]}; columns: {', '.join(table.columns[:20])}",
        )
    rules = ImportRules(names, request.tags, request.prefix)
    imported = imported_cases(table, rules, shape, (case for file in files for case in file.cases))
    _refuse_duplicates(imported, skip=request.skip_duplicates)
    kind = request.kind or "golden"
    edited = _edited(project, experiment, files, path, imported, kind) if imported.rows else []
    preview = _Import(terminal, request.file, path, table, rules, imported)
    preview.settle(project, edited, asks=asks, yes=request.yes)


def _pair(text: str) -> tuple[str, str]:
    column, equals, name = text.rpartition("=")
    if not equals or not column:
        raise UsageError(f"--map {text!r} is not COLUMN=NAME", hint="write --map question=message")
    return column, name


def _target(
    project: Project, experiment: Experiment, chosen: str | None, file: Path
) -> tuple[str, bool]:
    """Return the dataset that gets the cases, and whether it is new."""
    paths = [entry.path for entry in experiment.file.data]
    if chosen is None and paths:
        return paths[0], False
    try:
        path = document_files.inside(chosen or f"{project.file.paths.datasets}/{file.stem}.jsonl")
    except marks.Fault as fault:
        raise UsageError(fault.message, hint=fault.hint) from None
    if path in paths:
        return path, False
    if not path.endswith(_ENDINGS):
        raise UsageError(f"{path!r} is not a dataset", hint="name a .jsonl, .csv or .yaml file")
    if project.tree.exists(path):
        raise UsageError(
            f"{path} is there, and {experiment.id} does not use it",
            hint=f"name a new file, or one of: {', '.join(paths) or 'none'}",
        )
    return path, True


def _shape(experiment: Experiment, files: Sequence[EditableFile]) -> CaseShape:
    declared = experiment.types()
    inputs = {name: declared.get(name, "") for prompt in experiment.prompts
              for name in prompt.inputs}  # fmt: skip
    for file in files:
        for case in file.cases:
            for name in case.inputs:
                inputs.setdefault(name, "")
    prompts = experiment.prompts
    needed = [name for p in prompts for name, input in p.inputs.items() if not input.has_default]
    return CaseShape(inputs, tuple(dict.fromkeys(needed)))


def _asked(
    terminal: Terminal, names: dict[str, str], table: Table, shape: CaseShape
) -> dict[str, str]:
    """Ask which columns are the inputs, and the expected answer, that no column is named after."""
    chosen = dict(names)
    missing = missing_inputs(names, shape)
    if missing and "expected" not in names.values():
        missing.append("expected")
    for name in missing:
        free = [column for column in table.columns if not chosen[column]]
        if not free:
            break
        for number, column in enumerate(free, 1):
            sample = next((row.fields[column] for row in table.rows if row.fields.get(column)), "")
            terminal.result(
                f"  {number}  {column}  ",
                StyledText(cli_cases.cut(case_edits.as_entered(sample), _WIDE), ODD),
            )
        answer = _number(name, len(free), optional=name not in shape.needed)
        if answer:
            check_name(name, shape)
            chosen[free[answer - 1]] = name
    return chosen


def _number(name: str, most: int, *, optional: bool) -> int:
    none = ", Enter for none" if optional else ""
    while True:
        reply = click.prompt(
            f"Which column is {name}? 1 to {most}{none}",
            default="" if optional else None,
            show_default=False,
            err=True,
        ).strip()
        if reply.isdecimal() and 1 <= int(reply) <= most:
            return int(reply)
        if optional and not reply:
            return 0
        click.echo(f"{reply!r} is none of these", err=True)


def _refuse_duplicates(imported: ImportedCases, *, skip: bool) -> None:
    if imported.duplicates and not skip:
        raise UsageError(
            f"{counted(len(imported.duplicates), 'row')} "
            f"{'is' if len(imported.duplicates) == 1 else 'are'} there already: "
            f"{_listed(imported.duplicates)}",
            hint="leave them out with --skip-duplicates",
        )


def _listed(duplicates: Sequence[Duplicate]) -> str:
    more = len(duplicates) - _SHOWN
    return "; ".join(map(str, duplicates[:_SHOWN])) + (f"; and {more:,} more" if more > 0 else "")


def _edited(  # noqa: PLR0913 - the file, or the two files that a new one needs
    project: Project,
    experiment: Experiment,
    files: Sequence[EditableFile],
    path: str,
    imported: ImportedCases,
    kind: str,
) -> list[EditedFile]:
    for file in files:
        if file.entry.path == path:
            return [case_edits.add_rows(file, imported.rows)]
    return [*case_edits.new_file(project, experiment, path, imported.rows, kind)]


@dataclass(frozen=True, slots=True)
class _Import:
    """Shows what is imported, asks on a terminal, and writes it."""

    terminal: Terminal
    file: Path
    path: str
    table: Table
    rules: ImportRules
    imported: ImportedCases

    def settle(
        self, project: Project, edited: Sequence[EditedFile], *, asks: bool, yes: bool
    ) -> None:
        """Write the files, if that is wanted."""
        terminal, number = self.terminal, counted(len(self.imported.rows), "case")
        if not edited:
            yes = asks = False
        if not terminal.json:
            self._preview(edited)
        if asks:
            yes = click.confirm(f"Add {number} to {self.path}?", default=True, err=True)
        if yes:
            after: dict[str, Json] = {"cases": len(self.imported.rows), "file": self.file.name}
            for file in edited:
                case_edits.write_edited(project, file, _ACTION, after)
        if terminal.json:
            terminal.document(self._document(edited, written=yes))
        elif yes:
            terminal.result("  ", StyledText("added", GOOD), f" {number} to {self.path}")
        elif not edited:
            terminal.note("every row is there already; nothing is written")
        else:
            terminal.note("nothing is written" + ("" if asks else "; write it with --yes"))

    def _preview(self, edited: Sequence[EditedFile]) -> None:
        terminal, rows = self.terminal, self.imported.rows
        table = self.table
        about = f", separated by a {table.delimiter}" if table.delimiter else ""
        if table.format != TABLE:
            about = f", in the format of {FORMATS[table.format].title}"
        terminal.result(
            StyledText(str(self.file), bold=True), f"  {counted(len(table.rows), 'row')}{about}"
        )
        for note in table.notes:
            terminal.note(note)
        terminal.table(
            [(column, name or "left out") for column, name in self.rules.names.items()], indent=2
        )
        if "id" not in self.rules.names.values():
            rule = f"{self.rules.prefix}1, ..." if self.rules.prefix else "hash of the content"
            terminal.result(f"  ids: {rule}")
        if rows:
            self._cases(rows)
        if self.imported.duplicates:
            number = counted(len(self.imported.duplicates), "row")
            terminal.note(f"left out: {number}, {_listed(self.imported.duplicates)}")
        for line in (line for file in edited[1:] for line in file.diff.splitlines()):
            if line[:1] in "+-" and line[:3] not in ("+++", "---"):
                terminal.result(StyledText(line, GOOD if line[0] == "+" else ODD))

    def _cases(self, rows: Sequence[Mapping[str, Json]]) -> None:
        terminal = self.terminal
        inputs = [*dict.fromkeys(name for row in rows[:_SHOWN] for name in _inputs(row))]
        titles = ("case", *inputs, "expected", "tags")
        terminal.table([titles, *(self._row(row, inputs) for row in rows[:_SHOWN])])
        if len(rows) > _SHOWN:
            terminal.note(f"and {counted(len(rows) - _SHOWN, 'further case')}")

    @staticmethod
    def _row(row: Mapping[str, Json], inputs: Sequence[str]) -> tuple[str, ...]:
        values = _inputs(row)
        tags = row.get("tags")
        return (
            cli_cases.cut(str(row["id"]), _WIDE),
            *(cli_cases.cut(case_edits.as_entered(values.get(name)), _WIDE) for name in inputs),
            cli_cases.cut(case_edits.as_entered(row.get("expected")), _WIDE) or "-",
            ", ".join(map(str, tags)) if isinstance(tags, list) else "-",
        )

    def _document(self, edited: Sequence[EditedFile], *, written: bool) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "dataset": self.path,
            "paths": [file.path for file in edited],
            "format": self.table.format,
            "rows": len(self.table.rows),
            "notes": self.table.notes,
            "cases": len(self.imported.rows),
            "map": dict(self.rules.names),
            "preview": self.imported.rows[:_SHOWN],
            "duplicates": [
                {"row": duplicate.row, "line": duplicate.where.line, "case": duplicate.case,
                 "same_id": duplicate.same_id}
                for duplicate in self.imported.duplicates
            ],
            "written": written,
        }  # fmt: skip


def _inputs(row: Mapping[str, Json]) -> dict[str, Json]:
    inputs = row["input"]
    assert isinstance(inputs, dict)
    return inputs


def cases_of_file(
    state: CliState, path: Path, inputs: Sequence[str], choose: Callable[[str, list[str]], str]
) -> list[dict[str, Json]]:
    """Return the rows of a file as cases with these inputs.

    `choose` names the column of an input that no column is named after. Raises ConfigError or
    UsageError.
    """
    tree, source = file_to_import(state, path, tables.SUFFIXES)
    table = tables.read_table(tree, source)
    shape = tables.CaseShape(dict.fromkeys(inputs, ""), tuple(inputs))
    names = tables.guessed_names(table, shape, {})
    columns = dict(names)
    for name in tables.missing_inputs(names, shape):
        free = [column for column in table.columns if not columns[column]]
        if not free:
            raise UsageError(
                f"no column is the input {name!r}", hint=f"columns: {', '.join(table.columns)}"
            )
        columns[choose(name, free)] = name
    return tables.imported_cases(table, tables.ImportRules(columns), shape, ()).rows
