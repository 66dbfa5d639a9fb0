"""edison report: what a run found, for people and for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.reporting import run_as_seen, sources_of
from edison_ci.cli.terminal import Terminal
from edison_ci.report.summary import report_of
from edison_ci.report.writing import FORMATS, refuse_unwritable, rendered, write_whole

if TYPE_CHECKING:
    from edison_ci.report.view import Report


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="md by default, or by the ending of --out.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file, whole or not at all.",
)
@click.pass_obj
def report(state: State, wanted: str, kind: str | None, out: Path | None) -> None:
    """Write what a run found as JUnit, SARIF, Markdown or JSON.

    Everything is told from what is stored, and nothing is asked of any model. There are ids and
    scores in it, and no answers; only JUnit has reasons, which may quote a few words. RUN is an id,
    `latest` or the name of an experiment; a comparison on changed material is told with both its
    runs. Without --out the report goes to stdout. The exit code says whether the report was
    written, not how the run ended.

    Examples:
      edison report
      edison report support-reply --format junit --out junit.xml
      edison report latest --out report.md
      edison report --format sarif > edison.sarif
    """
    terminal = Terminal(state)
    project = project_at(state)
    chosen = "json" if state.json and kind is None and out is None else kind or _kind_of(out)
    if out is not None:
        refuse_unwritable(out)
    with results_of(project) as connection:
        found = report_of(connection, [run_as_seen(connection, project, wanted)])
        text = rendered(found, chosen, sources_of(connection, project, found))
    if out is None:
        terminal.raw(text)
        return
    write_whole(out, text)
    _tell(terminal, found, chosen, out)


def _tell(terminal: Terminal, found: Report, kind: str, out: Path) -> None:
    if terminal.json:
        runs = [view.run.id for view in found.runs]
        told = {"format": kind, "file": str(out), "verdict": found.verdict, "runs": runs}
        terminal.document(told)
    terminal.note(f"wrote {out}")


def _kind_of(out: Path | None) -> str:
    endings = {".xml": "junit", ".sarif": "sarif", ".json": "json"}
    return endings.get(out.suffix, "md") if out is not None else "md"
