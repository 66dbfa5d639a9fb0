"""Reading of the files of a project, each into its model.

A problem in one file never stops the reading of another. All problems are collected, and the caller
decides whether a project with problems can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from edison_ci import feature
from edison_ci.config import calibration, dataset_about, sealed
from edison_ci.config import experiment as config_experiment
from edison_ci.config import models as config_models
from edison_ci.config import problems as config_problems
from edison_ci.config import project as config_project
from edison_ci.config import prompt as config_prompt
from edison_ci.config import quarantine as config_quarantine
from edison_ci.config import rubric as config_rubric
from edison_ci.config import trust as config_trust
from edison_ci.documents import json_text
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import Tree, read
from edison_ci.documents.marks import Document, Fault, Json
from edison_ci.documents.secrets import secrets_in
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Problem, Severity
from edison_ci.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.calibration import JudgeApprovalsFile
    from edison_ci.config.quarantine import QuarantinedCase

PROJECT = "edison.yaml"
TRUST = ".edison/trust.yaml"
SECRETS = ".edison/secrets.yaml"
QUARANTINE = "quarantine.yaml"
JUDGE_APPROVALS = "judge_approvals.yaml"
ABOUT = ".about.yaml"
"""How the name of a file about a dataset ends."""

SHARED_FILES = (PROJECT, TRUST, QUARANTINE, JUDGE_APPROVALS)
"""Files that every experiment uses, besides that of the models."""

S = TypeVar("S", bound=Shape)


class ProjectFiles:
    """Reads the files of a project from a tree, each once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.problems: list[Problem] = []
        self._prompts: dict[str, config_prompt.Prompt | None] = {}
        self._rubrics: dict[str, config_rubric.RubricFile | None] = {}
        self._schemas: dict[str, Json] = {}
        self._labels: dict[str, calibration.Labels] = {}
        self.documents: dict[str, Document] = {}
        self.unread: set[str] = set()
        """Sections of features that are off or not installed."""

    def project(self) -> config_project.ProjectFile | None:
        """Return edison.yaml."""
        project = self._shape(PROJECT, config_project.ProjectFile, "edison")
        if (
            project is not None
            and project.members
            and all(m.role != "owner" for m in project.members)
        ):
            message = "no member is an owner, so the actions of owners are not possible"
            hint = "give a member role: owner"
            self.problems.append(
                self.documents[PROJECT].warning(("members",), "owner", message, hint)
            )
        return project

    def valid_project(self) -> config_project.ProjectFile | None:
        """Return edison.yaml without its invalid keys, so that other files can be checked.

        None if it names no project, or if paths or defaults are invalid.
        """
        document = self.documents.get(PROJECT)
        if document is None or not isinstance(document.value, dict):
            return None
        value = self._read_here(document.value, "edison")
        if "project" not in value:
            return None
        try:
            config_project.ProjectFile.model_validate(value)
        except ValidationError as error:
            wrong = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
            if wrong & {"paths", "defaults"}:
                return None
            value = {key: part for key, part in value.items() if key not in wrong}
        try:
            return config_project.ProjectFile.model_validate(
                {"version": 1, "project": "project", **value}
            )
        except ValidationError:
            return None

    def models(self, path: str) -> dict[str, config_models.Model]:
        """Return the registry; empty if there is none."""
        document = self._document(path)
        if document is None:
            return {}
        if not isinstance(document.value, dict):
            self.problems.append(
                document.problem((), "type", "the registry is not a map", "NAME: {provider: ...}")
            )
            return {}
        version = document.value.get("version", 1)
        if version != 1 or isinstance(version, bool):
            self.problems.append(
                document.problem(("version",), "value", f"version is {version!r}", "allowed: 1")
            )
        reader = config_models.RegistryReader(document)
        models = reader.read()
        if reader.problems:
            most = config_problems.MOST_PROBLEMS
            self.problems += reader.problems[:most]
            if len(reader.problems) > most:
                message = f"more than {most} problems; the others are not shown"
                self.problems.append(document.problem((), "more", message, "fix the first ones"))
        return models

    def trust(self) -> config_trust.TrustFile:
        """Return trust.yaml; without it only the built-in pairs are trusted."""
        trust = self._shape(TRUST, config_trust.TrustFile) if self.tree.exists(TRUST) else None
        return trust or config_trust.TrustFile.model_construct()

    def secrets(self) -> sealed.SecretsFile:
        """Return secrets.yaml, empty if there is none."""
        secrets = self._shape(SECRETS, sealed.SecretsFile) if self.tree.exists(SECRETS) else None
        return secrets or sealed.SecretsFile.model_construct()

    def quarantine(self) -> tuple[QuarantinedCase, ...]:
        """Return the cases of quarantine.yaml; none if there is no such file."""
        if not self.tree.exists(QUARANTINE):
            return ()
        file = self._shape(QUARANTINE, config_quarantine.QuarantineFile)
        return () if file is None else file.cases

    def approvals(self) -> JudgeApprovalsFile | None:
        """Return judge_approvals.yaml; None if there is no valid one."""
        if not self.tree.exists(JUDGE_APPROVALS):
            return None
        return self._shape(JUDGE_APPROVALS, calibration.JudgeApprovalsFile)

    def labels(self) -> dict[str, calibration.Labels]:
        """Return the labels of the rubrics by path; a missing file is empty."""
        for rubric in self.known_rubrics().values():
            if rubric.calibration is None:
                continue
            path = rubric.calibration.labels
            if path not in self._labels:
                self._labels[path] = calibration.Labels(path)
                if self.tree.exists(path):
                    self._labels[path], problems = calibration.read_labels(self.tree, path)
                    self.problems += problems
            self.problems += calibration.criteria_problems(self._labels[path], rubric)
        return self._labels

    def abouts(self, folder: str, datasets: Iterable[str]) -> dict[str, dataset_about.DatasetAbout]:
        """Return the descriptions of datasets, by their paths."""
        names = self.in_folder(folder, (".jsonl", ".csv", ".yaml", ".yml"))
        paths = dict.fromkeys([*datasets, *(name for name in names if not name.endswith(ABOUT))])
        abouts: dict[str, dataset_about.DatasetAbout | None] = {}
        for about in dict.fromkeys(map(about_path, paths)):
            if self.tree.exists(about):
                abouts[about] = self._shape(about, dataset_about.DatasetAbout)
        for name in names:
            if name.endswith(ABOUT) and name not in abouts:
                stem = name.removesuffix(ABOUT)
                message, hint = f"there is no dataset {stem!r}", "rename or remove it"
                where = Location(name)
                self.problems.append(Problem(where, "not-found", message, hint, Severity.WARNING))
        pairs = ((path, abouts.get(about_path(path))) for path in paths)
        return {path: about for path, about in pairs if about is not None}

    def experiment(self, path: str) -> tuple[config_experiment.ExperimentFile, Document] | None:
        """Return an experiment; its id must match the name of the file."""
        experiment = self._shape(path, config_experiment.ExperimentFile, "experiment")
        if experiment is None:
            return None
        document = self.documents[path]
        self._check_stem(document, "experiment", experiment.experiment)
        return experiment, document

    def rubric(self, path: str) -> config_rubric.RubricFile | None:
        """Return a rubric."""
        if path not in self._rubrics:
            rubric = self._rubrics[path] = self._shape(path, config_rubric.RubricFile)
            if rubric is not None:
                self._check_stem(self.documents[path], "rubric", rubric.rubric)
        return self._rubrics[path]

    def prompt(self, path: str) -> config_prompt.Prompt | None:
        """Return a prompt."""
        if path not in self._prompts:
            try:
                data = read(self.tree, path)
            except Fault as fault:
                self._fault(path, fault)
                self._prompts[path] = None
                return None
            prompt, problems = config_prompt.read_prompt(data, path, self.schema)
            self.problems += problems
            self._prompts[path] = prompt
        return self._prompts[path]

    def known_prompts(self) -> dict[str, config_prompt.Prompt]:
        """Return the valid prompts by path."""
        return {path: prompt for path, prompt in self._prompts.items() if prompt is not None}

    def known_rubrics(self) -> dict[str, config_rubric.RubricFile]:
        """Return the valid rubrics by path."""
        return {path: rubric for path, rubric in self._rubrics.items() if rubric is not None}

    def schema(self, path: str) -> Json:
        """Return a JSON file (a schema, tools); raises a Fault."""
        if path not in self._schemas:
            data = read(self.tree, path)
            try:
                self._schemas[path] = json_text.parse_json(decode(data))
            except Fault as fault:
                where = Location(path, fault.at[0] + 1, fault.at[1] + 1)
                raise Fault(fault.code, f"{where}: {fault.message}", fault.hint) from None
        return self._schemas[path]

    def in_folder(self, folder: str, suffixes: tuple[str, ...]) -> list[str]:
        """Return the paths of files in a folder with one of the suffixes."""
        names = (
            n for n in self.tree.names(folder) if n.endswith(suffixes) and not n.startswith(".")
        )
        return [f"{folder}/{name}" for name in names]

    def _document(self, path: str) -> Document | None:
        try:
            text = decode(read(self.tree, path))
            document = read_yaml(text, path)
        except Fault as fault:
            self._fault(path, fault)
            return None
        for secret in secrets_in(text):
            self._fault(path, secret)
        self.problems += document.problems
        self.documents[path] = document
        return document

    def _shape(self, path: str, shape: type[S], kind: str = "") -> S | None:
        document = self._document(path)
        if document is None:
            return None
        value: Any = {} if document.value is None else document.value
        if shape.renamed and isinstance(value, dict):
            value = self._with_new_names(document, value, shape)
        if kind and isinstance(value, dict):
            value = self._read_here(value, kind)
        try:
            return shape.model_validate(value)
        except ValidationError as error:
            self.problems += config_problems.problems_of(error, document)
            return None

    def _read_here(self, value: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the mapping without the sections of features that are off, and note those."""
        off, packages = feature.keys_off(kind), value.get("features")
        self.unread |= {f"{key} ({off[key]})" for key in off if key in value}
        for name in packages if isinstance(packages, dict) else ():
            if feature.section(kind, str(name)) is None:
                self.unread.add(f"features.{name}")
        return {key: part for key, part in value.items() if key not in off}

    def _with_new_names(
        self, document: Document, value: dict[str, Any], shape: type[Shape]
    ) -> dict[str, Any]:
        """Return the mapping with renamed keys under their new names, with warnings."""
        current = dict(value)
        for old, new in shape.renamed.items():
            if old in current and new not in current:
                current[new] = current.pop(old)
                message = f"key {old!r} is now called {new!r}"
                self.problems.append(
                    document.warning((old,), "renamed-key", message, f"write {new}")
                )
        return current

    def _check_stem(self, document: Document, key: str, value: str) -> None:
        stem = document.file.rpartition("/")[2].rpartition(".")[0]
        if value != stem:
            self.problems.append(
                document.problem(
                    (key,),
                    "id",
                    f"{key} is {value!r}, but the file is named {stem!r}",
                    "rename one of them",
                )
            )

    def _fault(self, path: str, fault: Fault) -> None:
        unplaced = fault.code in {"not-found", "unreadable", "not-a-file", "path", "size"}
        line, column = fault.at
        where = (
            Location(path)
            if unplaced and fault.at == (0, 0)
            else Location(path, line + 1, column + 1)
        )
        self.problems.append(Problem(where, fault.code, fault.message, fault.hint))


def only_errors(problems: list[Problem]) -> list[Problem]:
    """Return the problems that stop every command."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def only_warnings(problems: list[Problem]) -> list[Problem]:
    """Return the problems that stop nothing."""
    return [problem for problem in problems if problem.severity is Severity.WARNING]


def about_path(dataset: str) -> str:
    """Return the path of the file about a dataset."""
    return dataset.rpartition(".")[0] + ABOUT
