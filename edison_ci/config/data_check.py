"""Does the data of an experiment have what its prompts and checks need?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edison_ci.config.cases import STATIC, is_holdout
from edison_ci.errors import Location, Problem, Severity
from edison_ci.names import did_you_mean
from edison_ci.templating import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.options import Check
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case

MIN_HOLDOUT = 16
_LISTED = 5


@dataclass(slots=True)
class DataCheck:
    """Passes the cases of an experiment through, once, and keeps what it saw of them."""

    project: Project
    experiment: Experiment
    problems: list[Problem] = field(default_factory=list)
    cases: int = 0
    holdout: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """Ids of the cases that a prompt cannot be rendered for, by prompt, the first few."""
    skipped_count: Counter[str] = field(default_factory=Counter)
    _lacking: Counter[str] = field(default_factory=Counter)
    _present: set[str] = field(default_factory=set)
    _quarantined: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Case]:
        """Yield every case; afterwards `problems` has everything wrong with them."""
        prompts = self.experiment.prompts
        split = self.experiment.file.split
        wanted = {
            entry.case
            for entry in self.project.quarantine.cases
            if entry.experiment == self.experiment.id
        }
        for case in self._source():
            self.cases += 1
            self.kinds[case.kind] += 1
            self._present.update(case.inputs)
            if case.expected is not None:
                self._present.add("expected")
            if split is not None and is_holdout(case, split):
                self.holdout += 1
            if case.id in wanted:
                self._quarantined.add(case.id)
            for prompt in prompts:
                self._try(prompt, case)
            yield case
        self._conclude(wanted)

    def run(self) -> DataCheck:
        """Read all cases and return self."""
        for _ in self:
            pass
        return self

    def _source(self) -> Iterator[Case]:
        if not self.experiment.file.data:
            yield from self._static()
            return
        feed = self.project.cases(self.experiment)
        feed.problems = self.problems
        yield from feed

    def _static(self) -> Iterator[Case]:
        needing = [prompt for prompt in self.experiment.prompts if prompt.required]
        for prompt in needing:
            name = sorted(prompt.required)[0]
            self.problems.append(
                Problem(
                    prompt.where[name],
                    "variable",
                    f"{name!r} has no value: the experiment has no dataset",
                    f"add dataset: to {self.experiment.path}",
                )
            )
        if not needing:
            yield STATIC

    def _try(self, prompt: Prompt, case: Case) -> None:
        missing = ""
        if not case.inputs.keys() >= prompt.required:
            missing = min(prompt.required - case.inputs.keys())
        elif not prompt.plain:
            try:
                prompt.render(case.inputs)
            except MissingValueError as error:
                missing = error.name
            except RenderError as error:
                where = Location(prompt.path, prompt.sections[-1].line, 1)
                self.problems.append(
                    Problem(where, "render", f"case {case.id!r} cannot be rendered: {error}")
                )
                return
        if missing:
            self._lacking[missing] += 1
            self.skipped_count[prompt.id] += 1
            listed = self.skipped.setdefault(prompt.id, [])
            if len(listed) < _LISTED:
                listed.append(case.id)

    # --- after the last case ----------------------------------------------------------------------

    def _conclude(self, wanted: set[str]) -> None:
        experiment = self.experiment
        if self.cases == 0:
            if experiment.file.data and not any(
                p.severity is Severity.ERROR for p in self.problems
            ):
                self._at(("datasets",), "empty", "no case is left", "look at where and the dataset")
            return
        for prompt in experiment.prompts:
            self._missing_variables(prompt)
        for index, check in enumerate(experiment.file.checks):
            self._check_variables(check, ("checks", index))
        self._quarantine(wanted)
        split = experiment.file.split
        if split is not None and split.holdout > 0 and self.holdout < MIN_HOLDOUT:
            self._at(
                ("split",),
                "holdout",
                f"only {self.holdout} cases are held out; "
                f"below {MIN_HOLDOUT} an improvement is not verified",
                "add cases",
                warning=True,
            )

    def _missing_variables(self, prompt: Prompt) -> None:
        for name in sorted(prompt.required - self._present):
            self.problems.append(
                Problem(
                    prompt.where[name],
                    "variable",
                    f"no case has a value for {name!r}",
                    did_you_mean(name, self._present, label="cases have"),
                )
            )
        count = self.skipped_count[prompt.id]
        if count and not prompt.required - self._present:
            names = ", ".join(sorted(self._lacking))
            listed = ", ".join(self.skipped[prompt.id])
            more = ", ..." if count > _LISTED else ""
            where = Location(prompt.path, prompt.sections[-1].line, 1)
            self.problems.append(
                Problem(
                    where,
                    "skipped",
                    f"{count:,} of {self.cases:,} cases lack {names} and will be "
                    f"skipped: {listed}{more}",
                    "complete them, or use the filter default",
                    Severity.WARNING,
                )
            )

    def _check_variables(self, check: Check, place: tuple[str | int, ...]) -> None:
        here = (*place, check.check)
        known = self._present | {"expected"}
        for _option, template in check.templates():
            for name, use in template.uses.items():
                if name not in known and not use.optional:
                    self._at(
                        here,
                        "variable",
                        f"no case has a value for {name!r}",
                        did_you_mean(name, known, label="cases have"),
                    )
        for part in check.parts():
            self._check_variables(part, here)

    def _quarantine(self, wanted: set[str]) -> None:
        for index, entry in enumerate(self.project.quarantine.cases):
            if entry.case in wanted - self._quarantined and entry.experiment == self.experiment.id:
                self.problems.append(
                    Problem(
                        Location("quarantine.yaml"),
                        "unknown-case",
                        f"entry {index + 1}: {entry.experiment} has no case {entry.case!r}",
                        "remove the entry",
                    )
                )

    def _at(
        self,
        path: tuple[str | int, ...],
        code: str,
        message: str,
        hint: str = "",
        *,
        warning: bool = False,
    ) -> None:
        document = self.experiment.document
        if path == ("datasets",) and self.experiment.file.dataset is not None:
            path = ("dataset",)
        make = document.warning if warning else document.problem
        self.problems.append(make(path, code, message, hint))
