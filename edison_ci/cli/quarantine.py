"""edison quarantine: flaky cases that are excluded from gates, and suggestions for more."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import site as sites
from edison_ci.api.file_edits import DAYS, quarantine_case, release_case
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup, optional_first
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.documents.record_json import as_document, fields_of
from edison_ci.numeric import counted, fixed
from edison_ci.plan import selection
from edison_ci.results import case_history

if TYPE_CHECKING:
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.results.case_history import Flakiness, Flaky

_LISTED = 20
_MANY = 0.2
"""Share of flaky questions above which the prompt or the grading is the likely cause."""


@click.group(cls=EdisonGroup)
def quarantine() -> None:
    """Exclude flaky cases from the gates until a date.

    The entries are in quarantine.yaml. A case in quarantine runs and is shown, but never decides a
    gate. An expired entry makes the file invalid, so that it is not forgotten.

    Examples:
      edison quarantine suggest
      edison quarantine add refund-1 --reason "judges disagree"
      edison quarantine list
      edison quarantine remove refund-1
      edison quarantine remove support-reply refund-1
    """


@quarantine.command("list", cls=EdisonCommand)
@click.pass_obj
def list_cases(state: CliState) -> None:
    """List the cases in quarantine.

    Works even if other files are invalid or an entry has expired.

    Examples:
      edison quarantine list
      edison quarantine list --json
    """
    terminal = Terminal(state)
    site = lookup.open_site(state)
    cases, today = site.quarantine(), _today()
    if terminal.json:
        terminal.document({"cases": [_entry(entry, today) for entry in cases]})
        return
    if not cases:
        terminal.note("no case is in quarantine")
        return
    rows = [("experiment", "case", "since", "until", "left", "owner", "reason")]
    rows += [
        (e.experiment, e.case, e.since, e.until, _days_left(e, today), e.owner, e.reason)
        for e in cases
    ]
    terminal.table(rows)
    over = sum(_days(entry, today) < 0 for entry in cases)
    if over:
        entries = f"{over:,} {'entry' if over == 1 else 'entries'} expired"
        terminal.note(
            StyledText(entries, BAD),
            ": fix the case and remove the entry, or remove and add it again",
        )


@quarantine.command(cls=EdisonCommand)
@optional_first("EXPERIMENT", "CASE")
@click.option("--reason", required=True, metavar="TEXT", help="Reason for the quarantine.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help=f"Last day, YYYY-MM-DD; default: {DAYS} days from now.",
)
@click.pass_obj
def add(
    state: CliState, names: tuple[str | None, str], reason: str, until: dt.datetime | None
) -> None:
    """Put a case in quarantine.

    The entry is added at the end of quarantine.yaml; comments and the rest of the file stay as they
    are. Its owner is the current user. EXPERIMENT may be left out if there is one.

    Examples:
      edison quarantine add refund-1 --reason "judges disagree"
      edison quarantine add support-reply refund-1 --reason new --until 2027-01-31
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    name, case = names
    chosen = lookup.find_experiment(project, name)
    experiment = chosen.id
    selection.find_case(project, chosen, case)
    last = None if until is None else until.date()
    entry = quarantine_case(
        sites.open_site(project.root), experiment, case, reason=reason, until=last
    )
    if terminal.json:
        terminal.document({"added": _entry(entry, _today())})
        return
    terminal.result(f"{case} of {experiment} is in quarantine until {entry.until}")
    terminal.note("it still runs and is shown; gates exclude it from the next run on")


@quarantine.command(cls=EdisonCommand)
@optional_first("EXPERIMENT", "CASE")
@click.pass_obj
def remove(state: CliState, names: tuple[str | None, str]) -> None:
    """Remove a case from quarantine.

    EXPERIMENT may be left out if one experiment has the case in quarantine. Works even if other
    files are invalid or the entry has expired.

    Examples:
      edison quarantine remove refund-1
      edison quarantine remove support-reply refund-1
    """
    terminal = Terminal(state)
    site = lookup.open_site(state)
    entry = release_case(site, *names)
    if terminal.json:
        terminal.document({"removed": _entry(entry, _today())})
        return
    terminal.result(f"{entry.case} of {entry.experiment} is no longer in quarantine")


