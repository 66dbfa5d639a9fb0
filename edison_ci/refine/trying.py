"""Trials: a prompt and a change of it, measured.

As any run is: through the same calls, cache, budget and store, base and head paired by case and
draw. Such a run is a trial: it is stored and can be looked at, but what it measures is in no file.
What stops one is told to whoever asked; the same command goes on, since answers are kept.
"""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.errors import CallFailed, ExitCode, Interrupted, OutOfBudget
from edison_ci.execute.budgets import caps_of, run_limit
from edison_ci.execute.run_options import Against, RunOptions, allowing_code
from edison_ci.execute.session import Session
from edison_ci.git.repository import Repository
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.selection import Selection
from edison_ci.records import PromptId
from edison_ci.refine.weaknesses import part_of
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Cap, booked
from edison_ci.store.runs import TRIAL, done_trial, move_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from edison_ci.config.load import Experiment
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.run_options import Ended, Tools
    from edison_ci.refine.candidate import Change, Subject

AS_IT_IS = "the prompt as it is"
"""What a trial is compared with."""
GOES_ON = "the same command goes on: answers are kept"
Cases = Literal["train", "holdout", "all"]


@dataclass(slots=True)
class Wallet:
    """What may still be spent on refining."""

    limit_microusd: int | None
    spent_microusd: int = 0

    @property
    def left(self) -> int | None:
        """What is left; None without a limit."""
        if self.limit_microusd is None:
            return None
        return max(self.limit_microusd - self.spent_microusd, 0)

    @classmethod
    def of(cls, subject: Subject, budget_microusd: int | None) -> Wallet:
        """Return what the command line and the experiment allow together."""
        caps = caps_of(subject.project, subject.experiment, "", budget_microusd)
        return cls(run_limit(caps))


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that is done."""

    run_id: str
    cost_microusd: int


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures a prompt, and changes of it."""

    subject: Subject
    opened: Callable[[], AbstractContextManager[Tools]]
    """Gives what a session needs, for one session."""
    wallet: Wallet
    allow_code: bool = False
    draws: int | None = None
    """Answers to each case; as many as the experiment says by default."""

    def measure(self, cases: Cases = "train") -> Tried:
        """Measure the prompt as it is; models are not compared with each other."""
        experiment = self.subject.experiment
        judges = experiment.file.judges.model_copy(update={"pairwise": None})
        file = experiment.file.model_copy(update={"judges": judges})
        return self._run(replace(experiment, file=file), None, self._chosen(cases))

    def measure_versions(self, versions: Sequence[Prompt], cases: Collection[str] = ()) -> Tried:
        """Measure versions of the prompt side by side, on training cases: all, or some of them.

        In the run each goes by its own name. What was measured before is not measured again.
        """
        experiment = self.subject.experiment
        judges = experiment.file.judges.model_copy(update={"pairwise": None})
        named = tuple(
            replace(one, id=trial_name(one), path=f"{one.path}@{one.version}") for one in versions
        )
        update = {"judges": judges, "prompts": tuple(one.path for one in named)}
        file = experiment.file.model_copy(update=update)
        several = replace(experiment, file=file, prompts=named)
        selection = replace(self._chosen("train"), cases=tuple(sorted(cases)))
        known = self._done_before(several, selection)
        return self._run(several, None, selection) if known is None else Tried(known, 0)

    def try_out(self, change: Change, cases: Cases = "all") -> Tried:
        """Measure a change against the prompt as it is."""
        assert change.experiment is not None  # one that is not valid kept no guardrail
        repository = Repository.find(self.subject.project.root)
        commit = (repository.head() if repository is not None else None) or ""
        against = Against(AS_IT_IS, commit, self.subject.experiment, gates=())
        return self._run(change.experiment, against, self._chosen(cases))

    def _chosen(self, cases: Cases) -> Selection:
        part = None if cases == "all" else part_of(self.subject.experiment, cases)
        return Selection(draws=self.draws, part=part)

    def _done_before(self, experiment: Experiment, selection: Selection) -> str | None:
        """Return a trial of exactly this that is done, and no older than answers may be."""
        project = self.subject.project
        allowed = allowing_code(project) if self.allow_code else project
        wanted = bare_plan(allowed, experiment, selection=selection).hash
        if not self.results.exists():
            return None
        with self.opened() as tools, closing(open_reader(self.results)) as reader:
            reuse = dt.timedelta(days=project.file.settings.reuse_days)
            return done_trial(reader, experiment.id, wanted, formatting.stamp(tools.now() - reuse))

    def _run(self, experiment: Experiment, against: Against | None, selection: Selection) -> Tried:
        options = RunOptions(
            trigger=TRIAL,
            selection=selection,
            budget_microusd=self.wallet.left,
            allow_code=self.allow_code,
        )
        with self.opened() as tools:
            # No gate decides about a trial: its evidence does.
            ungated = replace(tools, gated=False)
            session = Session(self.subject.project, experiment, ungated, against=against)
            ended = session.run(options)
        cost = self._booked(ended.run_id)
        self.wallet.spent_microusd += cost
        if ended.status != "COMPLETED":
            self._stop(ended, tools)
        return Tried(ended.run_id, cost)

    def _booked(self, run_id: str) -> int:
        """Return what a trial cost, calls that may have been charged included."""
        reader = open_reader(self.results)
        try:
            return booked(reader, Cap(f"run:{run_id}", None), "")[0]
        finally:
            reader.close()

    @property
    def results(self) -> Path:
        """The results file."""
        return self.subject.project.root / self.subject.project.file.results

    def _stop(self, ended: Ended, tools: Tools) -> None:
        name = self.subject.experiment.id
        if ended.status == "FAILED":
            why = "; ".join(f"{who}: {reason}" for who, reason in ended.progress.closed.items())
            raise CallFailed(
                f"{name} could not be measured: {why or 'too many errors'}",
                hint="see: edison models test; then the same command again",
            )
        if ended.status == "PAUSED":
            # Nobody resumes a trial: refining anew finds its answers stored.
            with Writer(self.results) as writer:
                now = formatting.stamp(tools.now())
                writer.submit(move_run(ended.run_id, "CANCELLED", now)).result()
        if ended.exit_code is ExitCode.BUDGET:
            raise out_of_budget(str(ended.progress.stopped_by))
        raise Interrupted("stopped", hint=GOES_ON)


def trial_name(prompt: Prompt) -> PromptId:
    """Return what a version of a prompt is called in a run that measures several."""
    return PromptId(f"{prompt.id}.{prompt.version[:12]}")


def out_of_budget(which: str) -> OutOfBudget:
    """Return the error for a budget that has no more room."""
    said = f"{which.removeprefix('budget: ')} has no room for the next call"
    return OutOfBudget(said, hint="raise it, and the same command goes on: answers are kept")
