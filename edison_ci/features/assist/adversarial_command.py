"""edison dataset adversarial: cases that a prompt is likely to fail on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import StyledText
from edison_ci.errors import UsageError
from edison_ci.execute import runner, standalone
from edison_ci.features.assist import case_replies, generated_cases, generation
from edison_ci.features.assist.attacks import (
    ATTACKS,
    COUNTS,
    attack_slots,
    boundary_cases,
    spread_of,
    weakest,
)
from edison_ci.features.assist.generate_command import Given, writing_options
from edison_ci.numeric import counted, percent
from edison_ci.store import runs

if TYPE_CHECKING:
    from edison_ci.features.assist.attacks import Weak
    from edison_ci.features.assist.case_replies import CaseForm
    from edison_ci.features.assist.generation import Generated, GeneratedCase
    from edison_ci.results.case_likeness import KnownCases

_DIVERSITY = 6
_LISTED = 5


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--run", "run_id", metavar="RUN", help="Run whose weaknesses count; default: last.")
@click.option(
    "--count", type=click.IntRange(*COUNTS), default=20, show_default=True, metavar="N",
    help="Number of cases, 5 to 200.",
)  # fmt: skip
@click.option(
    "--attack", "attacks", multiple=True, type=click.Choice([*ATTACKS]), metavar="ATTACK",
    help="weakness, injection, jailbreak, leak, language or boundary.",
)  # fmt: skip
@click.option(
    "--keep", type=click.Choice(["all", "failing"]), default="all", show_default=True,
    help="Keep only cases on which the prompt fails now.",
)  # fmt: skip
@writing_options
@click.pass_obj
def adversarial(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Have models write cases that the prompt is likely to fail on.

    They aim at the weakest criteria, checks and slices of the last run, at injections, jailbreaks,
    leaks and languages; boundary values of each input need no model. With --keep failing each case
    is answered and graded, and kept only if the answer fails, with the reason. The cases go into a
    dataset of kind adversarial, each with what wrote it and why.

    Examples:
      edison dataset adversarial
      edison dataset adversarial --attack injection --attack leak --count 10
      edison dataset adversarial --keep failing --budget 1 --yes
    """
    begun = Given(state, experiment, "dataset adversarial", "adversarial", **given)
    chosen = [*dict.fromkeys(given["attacks"])] or [*ATTACKS]
    weak = _weakest(begun, given["run_id"], wanted="weakness" in given["attacks"])
    form = case_replies.form_of(begun.experiment, begun.cases, begun.fixed)
    known = begun.known(form.types, _DIVERSITY)
    share = given["count"] // len(chosen) or 1
    ready = _at_boundaries(begun, form, known, share) if "boundary" in chosen else []
    slots = attack_slots(given["count"] - len(ready), chosen, weak, begun.seed)
    if weak and any(slot.aim for slot in slots) and not begun.terminal.json:
        words = ", ".join(f"{each.words} ({percent(each.score)})" for each in weak)
        begun.terminal.note(f"weakest: {words}")
    writers = generation.Writers(
        begun.project,
        begun.experiment,
        form,
        begun.writers,
        "\n".join(f"weak: {each.words}, score {percent(each.score)}" for each in weak) or "attacks",
        _DIVERSITY,
        begun.seed,
        tuple(begun.cases),
        instructions="attacks",
        why=True,
        budget_microusd=begun.budget,
    )

    generated_cases.CaseOffer(
        begun.terminal,
        begun.file,
        writers,
        slots,
        known,
        begun.action,
        begun.verifier,
        tuple(ready),
        sift=partial(_keep_failing, begun, writers) if given["keep"] == "failing" else None,
    ).settle(yes=begun.yes)


def _at_boundaries(
    begun: Given, form: CaseForm, known: KnownCases, count: int
) -> list[GeneratedCase]:
    """Return cases with values at the limits of each input, which need no model."""
    if not begun.cases:
        return []
    at = utc.timestamp(begun.context.now())
    made = [
        case
        for case in boundary_cases(form, begun.cases[0], begun.seed, at)
        if not known.has(case.written.inputs)
    ]
    return spread_of(made, count, begun.seed)


def _weakest(begun: Given, run_id: str | None, *, wanted: bool) -> list[Weak]:
    """Return what the last run was weak in; nothing before the first run."""
    if not (begun.project.root / begun.project.file.results).exists():
        if wanted or run_id:
            raise UsageError("there is no run", hint="begin with: edison run")
        return []
    with lookup.results_of(begun.project) as reader:
        try:
            run = runs.find_run(reader, run_id or begun.experiment.id)
        except UsageError:
            if wanted or run_id:
                raise
            return []
        if run.experiment != begun.experiment.id:
            raise UsageError(f"{run.id} is a run of {run.experiment}", hint="name another: --run")
        return weakest(reader, run.id)


def _keep_failing(begun: Given, writers: generation.Writers, found: Generated) -> dict[str, Any]:
    """Answer and grade each case; leave out those that do not fail."""
    prompt = begun.experiment.prompts[0]
    configurations = begun.experiment.configurations(prompt)
    tasks = [
        runner.Task(prompt, configuration, case.case("adversarial"), 0)
        for case in found.cases
        for configuration in configurations
    ]
    reasons: dict[str, str] = {}
    unknown: set[str] = set()
    problems: list[str] = []

    def keep(number: int, result: standalone.TrialAnswer | Exception) -> None:
        task = tasks[number]
        name = str(task.case.id)
        if isinstance(result, Exception):
            unknown.add(name)
            problems.append(str(result))
        elif result.grade.passed is None:
            unknown.add(name)
        elif not result.grade.passed:
            reasons.setdefault(name, f"{task.configuration.name}: {_why(result)}")

    if not begun.terminal.json:
        begun.terminal.note(
            f"to see which of {counted(len(found.cases), 'case')} fail, without judges:"
        )
    calls = ((task.configuration.model, runner.request_for(task)) for task in tasks)
    sessions.confirm_calls(begun.terminal, begun.project, calls, yes=begun.yes)
    found.cost_microusd += standalone.try_all(
        begun.project, tasks, begun.experiment, begun.context,
        newer_than=utc.timestamp(begun.context.now()), on_result=keep,
        budget_microusd=writers.left(found),
    )  # fmt: skip
    before = len(found.cases)
    passing = [case for case in found.cases if case.id not in reasons]
    left_out = {
        "on which the prompt does not fail": sum(case.id not in unknown for case in passing),
        "without a grade": sum(case.id in unknown for case in passing),
    }
    found.refused.update({why: n for why, n in left_out.items() if n})
    found.cases = [
        case._replace(written=case.written._replace(why=reasons[case.id]))
        for case in found.cases
        if case.id in reasons
    ]
    found.sifted = before - len(found.cases)
    if not begun.terminal.json:
        for reason in problems[:_LISTED]:
            begun.terminal.note(StyledText("no answer: "), reason)
    return {"answered": before, "failing": len(found.cases), "no_answer": problems[:_LISTED]}


def _why(result: standalone.TrialAnswer) -> str:
    """Return the first reason why an answer fails."""
    failed = [each for each in result.grade.components if each.passed is False]
    if failed:
        return f"{failed[0].name}: {' '.join(failed[0].reason.split())[:200]}"
    return " ".join(result.grade.reason.split())[:200] or "the score is too low"
