"""Validation of a project: every file, and every case against prompts and checks."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import service_paths
from edison_ci.config.cases import STATIC, CaseFeed, HoldoutCount, Units
from edison_ci.config.experiment import DataLimits, DatasetEntry
from edison_ci.config.load import inspect_project
from edison_ci.config.project_files import ABOUT, PROJECT, QUARANTINE
from edison_ci.config.repeated_inputs import RepeatedInputs
from edison_ci.config.requirements import missing_in, run_notes
from edison_ci.config.tokens import ContextCheck
from edison_ci.documents.files import OWN_FOLDER, WorkingTree, may_be_committed, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import leaked_in
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Problem, Severity, UsageError, sorted_problems
from edison_ci.git import command as git_command
from edison_ci.git.repository import Repository
from edison_ci.numeric import counted
from edison_ci.spelling import did_you_mean
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.options import Check
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case


@dataclass(frozen=True, slots=True)
class Inspection:
    """The validation result of one project."""

    root: Path
    project: Project | None
    """None if it cannot be read."""
    cases: int
    problems: list[Problem]
    notes: list[Problem] = field(default_factory=list)
    """What would refuse a run here, though the files are valid."""


def inspect(root: Path) -> Inspection:
    """Read every file and every case of a project; return all problems, and leaked keys."""
    project, problems = inspect_project(WorkingTree(root), root=root)
    cases = 0
    if project is not None:
        for experiment in project.experiments.values():
            check, inputs = DataCheck(project, experiment), RepeatedInputs(experiment.prompts)
            for case in check:
                inputs.add(case)
            problems += check.problems
            problems += inputs.warnings(experiment)
            cases += check.cases
        problems += unclaimed_data(project)
        problems += missing_in(project)
        problems += results_in_git(project)
        if any(model.posts_key for model in project.models.values()):
            problems += service_paths.path_problems(project)
    secret_places = {problem.where for problem in problems if problem.code == "secret"}
    problems += [problem for problem in leaked_keys(root) if problem.where not in secret_places]
    notes = [] if project is None else list(dict.fromkeys(run_notes(project)))
    return Inspection(root, project, cases, list(sorted_problems(problems)), notes)


# Datasets of an invalid experiment, and those that no experiment uses yet, are checked as well, so
# that all problems are reported at once.
_SUFFIXES = (".jsonl", ".csv", ".yaml", ".yml")
_LIMITS = DataLimits.model_construct(max_rows=100_000)


def unclaimed_data(project: Project) -> list[Problem]:
    """Return the problems of datasets without a valid experiment; large files are skipped."""
    claimed = {entry.path for e in project.experiments.values() for entry in e.file.data}
    claimed |= {r.calibration.labels for r in project.rubrics.values() if r.calibration}
    folder = project.file.paths.datasets
    problems: list[Problem] = []
    for name in project.tree.names(folder):
        path = f"{folder}/{name}"
        if path in claimed or name.startswith(".") or not name.endswith(_SUFFIXES):
            continue
        if name.endswith(ABOUT):
            continue
        feed = CaseFeed(project.tree, (DatasetEntry(path=path, limits=_LIMITS),))
        for _ in feed:
            pass
        problems += [problem for problem in feed.problems if problem.code != "size"]
    return problems


MIN_HOLDOUT = 16
_LISTED = 5
_MOST_NAMES = 1_000
_ROOT = re.compile(r"[A-Za-z0-9_]*")


@dataclass(slots=True)
class _RenderStats:
    """Results of rendering one prompt for all cases."""

    prompt: Prompt
    lacking: Counter[str] = field(default_factory=Counter)
    """Counts of missing values, by name in the template."""
    unrenderable: int = 0
    context: ContextCheck | None = None
    """None for graders, whose input includes the answer."""

    def needs(self) -> frozenset[str]:
        """Return the required variables."""
        grader = self.prompt.header.type == "grader" and "expected" in self.prompt.where
        return self.prompt.required | ({"expected"} if grader else frozenset())


@dataclass(slots=True)
class DataCheck:
    """Yields the cases of an experiment once, and collects their problems."""

    project: Project
    experiment: Experiment
    problems: list[Problem] = field(default_factory=list)
    cases: int = 0
    holdout: int = 0
    units: Units = field(default_factory=Units)
    """The clusters of all cases, also of those that are not chosen."""
    kinds: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """First ids of cases that cannot be rendered, by prompt."""
    skipped_count: Counter[str] = field(default_factory=Counter)
    _present: set[str] = field(default_factory=set)
    _quarantined: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Case]:
        """Yield every case; afterwards `problems` is complete."""
        split = self.experiment.file.split
        held_out = HoldoutCount(split)
        configured = self.experiment.configurations
        generators = [
            _RenderStats(prompt, context=ContextCheck(prompt, configured(prompt)))
            for prompt in self.experiment.prompts
        ]
        graders = [_RenderStats(grader) for grader in self.experiment.graders]
        aside = {
            entry.case
            for entry in self.project.quarantine
            if entry.experiment == self.experiment.id
        }
        needed = frozenset[str]().union(*(tried.needs() for tried in (*generators, *graders)))
        for case in self._source():
            self.cases += 1
            self.kinds[case.kind] += 1
            few = len(self._present) < _MOST_NAMES
            self._present.update(case.inputs if few else needed.intersection(case.inputs))
            if case.expected is not None:
                self._present.add("expected")
            if split is not None:
                held_out.add(case)
            if case.id in aside:
                self._quarantined.add(case.id)
            for tried in generators:
                self._try(tried, case)
            for tried in graders:
                self._lacks(tried, case)
            yield case
        self.holdout = held_out.of(self.units)
        self._conclude(generators, graders)

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
        feed.problems, feed.units = self.problems, self.units
        yield from feed

    def _static(self) -> Iterator[Case]:
        needing = [prompt for prompt in self.experiment.prompts if prompt.required]
        for prompt in needing:
            for name in sorted(prompt.required):
                message = f"{name!r} has no value: the experiment has no dataset"
                hint = f"add dataset: to {self.experiment.path}"
                self.problems.append(Problem(prompt.where[name], "variable", message, hint))
        if not needing:
            yield STATIC

    def _lacks(self, tried: _RenderStats, case: Case) -> bool:
        """Count the first missing variable of a case, if any."""
        if case.inputs.keys() >= tried.prompt.required:
            return False
        tried.lacking[min(tried.prompt.required - case.inputs.keys())] += 1
        return True

    def _try(self, tried: _RenderStats, case: Case) -> None:
        prompt, context = tried.prompt, tried.context
        if not self._lacks(tried, case):
            if prompt.plain and not (context and context.may_exceed(case.inputs)):
                return
            try:
                messages = prompt.render(case.inputs)
            except MissingValueError as error:
                tried.lacking[error.name] += 1
            except RenderError as error:
                tried.unrenderable += 1
                if tried.unrenderable <= _LISTED:
                    message = f"case {case.id!r} cannot be rendered: {error}"
                    where = Location(prompt.path, prompt.sections[-1].line, 1)
                    hint = "fix the template or the case"
                    self.problems.append(Problem(where, "render", message, hint))
                return
            else:
                if context is not None:
                    context.add(case.id, [message.content for message in messages])
                return
        self.skipped_count[prompt.id] += 1
        listed = self.skipped.setdefault(prompt.id, [])
        if len(listed) < _LISTED:
            listed.append(case.id)

    def _conclude(self, generators: list[_RenderStats], graders: list[_RenderStats]) -> None:
        experiment = self.experiment
        if self.cases == 0:
            if experiment.file.data and not any(
                p.severity is Severity.ERROR for p in self.problems
            ):
                self._no_case()
            return
        for tried in (*generators, *graders):
            self._missing_variables(tried)
        for tried in generators:
            self._missing_values(tried)
            if tried.context is not None:
                self.problems += tried.context.problems(self.cases)
        for tried in graders:
            self._missing_for_graders(tried)
        for index, check in enumerate(experiment.file.checks):
            self._check_variables(check, ("checks", index))
        self._quarantine()
        split = experiment.file.split
        if split is not None and split.holdout > 0 and self.holdout < MIN_HOLDOUT:
            self._at(
                ("split",),
                "holdout",
                f"only {self.holdout} cases are held out; "
                f"with fewer than {MIN_HOLDOUT} an improvement cannot be verified",
                "add cases",
                warning=True,
            )

    def _no_case(self) -> None:
        """Report datasets without a case, or filters that leave none."""
        entries = self.experiment.file.data
        if any(entry.where or entry.take for entry in entries):
            self._at(("datasets",), "empty", "no case is left", "check where, take and the dataset")
            return
        names = sorted({name for prompt in self.experiment.prompts for name in prompt.required})
        values = "".join(f" --set {name}=TEXT" for name in names)
        paths = " and ".join(entry.path for entry in entries)
        message = f"there is no case in {paths}"
        hint = f"add one: edison dataset add {self.experiment.id}{values}"
        self._at(("datasets",), "empty", message, hint)

    def _missing_variables(self, tried: _RenderStats) -> None:
        """Report variables that no case has."""
        for name in sorted(tried.needs() - self._present):
            message = f"no case has a value for {name!r}"
            hint = did_you_mean(name, self._present, label="cases have")
            self.problems.append(Problem(tried.prompt.where[name], "variable", message, hint))

    def _missing_values(self, tried: _RenderStats) -> None:
        """Report missing values; it is an error if every case lacks one."""
        prompt, count = tried.prompt, self.skipped_count[tried.prompt.id]
        if tried.unrenderable > _LISTED:
            more = f"{tried.unrenderable - _LISTED:,} further cases cannot be rendered"
            where = Location(prompt.path, prompt.sections[-1].line, 1)
            self.problems.append(Problem(where, "render", more, "fix the first ones"))
        if not count or tried.needs() - self._present:
            return
        names = ", ".join(sorted(tried.lacking))
        listed = ", ".join(self.skipped[prompt.id]) + (", ..." if count > _LISTED else "")
        where = self._where(prompt, tried.lacking.most_common(1)[0][0])
        if count == self.cases:
            message, severity = f"every case lacks {names}", Severity.ERROR
        else:
            message = f"{count:,} of {self.cases:,} cases lack {names} and will be skipped: "
            message, severity = message + listed, Severity.WARNING
        hint = "complete them, or use the filter default"
        self.problems.append(Problem(where, "skipped", message, hint, severity))

    def _missing_for_graders(self, tried: _RenderStats) -> None:
        """Report missing values for graders."""
        count = tried.lacking.total()
        if count and not tried.needs() - self._present:
            names = ", ".join(sorted(tried.lacking))
            where = self._where(tried.prompt, min(tried.lacking))
            message = f"{count:,} of {self.cases:,} cases lack {names} and will not be graded"
            hint = "complete them, or use the filter default"
            self.problems.append(Problem(where, "skipped", message, hint, Severity.WARNING))

    def _where(self, prompt: Prompt, name: str) -> Location:
        """Return the location of the first use of a variable."""
        match = _ROOT.match(name)
        line = Location(prompt.path, prompt.sections[-1].line, 1)
        return prompt.where.get(match.group() if match else "", line)

    def _check_variables(self, check: Check, place: tuple[str | int, ...]) -> None:
        here = (*place, check.check)
        present = self._present
        for _option, template in check.templates():
            for name, use in template.uses.items():
                if name not in present and not use.optional:
                    self._at(
                        here,
                        "variable",
                        f"no case has a value for {name!r}",
                        did_you_mean(name, present, label="cases have"),
                    )
        for part in check.inner_checks():
            self._check_variables(part, here)

    def _quarantine(self) -> None:
        """Report quarantined cases that do not exist; with where or take they may be filtered."""
        partial = any(entry.where or entry.take for entry in self.experiment.file.data)
        for index, entry in enumerate(self.project.quarantine):
            if entry.experiment == self.experiment.id and entry.case not in self._quarantined:
                message = f"{entry.experiment} has no case {entry.case!r}"
                hint = "remove the entry, or check where and take" if partial else "remove it"
                severity = Severity.WARNING if partial else Severity.ERROR
                where = self._quarantine_location(index)
                self.problems.append(Problem(where, "unknown-case", message, hint, severity))

    def _quarantine_location(self, index: int) -> Location:
        try:
            document = read_yaml(read(self.project.tree, QUARANTINE), QUARANTINE)
        except Fault:
            return Location(QUARANTINE)
        return document.locate(("cases", index, "case"))

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


def results_in_git(project: Project) -> Iterator[Problem]:
    """Yield a warning for results, locks and accounts that are in Git, or would be.

    `.edison` has its own .gitignore, but files may have been added before there was one, and a
    results file may be in another folder.
    """
    if Repository.find(project.root) is None:
        return
    results = project.file.results
    beside = (f"{results}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
    listed = git_command.run_git("ls-files", "-z", "--", OWN_FOLDER, *beside, cwd=project.root)
    names = [path for path in git_command.decode(listed.out).split("\0") if path]
    if names := [path for path in names if not may_be_committed(path)]:
        others = f", and so {'is' if len(names) == 2 else 'are'} {counted(len(names) - 1, 'other')}"
        message = f"{names[0]} is in Git{others if names[1:] else ''}: only this machine needs it"
        hint = f"remove it from Git: git rm -r --cached {shlex.join(names[:20])}"
        yield Problem(Location(names[0]), "committed", message, hint, Severity.WARNING)
    has_ignore = (project.root / OWN_FOLDER / ".gitignore").exists()
    if not has_ignore and results.startswith(f"{OWN_FOLDER}/"):
        return  # the first command that writes to the folder makes it
    # The command takes paths literally, and refuses the option by which others do so.
    ignored = git_command.run_git(
        *("--no-literal-pathspecs", "check-ignore", "--quiet", "--", results), cwd=project.root
    )
    if ignored.code == 1:
        message = f"Git does not ignore {results}: `git add .` would commit the results"
        hint = f"echo {shlex.quote(f'/{results}*')} >> .gitignore"
        yield Problem(Location(PROJECT), "not-ignored", message, hint, Severity.WARNING)


# Keys that look leaked: in the lines that a change adds, or without Git in every file. With Git the
# working tree is compared with the base: the commit at which HEAD left the default branch, or what
# a pull request is merged into. Lines that were there before are not reported again.
_MOST_FILES = 2_000
_MAX_BYTES = 1_000_000
_LEFT_OUT = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tools"})
_OWN = ("cache", "locks", "backups", "schemas", "loops", "drafts")
"""Folders of .edison that only edison writes."""


def leaked_keys(root: Path) -> list[Problem]:
    """Return a problem for each key that looks leaked in a project or its repository."""
    repository = Repository.find(root)
    base = None if repository is None else _base(repository)
    top = root if repository is None or base is None else repository.root
    paths = _files_below(root) if repository is None or base is None else _changed(repository, base)
    tree, problems = WorkingTree(top), []
    for path in sorted(paths)[:_MOST_FILES]:
        text = _text_of(tree, path)
        faults = [] if text is None else [*leaked_in(text)]
        if text is None or not faults:
            continue
        before = set[str]()
        if repository is not None and base is not None:
            before = _lines(repository, base, path)
        lines = text.split("\n")
        name = os.path.relpath(Path(tree.root, path), root.resolve()).replace(os.sep, "/")
        for fault in faults:
            if lines[fault.at[0]] not in before:
                where = Location(name, fault.at[0] + 1, fault.at[1] + 1)
                problems.append(Problem(where, "leaked-key", fault.message, fault.hint))
    return problems


def _base(repository: Repository) -> str | None:
    """Return the commit to compare with; None if there is none in this clone."""
    try:
        branch = repository.default_branch()
        return None if branch is None else repository.base_for(branch, fetch=False)
    except UsageError:
        return None


def _changed(repository: Repository, base: str) -> Iterator[str]:
    for path in repository.changed_paths(base):
        if not _LEFT_OUT.intersection(path.split("/")):
            yield path


def _files_below(root: Path) -> Iterator[str]:
    """Yield the files of a project, without those of tools and of edison itself."""
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT and not (inside.name == OWN_FOLDER and name in _OWN)
        ]
        yield from ((inside / name).as_posix() for name in names)


def _text_of(tree: WorkingTree, path: str) -> str | None:
    """Return the text of a file; None if it is gone, large, binary or a link that leaves."""
    try:
        data = read(tree, path, max_bytes=_MAX_BYTES)
    except Fault:
        return None
    return None if b"\0" in data[:8_000] else data.decode("utf-8", "replace")


def _lines(repository: Repository, base: str, path: str) -> set[str]:
    try:
        data = repository.read(base, path, max_bytes=_MAX_BYTES)
    except UsageError:
        return set()
    return set((data or b"").decode("utf-8", "replace").split("\n"))
