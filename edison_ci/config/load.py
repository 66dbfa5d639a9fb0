"""Loading of a project: all files read and checked against each other."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edison_ci._dataclass import dataclass
from edison_ci.config import cases as config_cases
from edison_ci.config import experiment_rules as config_experiment_rules
from edison_ci.config import models as config_models
from edison_ci.config import prices as config_prices
from edison_ci.config import program_files as config_program_files
from edison_ci.config import rules as config_rules
from edison_ci.config.project_files import PROJECT, ProjectFiles, only_errors, only_warnings
from edison_ci.documents.files import Tree, WorkingTree
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, Location, Problem, ProjectNotFound, UsageError
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.checks.options import Check
    from edison_ci.config.base_limits import BaseLimits
    from edison_ci.config.calibration import JudgeApprovalsFile, Labels
    from edison_ci.config.dataset_about import DatasetAbout
    from edison_ci.config.experiment import ExperimentFile
    from edison_ci.config.project import ProjectFile
    from edison_ci.config.prompt import Prompt
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.config.rubric import RubricFile
    from edison_ci.config.sealed import SecretsFile
    from edison_ci.config.trust import TrustFile
    from edison_ci.documents.marks import Document, Json
    from edison_ci.records import BaselineDoubt
    from edison_ci.templating.templates import Template


INSTRUCTIONS = tuple(
    f"judges/{kind}.md" for kind in ("pointwise", "pairwise", "moderation", "toxicity")
)
"""Files with a project's own instructions for judges and screens."""


@dataclass(frozen=True)
class Experiment:
    """An experiment with everything it refers to."""

    path: str
    file: ExperimentFile
    document: Document
    prompts: tuple[Prompt, ...]
    graders: tuple[Prompt, ...]
    rubric: RubricFile | None
    models: tuple[tuple[str, config_models.Model, Mapping[str, object]], ...]
    """Name, model and experiment parameters of each configuration."""
    judges: tuple[config_models.Model, ...]
    judge_plugins: tuple[str, ...] = ()
    """Names of the judges from other packages."""
    schemas: Mapping[str, Json] = field(default_factory=dict)
    """JSON files that checks refer to, by path."""
    outside: frozenset[str] = frozenset()
    """Models that a command line added and the file does not list; gates do not count them."""

    @property
    def id(self) -> str:
        """The name of the experiment."""
        return self.file.experiment

    def configurations(self, prompt: Prompt) -> tuple[config_models.Configuration, ...]:
        """Return the model configurations for this prompt."""
        return tuple(
            config_models.configure(name, model, prompt, params)
            for name, model, params in self.models
        )

    def all_checks(self) -> Iterator[Check]:
        """Yield all checks, including those inside combinators."""
        stack = list(self.file.checks)
        while stack:
            check = stack.pop()
            yield check
            stack.extend(check.inner_checks())

    def embedders(self) -> dict[str, list[Template]]:
        """Return the models that checks embed with, and the references that each embeds."""
        references: dict[str, list[Template]] = {}
        for check in self.all_checks():
            similar = cast("Any", check) if check.check == "similar" else None
            if similar is not None and similar.by is not None:
                of_model = references.setdefault(similar.by, [])
                if all(other.source != similar.value.source for other in of_model):
                    of_model.append(similar.value)
        return references

    def schema_files(self) -> set[str]:
        """Return the JSON Schema files that checks refer to."""
        named = [check for check in self.all_checks() if check.check == "json_schema"]
        values = [getattr(check, "value", None) for check in named]
        return {value for value in values if isinstance(value, str)}

    def code_files(self, tree: Tree) -> set[str]:
        """Return the files that code checks run: Python files and files in command lines."""
        files: set[str] = set()
        for check in self.all_checks():
            if check.check in ("python", "command"):
                files |= config_program_files.check_files(check, tree)
        return files

    def types(self) -> dict[str, str]:
        """Return the declared types of inputs, over all prompts."""
        declared: dict[str, str] = {}
        for prompt in (*self.prompts, *self.graders):
            for name, entry in (prompt.header.inputs or {}).items():
                declared.setdefault(name, entry.type)
        return declared


