"""edison quarantine: cases that are set aside, and those that should be."""

from __future__ import annotations

import datetime as dt
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.choosing import case_named
from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.operate.quarantining import DAYS, set_aside, take_back
from edison_ci.operate.site import site_at
from edison_ci.results.dataset_health import FEWEST, RULE, SHARE, flakiness_of
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.results.dataset_health import Flakiness, Flaky

_LISTED = 20
_MANY = 0.2
"""Share of flaky questions from which on the cases are not to blame."""


@click.group(cls=EdisonGroup)
def quarantine() -> None:
    """Set flaky cases aside, with a reason and a last day.

    They are in quarantine.yaml. Such a case runs and is shown, and never decides a gate. After its
    last day the file is no longer valid, so that nobody forgets it.

    Examples:
      edison quarantine suggest
      edison quarantine add support-reply refund-1 --reason "judges disagree"
      edison quarantine list
      edison quarantine remove support-reply refund-1
    """


@quarantine.command("list", cls=EdisonCommand)
@click.pass_obj
def list_cases(state: State) -> None:
    """List the cases that are set aside.

    Works while other files are invalid, or an entry has run out.

    Examples:
      edison quarantine list
      edison quarantine list --json
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    cases, today = site.quarantine().cases, _today()
    if terminal.json:
        terminal.document({"cases": [_entry(entry, today) for entry in cases]})
        return
    if not cases:
        terminal.note("no case is in quarantine")
        return
    rows = [("experiment", "case", "since", "until", "left", "owner", "reason")]
    rows += [
        (e.experiment, e.case, e.since, e.until, _left(e, today), e.owner, e.reason) for e in cases
    ]
    terminal.table(rows)
    over = sum(_days(entry, today) < 0 for entry in cases)
    if over:
        entries = f"{over:,} {'entry' if over == 1 else 'entries'} ran out"
        terminal.note(
            Ink(entries, BAD), ": mend the case and remove the entry, or remove and add it again"
        )


@quarantine.command(cls=EdisonCommand)
@click.argument("experiment")
@click.argument("case")
@click.option("--reason", required=True, metavar="TEXT", help="Why it is set aside.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help=f"Last day, YYYY-MM-DD; {DAYS} days from now by default.",
)
@click.pass_obj
def add(state: State, experiment: str, case: str, reason: str, until: dt.datetime | None) -> None:
    """Set a case aside.

    The entry is added at the end of quarantine.yaml; comments and the rest of the file stay as they
    are. Its owner is whoever adds it.

    Examples:
      edison quarantine add support-reply refund-1 --reason "judges disagree"
      edison quarantine add support-reply refund-1 --reason new --until 2027-01-31
    """
    terminal, project = Terminal(state), project_at(state)
    case_named(project, project.experiment(experiment), case)
    last = None if until is None else until.date()
    entry = set_aside(site_at(project.root), experiment, case, reason=reason, until=last)
    if terminal.json:
        terminal.document({"added": _entry(entry, _today())})
        return
    terminal.result(f"{case} of {experiment} is set aside until {entry.until}")
    terminal.note("it still runs and is shown; gates leave it out from the next run on")


@quarantine.command(cls=EdisonCommand)
@click.argument("experiment")
@click.argument("case")
@click.pass_obj
def remove(state: State, experiment: str, case: str) -> None:
    """Let a case decide gates again.

    Works while other files are invalid, or the entry has run out.

    Examples:
      edison quarantine remove support-reply refund-1
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    entry = take_back(site, experiment, case)
    if terminal.json:
        terminal.document({"removed": _entry(entry, _today())})
        return
    terminal.result(f"{case} of {experiment} counts again")


