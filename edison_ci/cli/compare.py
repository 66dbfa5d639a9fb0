"""edison compare: decisions from stored results, and the hunks of a prompt that flip cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import causes
from edison_ci.api import decisions as library
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli.options import CliState, EdisonCommand, NameType, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.documents import secrets
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.records import Verdict
from edison_ci.stats.sentences import two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.execute.hunks import DiffBlame, Flip
    from edison_ci.results.comparison import ComparisonEstimate, MovedCase

_OPERAND = NameType(("runs", "prompts"))
_LISTED = 10
_COLORS = {"a_better": BAD, "b_better": GOOD, "same": GOOD, "unclear": ODD}


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What to compare, and in which of the four forms."""

    a: str | None
    b: str | None
    prompts: bool
    gates: bool
    by_hunk: bool
    budget: float | None
    experiment: str | None
    run: str | None
    models: tuple[str, ...]
    against: str | None

    def refuse_mixed(self) -> None:
        """Raise UsageError if options of different forms are mixed, or an argument is missing."""
        see = "see: edison compare --help"
        for option, value, form, chosen in (
            ("--run", self.run, "--prompts", self.prompts),
            ("--model", self.models, "--prompts", self.prompts),
            ("--against", self.against, "--gates", self.gates),
            ("--budget", self.budget is not None, "--by-hunk", self.by_hunk),
        ):
            if value and not chosen:
                raise UsageError(f"{option} needs {form}", hint=see)
        if self.gates and (self.b or self.prompts or self.experiment):
            raise UsageError("--gates takes one RUN and --against", hint=see)
        if self.by_hunk and (self.b or self.prompts or self.gates or self.experiment):
            raise UsageError("--by-hunk takes one RUN", hint=see)
        if self.prompts and not self.b:
            hint = "edison compare --prompts PROMPT_A PROMPT_B"
            raise UsageError("--prompts needs two prompts", hint=hint)
        if not self.a and not self.gates and not self.by_hunk:
            hint = "such as: edison compare main; or re-check a run: edison compare --gates"
            raise UsageError("name what to compare the newest run with", hint=hint)


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
@takes(CompareRequest)
def compare(state: CliState, request: CompareRequest) -> None:
    """Compare two runs, refs or prompt versions.

    Compares A and B on the same cases; B is `latest` by default. Each is a run (an id, `latest` or
    the name of an experiment), a prompt version as PROMPT@HASH, `production`, or a Git ref, which
    means the newest complete run of that commit. No model is called. Runs that were graded
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
    request.refuse_mixed()
    a, b = request.a or "latest", request.b or "latest"
    if request.by_hunk:
        _blame_hunks(state, terminal, project, request)
    elif request.gates:
        _re_evaluate(terminal, project, a, request.against)
    elif request.prompts:
        compared = library.compare_prompts(
            project, (a, b), run=request.run, models=request.models, experiment=request.experiment
        )
        _show_comparison(terminal, compared)
    else:
        _show_comparison(terminal, library.compare(project, a, b, experiment=request.experiment))


def _re_evaluate(terminal: Terminal, project: Project, name: str, against: str | None) -> None:
    """Print what the current gates decide about a stored run, and exit with its code."""
    result = library.gate(project, name, against=against)
    if terminal.json:
        terminal.document(result.as_json())
    else:
        _show_gates(terminal, result)
    if result.exit_code:
        raise click.exceptions.Exit(result.exit_code)


def _show_gates(terminal: Terminal, result: library.GateResult) -> None:
    run, rows = result.run, result.decision.rows
    before = f"; stored verdict: {run.verdict}" if run.verdict is not None else ""
    color = {"pass": GOOD, "fail": BAD, "error": BAD}.get(result.verdict, ODD)
    word = StyledText(result.verdict.upper(), color)
    mark = simulated_label(run.simulation)
    terminal.result(f"{run.experiment}  ", word, f"  run {run.id}{before}", *mark)
    if result.verdict == Verdict.ERROR:
        terminal.result("  too few answers could be measured to evaluate the gates")
    for row in rows:
        color = {"pass": GOOD, "fail": BAD}.get(row.verdict, ODD)
        about = row.metric + (f" of {row.prompt} with {row.model}" if row.model else "")
        terminal.result("  ", StyledText(row.word, color), f"  {about}: {row.sentence}")
    if not rows:
        terminal.note("the experiment has no gates")


def _show_comparison(terminal: Terminal, compared: ComparisonEstimate) -> None:
    if terminal.json:
        terminal.document(compared.as_json())
        return
    mark = simulated_label(compared.simulation)
    rows = [
        (name, choice.words, "-" if score is None else fixed(100 * score, 1))
        for name, choice, score in zip("AB", (compared.a, compared.b), compared.scores, strict=True)
    ]
    terminal.table(rows, right=(2,))
    terminal.result(StyledText(compared.sentence, _COLORS[compared.verdict]), *mark)
    if compared.head_to_head is not None:
        summary.show_preference(terminal, compared.head_to_head, "B", "A")
    if compared.p is not None:
        terminal.result(two_sided(compared.p).capitalize())
    if compared.flips is not None:
        terminal.result(f"{compared.flips.counts} of {counted(compared.flips.n, 'case')}")
    for move, cases in compared.moved.items():
        if cases:
            more = ", ..." if len(cases) > _LISTED else ""
            listed = ", ".join(map(_moved, cases[:_LISTED]))
            terminal.result(f"{len(cases):,} {move.words}: {listed}{more}")
    for note in compared.notes:
        terminal.note(note)


def _moved(moved: MovedCase) -> str:
    """Return a case with its scores."""
    return f"{moved.case} {fixed(100 * moved.a)} to {fixed(100 * moved.b)}"


def _blame_hunks(
    state: CliState, terminal: Terminal, project: Project, request: CompareRequest
) -> None:
    """Print which hunk of the changed prompt is the reason for which flips of a run."""

    def announce(question: causes.HunkQuestion) -> None:
        flips, hunks = question.flips, question.hunks
        limit = "" if request.budget is None else f", within ${request.budget:g}"
        terminal.note(
            f"{question.prompt}: {counted(flips, 'flip')} asked again with one of "
            f"{counted(hunks, 'hunk')} taken out at a time: "
            f"at most {counted(hunks * flips, 'answer')}{limit}"
        )

    blamed = causes.blame_hunks(
        project,
        request.a or "latest",
        budget=request.budget,
        offline=state.offline,
        on_prompt=announce,
    )
    if terminal.json:
        terminal.document(blamed.as_json())
    elif not blamed.prompts:
        terminal.result(f"No case of run {blamed.run.id} began to pass or to fail.")
    else:
        for blame in blamed.prompts.values():
            _show_blame(terminal, blame)
    if any(blame.problem for blame in blamed.prompts.values()):
        raise click.exceptions.Exit(int(ExitCode.BUDGET))


def _show_blame(terminal: Terminal, blame: DiffBlame) -> None:
    for number, blamed in enumerate(blame.hunks, start=1):
        of = f"hunk {number} of {len(blame.hunks)}, {blamed.hunk.title}"
        terminal.result(StyledText(of, bold=True))
        for sign, lines, color in (("-", blamed.hunk.removed, BAD), ("+", blamed.hunk.added, GOOD)):
            for line in lines:
                terminal.result(StyledText(f"  {sign}{secrets.redacted(line)}", color))
        if blamed.problem:
            terminal.result("  ", StyledText(f"cannot be taken out alone: {blamed.problem}", ODD))
        elif not blamed.flips:
            terminal.result("  no case flips because of it alone")
        _show_flips(terminal, blamed.flips)
    if blame.together:
        terminal.result(StyledText("no single hunk", bold=True))
        terminal.result("  several have to come together, or it was chance:")
        _show_flips(terminal, blame.together)
    if blame.unknown:
        terminal.result(StyledText("not known", bold=True))
        terminal.result(f"  {secrets.redacted(blame.problem) or 'an answer could not be graded'}:")
        _show_flips(terminal, blame.unknown)
    calls = counted(blame.calls, "call")
    terminal.note(f"{calls} made, {dollars(blame.cost_microusd)} for answers, one answer a case")


def _show_flips(terminal: Terminal, flips: Sequence[Flip]) -> None:
    for move, word, color in zip(causes.FLIPS, ("breaks", "fixes"), (BAD, GOOD), strict=True):
        names = [f"{flip.case}@{flip.model}" for flip in flips if flip.move is move]
        if names:
            terminal.result("  ", StyledText(f"{word} {len(names):,}: ", color), ", ".join(names))
