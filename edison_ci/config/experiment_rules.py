"""Rules of an experiment: every reference resolves, and all parts of it fit together."""

from __future__ import annotations

import ast
import json
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import check_named
from edison_ci.config import user_schemas
from edison_ci.config.experiment import JUDGES, NAMED_METRICS, ModelUse
from edison_ci.config.models import (
    MAX_CONFIGURATIONS,
    Model,
    configure,
    grid,
    left_out_message,
    params_refused,
    problems_with,
    sent_params,
    vendor_of,
)
from edison_ci.contracts import JudgePlugin
from edison_ci.documents.files import read
from edison_ci.documents.marks import Fault
from edison_ci.errors import Severity
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.checks.code import Python
    from edison_ci.checks.options import Check
    from edison_ci.checks.similarity import Similar
    from edison_ci.config.experiment import ExperimentFile
    from edison_ci.config.prompt import Prompt
    from edison_ci.config.rubric import RubricFile
    from edison_ci.config.rules import Path, References
    from edison_ci.documents.marks import Document

Point = tuple[str, Model, "Mapping[str, object]"]
_EMBEDDERS = ("openai", "openai_compatible", "azure", "ollama", "replay")
"""Providers whose models can embed, if they have an embeddings endpoint."""
_HOW = {
    "criterion": "add a rubric",
    "check": "add checks",
    "grader": "add judges: {graders: [...]}",
}


class Parts(NamedTuple):
    """The resolved references of an experiment."""

    prompts: tuple[Prompt, ...]
    graders: tuple[Prompt, ...]
    rubric: RubricFile | None
    models: tuple[Point, ...]
    judges: tuple[Model, ...]
    judge_plugins: tuple[str, ...]


class CheckLocation(NamedTuple):
    """A check and the location of its argument."""

    check: Check
    path: Path
    outer: str = ""
    """Name of the combinator around it."""

    def option(self, document: Document, name: str) -> Path:
        """Return the path of an option, or of the short form for it."""
        return (*self.path, name) if name in _map_at(document, self.path) else self.path


