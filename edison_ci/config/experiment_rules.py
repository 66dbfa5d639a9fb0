"""Does everything an experiment names exist, and does it fit?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.experiment import ExperimentFile, ModelUse
from edison_ci.config.grading_rules import GradingRules
from edison_ci.config.models import MAX_CONFIGURATIONS, Model, configure, grid, params_refused
from edison_ci.config.schemas_of_users import schema_faults, tool_faults
from edison_ci.errors import Severity
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.prompt import Prompt
    from edison_ci.config.references import Path, References
    from edison_ci.config.rubric import RubricFile
    from edison_ci.documents.marks import Document

Point = tuple[str, Model, "Mapping[str, object]"]


class Parts(NamedTuple):
    """What an experiment names, found."""

    prompts: tuple[Prompt, ...]
    graders: tuple[Prompt, ...]
    rubric: RubricFile | None
    models: tuple[Point, ...]
    judges: tuple[Model, ...]


@dataclass(frozen=True, slots=True)
class ExperimentRules:
    """Finds the parts of an experiment and reports those that are missing or do not fit."""

    _refs: References

    def check(self, file: ExperimentFile, document: Document) -> Parts | None:
        """Return what the experiment names, or None when a part of it is missing."""
        before = len(self._refs.files.problems)
        self._twin(file, document)
        prompts = self._prompts(file, document)
        graders = self._graders(file, document)
        rubric = self._rubric(file, document)
        points = self._points(file, document)
        for prompt in prompts:
            if prompt is not None:
                self._configurations(document, prompt, points)
        judges = self._judges(file, document, rubric)
        self._other_models(file, document)
        GradingRules(self._refs).check(file, document, rubric)
        new = self._refs.files.problems[before:]
        if any(problem.severity is Severity.ERROR for problem in new) or None in (
            *prompts,
            *graders,
        ):
            return None
        return Parts(
            tuple(p for p in prompts if p),
            tuple(g for g in graders if g),
            rubric,
            tuple(point for _, point in points),
            judges,
        )

    def _twin(self, file: ExperimentFile, document: Document) -> None:
        """Report an experiment that has both a .yaml and a .yml file, at the second."""
        stem, _, suffix = document.file.rpartition(".")
        if suffix == "yml" and self._refs.files.tree.exists(f"{stem}.yaml"):
            self._refs.add(
                document,
                ("experiment",),
                "duplicate",
                f"{stem}.yaml is the experiment {file.experiment!r} too",
                "remove or rename one of the two files",
            )

    # --- prompts and rubric -----------------------------------------------------------------------

    def _prompts(self, file: ExperimentFile, document: Document) -> list[Prompt | None]:
        found: list[Prompt | None] = []
        first: dict[str, str] = {}
        for index, path in enumerate(file.prompts):
            prompt = self._prompt(path, ("prompts", index), document, "generator")
            found.append(prompt)
            if prompt is not None and first.setdefault(prompt.id, path) != path:
                self._refs.add(
                    document,
                    ("prompts", index),
                    "duplicate",
                    f"{first[prompt.id]} and {path} are both called {prompt.id!r}",
                    "results go by the id of a prompt: rename one of the files",
                )
        return found

    def _graders(self, file: ExperimentFile, document: Document) -> list[Prompt | None]:
        found: list[Prompt | None] = []
        for index, grader in enumerate(file.judges.graders):
            place: Path = ("judges", "graders", index)
            found.append(self._prompt(grader.prompt, (*place, "prompt"), document, "grader"))
            if grader.by is None and self._refs.header.defaults.judge is None:
                self._refs.add(
                    document,
                    place,
                    "missing",
                    f"no model runs the grader {grader.known_as!r}",
                    "add by: NAME here, or defaults: {judge: NAME} to edison.yaml",
                )
            elif grader.by is not None and grader.by not in self._refs.models:
                self._refs.unknown_model(document, (*place, "by"), grader.by)
        return found

    def _prompt(self, path: str, place: Path, document: Document, kind: str) -> Prompt | None:
        if not self._refs.files.tree.exists(path):
            self._refs.missing_file(document, place, path, self._refs.header.paths.prompts, ".md")
            return None
        prompt = self._refs.files.prompt(path)
        if prompt is not None and prompt.header.type != kind:
            self._refs.add(
                document,
                place,
                "prompt-type",
                f"{path} is a {prompt.header.type}, not a {kind}",
                f"set type: {kind} in its front matter, or list it under "
                + ("judges.graders" if kind == "generator" else "prompts"),
            )
        if prompt is not None:
            self._schema_files(prompt)
        return prompt

    def _schema_files(self, prompt: Prompt) -> None:
        """Check the schemas a prompt names; those inside it were checked with its header."""
        output, tools = prompt.header.output, prompt.header.tools
        if isinstance(output, str):
            self._refs.in_json_file(output, schema_faults(prompt.output, output))
        if isinstance(tools, str):
            self._refs.in_json_file(tools, tool_faults(prompt.tools))

    def _rubric(self, file: ExperimentFile, document: Document) -> RubricFile | None:
        if file.rubric is None:
            return None
        path, folder = file.rubric.path, self._refs.header.paths.rubrics
        if not self._refs.files.tree.exists(path):
            self._refs.missing_file(document, ("rubric", "path"), path, folder, ".yaml")
            return None
        rubric = self._refs.files.rubric(path)
        if rubric is not None and rubric.calibration is not None:
            labels = rubric.calibration.labels
            if not self._refs.files.tree.exists(labels):
                self._refs.warn(
                    self._refs.files.documents[path],
                    ("calibration", "labels"),
                    "not-found",
                    f"{labels} does not exist, so no judge may decide a gate yet",
                    "grade some answers with: edison grade",
                )
        return rubric

    # --- models -----------------------------------------------------------------------------------

    def _points(self, file: ExperimentFile, document: Document) -> list[tuple[Path, Point]]:
        default = self._refs.header.defaults.model
        uses: list[tuple[Path, ModelUse]] = []
        if file.models is not None:
            uses = [(("models", index), use) for index, use in enumerate(file.models)]
        elif default is not None:
            uses = [((), ModelUse(use=default))]
        else:
            self._refs.add(
                document,
                (),
                "missing",
                "no model generates",
                "add models: [NAME] here, or defaults: {model: NAME} to edison.yaml",
            )
        points: list[tuple[Path, Point]] = []
        for place, use in uses:
            model = self._refs.models.get(use.use)
            if model is not None:
                points += [(place, (name, model, params)) for name, params in grid(use)]
            elif place:  # an unknown default is reported where it is set
                self._refs.unknown_model(document, (*place, "use"), use.use)
        if len(points) > MAX_CONFIGURATIONS:
            self._refs.add(
                document,
                ("models",),
                "grid",
                f"{_many(len(points))} configurations; at most {MAX_CONFIGURATIONS}",
                "leave out a model, or shorten a list in params",
            )
        return points[:MAX_CONFIGURATIONS]

    def _configurations(
        self, document: Document, prompt: Prompt, points: list[tuple[Path, Point]]
    ) -> None:
        seen: dict[str, str] = {}
        for place, (name, model, params) in points:
            for key, message in params_refused(prompt.header.params.written(), model.provider):
                self._refs.add(
                    document,
                    place,
                    "params",
                    f"{prompt.path} sets {key}, but {message}",
                    f"leave out {name}, or remove {key} from the prompt",
                )
            for key, message in params_refused(params, model.provider):
                where = (*place, "params", key)
                self._refs.add(document, where, "params", f"{name}: {message}", f"remove {key}")
            sent = configure(name, model, prompt, params).params
            identity = json.dumps([model.identity(), sent], sort_keys=True, default=str)
            first = seen.setdefault(identity, name)
            if first is not name:
                self._refs.add(
                    document,
                    place,
                    "duplicate",
                    f"{first} and {name} are the same call",
                    "for several answers per case, set draws",
                )

    def _judges(
        self, file: ExperimentFile, document: Document, rubric: RubricFile | None
    ) -> tuple[Model, ...]:
        names = file.judges.pointwise
        if names is None:
            default = self._refs.header.defaults.judge
            known = rubric is not None and default is not None and default in self._refs.models
            return (self._refs.models[str(default)],) if known else ()
        for index, name in enumerate(names):
            if name not in self._refs.models:
                self._refs.unknown_model(document, ("judges", "pointwise", index), name)
        return tuple(self._refs.models[name] for name in names if name in self._refs.models)

    def _other_models(self, file: ExperimentFile, document: Document) -> None:
        named: list[tuple[Path, str | None]] = [(("refine", "by"), file.refine.by)]
        if file.judges.pairwise is not None:
            named.append((("judges", "pairwise", "by"), file.judges.pairwise.by))
        for kind in ("moderation", "toxicity"):
            screen = getattr(file.safety, kind)
            if screen is not None:
                named.append((("safety", kind, "by"), screen.by))
        for place, name in named:
            if name is not None and name not in self._refs.models:
                self._refs.unknown_model(document, place, name)


def _many(number: int) -> str:
    return str(number) if number < 1_000 else "1,000 or more"
