"""Refinement: from the weaknesses of a prompt to suggestions with evidence.

    measure ──► ask ──► guardrails ──► try ──► decide ──► store
    (training)  (a diff)  (or refuse)  (all cases)

The working tree is not changed. Calls and measurements are stored as they come; suggestions are
stored together at the end, so that a repeated command continues where it stopped, with the same
question and the stored answers.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.errors import CallFailed
from edison_ci.features.refine.evidence import evidence_of, split_cases
from edison_ci.features.refine.refiner import RefinePrompt, ask_refiner
from edison_ci.features.refine.sampling import first_part
from edison_ci.features.refine.suggestions import (
    SuggestionMaker,
    SuggestionRecord,
    Trial,
    history_of,
    simulation_of,
    store,
)
from edison_ci.features.refine.trials import open_clients, run_async, trial_name
from edison_ci.features.refine.weaknesses import quarantined_cases, weaknesses
from edison_ci.numeric import snap
from edison_ci.proposals.guardrails import GuardrailContext
from edison_ci.providers.resilience import ClientClosed
from edison_ci.results.weaknesses import rivals_in
from edison_ci.stats.convergence import ALPHA, FEWEST_SEARCH_CASES
from edison_ci.stats.sentences import points, two_sided
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.execute.clients import ClientPool
    from edison_ci.features.refine.refiner import RefinerReply
    from edison_ci.features.refine.trials import TrialRunner
    from edison_ci.features.refine.weaknesses import Weakness
    from edison_ci.judges.judge import Judge
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


@dataclass(frozen=True, slots=True)
class RefineOptions:
    """Options of a refinement."""

    candidates: int = 1
    force: bool = False
    """Whether to propose the best candidate even without evidence that it helps."""
    on_step: Callable[[str], None] = lambda _: None
    """Receives progress messages."""
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    """Makes the audit entry of the suggestions."""
    on_stored: Callable[[sqlite3.Connection, Sequence[Suggestion]], None] = lambda *_: None
    """Called in the transaction that stores the suggestions."""


@dataclass(frozen=True, slots=True)
class RefineResult:
    """Outcome of a refinement."""

    run_id: str
    """The run that measured the current prompt."""
    weakness: Weakness
    simulation: str
    cost_microusd: int
    suggestions: tuple[Suggestion, ...] = ()
    """Proposed suggestions first, then tried, then refused ones."""
    failures: tuple[str, ...] = ()
    """Errors of failed calls to the refiner."""


@dataclass(slots=True)
class _RefinerReplies:
    """Replies of a refiner, by candidate."""

    replies: list[tuple[RefinerReply, ...]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def refused(self) -> Iterator[RefinerReply]:
        """Yield every reply that broke a guardrail."""
        return (r for replies in self.replies for r in replies if not r.candidate.ok)


def refine(trials: TrialRunner, refiner: Judge, options: RefineOptions) -> RefineResult:
    """Ask for candidates, measure them, and store the suggestions."""
    target = trials.target
    options.on_step("measuring the current prompt on the training cases")
    base = trials.measure("train")
    with closing(open_reader(trials.results)) as reader:
        simulation = simulation_of(find_run(reader, base.run_id), refiner)
        weakness = weaknesses(reader, target, base.run_id)
        history = history_of(reader, target, force=options.force)
    stored: tuple[Suggestion, ...] = ()
    replies = _RefinerReplies()
    if weakness.targets:
        question = RefinePrompt(target, refiner, weakness, history.past)
        replies = run_async(_ask(trials, question, options, history.known))
        measured = _trials(trials, replies, options)
        now = utc.timestamp(utc.now())
        made = _suggestions(SuggestionMaker(question, simulation, now), replies, measured, options)
        record = SuggestionRecord(base.run_id, now, options.audit, options.on_stored)
        stored = store(trials.results, made, record)
    spent = trials.allowance.spent_microusd
    return RefineResult(base.run_id, weakness, simulation, spent, stored, tuple(replies.failures))


async def _ask(
    trials: TrialRunner, question: RefinePrompt, options: RefineOptions, excluded: Mapping[str, str]
) -> _RefinerReplies:
    """Ask for candidates one after the other, so that duplicates can be refused."""
    weak = " and ".join(weak_one.name for weak_one in question.weakness.targets)
    examples = len(question.weakness.examples)
    options.on_step(
        f"asking {question.refiner.name} about {weak}, with {examples} training examples"
    )
    collected = _RefinerReplies()
    async with open_clients(trials) as clients:
        await _ask_each(question, clients, options.candidates, excluded, collected)
    if not collected.replies and collected.failures:
        raise CallFailed(
            f"every call to {question.refiner.name} failed: {collected.failures[0]}",
            hint="check the model with edison models test, then repeat the command",
        )
    return collected


async def _ask_each(
    question: RefinePrompt,
    clients: ClientPool,
    candidates: int,
    excluded: Mapping[str, str],
    collected: _RefinerReplies,
) -> None:
    target, client = question.target, clients.of(question.refiner.model, "refine")
    answers = tuple(example.answer for example in question.weakness.examples)
    taken = dict(excluded)
    for repeat in range(candidates):
        background = GuardrailContext(
            lambda: target.project.cases(target.experiment), answers, taken
        )
        try:
            replies = await ask_refiner(question, repeat, client.answer, background)
        except (CallError, ClientClosed) as error:
            collected.failures.append(str(error) or type(error).__name__)
            return
        collected.replies.append(replies)
        version = replies[-1].candidate.version
        if version is not None:
            taken = {version: "it is the same as another candidate", **taken}


def _trials(trials: TrialRunner, collected: _RefinerReplies, options: RefineOptions) -> list[Trial]:
    """Measure every candidate that passed the guardrails; return the trials, best gain first."""
    chosen = [replies[-1] for replies in collected.replies if replies[-1].candidate.ok]
    sampled = trials.target.experiment.file.stop.adaptive_sampling
    contest = _contest(trials, chosen, options)
    measured = []
    for number, reply in enumerate(chosen, 1):
        change = reply.candidate.change
        assert change is not None  # a candidate that passes was applied
        dropped = contest.outdone.get(reply.candidate.version or "")
        which = f"candidate {number} of {len(chosen)}" if len(chosen) > 1 else "the candidate"
        if dropped is None:
            cases = "on as many cases as it takes" if sampled else "on all cases"
            options.on_step(f"measuring {which} against the current prompt, {cases}")
            result = trials.try_out(change, sampled=sampled)
        else:
            result = trials.compare_on(change, dropped.cases)
        with closing(open_reader(trials.results)) as reader:
            why = "" if dropped is None else dropped.reason
            evidence = evidence_of(reader, change, result.run_id, result.sampling, why)
        share = contest.cost_microusd // len(chosen)
        result = replace(result, cost_microusd=result.cost_microusd + share)
        measured.append(Trial(reply, result, evidence))
    return sorted(measured, key=lambda trial: (bool(trial.evidence.outdone), -snap(trial.gain)))


class _Outdone(NamedTuple):
    """A candidate that another one is shown to be better than."""

    reason: str
    cases: tuple[str, ...]
    """The training cases on which that was seen."""


@dataclass(slots=True)
class _Contest:
    """The result of measuring several candidates together."""

    outdone: dict[str, _Outdone] = field(default_factory=dict)
    """The weak ones by version."""
    cost_microusd: int = 0


def _contest(
    trials: TrialRunner, chosen: Sequence[RefinerReply], options: RefineOptions
) -> _Contest:
    """Measure several candidates on training cases, and find the weak ones.

    There are two looks, at half and at all of the training cases, each with half of the error. With
    sampling there is only the first: how many training cases are needed is then decided later.
    """
    target, stop = trials.target, trials.target.experiment.file.stop
    prompts = {
        reply.candidate.version: reply.candidate.change.prompt
        for reply in chosen
        if reply.candidate.change is not None and reply.candidate.change.prompt is not None
    }
    contest = _Contest()
    if len(prompts) < 2 or not stop.prune_weak_prompts:
        return contest
    training, half = split_cases(target)[0], first_part(target)
    looks = [half, tuple(sorted(training))] if len(half) >= FEWEST_SEARCH_CASES else []
    looks = looks[:1] if stop.adaptive_sampling else looks or [tuple(sorted(training))]
    for cases in looks:
        left = [prompt for version, prompt in prompts.items() if version not in contest.outdone]
        if len(left) < 2:
            break
        options.on_step(f"comparing {len(left)} candidates on {len(cases):,} training cases")
        measured = trials.measure_versions(left, cases)
        contest.cost_microusd += measured.cost_microusd
        versions = {str(trial_name(prompt)): prompt.version for prompt in left}
        with closing(open_reader(trials.results)) as reader:
            level = ALPHA / len(looks)
            rivals = rivals_in(reader, measured.run_id, quarantined_cases(target), level=level)
        for rival in rivals:
            if rival.weak:
                why = f"another candidate is better by {points(-rival.found.value)} points"
                reason = f"{why} on {len(cases):,} training cases ({two_sided(rival.found.p)})"
                contest.outdone[versions[rival.found.prompt]] = _Outdone(reason, cases)
    return contest


def _suggestions(
    maker: SuggestionMaker,
    replies: _RefinerReplies,
    trials: Sequence[Trial],
    options: RefineOptions,
) -> list[Suggestion]:
    """Return the suggestions to store: proven, then other measured, then refused candidates."""
    ranked = sorted(trials, key=lambda trial: not trial.evidence.proven)
    force = options.force and not any(trial.evidence.proven for trial in trials)
    measured = [
        maker.from_trial(trial, forced=force and place == 0) for place, trial in enumerate(ranked)
    ]
    return [*measured, *map(maker.from_refusal, replies.refused())]
