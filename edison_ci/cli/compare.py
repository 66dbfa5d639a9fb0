"""edison compare: decisions from stored results, without calling a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import decisions as library
from edison_ci.cli import hunks, lookup, sessions, summary
from edison_ci.cli.options import CliState, EdisonCommand, NameType
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, fixed
from edison_ci.records import RunStatus, Verdict
from edison_ci.results import comparison, comparison_sample
from edison_ci.store import runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.results.comparison import MovedCase
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import Run

_OPERAND = NameType(("runs", "prompts"))
_LISTED = 10
_COLORS = {"a_better": BAD, "b_better": GOOD, "same": GOOD, "unclear": ODD}


@click.command(cls=EdisonCommand)
@click.argument("a", required=False, metavar="[A]", type=_OPERAND)
@click.argument("b", required=False, metavar="[B]", type=_OPERAND)
@click.option("--prompts", is_flag=True, help="A and B are prompts of one run: compare the two.")
@click.option("--gates", is_flag=True, help="Re-evaluate the stored run A with the current gates.")
@click.option(
    "--by-hunk",
    is_flag=True,
    help="Ask again which change of the prompt fixed or broke the cases of run A.",
)
@sessions.budget
@click.option("--experiment", metavar="NAME", help="Experiment, if a commit has runs of several.")
@click.option(
    "--run",
    "wanted",
    metavar="RUN",
    help="With --prompts: the run that has both; default: the newest.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="With --prompts: compare only this model; repeatable.",
)
@click.option(
    "--against", metavar="REF", help="With --gates: stored run, ref or PROMPT@HASH to use as base."
)
@click.pass_obj
def compare(state: CliState, /, a: str | None, b: str | None, **given: Any) -> None:
    """Compare two runs, refs or prompt versions.

    Compares A and B on the same cases; B is `latest` by default. Each is a run (an id, `latest` or
    the name of an experiment), a prompt version as PROMPT@HASH, `production`, or a Git ref, which
    stands for the newest complete run of that commit. No model is called. Runs that were graded
    with other checks, rubrics or judges cannot be compared; the error lists what differs.

    --prompts compares two prompts that one experiment lists under `prompts`, on the same cases of
    one run. They are ids or paths. The result is A, B, no practical difference, or inconclusive
    with the number of cases needed.

    --gates says what the current gates decide about a stored run; A is `latest` by default. Nothing
    is written, and the stored verdict stays. Without --against the base is the one that the run was
    compared with, or else a stored run of the merge base. Interim analyses of the run are repeated.
    The exit code is that of `edison run`.

    --by-hunk takes a run with a base, `latest` by default, whose prompt has not changed since. Each
    changed place of the prompt is taken back alone, and the cases that began to pass or to fail are
    asked again with it, which calls models, within --budget. Stored answers are reused.

    Examples:
      edison compare main
      edison compare production latest --json
      edison compare support-reply@1f0c2b7a support-reply@9e41d0aa
      edison compare --prompts support-reply support-reply-short --model small
      edison compare --gates support-reply --against main
      edison compare --by-hunk latest --budget 0.50
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    _refuse_mixed(a, b, given)
    if given["by_hunk"]:
        hunks.blame_hunks(state, terminal, a or "latest", given["budget"])
    elif given["gates"]:
        _re_evaluate(terminal, project, a or "latest", given["against"])
    elif given["prompts"]:
        _show_comparison(terminal, _compare_prompts(project, str(a), str(b), given))
    else:
        found = library.compare(project, str(a), b or "latest", experiment=given["experiment"])
        _show_comparison(terminal, found)


def _refuse_mixed(a: str | None, b: str | None, given: Mapping[str, Any]) -> None:
    """Raise UsageError if options or arguments of different forms are mixed, or one is missing."""
    for option, value, form in (
        ("--run", given["wanted"], "prompts"),
        ("--model", given["models"], "prompts"),
        ("--against", given["against"], "gates"),
        ("--budget", given["budget"] is not None, "by_hunk"),
    ):
        if value and not given[form]:
            raise UsageError(
                f"{option} needs --{form.replace('_', '-')}", hint="see: edison compare --help"
            )
    if given["gates"] and (b or given["prompts"] or given["experiment"]):
        raise UsageError("--gates takes one RUN and --against", hint="see: edison compare --help")
    if given["by_hunk"] and (b or given["prompts"] or given["gates"] or given["experiment"]):
        raise UsageError("--by-hunk takes one RUN", hint="see: edison compare --help")
    if given["prompts"] and not b:
        hint = "edison compare --prompts PROMPT_A PROMPT_B"
        raise UsageError("--prompts needs two prompts", hint=hint)
    if not a and not given["gates"] and not given["by_hunk"]:
        hint = "such as: edison compare main; or re-check a run: edison compare --gates"
        raise UsageError("name what to compare the newest run with", hint=hint)