@dataclass(frozen=True, slots=True)
class ExperimentRules:
    """Resolves the references of an experiment and reports those that are missing or do not fit."""

    _refs: References
    _file: ExperimentFile
    _document: Document

    def check(self) -> Parts | None:
        """Return the resolved references, or None if one is missing."""
        before = len(self._refs.files.problems)
        self._counterpart()
        prompts, graders, rubric = self._prompts(), self._graders(), self._rubric()
        points = self._points()
        for prompt in prompts:
            if prompt is not None:
                self._configurations(prompt, points)
        judges, plugins = self._judges(rubric)
        self._other_models()
        self._grading()
        self._gates(rubric)
        for index, check in enumerate(self._file.checks):
            for placed in placed_checks(check, self._document, ("checks", index)):
                self._check(placed)
        self._data()
        new = self._refs.files.problems[before:]
        lacking = None in (*prompts, *graders)
        if lacking or any(problem.severity is Severity.ERROR for problem in new):
            return None
        return Parts(
            tuple(p for p in prompts if p),
            tuple(g for g in graders if g),
            rubric,
            tuple(point for _, point in points),
            judges,
            plugins,
        )

    def _add(self, path: Path, code: str, message: str, hint: str = "") -> None:
        self._refs.add(self._document, path, code, message, hint)

    def _warn(self, path: Path, code: str, message: str, hint: str) -> None:
        self._refs.warn(self._document, path, code, message, hint)

    def _fault(self, path: Path, fault: Fault | user_schemas.SchemaFault) -> None:
        self._add(path, fault.code, fault.message, fault.hint)

    def _counterpart(self) -> None:
        """Report an experiment that has both a .yaml and a .yml file, at the second."""
        stem, _, suffix = self._document.file.rpartition(".")
        if suffix == "yml" and self._refs.files.tree.exists(f"{stem}.yaml"):
            message = f"{stem}.yaml is also the experiment {self._file.experiment!r}"
            self._add(
                ("experiment",), "duplicate", message, "remove or rename one of the two files"
            )

    def _prompts(self) -> list[Prompt | None]:
        prompts: list[Prompt | None] = []
        first: dict[str, str] = {}
        for index, path in enumerate(self._file.prompts):
            place: Path = ("prompts", index)
            prompt = self._prompt(path, place, "generator")
            prompts.append(prompt)
            if prompt is not None and first.setdefault(prompt.id, path) != path:
                message = f"{first[prompt.id]} and {path} both have the id {prompt.id!r}"
                hint = "results are stored by prompt id: rename one of the files"
                self._add(place, "duplicate", message, hint)
        return prompts

    def _graders(self) -> list[Prompt | None]:
        prompts: list[Prompt | None] = []
        default = self._refs.header.defaults.judge
        for index, grader in enumerate(self._file.judges.graders):
            place: Path = ("judges", "graders", index)
            prompt = self._prompt(grader.prompt, (*place, "prompt"), "grader")
            prompts.append(prompt)
            if grader.by is not None:
                self._refs.answering_model(self._document, (*place, "by"), grader.by)
            elif default is None:
                message = f"no model runs the grader {grader.report_name!r}"
                hint = "add by: NAME here, or defaults: {judge: NAME} to edison.yaml"
                self._add(place, "missing", message, hint)
            model = self._refs.models.get(grader.by or default or "")
            if prompt is not None and model is not None:
                self._params(place, prompt, (model.name, model, {}))
        return prompts

    def _prompt(self, path: str, place: Path, kind: str) -> Prompt | None:
        if not self._refs.files.tree.exists(path):
            folder = self._refs.header.paths.prompts
            self._refs.missing_file(self._document, place, path, folder, ".md")
            return None
        prompt = self._refs.files.prompt(path)
        if prompt is None:
            return None
        if prompt.header.type != kind:
            others = "judges.graders" if kind == "generator" else "prompts"
            hint = f"set type: {kind} in its front matter, or list it under {others}"
            message = f"{path} is a {prompt.header.type}, not a {kind}"
            self._add(place, "prompt-type", message, hint)
        # Inline schemas are checked with its header.
        output, tools = prompt.header.output, prompt.header.tools
        if isinstance(output, str):
            self._refs.in_json_file(output, user_schemas.schema_faults(prompt.output, output))
        if isinstance(tools, str):
            self._refs.in_json_file(tools, user_schemas.tool_faults(prompt.tools))
        return prompt

    def _rubric(self) -> RubricFile | None:
        if self._file.rubric is None:
            return None
        path, files = self._file.rubric.path, self._refs.files
        if not files.tree.exists(path):
            folder = self._refs.header.paths.rubrics
            self._refs.missing_file(self._document, ("rubric", "path"), path, folder, ".yaml")
            return None
        rubric = files.rubric(path)
        if rubric is not None and rubric.calibration is not None:
            labels = rubric.calibration.labels
            if not files.tree.exists(labels):
                message = f"{labels} does not exist, so judges cannot decide gates yet"
                hint, place = "grade some answers with: edison grade", ("calibration", "labels")
                self._refs.warn(files.documents[path], place, "not-found", message, hint)
        return rubric

    def _points(self) -> list[tuple[Path, Point]]:
        """Return the models with parameters that the experiment runs, and the place of each."""
        default = self._refs.header.defaults.model
        uses: list[tuple[Path, ModelUse]] = []
        if self._file.models is not None:
            uses = [(("models", index), use) for index, use in enumerate(self._file.models)]
        elif default is not None:
            uses = [((), ModelUse(use=default))]
        else:
            hint = "add models: [NAME] here, or defaults: {model: NAME} to edison.yaml"
            self._add((), "missing", "the experiment has no model", hint)
        points: list[tuple[Path, Point]] = []
        for place, use in uses:
            model = self._refs.models.get(use.use)
            if model is not None:
                points += [(place, (name, model, params)) for name, params in grid(use)]
            if place:  # a default is checked where it is set
                self._refs.answering_model(self._document, (*place, "use"), use.use)
        if len(points) > MAX_CONFIGURATIONS:
            count = str(len(points)) if len(points) < 1_000 else "1,000 or more"
            message = f"{count} configurations; at most {MAX_CONFIGURATIONS}"
            self._add(
                ("models",), "grid", message, "leave out a model, or shorten a list in params"
            )
        return points[:MAX_CONFIGURATIONS]

    def _configurations(self, prompt: Prompt, points: list[tuple[Path, Point]]) -> None:
        seen: dict[str, str] = {}
        for place, point in points:
            self._params(place, prompt, point)
            name, model, params = point
            sent = configure(name, model, prompt, params).params
            identity = json.dumps([model.identity(), sent], sort_keys=True, default=str)
            first = seen.setdefault(identity, name)
            if first is not name:
                message = f"{first} and {name} are the same call"
                self._add(place, "duplicate", message, "for several answers per case, set repeats")

    def _params(self, place: Path, prompt: Prompt, point: Point) -> None:
        """Report what a model does not take of a prompt and of the parameters here."""
        name, model, params = point
        header = prompt.header.written_params
        for key, message in params_refused(header, model.provider):
            hint = f"leave out {name}, or remove {key} from the prompt"
            self._add(place, "params", f"{prompt.path} sets {key}, but {message}", hint)
        for key, message in params_refused(params, model.provider):
            self._add((*place, "params", key), "params", f"{name}: {message}", f"remove {key}")
        own = {**header, **params}
        written = {**model.params, **own}
        in_registry = {*problems_with(model, model.params)}
        for key, message in problems_with(model, written):
            if (key, message) not in in_registry:
                of = f"{name}: {prompt.path}" if key in header.keys() - params.keys() else name
                self._add(place, "params", f"{of}: {message}", f"change {key}")
        for key in sent_params(model, written)[1]:
            if key in own:
                message = f"{name}: {left_out_message(model, key)}"
                self._warn(place, "left-out", message, f"remove {key}")
        self._forms(place, prompt, point)

    def _forms(self, place: Path, prompt: Prompt, point: Point) -> None:
        """Warn of tools and output schemas that a model does not take."""
        name, model, _ = point
        can = model.capabilities
        # Older models of Anthropic give an answer of a given form through a tool.
        schema = can.tools if vendor_of(model) == "anthropic" and not can.schema else can.schema
        lacking = {
            "tools": prompt.tools is not None and can.tools is False,
            "output schema": prompt.output is not None and schema is False,
        }
        for what, lacks in lacking.items():
            if lacks:
                message = f"{name}: {model.model} takes no {what}, according to the table of models"
                message += f", but {prompt.path} has"
                self._warn(
                    place, "ability", message, "choose another model, or remove it from the prompt"
                )

    def _judges(self, rubric: RubricFile | None) -> tuple[tuple[Model, ...], tuple[str, ...]]:
        """Return the models that judge, and the names of judge plugins."""
        models, names = self._refs.models, self._file.judges.pointwise
        if names is None:
            default = self._refs.header.defaults.judge
            judged = rubric is not None and default is not None and default in models
            return ((models[str(default)],) if judged else ()), ()
        plugins = []
        for index, name in enumerate(names):
            place = ("judges", "pointwise", index)
            if name in models:
                self._refs.answering_model(self._document, place, name)
            elif JUDGES.load_class(name, JudgePlugin) is not None:
                plugins.append(name)
            else:
                self._refs.unknown_model(self._document, place, name, others=JUDGES.names())
        return tuple(models[name] for name in names if name in models), tuple(plugins)

    def _other_models(self) -> None:
        """Check the models that screen, refine and compare."""
        file = self._file
        for kind in ("moderation", "toxicity"):
            screen = getattr(file.safety, kind)
            if screen is not None:
                place: Path = ("safety", kind, "by")
                self._refs.answering_model(self._document, place, screen.by, screens=True)
        if file.refine.by is not None:
            self._refs.answering_model(self._document, ("refine", "by"), file.refine.by)
        if file.judges.pairwise is not None:
            place, name = ("judges", "pairwise", "by"), file.judges.pairwise.by
            self._refs.answering_model(self._document, place, name)

    def _grading(self) -> None:
        file, judges = self._file, self._file.judges
        if file.rubric is not None and not (judges.pointwise or self._refs.header.defaults.judge):
            hint = "add judges: {pointwise: [NAME]} here, or defaults: {judge: NAME} to edison.yaml"
            self._add(("rubric",), "missing", "the rubric has no judge", hint)
        if judges.pointwise is not None and file.rubric is None:
            message, hint = (
                "judges need a rubric to score",
                "add rubric: rubrics/NAME.yaml, or remove them",
            )
            self._add(("judges", "pointwise"), "missing", message, hint)
        if not (self._is_graded or judges.pairwise):
            hint = "add checks, a rubric or a grader"
            self._add((), "missing", "nothing grades the answers", hint)

    @property
    def _is_graded(self) -> bool:
        return bool(self._file.checks or self._file.rubric or self._file.judges.graders)

    def _gates(self, rubric: RubricFile | None) -> None:
        file = self._file
        names_of: dict[str, list[str]] = {
            "check": _check_names(file),
            "grader": [grader.report_name for grader in file.judges.graders],
            "safety": sorted(file.safety.active()),
        }
        if rubric is not None:
            names_of["criterion"] = [name for c in rubric.criteria for name in (c.name, c.slug)]
        elif file.rubric is None:
            names_of["criterion"] = []  # an invalid rubric has its own problems
        for index, gate in enumerate(file.gates):
            family, _, name = gate.metric.partition(".")
            place: Path = ("gates", index, "metric")
            if family == "check" and name in file.named_checks():
                continue
            if family in NAMED_METRICS and family in names_of and name not in names_of[family]:
                message, hint = f"there is no {family} {name!r}", ""
                if family == "safety":  # the name is right, or the file would not have been read
                    message, hint = f"the safety screen {name} is off", _switch_on(name)
                hint = hint or did_you_mean(name, names_of[family], label="there are")
                self._add(place, "metric", message, hint or _HOW[family])
            needed = self._needed(gate.metric)
            if needed is not None:
                self._add(place, "metric", *needed)
            elif gate.metric in ("pass_rate", "flips") and self._cannot_fail(rubric):
                message = "nothing can fail: there is no check, no grader and no pass_at"
                hint = "set pass_at in the rubric, or gate on composite"
                self._warn(place, "metric", message, hint)

    def _needed(self, metric: str) -> tuple[str, str] | None:
        """Return why a metric cannot be computed, and a hint."""
        pairwise = self._file.judges.pairwise
        if metric == "win_rate" and pairwise is None:
            return "win_rate needs a pairwise judge", "add judges: {pairwise: {by: NAME}}"
        if metric in ("composite", "pass_rate", "flips") and pairwise and not self._is_graded:
            return f"{metric} needs a check, a rubric or a grader", "add one, or gate on win_rate"
        return None

    def _cannot_fail(self, rubric: RubricFile | None) -> bool:
        """Whether no answer can fail."""
        if rubric is None or self._file.checks or self._file.judges.graders:
            return False
        return not rubric.can_fail

    def _check(self, placed: CheckLocation) -> None:
        check = placed.check
        if check.check == "json_schema":
            self._json_schema(placed)
        elif check.check == "python":
            fault = self._python(cast("Python", check))
            if fault is not None:
                self._fault(placed.option(self._document, "value"), fault)
        elif check.check == "similar" and (by := cast("Similar", check).by) is not None:
            self._embedder(by, (*placed.path, "by"))
        for name in ("name", "weight", "threshold") if placed.outer else ():
            if getattr(check, name) is not None:
                message = f"{name} has no effect inside {placed.outer}"
                hint = f"write {placed.outer}: {{value: ..., {name}: ...}}"
                self._warn((*placed.path, name), "no-effect", message, hint)

    def _embedder(self, name: str, place: Path) -> None:
        """Check that a model can embed texts."""
        model = self._refs.models.get(name)
        if model is None:
            self._refs.unknown_model(self._document, place, name)
        elif model.provider not in _EMBEDDERS:
            message = f"model {name!r}: provider {model.provider} has no embeddings here"
            hint = f"name a model of {', '.join(_EMBEDDERS)}; or leave out by, to embed locally"
            self._add(place, "embedding", message, hint)
        elif model.capabilities.known and not model.capabilities.embedding:
            message = f"model {name!r}: {model.model} writes answers, it does not embed texts"
            hint = "name an embedding model, such as text-embedding-3-small of openai"
            self._add(place, "embedding", message, hint)

    def _json_schema(self, placed: CheckLocation) -> None:
        value: Any = getattr(placed.check, "value", None)
        place = placed.option(self._document, "value")
        if not isinstance(value, str):
            for fault in user_schemas.schema_faults(value, "the schema"):
                self._fault((*place, *fault.path), fault)
            return
        try:
            schema = self._refs.files.schema(value)
        except Fault as fault:
            self._fault(place, fault)
        else:
            self._refs.in_json_file(value, user_schemas.schema_faults(schema, "the schema"))

    def _python(self, check: Python) -> Fault | None:
        """Return the problem of the code of a check, which is parsed but not run."""
        try:
            source = read(self._refs.files.tree, check.path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about escapes are ignored
                names = _top_level_names(ast.parse(source))
        except Fault as fault:
            return fault
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            line = getattr(error, "lineno", None)
            at = f" in line {line}" if line else ""
            return Fault("python", f"{check.path} is not valid Python{at}: {what}", "fix it")
        if check.function in names or "*" in names:
            return None
        hint = did_you_mean(check.function, names)
        if not hint.startswith("did"):
            hint = f"add def {check.function}(output, expected, case)"
        return Fault("python", f"{check.path} has no function {check.function!r}", hint)

    def _data(self) -> None:
        key = "dataset" if self._file.dataset is not None else "datasets"
        for index, entry in enumerate(self._file.data):
            place: Path = (key, index, "path") if key == "datasets" else (key,)
            if not self._refs.files.tree.exists(entry.path):
                suffix = entry.path[entry.path.rfind(".") :]
                folder = self._refs.header.paths.datasets
                self._refs.missing_file(self._document, place, entry.path, folder, suffix)
            allowed = self._refs.header.settings.allow_synthetic_datasets
            if entry.kind == "synthetic" and not allowed:
                message = "synthetic data is not allowed in this project"
                hint = "leave it out, or set settings: {allow_synthetic_datasets: true}"
                self._add((key, index, "kind"), "synthetic", message, hint)


def placed_checks(
    check: Check, document: Document, entry: Path, outer: str = ""
) -> Iterator[CheckLocation]:
    """Yield a check and its nested checks, each with the location of its argument."""
    path = (*entry, check.check)
    yield CheckLocation(check, path, outer)
    inner = (*path, "value") if "value" in _map_at(document, path) else path
    for index, part in enumerate(check.inner_checks()):
        place = inner if check.check == "not" else (*inner, index)
        yield from placed_checks(part, document, place, check.check)


def _map_at(document: Document, path: Path) -> dict[str, Any]:
    """Return the mapping at a path of a file; empty if there is none."""
    value: Any = document.value
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return value if isinstance(value, dict) else {}


def _check_names(file: ExperimentFile) -> list[str]:
    """Return what a gate may call each check: its kind where that is unique, else its name."""
    names = [*file.named_checks()]
    kinds = [(name, name.partition(" ")[0]) for name in names]
    return [kind if check_named(kind, names) == name else name for name, kind in kinds]


def _top_level_names(tree: ast.Module) -> set[str]:
    """Return the top-level names of a module, including those in if and try."""
    names: set[str] = set()
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            stack.extend(ast.iter_child_nodes(node))
    return names


def _switch_on(screen: str) -> str:
    """Return how to switch on a safety screen that a gate names."""
    inside = f"{{{screen}: ...}}"
    if screen == "any":
        inside = "{pii: flag}"
    elif screen.startswith("input_"):
        inside = f"{{inputs: {{{screen.removeprefix('input_')}: ...}}}}"
    return f"switch it on under safety: {inside}"