@dataclass(frozen=True)
class Project:
    """A loaded project."""

    tree: Tree
    file: ProjectFile
    models: Mapping[str, config_models.Model]
    experiments: Mapping[str, Experiment]
    prompts: Mapping[str, Prompt]
    rubrics: Mapping[str, RubricFile]
    trust: TrustFile
    secrets: SecretsFile
    quarantine: tuple[QuarantinedCase, ...]
    prices: config_prices.PriceTable
    approvals: JudgeApprovalsFile | None = None
    labels: Mapping[str, Labels] = field(default_factory=dict)
    """Human grades by the path of their file."""
    abouts: Mapping[str, DatasetAbout] = field(default_factory=dict)
    """Descriptions of datasets, by their paths."""
    warnings: tuple[Problem, ...] = ()
    root: Path = field(default=Path())
    proposed: bool = False
    """Whether the files belong to a pull request: then `trust` and `secrets` are those of the base,
    and code comes from `code_root` only."""
    code_root: Path | None = None
    base_models: Mapping[str, config_models.Model] = field(default_factory=dict)
    """The models of the base, in a job for a pull request."""
    base_limits: BaseLimits | None = None
    """Spending limits of a job for a pull request."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Models of a pull request that are not called, with the reason."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons for which each run is inconclusive at best: what a job for a pull request does not
    follow."""
    overruled: tuple[str, ...] = ()
    """Keys of a pull request that its job does not follow and that have no influence on it."""
    unread: tuple[str, ...] = ()
    """Sections of features that are off or not installed."""

    def experiment(self, name: str) -> Experiment:
        """Return an experiment by name; raises UsageError with the nearest name."""
        experiment = self.experiments.get(name)
        if experiment is None:
            hint = did_you_mean(name, self.experiments, label="experiments")
            raise UsageError(f"there is no experiment {name!r}", hint=hint)
        return experiment

    def has_key(self, name: str, environ: Mapping[str, str] = os.environ) -> bool:
        """Whether a key is in the environment, or sealed in the repository."""
        return bool(environ.get(name, "").strip()) or self.secrets.of(name) is not None

    def has_identity(
        self, model: config_models.Model, environ: Mapping[str, str] = os.environ
    ) -> bool:
        """Whether a job of GitHub calls a model with an identity of `trust.yaml`, without a key."""
        identity = self.trust.identity(model.provider, model.service or "")
        return identity is not None and bool(environ.get("ACTIONS_ID_TOKEN_REQUEST_URL"))

    def judging_models_of(self, experiment: Experiment) -> set[str]:
        """Return the names of the models that judge, grade, screen or embed."""
        file, defaults = experiment.file, self.file.defaults
        screens = (file.safety.moderation, file.safety.toxicity, file.judges.pairwise)
        named: set[str | None] = {
            *(judge.name for judge in experiment.judges),
            *(grader.by or defaults.judge for grader in file.judges.graders),
            *(screen.by for screen in screens if screen is not None),
            *experiment.embedders(),
        }
        return {name for name in named if name is not None and name in self.models}

    def other_models_of(self, experiment: Experiment) -> set[str]:
        """Return the names of the models that judge, grade, screen, embed or refine."""
        refiner = experiment.file.refine.by or self.file.defaults.refiner
        refining = {refiner} if refiner is not None and refiner in self.models else set[str]()
        return self.judging_models_of(experiment) | refining

    def raw_files_of(self, experiment: Experiment) -> set[str]:
        """Return the files of an experiment that are hashed as bytes: code, labels, recordings."""
        files = experiment.code_files(self.tree)
        # Instructions of the project; the package has defaults for the others.
        files |= {path for path in INSTRUCTIONS if self.tree.exists(path)}
        if experiment.rubric is not None and experiment.rubric.calibration is not None:
            files.add(experiment.rubric.calibration.labels)
        models = [model for _, model, _ in experiment.models]
        models += [self.models[name] for name in self.other_models_of(experiment)]
        for model in models:
            files |= {path for path in (model.store, model.script) if path}
            if model.provider == "command":
                files.update(config_program_files.program_files(model, self.tree))
        return files

    def files_of(self, experiment: Experiment) -> set[str]:
        """Return every file of an experiment, except those shared by all."""
        files = {experiment.path, *(entry.path for entry in experiment.file.data)}
        for prompt in (*experiment.prompts, *experiment.graders):
            named = (prompt.path, prompt.header.output, prompt.header.tools)
            files |= {path for path in named if isinstance(path, str)}
        if experiment.file.rubric is not None:
            files.add(experiment.file.rubric.path)
        return files | experiment.schema_files() | self.raw_files_of(experiment)

    def cases(self, experiment: Experiment) -> config_cases.CaseFeed:
        """Return the stream of cases of an experiment, to be read once."""
        file = experiment.file
        redact = config_cases.redaction_by(file.safety.inputs)
        return config_cases.CaseFeed(self.tree, file.data, experiment.types(), redact=redact)