def _compare_prompts(
    project: Project, a: str, b: str, given: Mapping[str, Any]
) -> comparison.ComparisonEstimate:
    """Compare two prompts of one run."""
    names = [Path(name).name.removesuffix(".md") for name in (a, b)]
    if names[0] == names[1]:
        hint = f"for two versions of it: edison compare {names[0]}@HASH {names[0]}@HASH"
        raise UsageError("both arguments are the same prompt", hint=hint)
    with lookup.results_of(project) as reader:
        wanted = given["wanted"]
        operands = comparison_sample.Operands(reader, project, given["experiment"])
        run = runs.find_run(reader, wanted) if wanted else operands.run_with(*names)
        first, second = (
            comparison_sample.CellChoice(n, run, prompt=n, models=given["models"]) for n in names
        )
        return comparison.compare_choices(
            reader, first, second, comparison.comparison_settings(project, reader, run)
        )


def _re_evaluate(terminal: Terminal, project: Project, wanted: str, against: str | None) -> None:
    """Print what the current gates decide about a stored run, and exit with its code."""
    found = library.gate(project, wanted, against=against)
    run, base, decided = found.run, found.base, found.decision
    verdict, code = str(decided.verdict), int(decided.exit_code)
    if run.status == RunStatus.FAILED:
        verdict, code = "error", int(ExitCode.NOT_MEASURED)
    if terminal.json:
        terminal.document(
            {
                "verdict": verdict,
                "exit_code": code,
                "run_id": run.id,
                "experiment": run.experiment,
                "simulated": run.simulated or (base is not None and base.run.simulated),
                "against": base.as_json() if base else None,
                "decided": run.verdict,
                "gates": [row.as_json() for row in decided.rows],
            }
        )
    else:
        _show_gates(terminal, run, verdict, decided.rows)
    if code:
        raise click.exceptions.Exit(code)


def _show_gates(terminal: Terminal, run: Run, verdict: str, rows: Sequence[GateRow]) -> None:
    before = f"; stored verdict: {run.verdict}" if run.verdict is not None else ""
    color = {"pass": GOOD, "fail": BAD, "error": BAD}.get(verdict, ODD)
    mark = simulated_label(run.simulation)
    terminal.result(
        f"{run.experiment}  ", StyledText(verdict.upper(), color), f"  run {run.id}{before}", *mark
    )
    if verdict == Verdict.ERROR:
        terminal.result("  too few answers could be measured to evaluate the gates")
    for row in rows:
        color = {"pass": GOOD, "fail": BAD}.get(row.verdict, ODD)
        about = row.metric + (f" of {row.prompt} with {row.model}" if row.model else "")
        terminal.result("  ", StyledText(row.word, color), f"  {about}: {row.sentence}")
    if not rows:
        terminal.note("the experiment has no gates")


def _show_comparison(terminal: Terminal, found: comparison.ComparisonEstimate) -> None:
    if terminal.json:
        terminal.document(found.as_json())
        return
    mark = simulated_label(runs.common_simulation((found.a.run, found.b.run)))
    rows = [
        (name, choice.words, "-" if score is None else fixed(100 * score, 1))
        for name, choice, score in zip("AB", (found.a, found.b), found.scores, strict=True)
    ]
    terminal.table(rows, right=(2,))
    terminal.result(StyledText(found.sentence, _COLORS[found.verdict]), *mark)
    if found.head_to_head is not None:
        summary.show_preference(terminal, found.head_to_head, "B", "A")
    if found.flips is not None:
        terminal.result(f"{found.flips.words} of {counted(found.flips.n, 'case')}")
    for move, cases in found.moved.items():
        if cases:
            more = ", ..." if len(cases) > _LISTED else ""
            listed = ", ".join(map(_moved, cases[:_LISTED]))
            terminal.result(f"{len(cases):,} {move.words}: {listed}{more}")
    for note in found.notes:
        terminal.note(note)


def _moved(moved: MovedCase) -> str:
    """Return a case with its scores."""
    return f"{moved.case} {fixed(100 * moved.a)} to {fixed(100 * moved.b)}"
