"""edison compare --by-hunk: which change of a prompt fixed or broke which cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText
from edison_ci.config import requirements
from edison_ci.documents import secrets
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute import hunks as execute_hunks
from edison_ci.git import repository as git
from edison_ci.numeric import counted, dollars
from edison_ci.results import run_result
from edison_ci.store import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.options import CliState
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.hunks import DiffBlame, Flip, Hunk
    from edison_ci.store.runs import Run


def blame_hunks(state: CliState, terminal: Terminal, wanted: str, budget: float | None) -> None:
    """Say which hunk of the changed prompt is the reason for which flips of a run."""
    project = lookup.open_project(state)
    with lookup.results_of(project) as reader:
        result = run_result.RunResult(reader, runs.find_run(reader, wanted))
        run, flips = result.run, execute_hunks.flips_of(result)
        versions = dict(result.prompts)
    experiment = project.experiments.get(run.experiment)
    if run.base_commit is None or experiment is None:
        raise UsageError(
            f"run {run.id} has no base to compare with",
            hint=f"edison run {run.experiment} --against REF",
        )
    run_sessions.require_editor(project, "compare --by-hunk")
    requirements.refuse(requirements.missing(project, experiment, calls=requirements.RUN))
    found: dict[str, DiffBlame] = {}
    for prompt in experiment.prompts:
        mine = flips.get(prompt.id, [])
        if not mine:
            continue
        if prompt.version != versions.get(prompt.id):
            raise UsageError(
                f"{prompt.path} has changed since run {run.id}",
                hint=f"edison run {run.experiment} --against {run.base_ref}",
            )
        search = execute_hunks.HunkSearch(
            project,
            experiment,
            prompt,
            run_sessions.run_context(project, offline=state.offline),
            sessions.microusd(budget),
        )
        before, after = _texts(project, run, prompt)
        hunks = len(execute_hunks.hunks_of(before, after))
        limit = "" if budget is None else f", within ${budget:g}"
        terminal.note(
            f"{prompt.id}: {counted(len(mine), 'flip')} asked again without each of "
            f"{counted(hunks, 'hunk')}: at most {counted(hunks * len(mine), 'answer')}{limit}"
        )
        found[prompt.id] = search.blame(before, after, mine)
    if terminal.json:
        documents = [_document(name, blame) for name, blame in found.items()]
        terminal.document({"run": run.id, "simulated": run.simulated, "prompts": documents})
    elif not found:
        terminal.result(f"No case of run {run.id} began to pass or to fail.")
    for blame in found.values():
        if not terminal.json:
            _show(terminal, blame)
    if any(blame.problem for blame in found.values()):
        raise click.exceptions.Exit(int(ExitCode.BUDGET))


def _texts(project: Project, run: Run, prompt: Prompt) -> tuple[str, str]:
    """Return the prompt as the base has it, and as it is now."""
    repository = git.Repository.find(project.root)
    data = None
    if repository is not None:
        folder = project.root.resolve().relative_to(repository.root).as_posix()
        place = prompt.path if folder == "." else f"{folder}/{prompt.path}"
        data = repository.read(str(run.base_commit), place)
    if data is None:
        raise UsageError(
            f"{prompt.path} is not in the base {run.base_ref}", hint="compare with another base"
        )
    now = (project.root / prompt.path).read_bytes()
    before, after = (text.decode().replace("\r\n", "\n") for text in (data, now))
    return before, after


# --- output ---------------------------------------------------------------------------------------


def _show(terminal: Terminal, found: DiffBlame) -> None:
    for number, one in enumerate(found.hunks, start=1):
        of = f"hunk {number} of {len(found.hunks)}, {one.hunk.title}"
        terminal.result(StyledText(of, bold=True))
        for sign, lines, color in (("-", one.hunk.removed, BAD), ("+", one.hunk.added, GOOD)):
            for line in lines:
                terminal.result(StyledText(f"  {sign}{secrets.redacted(line)}", color))
        if one.problem:
            terminal.result("  ", StyledText(f"cannot be taken out alone: {one.problem}", ODD))
        elif not one.flips:
            terminal.result("  no case flips because of it alone")
        _list(terminal, one.flips)
    if found.together:
        terminal.result(StyledText("no single hunk", bold=True))
        terminal.result("  several have to come together, or it was chance:")
        _list(terminal, found.together)
    if found.unknown:
        terminal.result(StyledText("not known", bold=True))
        terminal.result(f"  {secrets.redacted(found.problem) or 'an answer could not be graded'}:")
        _list(terminal, found.unknown)
    calls = counted(found.calls, "call")
    terminal.note(f"{calls} made, {dollars(found.cost_microusd)} for answers, one answer a case")


def _list(terminal: Terminal, flips: Sequence[Flip]) -> None:
    for move, word, color in zip(
        execute_hunks.FLIPS, ("breaks", "fixes"), (BAD, GOOD), strict=True
    ):
        names = [f"{one.case}@{one.model}" for one in flips if one.move is move]
        if names:
            terminal.result("  ", StyledText(f"{word} {len(names):,}: ", color), ", ".join(names))


def _document(prompt: str, found: DiffBlame) -> dict[str, Any]:
    def cases(flips: Sequence[Flip]) -> dict[str, Any]:
        return {
            str(move): [{"case": f.case, "model": f.model} for f in flips if f.move is move]
            for move in execute_hunks.FLIPS
        }

    def hunk(one: Hunk) -> dict[str, Any]:
        removed, added = (
            [secrets.redacted(line) for line in lines] for lines in (one.removed, one.added)
        )
        return {"line": one.new[0] + 1, "removed": removed, "added": added}

    return {
        "prompt": prompt,
        "hunks": [
            {**hunk(one.hunk), **cases(one.flips), "problem": one.problem or None}
            for one in found.hunks
        ],
        "together": cases(found.together),
        "unknown": cases(found.unknown),
        "calls": found.calls,
        "cost_microusd": found.cost_microusd,
        "problem": secrets.redacted(found.problem) or None,
    }
