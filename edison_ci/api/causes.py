"""Causes of regressions: the commit that broke a case, and the changed lines that flipped cases."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.config import cases, requirements
from edison_ci.documents import secrets
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.errors import UsageError
from edison_ci.execute import bisect as execute_bisect
from edison_ci.execute import hunks as execute_hunks
from edison_ci.git import repository as git
from edison_ci.plan import plan as planning
from edison_ci.plan import selection as plan_selection
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.bisect import BisectResult, CommitResult
    from edison_ci.execute.hunks import DiffBlame, Flip, HunkBlame
    from edison_ci.records import Move
    from edison_ci.store.runs import Run

FLIPS = execute_hunks.FLIPS
"""The moves that are explained: newly failing and fixed."""


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The case to look for, and the commits to look at."""

    experiment: str | None
    case_id: str
    good: str | None
    bad: str
    models: tuple[str, ...]
    budget: float | None
    """In dollars."""


class Bisected(NamedTuple):
    """What a bisection tested and, unless its budget was used up, found."""

    case: str
    simulated: bool
    tested: Sequence[CommitResult]
    result: BisectResult | None = None
    diffs: Mapping[str, str] = {}
    """What the commit that was found changed in the failing prompts, by path."""
    exhausted: str = ""
    """The budget that was used up; empty if none was."""

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        tested = [
            {"commit": at.commit.id, "outcome": at.outcome, "why": secrets.redacted(at.why)}
            for at in self.tested
        ]
        if self.result is None:
            return {"verdict": "unfinished", "simulated": self.simulated, "tried": tested}
        return {
            "verdict": self.result.kind,
            **fields_of(self, "simulated", "case"),
            **fields_of(self.result, "commits"),
            "failing": as_document(sorted(self.result.failing)),
            "diffs": self.diffs,
            "tried": tested,
        }


def bisect(
    project: Project,
    experiment: Experiment,
    request: BisectRequest,
    *,
    offline: bool,
    on_step: Callable[[CommitResult], None],
) -> Bisected:
    """Return the commit that broke a case of an experiment; raises UsageError."""
    case = cases.STATIC
    if experiment.file.data or request.case_id != cases.STATIC.id:
        case = plan_selection.find_case(project, experiment, request.case_id)
    repository = git.Repository.find(project.root)
    if repository is None:
        hint = "run git init, then commit"
        raise UsageError("this project is not in a Git repository", hint=hint)
    run_sessions.require_editor(project, "bisect")
    only = plan_selection.Selection(request.models, (case.id,))
    requirements.refuse(
        requirements.missing(project, only.narrow(experiment), calls=requirements.RUN)
    )
    simulated = planning.bare_plan(project, experiment, selection=only).simulated
    context = run_sessions.run_context(project, offline=offline)
    search = execute_bisect.Bisection(
        project, experiment, case, context, repository, request.models, on_step
    )
    reuse = dt.timedelta(days=project.file.settings.reuse_days)
    searching = search.run(
        request.good,
        request.bad,
        newer_than=utc.timestamp(utc.now() - reuse),
        budget_microusd=_microusd(request.budget),
    )
    try:
        result = asyncio.run(searching)
    except BudgetExhausted as exhausted:
        tested = [*search.results.values()]
        return Bisected(case.id, simulated, tested, exhausted=exhausted.refused.cap.name)
    diffs = dict(_diffs(project, repository, result)) if result.kind == "found" else {}
    return Bisected(case.id, simulated, result.results, result, diffs)


def _diffs(
    project: Project, repository: git.Repository, result: BisectResult
) -> Iterator[tuple[str, str]]:
    failing, commit = {cell.prompt for cell in result.failing}, result.commits[0].id
    for prompt in project.prompts.values():
        if prompt.id in failing and (
            diff := execute_bisect.prompt_diff(project, repository, commit, prompt.path)
        ):
            yield prompt.path, secrets.redacted(diff)