@quarantine.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def suggest(state: State, experiment: str | None) -> None:
    """Find cases that come out one way and then the other.

    Looks at all stored answers to the questions of the newest complete run: the draws of a case and
    the answers that were bought again, for the same prompt version and model, graded alike. A case
    is flaky with at least 3 such answers of which at least 20% come out otherwise than the rest, or
    two of which are 50 or more points apart. Nothing is changed.

    Examples:
      edison quarantine suggest
      edison quarantine suggest support-reply --json
    """
    terminal, project = Terminal(state), project_at(state)
    wanted = [project.experiment(experiment).id] if experiment else list(project.experiments)
    aside = {(entry.experiment, entry.case) for entry in project.quarantine.cases}
    with results_of(project) as connection:
        found = [(name, flakiness_of(connection, name)) for name in wanted]
    if terminal.json:
        documents = [_flakiness(name, one, aside) for name, one in found]
        rule = {"fewest_answers": FEWEST, "share": SHARE, "text": RULE}
        terminal.document({"rule": rule, "experiments": documents})
        return
    for index, (name, one) in enumerate(found):
        if index:
            terminal.result("")
        _suggested(terminal, name, one, aside)
    terminal.note(f"The rule: {RULE}.")


def tell_flaky(terminal: Terminal, found: Flakiness) -> None:
    """Print how many cases are flaky, and where to see them."""
    if not found.questions:
        return
    cases, asked = found.cases, counted(found.questions, "question")
    said = f"{counted(len(cases), 'flaky case')}: answers to the same question disagree"
    terminal.result("  ", Ink(said, ODD if cases else GOOD), f" ({asked} asked {FEWEST}+ times)")
    if cases:
        terminal.result(f"    {', '.join(cases[:10])}{' and more' if len(cases) > 10 else ''}")


def _suggested(
    terminal: Terminal, name: str, found: Flakiness, aside: set[tuple[str, str]]
) -> None:
    mark = (Ink("  simulated", ODD),) if found.simulated else ()
    terminal.result(Ink(name, bold=True), *mark)
    if not found.runs:
        terminal.note("no complete run yet: edison run")
        return
    asked = f"{counted(found.questions, 'question')} with {FEWEST} or more answers"
    terminal.result(f"  {counted(len(found.cases), 'flaky case')} by {asked}")
    if found.too_few:
        terminal.note(f"{counted(found.too_few, 'question')} with fewer: try edison run --draws 5")
    for flaky in found.found[:_LISTED]:
        terminal.result(f"    {_said(flaky)}{_aside(name, flaky, aside)}")
    if len(found.found) > _LISTED:
        terminal.result(f"    and {len(found.found) - _LISTED:,} more: see --json")
    if found.found and len(found.found) >= _MANY * found.questions:
        terminal.note(
            "So many say that the prompt or the grading is unsteady: setting the cases aside would "
            "hide it."
        )
    new = [case for case in found.cases if (name, case) not in aside]
    if new:
        first = next(flaky for flaky in found.found if flaky.case == new[0])
        words = ("edison", "quarantine", "add", name, new[0], "--reason", _reason(first))
        terminal.note("Set one aside with:")
        terminal.note(f"  {shlex.join(words)}")


def _aside(name: str, flaky: Flaky, aside: set[tuple[str, str]]) -> str:
    return "  (in quarantine)" if (name, flaky.case) in aside else ""


def _said(flaky: Flaky) -> str:
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


def _left(entry: QuarantinedCase, today: dt.date) -> str:
    days = _days(entry, today)
    return counted(days, "day") if days >= 0 else "ran out"


def _entry(entry: QuarantinedCase, today: dt.date) -> dict[str, Any]:
    days = _days(entry, today)
    return {**entry.model_dump(mode="json"), "days_left": days, "expired": days < 0}


def _flakiness(name: str, found: Flakiness, aside: set[tuple[str, str]]) -> dict[str, Any]:
    return {
        "experiment": name,
        "runs": found.runs,
        "simulated": found.simulated,
        "questions": found.questions,
        "too_few_answers": found.too_few,
        "flaky": [
            {
                **asdict(flaky),
                "version": flaky.version[:8],
                "disagreeing": flaky.disagreeing,
                "quarantined": (name, flaky.case) in aside,
            }
            for flaky in found.found
        ],
    }
