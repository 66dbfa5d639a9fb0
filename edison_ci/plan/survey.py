"""What do the cases of an experiment amount to: how many, how long, in which shard?"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from edison_ci.config.cases import is_holdout
from edison_ci.config.dataset_entry import Split
from edison_ci.plan.fingerprint import Fingerprint
from edison_ci.plan.shards import shard_of
from edison_ci.plan.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.templating import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case

COUNT_EVERY = 5_000
"""Up to so many cases every one is counted, beyond it one in a hundred."""


class Survey:
    """Looks at every case once: what it costs to send, and where it belongs."""

    def __init__(
        self, project: Project, experiment: Experiment, *, shards: int = 0, refines: bool = False
    ) -> None:
        self._experiment, self._shard_count = experiment, shards
        # Whoever refines holds cases out whether or not the experiment says so.
        self._split = experiment.file.split or (Split() if refines else None)
        self.fingerprint = Fingerprint(project, experiment)
        self.usable: Counter[str] = Counter()
        """Cases that each prompt can be rendered for."""
        self.seen = self.elsewhere = self.holdout = 0
        self._shards: Counter[int] = Counter()
        self._counted: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._counters = {counter_for(model) for _, model, _ in experiment.models} | {ESTIMATE}

    def see(self, case: Case, *, here: bool = True) -> None:
        """Take a case into account; one of another shard only for what all shards agree on."""
        self.fingerprint.feed(case)
        if not here:
            self.elsewhere += 1
            return
        self.seen += 1
        if self._split is not None and is_holdout(case, self._split):
            self.holdout += 1
        if self._shard_count:
            self._shards[shard_of(case.id, self._shard_count)] += 1
        counting = self.seen <= COUNT_EVERY or self.seen % 100 == 0
        for prompt in self._experiment.prompts:
            if not case.inputs.keys() >= prompt.required:
                continue
            if not counting and prompt.plain:
                self.usable[prompt.id] += 1
                continue
            self._render(prompt, case, counting=counting)

    def _render(self, prompt: Prompt, case: Case, *, counting: bool) -> None:
        try:
            texts = [message.content for message in prompt.render(case.inputs)]
        except (MissingValueError, RenderError):
            return  # counted as skipped by the data check
        self.usable[prompt.id] += 1
        if not counting:
            return
        self._counted[prompt.id] += 1
        for counter in self._counters:
            self._tokens[prompt.id, counter.method] += counter.of_messages(texts)

    def input_tokens(self, prompt: Prompt, counter: TokenCounter) -> float:
        """Return the input tokens of one answer to each usable case, tools and schema included."""
        counted = self._counted[prompt.id]
        if not counted:
            return 0.0
        each = self._tokens[prompt.id, counter.method] / counted
        for extra in (prompt.tools, prompt.output):
            if extra is not None:
                each += counter.count(json.dumps(extra, ensure_ascii=False))
        return each * self.usable[prompt.id]

    @property
    def skipped(self) -> int:
        """Answers to one draw of one model that nobody can ask for, over all prompts."""
        return self.seen * len(self._experiment.prompts) - self.usable.total()

    @property
    def sampled(self) -> bool:
        """Whether not every case was counted."""
        return self.seen > COUNT_EVERY

    def shards(self) -> list[int]:
        """Return how many cases each shard has."""
        return [self._shards[index] for index in range(1, self._shard_count + 1)]