def find_root(start: Path) -> Path:
    """Return the nearest folder at or above `start` that has an edison.yaml."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / PROJECT).is_file():
            return folder
    raise ProjectNotFound(
        f"there is no {PROJECT} in {start} or above it",
        hint="create a project with: edison init",
    )


def load_project(root: Path, *, today: dt.date | None = None) -> Project:
    """Return the project in a folder; raises ConfigError with every problem in its files."""
    project, problems = inspect_project(WorkingTree(root), root=root, today=today)
    if project is None or only_errors(problems):
        raise ConfigError(only_errors(problems))
    return project


def inspect_project(
    tree: Tree, *, root: Path | None = None, today: dt.date | None = None
) -> tuple[Project | None, list[Problem]]:
    """Return the project as far as it is valid, and all problems."""
    files = ProjectFiles(tree)
    whole = files.project()
    header = whole or files.valid_project()
    if header is None:
        return None, files.problems
    prices = _prices(tree, files)
    models = {
        name: replace(
            config_program_files.with_code(model, tree) if model.provider == "command" else model,
            capabilities=prices.capabilities(model),
        )
        for name, model in files.models(header.paths.models).items()
    }
    trust, quarantine = files.trust(), files.quarantine()
    for path in files.in_folder(header.paths.prompts, (".md",)):
        files.prompt(path)
    for path in files.in_folder(header.paths.rubrics, (".yaml", ".yml")):
        files.rubric(path)
    day = today or dt.datetime.now(dt.UTC).date()
    references = config_rules.References(files, header, models)
    experiments = _experiments(references)
    rules = config_rules.RegistryRules(references, trust, prices, day)
    rules.check_models()
    rules.check_quarantine(quarantine, set(experiments))
    approvals, labels = files.approvals(), files.labels()
    data = (entry.path for experiment in experiments.values() for entry in experiment.file.data)
    abouts = files.abouts(header.paths.datasets, data)
    project = Project(
        tree=tree,
        file=header,
        models=models,
        experiments=experiments,
        prompts=files.known_prompts(),
        rubrics=files.known_rubrics(),
        trust=trust,
        secrets=files.secrets(),
        quarantine=quarantine,
        prices=prices,
        approvals=approvals,
        labels=labels,
        abouts=abouts,
        warnings=tuple(only_warnings(files.problems)),
        root=root or Path(),
        unread=tuple(sorted(files.unread)),
    )
    return (None if whole is None else project), files.problems


def _prices(tree: Tree, files: ProjectFiles) -> config_prices.PriceTable:
    try:
        return config_prices.load_prices(tree)
    except Fault as fault:
        where = Location(config_prices.PROJECT_FILE, fault.at[0] + 1, fault.at[1] + 1)
        files.problems.append(Problem(where, fault.code, fault.message, fault.hint))
        return config_prices.load_prices()


def _experiments(references: config_rules.References) -> dict[str, Experiment]:
    files, header = references.files, references.header
    experiments: dict[str, Experiment] = {}
    paths = files.in_folder(header.paths.experiments, (".yaml", ".yml"))
    if not paths:
        files.problems.append(
            Problem(
                Location(PROJECT),
                "empty",
                f"there is no experiment in {header.paths.experiments}/",
                "create one with: edison init",
            )
        )
    for path in paths:
        read = files.experiment(path)
        if read is None:
            continue
        file, document = read
        parts = config_experiment_rules.ExperimentRules(references, file, document).check()
        if parts is None:
            continue
        experiment = Experiment(path, file, document, *parts)
        schemas = {path: files.schema(path) for path in experiment.schema_files()}
        experiments[file.experiment] = dataclasses.replace(experiment, schemas=schemas)
    return experiments
