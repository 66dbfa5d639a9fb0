"""Does everything an experiment names exist, and does it fit?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.experiment import ExperimentFile, ModelUse
from edison_ci.config.grading_rules import GradingRules
from edison_ci.config.models import MAX_CONFIGURATIONS, Model, configure, grid, params_refused
from edison_ci.config.schemas_of_users import schema_faults, tool_faults
from edison_ci.errors import Location, Problem, Severity

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
        prompts = self._prompts(file, document)
        graders = self._graders(file, document)
        rubric = self._rubric(file, document)
        points = self._points(file, document)
        self._configurations(document, prompts, points)
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
            tuple(p for p in prompts if p), tuple(g for g in graders if g), rubric, points, judges
        )

    def _prompts(self, file: ExperimentFile, document: Document) -> list[Prompt | None]:
        found: list[Prompt | None] = []
        for index, path in enumerate(file.prompts):
            found.append(self._prompt(path, ("prompts", index), document, "generator"))
        ids = [prompt.id for prompt in found if prompt]
        for index, prompt in enumerate(found):
            if (
                prompt
                and prompt.id in ids[: ids.index(prompt.id)] + ids[ids.index(prompt.id) + 1 :]
            ):
                self._refs.add(
                    document,
                    ("prompts", index),
                    "duplicate",
                    f"two prompts are called {prompt.id!r}",
                )
        return found

    def _graders(self, file: ExperimentFile, document: Document) -> list[Prompt | None]:
        found: list[Prompt | None] = []
        for index, grader in enumerate(file.judges.graders):
            place: Path = ("judges", "graders", index)
            by = grader.by or self._refs.header.defaults.judge
            found.append(self._prompt(grader.prompt, (*place, "prompt"), document, "grader"))
            if by is None:
                self._refs.add(
                    document,
                    place,
                    "missing",
                    "no model runs this grader",
                    "add by: NAME or defaults.judge",
                )
            elif by not in self._refs.models:
                self._refs.unknown_model(document, (*place, "by"), by)
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
            self._schemas(prompt)
        return prompt

    def _schemas(self, prompt: Prompt) -> None:
        faults = [*schema_faults(prompt.output, "output")] if prompt.output is not None else []
        faults += [*tool_faults(prompt.tools)] if prompt.tools is not None else []
        for fault in faults:
            self._refs.files.problems.append(
                Problem(Location(prompt.path, 1, 1), fault.code, fault.message, fault.hint)
            )

    def _rubric(self, file: ExperimentFile, document: Document) -> RubricFile | None:
        if file.rubric is None:
            return None
        path = file.rubric.path
        if not self._refs.files.tree.exists(path):
            self._refs.missing_file(
                document, ("rubric",), path, self._refs.header.paths.rubrics, ".yaml"
            )
            return None
        rubric = self._refs.files.rubric(path)
        if rubric is not None and rubric.calibration is not None:
            labels = rubric.calibration.labels
            if not self._refs.files.tree.exists(labels):
                self._refs.add(
                    self._refs.files.documents[path],
                    ("calibration", "labels"),
                    "not-found",
                    f"{labels} does not exist",
                    "edison grade writes it",
                )
        return rubric

    # --- models ---------------------------------------------------------------------------------

    def _uses(self, file: ExperimentFile) -> list[tuple[Path, ModelUse]]:
        if file.models is not None:
            return [(("models", index), use) for index, use in enumerate(file.models)]
        default = self._refs.header.defaults.model
        return [(("experiment",), ModelUse(use=default))] if default else []

    def _points(self, file: ExperimentFile, document: Document) -> tuple[Point, ...]:
        uses = self._uses(file)
        if not uses:
            self._refs.add(
                document,
                (),
                "missing",
                "no model generates",
                "add models: [NAME] or defaults.model",
            )
        points: list[Point] = []
        for place, use in uses:
            model = self._refs.models.get(use.use)
            if model is None:
                self._refs.unknown_model(
                    document, (*place, "use") if len(place) > 1 else place, use.use
                )
                continue
            points += [(name, model, params) for name, params in grid(use)]
        if len(points) > MAX_CONFIGURATIONS:
            self._refs.add(
                document,
                ("models",),
                "grid",
                f"{len(points)} configurations; at most {MAX_CONFIGURATIONS}",
                "shorten a list in params",
            )
        return tuple(points)

    def _configurations(
        self, document: Document, prompts: list[Prompt | None], points: tuple[Point, ...]
    ) -> None:
        for prompt in prompts:
            if prompt is None:
                continue
            seen: dict[str, str] = {}
            for name, model, params in points:
                for key, message in params_refused(prompt.header.params.written(), model.provider):
                    self._refs.add(
                        document,
                        ("models",),
                        "params",
                        f"{prompt.path} sets {key}, but {message}",
                        "leave the model or the parameter out",
                    )
                for key, message in params_refused(params, model.provider):
                    self._refs.add(
                        document, ("models",), "params", f"{name}: {message}", f"remove {key}"
                    )
                configuration = configure(name, model, prompt, params)
                identity = json.dumps(
                    [model.identity(), configuration.params], sort_keys=True, default=str
                )
                if identity in seen:
                    self._refs.add(
                        document,
                        ("models",),
                        "duplicate",
                        f"{seen[identity]} and {name} are the same call",
                        "for several answers per case, set draws",
                    )
                seen.setdefault(identity, name)

    def _judges(
        self, file: ExperimentFile, document: Document, rubric: RubricFile | None
    ) -> tuple[Model, ...]:
        names = file.judges.pointwise
        if names is None:
            if rubric is None or self._refs.header.defaults.judge is None:
                return ()
            names = (self._refs.header.defaults.judge,)
        found = []
        for index, name in enumerate(names):
            if name not in self._refs.models:
                self._refs.unknown_model(document, ("judges", "pointwise", index), name)
            elif name in names[:index]:
                self._refs.add(
                    document,
                    ("judges", "pointwise", index),
                    "duplicate",
                    f"judge {name!r} is listed twice",
                )
            else:
                found.append(self._refs.models[name])
        return tuple(found)

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