def _microusd(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1e6)


class HunkBlames(NamedTuple):
    """The hunks of the changed prompts of a run, and the flips of each."""

    run: Run
    prompts: Mapping[str, DiffBlame]

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        return {
            "run": self.run.id,
            "simulated": self.run.simulated,
            "prompts": [_blame_json(prompt, blame) for prompt, blame in self.prompts.items()],
        }


def _blame_json(prompt: str, blame: DiffBlame) -> Document:
    return {
        "prompt": prompt,
        "hunks": [_hunk_json(hunk) for hunk in blame.hunks],
        "together": _flips_json(blame.together),
        "unknown": _flips_json(blame.unknown),
        **fields_of(blame, "calls", "cost_microusd"),
        "problem": secrets.redacted(blame.problem) or None,
    }


def _hunk_json(blamed: HunkBlame) -> Document:
    hunk = blamed.hunk
    return {
        "line": hunk.new[0] + 1,
        "removed": [secrets.redacted(line) for line in hunk.removed],
        "added": [secrets.redacted(line) for line in hunk.added],
        **_flips_json(blamed.flips),
        "problem": blamed.problem or None,
    }


def _flips_json(flips: Sequence[Flip]) -> Document:
    def of_move(move: Move) -> list[Document]:
        return [fields_of(flip, "case", "model") for flip in flips if flip.move is move]

    return {str(move): of_move(move) for move in FLIPS}


class HunkQuestion(NamedTuple):
    """A prompt whose hunks are about to be taken back one by one."""

    prompt: str
    flips: int
    hunks: int


def blame_hunks(
    project: Project,
    name: str,
    *,
    budget: float | None,
    offline: bool,
    on_prompt: Callable[[HunkQuestion], None],
) -> HunkBlames:
    """Ask which hunk of the changed prompts of a run is the reason for which flips.

    Raises UsageError if the run has no base, or if a prompt has changed since.
    """
    with stored_runs.open_runs(project) as runs:
        result = runs.result(name)
        run, flips_by_prompt = result.run, execute_hunks.flips_of(result)
        versions = dict(result.prompts)
    experiment = project.experiments.get(run.experiment)
    if run.base_commit is None or experiment is None:
        raise UsageError(
            f"run {run.id} has no base to compare with",
            hint=f"edison run {run.experiment} --against REF",
        )
    run_sessions.require_editor(project, "compare --by-hunk")
    requirements.refuse(requirements.missing(project, experiment, calls=requirements.RUN))
    blames: dict[str, DiffBlame] = {}
    for prompt in experiment.prompts:
        flips = flips_by_prompt.get(prompt.id, [])
        if not flips:
            continue
        if prompt.version != versions.get(prompt.id):
            raise UsageError(
                f"{prompt.path} has changed since run {run.id}",
                hint=f"edison run {run.experiment} --against {run.base_ref}",
            )
        context = run_sessions.run_context(project, offline=offline)
        search = execute_hunks.HunkSearch(project, experiment, prompt, context, _microusd(budget))
        before, after = _texts(project, run, prompt)
        hunks = execute_hunks.hunks_of(before, after)
        on_prompt(HunkQuestion(prompt.id, len(flips), len(hunks)))
        blames[prompt.id] = search.blame(before, after, flips)
    return HunkBlames(run, blames)


def _texts(project: Project, run: Run, prompt: Prompt) -> tuple[str, str]:
    """Return the prompt as the base has it, and as it is now."""
    repository = git.Repository.find(project.root)
    data = None
    if repository is not None:
        place = repository.prefix_of(project.root) + prompt.path
        data = repository.read(str(run.base_commit), place)
    if data is None:
        raise UsageError(
            f"{prompt.path} is not in the base {run.base_ref}", hint="compare with another base"
        )
    now = (project.root / prompt.path).read_bytes()
    before, after = (text.decode().replace("\r\n", "\n") for text in (data, now))
    return before, after