@quarantine.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def suggest(state: CliState, experiment: str | None) -> None:
    """Find flaky cases.

    Examines all stored answers to the requests of the newest complete run: repeats of a case and
    answers that were requested again, for the same prompt version and model, with the same grading.
    A case is flaky if it has at least 3 such answers and at least 20% of them have another result
    than the rest, or two are 50 or more points apart. Nothing is changed.

    Examples:
      edison quarantine suggest
      edison quarantine suggest support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    names = [project.experiment(experiment).id] if experiment else list(project.experiments)
    aside = {(entry.experiment, entry.case) for entry in project.quarantine}
    with lookup.results_of(project) as connection:
        by_name = {name: case_history.flakiness_of(connection, name) for name in names}
    if terminal.json:
        documents = [_flakiness(name, of_name, aside) for name, of_name in by_name.items()]
        rule = {
            "fewest_answers": case_history.FEWEST,
            "share": case_history.SHARE,
            "text": case_history.RULE,
        }
        terminal.document({"rule": rule, "experiments": documents})
        return
    for index, (name, of_name) in enumerate(by_name.items()):
        if index:
            terminal.result("")
        _show_suggestions(terminal, name, of_name, aside)
    terminal.note(f"The rule: {case_history.RULE}.")


def show_flaky(terminal: Terminal, flaky_cases: Flakiness) -> None:
    """Print the number of flaky cases, and the first of them."""
    if not flaky_cases.questions:
        return
    cases, asked = flaky_cases.cases, counted(flaky_cases.questions, "question")
    sentence = f"{counted(len(cases), 'flaky case')}: answers to the same question disagree"
    terminal.result(
        "  ",
        StyledText(sentence, ODD if cases else GOOD),
        f" ({asked} with {case_history.FEWEST}+ answers)",
    )
    if cases:
        terminal.result(f"    {', '.join(cases[:10])}{' and more' if len(cases) > 10 else ''}")


def _show_suggestions(
    terminal: Terminal, name: str, of_experiment: Flakiness, aside: set[tuple[str, str]]
) -> None:
    mark = simulated_label(of_experiment.simulated)
    terminal.result(StyledText(name, bold=True), *mark)
    if not of_experiment.runs:
        terminal.note("no complete run yet: edison run")
        return
    asked = (
        f"{counted(of_experiment.questions, 'question')} with {case_history.FEWEST} or more answers"
    )
    terminal.result(f"  {counted(len(of_experiment.cases), 'flaky case')} by {asked}")
    if of_experiment.too_few:
        terminal.note(
            f"{counted(of_experiment.too_few, 'question')} with fewer: try edison run --repeats 5"
        )
    for flaky in of_experiment.found[:_LISTED]:
        terminal.result(f"    {_flaky_text(flaky)}{_aside(name, flaky, aside)}")
    if len(of_experiment.found) > _LISTED:
        terminal.result(f"    and {len(of_experiment.found) - _LISTED:,} more: see --json")
    if of_experiment.found and len(of_experiment.found) >= _MANY * of_experiment.questions:
        terminal.note(
            "So many flaky cases point to the prompt or the grading: a quarantine would hide the "
            "cause."
        )
    new = [case for case in of_experiment.cases if (name, case) not in aside]
    if new:
        first = next(flaky for flaky in of_experiment.found if flaky.case == new[0])
        words = ("edison", "quarantine", "add", name, new[0], "--reason", _reason(first))
        terminal.note("Put one in quarantine with:")
        terminal.note(f"  {shlex.join(words)}")


def _aside(name: str, flaky: Flaky, aside: set[tuple[str, str]]) -> str:
    return "  (in quarantine)" if (name, flaky.case) in aside else ""


def _flaky_text(flaky: Flaky) -> str:
    low, high = (0.0 if x is None else 100 * x for x in (flaky.low, flaky.high))
    judges = f", {flaky.regraded:,} graded both ways" if flaky.regraded else ""
    return (
        f"{flaky.case}  with {flaky.model}: {flaky.passed:,} of {flaky.answers:,} pass, "
        f"scores {fixed(low)} to {fixed(high)}{judges}"
    )


def _reason(flaky: Flaky) -> str:
    return f"flaky: {flaky.passed} of {flaky.answers} answers pass"


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _days(entry: QuarantinedCase, today: dt.date) -> int:
    return (dt.date.fromisoformat(entry.until) - today).days


def _days_left(entry: QuarantinedCase, today: dt.date) -> str:
    days = _days(entry, today)
    return counted(days, "day") if days >= 0 else "expired"


def _entry(entry: QuarantinedCase, today: dt.date) -> dict[str, Any]:
    days = _days(entry, today)
    return {**entry.model_dump(mode="json"), "days_left": days, "expired": days < 0}


def _flakiness(name: str, flakiness: Flakiness, aside: set[tuple[str, str]]) -> dict[str, Any]:
    return {
        "experiment": name,
        **fields_of(flakiness, "runs", "simulated", "questions", too_few_answers="too_few"),
        "flaky": [
            {
                **as_document(flaky),
                "version": flaky.version[:8],
                "disagreeing": flaky.disagreeing,
                "quarantined": (name, flaky.case) in aside,
            }
            for flaky in flakiness.found
        ],
    }
