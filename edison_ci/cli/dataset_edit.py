"""edison dataset add: a case in a dataset, from values or from an answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.lookup import find_experiment, open_project, results_of
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import GOOD, StyledText, Terminal
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import replace_file
from edison_ci.errors import UsageError
from edison_ci.operate.site import Role, Site
from edison_ci.refine.patch import diff_of
from edison_ci.review.counterexamples import (
    TAG,
    CaseEntry,
    as_entered,
    extended,
    file_of,
    origin_of,
)
from edison_ci.store.audit import write_audit
from edison_ci.store.cells import find_cell
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.review.counterexamples import ExtendedFile, Origin


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
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def add(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Add a case to a dataset, from values or from an answer.

    With --from, the case is like that of an answer, with the inputs and the expected answer that
    are given, and the tag `counterexample`. The row is written in the format of its file, and only
    if the file can be read with it.

    Examples:
      edison dataset add --set message="Where is it?" --expected "2 days"
      edison dataset add --from return-how@small --expected "30 days"
    """
    terminal, project = Terminal(state), open_project(state)
    inputs = dict(map(_pair, given["values"]))
    if given["cell"] is None:
        origin = file_of(project, find_experiment(project, experiment), given["path"])
        tags, expected = given["tags"], given["expected"] or ""
    else:
        origin = _origin(project, given["run_id"], given["cell"])
        assert origin.case is not None
        tags, expected = (TAG, *given["tags"]), given["expected"]
        if expected is None:
            expected = as_entered(origin.case.expected)
    entry = CaseEntry(inputs, expected, tags=tags, name=given["name"])
    changed = extended(origin, entry)
    path = origin.entry.path
    diff = diff_of(path, decode(changed.before), decode(changed.after))
    if not terminal.json:
        for line in diff.splitlines()[2:]:  # after the names
            if line.startswith("+"):
                terminal.result(StyledText(line, GOOD))
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (terminal.json or given["yes"])
    if asks and not click.confirm(f"Change {path}?", default=True, err=True):
        return
    write_case(project, path, changed)
    if terminal.json:
        terminal.document({"path": path, "case": changed.case, "diff": diff})
    else:
        terminal.result("  ", StyledText("added", GOOD), f" {changed.case} to {path}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not a value", hint="write --set NAME=VALUE")
    return name, value


def _origin(project: Project, run_id: str, cell: str) -> Origin:
    with results_of(project) as reader:
        run = find_run(reader, run_id)
        row = find_cell(reader, run.id, cell)
    return origin_of(project, project.experiment(run.experiment), row.case_id)


def write_case(project: Project, path: str, changed: ExtendedFile) -> None:
    """Write a dataset with one more case, with an audit entry."""
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, "add case", path)
    entry = site.entry(actor, "add case", path, after={"case": changed.case})
    site.results.parent.mkdir(parents=True, exist_ok=True)
    replace_file(
        site.root / path, changed.after, just_before=lambda: write_audit(site.results, entry)
    )
