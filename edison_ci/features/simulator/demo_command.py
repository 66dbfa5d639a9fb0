"""edison demo: the whole workflow in a temporary project, offline, or a real model in it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from edison_ci._dataclass import dataclass
from edison_ci.cli import plan as cli_plan
from edison_ci.cli import run as cli_run
from edison_ci.cli import suggestion
from edison_ci.cli import try_one as cli_try_one
from edison_ci.cli import validate as cli_validate
from edison_ci.cli.init import TEMPLATES, init, write_project
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import GOOD, StyledText, Terminal
from edison_ci.config import load
from edison_ci.documents import files
from edison_ci.errors import ExitCode, UsageError
from edison_ci.extras import faults_of, install_command
from edison_ci.feature import commands
from edison_ci.feature import load as load_place
from edison_ci.git import command as git_command
from edison_ci.proposals import context
from edison_ci.records import SuggestionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.store.suggestions import Suggestion

_BRANCH = "main"
_LINES = 40
_REAL = "one-word-answers"
"""The example with a model in this process."""
_PROMPT = "one-word"
_BETTER = "Answer with one word."
_WORSE = "Explain it in detail."


@click.command(cls=EdisonCommand)
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="customer-support",
    show_default=True,
    help="Template of the project.",
)
@click.option("--real", is_flag=True, help="Use a real model on this machine (extra local).")
@click.option("--keep", is_flag=True, help="Keep the repository.")
@click.pass_context
def demo(ctx: click.Context, template: str, real: bool, keep: bool) -> None:
    """Show the whole workflow in a temporary project, offline.

    Creates a repository from a template, validates, plans and runs it, refines the prompt, and ends
    with a branch that holds the better prompt and its gain on held-out cases. The folder is removed
    afterwards, unless --keep is set. The models are simulated: their answers depend on the
    instructions in the prompt, and nothing is sent anywhere.

    With --real a small model answers 40 questions on this machine, in two or three minutes: with a
    first prompt, with a better one, which is compared with the first, and with a worse one, which
    fails its gate. It needs no key, and nothing is sent anywhere either.

    Examples:
      edison demo
      edison demo --real
      edison demo --template data-extraction
      edison demo --keep
    """
    state = ctx.ensure_object(CliState)
    if state.json:
        hint = "run its steps one by one: edison init, validate, plan, run, refine, propose"
        raise UsageError("edison demo does not support --json", hint=hint)
    if real and ctx.get_parameter_source("template") is not ParameterSource.DEFAULT:
        hint = "leave out --template, or --real"
        raise UsageError("edison demo --real makes its own project", hint=hint)
    if real and (faults := faults_of("local")):
        raise UsageError(
            f"edison demo --real needs a model on this machine: {', '.join(faults)}",
            hint=f"install it: {install_command('local')}",
        )
    terminal, name = Terminal(state), _REAL if real else template
    with _folder(keep=keep) as home:
        state.directory = home
        tour = _Tour(ctx, state, terminal, home / name)
        tour.run_real() if real else tour.run_all(template)
        if keep:
            terminal.note(f"The repository is in {home / name}")
    if real:
        terminal.note("Every answer came from a model on this machine. Start your own project:")
    else:
        terminal.note("All models were simulated. Start your own project:")
    terminal.note(f"  edison init my-prompts --template {template}")


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="edison-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="edison-demo-") as name:
        yield Path(name)


@dataclass(frozen=True, slots=True)
class _Tour:
    """The steps of the demo, one after the other."""

    ctx: click.Context
    state: CliState
    terminal: Terminal
    folder: Path

    def run_all(self, template: str) -> None:
        """Run all steps, from an empty folder to a better prompt on a branch."""
        ctx, folder = self.ctx, self.folder
        self._step(
            f"edison init {template} --template {template}",
            lambda: ctx.invoke(init, folder=folder, template=template),
        )
        self.state.directory = folder
        self._step("git init && git add --all && git commit", self._commit)
        (experiment,) = load.load_project(folder).experiments.values()
        prompt = experiment.prompts[0].id
        self._step("edison validate", lambda: ctx.invoke(cli_validate.validate))
        self._step("edison plan", lambda: ctx.invoke(cli_plan.plan))
        self._step(f"edison try {prompt}", lambda: ctx.invoke(cli_try_one.try_one, prompt=prompt))
        self._step("edison run", lambda: ctx.invoke(cli_run.run))
        self._step("edison run  # again: everything is stored", lambda: ctx.invoke(cli_run.run))
        added = commands()  # of features, which may be switched off
        if "refine" not in added or "propose" not in added:
            return
        refine, propose = (load_place(added[name].place) for name in ("refine", "propose"))
        self._step(
            f"edison refine {experiment.id}",
            lambda: ctx.invoke(refine, experiment=experiment.id),
        )
        if self._best() is None:
            self.terminal.note("No change showed evidence that it helps, so nothing is proposed.")
            return
        self._step("edison propose", lambda: ctx.invoke(propose))
        best = self._best()
        if best is not None and best.branch is not None:
            self._step(f"git diff {_BRANCH} {best.branch}", lambda: self._diff(best))
            self.terminal.result(
                StyledText("On the branch: ", bold=True), StyledText(best.branch, GOOD)
            )
            gain = best.evidence["holdout"]["sentence"]
            self.terminal.result(
                StyledText("Its gain: ", bold=True), StyledText(gain, GOOD), "  simulated"
            )
            self.terminal.note("")

    def run_real(self) -> None:
        """Ask a model on this machine with three versions of a prompt, and compare them."""
        ctx, note = self.ctx, self.terminal.note
        note(f"40 questions with one word as an answer, in the project {_REAL}.")
        write_project(_REAL, self.folder)
        self.state.directory = self.folder
        self._step("git init && git add --all && git commit", self._commit)
        self._step("edison validate", lambda: ctx.invoke(cli_validate.validate))
        line = f"edison try {_PROMPT} --case japan  # one answer"
        self._step(line, lambda: ctx.invoke(cli_try_one.try_one, prompt=_PROMPT, case_id="japan"))
        self._step("edison run  # 40 answers", self._run)
        note("The prompt does not say that one word is enough. It does now:")
        self._edit("", _BETTER)
        against = f"edison run --against {_BRANCH}"
        self._step(against, lambda: self._run(against=_BRANCH))
        self._git("commit", "--quiet", "--all", "--message", "Ask for one word")
        note("A change that does harm, to see the gate that a pull request would meet:")
        self._edit(_BETTER, _WORSE)
        self._step(against, lambda: self._run(against=_BRANCH))

    def _run(self, **options: str) -> None:
        """Run the experiment; the demo continues if a gate fails."""
        try:
            self.ctx.invoke(cli_run.run, **options)
        except click.exceptions.Exit as ended:
            if ended.exit_code != ExitCode.GATE_FAILED:
                raise
            self.terminal.note(StyledText(f"exit code {ended.exit_code}", bold=True))

    def _edit(self, before: str, after: str) -> None:
        """Change the end of the question in the prompt, and show it."""
        path = self.folder / "prompts" / f"{_PROMPT}.md"
        asked = "{{ question }}"
        text = path.read_text(encoding="utf-8")
        changed = text.replace(f"{asked} {before}".strip(), f"{asked} {after}")
        files.replace_file(self.folder, str(path.relative_to(self.folder)), changed.encode())
        self._step(
            "git diff", lambda: suggestion.show_diff(self.terminal, self._git("diff"), most=_LINES)
        )

    def _step(self, line: str, command: Callable[[], object]) -> None:
        self.terminal.note(StyledText(f"$ {line}", bold=True))
        command()
        self.terminal.note("")

    def _commit(self) -> None:
        self._git("init", "--quiet", f"--initial-branch={_BRANCH}")
        # Git may have no user name configured.
        self._git("config", "user.name", "Demo")
        self._git("config", "user.email", "demo@example.com")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "Start with a template")

    def _git(self, *args: str) -> str:
        answer = git_command.run_git(*args, cwd=self.folder)
        if answer.code:
            raise UsageError(f"git {args[0]} failed: {answer.reason}", hint="see: edison doctor")
        return answer.line

    def _best(self) -> Suggestion | None:
        review = context.ReviewContext.of(load.load_project(self.folder), offline=True)
        proposed = review.suggestions(statuses=(SuggestionStatus.PROPOSED,))
        on_branches = (suggestion for suggestion in proposed if suggestion.branch is not None)
        return next(on_branches, proposed[0] if proposed else None)

    def _diff(self, best: Suggestion) -> None:
        suggestion.show_diff(
            self.terminal, self._git("diff", _BRANCH, str(best.branch)), most=_LINES
        )
