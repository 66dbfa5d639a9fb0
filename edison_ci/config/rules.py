"""Rules across files: every reference resolves and fits."""

from __future__ import annotations

import ast
import datetime as dt
import json
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import check_named
from edison_ci.config import trust, user_schemas
from edison_ci.config.capabilities import left_out_message, problems_with, vendor_of
from edison_ci.config.experiment import JUDGES, NAMED_METRICS, ExperimentFile, ModelUse
from edison_ci.config.model_entry import LITELLM_VENDORS
from edison_ci.config.models import (
    MAX_CONFIGURATIONS,
    Model,
    configure,
    grid,
    params_refused,
    retirement,
    sent_params,
)
from edison_ci.config.project_files import PROJECT, QUARANTINE
from edison_ci.contracts import JudgePlugin
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, Problem, Severity
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.checks.code import Python
    from edison_ci.checks.options import Check
    from edison_ci.checks.similarity import Similar
    from edison_ci.config.prices import PriceTable
    from edison_ci.config.project import ProjectFile
    from edison_ci.config.project_files import ProjectFiles
    from edison_ci.config.prompt import Prompt
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.config.rubric import RubricFile
    from edison_ci.config.user_schemas import SchemaFault
    from edison_ci.documents.marks import Document


OLDEST_PRICES = dt.timedelta(days=365)
"""Age from which a price table is too old."""


def service_of(model: Model) -> str | None:
    """Return the address that the keys of a model are sent to; None if unknown."""
    if model.base_url is not None:
        return model.base_url
    if model.provider == "bedrock":
        return f"https://bedrock-runtime.{model.options['region']}.amazonaws.com"
    if model.provider == "vertex":
        location = model.options["location"]
        prefix = "" if location == "global" else f"{location}-"
        return f"https://{prefix}aiplatform.googleapis.com"
    if model.provider != "litellm":
        return None  # a plugin without base_url
    return LITELLM_VENDORS.get(model.model.partition("/")[0])


class HeaderRefusal(NamedTuple):
    """A header that the entry of a model sets and may not send to its address."""

    name: str
    message: str
    hint: str


def header_refusals(
    model: Model, address: str, trust_file: trust.TrustFile
) -> Iterator[HeaderRefusal]:
    """Yield the headers of an http model that its address may not get."""
    headers = model.options.get("headers", ()) if model.provider == "http" else ()
    for name in trust_file.refused_headers(headers, address):
        host = trust.target_of(address)
        message = f"model {model.name!r} may not send the header {name} to {host}"
        entry = f'services: [{{host: "{host}", headers: [{name}]}}]'
        yield HeaderRefusal(name, message, f"allow it in .edison/trust.yaml: {entry}")


@dataclass(frozen=True, slots=True)
class RegistryRules:
    """Checks of models, prices, trust and quarantine, independent of experiments."""

    _refs: References
    _trust: trust.TrustFile
    _prices: PriceTable
    _today: dt.date

    def check_models(self) -> None:
        """Check keys against trust, prices against the table, defaults against the registry."""
        for model in self._refs.models.values():
            self._check_trust(model)
            self._check_headers(model)
            self._check_price(model)
            self._check_files(model)
        self._check_age()
        document = self._refs.files.documents.get(PROJECT)
        for role in ("model", "judge", "refiner"):
            name = getattr(self._refs.header.defaults, role)
            if name is not None and document is not None:
                self._refs.answering_model(document, ("defaults", role), name)

    def _check_trust(self, model: Model) -> None:
        if model.base_url_env is not None:
            return  # the address is checked before a run
        address = service_of(model)
        if address is not None and self._trust.identity(model.provider, address) is not None:
            return  # called without a key, or with one that goes to the same host
        for env in model.keys.values():
            if address is None:
                said = f"model {model.name!r} would send {env} to an unknown host"
                hint = "add base_url, and allow its host in .edison/trust.yaml"
                self._refs.files.problems.append(Problem(model.where, "trust", said, hint))
            elif not self._trust.allows(env, address, model.provider):
                host = trust.origin(address)
                self._refs.files.problems.append(
                    Problem(
                        model.where,
                        "trust",
                        f"model {model.name!r} would send {env} to {host}",
                        f'allow it in .edison/trust.yaml: {{env: {env}, hosts: ["{host}"]}}',
                    )
                )

    def _check_headers(self, model: Model) -> None:
        """Check the headers of an http model against the closed list and trust."""
        document = self._refs.files.documents.get(self._refs.header.paths.models)
        if model.base_url is None or document is None:
            return  # checked before a call
        for refusal in header_refusals(model, model.base_url, self._trust):
            place = (model.name, "options", "headers", refusal.name)
            self._refs.add(document, place, "request-header", refusal.message, refusal.hint)

    def _check_price(self, model: Model) -> None:
        if self._prices.price_of(model) is None:
            hint = f"add price: {{in: ..., out: ...}} or price: free; table of {self._prices.date}"
            self._refs.files.problems.append(
                Problem(
                    model.where,
                    "price",
                    f"the price of model {model.name!r} is unknown; "
                    "runs with a budget will refuse it",
                    hint,
                    Severity.WARNING,
                )
            )
        self._check_params(model)
        retires = self._prices.retires(model)
        if retires:
            today = self._today.isoformat()
            newer = self._prices.successor(model, today)
            warning = retirement(model.name, retires, today, model.where, newer)
            if warning:
                self._refs.files.problems.append(warning)

    def _check_age(self) -> None:
        """Warn of a price table that is older than a year, if a model takes its price from it."""
        table, models = self._prices, self._refs.models.values()
        age = self._today - dt.date.fromisoformat(table.date)
        if age <= OLDEST_PRICES or not any(table.lists(model) for model in models):
            return
        registry = self._refs.header.paths.models
        where = Location(registry if table.origin == "bundled" else table.origin)
        message = f"the prices are of {table.date}, more than a year old: costs may be wrong"
        hint = "update them with: edison admin prices update --from FILE"
        warning = Problem(where, "old-prices", message, hint, Severity.WARNING)
        self._refs.files.problems.append(warning)

    def _check_params(self, model: Model) -> None:
        """Check the parameters in models.yaml against the table of models."""
        document = self._refs.files.documents.get(self._refs.header.paths.models)
        if document is None:
            return
        for key, message in problems_with(model, model.params):
            where = (model.name, "params", key)
            self._refs.add(document, where, "params", message, f"change {key}")
        for key in sent_params(model, model.params)[1]:
            message = left_out_message(model, key)
            where = (model.name, "params", key)
            self._refs.warn(document, where, "left-out", message, f"remove {key}")

    def _check_files(self, model: Model) -> None:
        """Check that the answer files and the programs of models exist."""
        document = self._refs.files.documents.get(self._refs.header.paths.models)
        named: dict[tuple[str | int, ...], str | None] = {
            ("store",): model.store,
            ("options", "file"): model.script,
        }
        if model.provider == "command":
            places = enumerate(model.options["files"])
            named |= {("options", "files", number): path for number, path in places}
        tree = self._refs.files.tree
        for place, path in named.items():
            if document is None or path is None or tree.exists(path) or tree.names(path):
                continue
            hint = "create one with: edison run --record PATH"
            self._refs.add(
                document,
                (model.name, *place),
                "not-found",
                f"{path} does not exist",
                hint if place == ("store",) else "write it, or name another file",
            )

    def check_quarantine(self, cases: Sequence[QuarantinedCase], experiments: set[str]) -> None:
        """Check that entries name experiments and have not expired."""
        document = self._refs.files.documents.get(QUARANTINE)
        if document is None:
            return
        folder = self._refs.header.paths.experiments
        for path in self._refs.files.in_folder(folder, (".yaml", ".yml")):
            # an invalid one has its own problems
            experiments = experiments | {path.rpartition("/")[2].rpartition(".")[0]}
        for index, entry in enumerate(cases):
            if entry.experiment not in experiments:
                self._refs.add(
                    document,
                    ("cases", index, "experiment"),
                    "unknown-experiment",
                    f"there is no experiment {entry.experiment!r}",
                    did_you_mean(entry.experiment, experiments, label="there are")
                    or "remove the entry",
                )
            if entry.until < self._today.isoformat():
                self._refs.add(
                    document,
                    ("cases", index, "until"),
                    "expired",
                    f"the quarantine of {entry.case!r} ended on {entry.until}",
                    "fix the case and remove the entry, or set a new date",
                )


Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class References:
    """Files, project header and models, with methods that report problems."""

    files: ProjectFiles
    header: ProjectFile
    models: Mapping[str, Model]

    def add(self, document: Document, path: Path, code: str, message: str, hint: str = "") -> None:
        """Report a problem at a location in a file."""
        self.files.problems.append(document.problem(path, code, message, hint))

    def warn(self, document: Document, path: Path, code: str, message: str, hint: str) -> None:
        """Report a warning."""
        self.files.problems.append(document.warning(path, code, message, hint))

    def unknown_model(
        self, document: Document, path: Path, name: str, *, others: Iterable[str] = ()
    ) -> None:
        """Report an unknown model, with the nearest name."""
        registry = self.header.paths.models
        entry = self.files.documents.get(registry)
        entries = entry.value if entry is not None and isinstance(entry.value, dict) else {}
        if name in entries and name != "version":
            return  # it exists and has its own problems
        hint = did_you_mean(name, [*self.models, *others], label=f"{registry} has")
        hint = hint or f"add it to {registry}"
        self.add(document, path, "unknown-model", f"unknown model {name!r}", hint)

    def answering_model(
        self, document: Document, path: Path, name: str, *, screens: bool = False
    ) -> None:
        """Report a model that is unknown, or that returns no answers: embeddings, or moderation.

        A model that moderates may be named for a screen.
        """
        if name not in self.models:
            self.unknown_model(document, path, name)
        elif self.models[name].capabilities.embedding:
            message = f"model {name!r}: {self.models[name].model} embeds texts, it does not answer"
            hint = "name a chat model here; an embedding model goes into similar: {by: NAME}"
            self.add(document, path, "embedding", message, hint)
        elif self.models[name].moderates and not screens:
            message = f"model {name!r}: {self.models[name].model} moderates, it does not answer"
            hint = "name a chat model here; this one goes into safety: {moderation: {by: NAME}}"
            self.add(document, path, "moderation", message, hint)

    def missing_file(
        self, document: Document, path: Path, file: str, folder: str, suffix: str
    ) -> None:
        """Report a missing file, with the nearest name."""
        there = self.files.in_folder(folder, (suffix,))
        hint = did_you_mean(file, there, label="there are") or f"write it, or see {folder}/"
        self.add(document, path, "not-found", f"{file} does not exist", hint)

    def in_json_file(self, path: str, faults: Iterable[SchemaFault]) -> None:
        """Report a problem inside a JSON file that another file refers to."""
        listed = list(faults)
        if not listed:
            return
        try:
            document = read_json(read(self.files.tree, path), path)
        except Fault:
            return  # reported where the file is named
        for fault in listed:
            self.add(document, fault.path, fault.code, fault.message, fault.hint)


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
class GradingRules:
    """Checks of grading, gates, checks and data of an experiment."""

    _refs: References

    def check(self, file: ExperimentFile, document: Document, rubric: RubricFile | None) -> None:
        """Report everything that does not fit together."""
        self._grading(file, document)
        self._gates(file, document, rubric)
        for index, check in enumerate(file.checks):
            for placed in placed_checks(check, document, ("checks", index)):
                self._check(placed, document)
        self._data(file, document)

    def _grading(self, file: ExperimentFile, document: Document) -> None:
        judged = file.judges.pointwise is not None or self._refs.header.defaults.judge is not None
        if file.rubric is not None and not judged:
            self._refs.add(
                document,
                ("rubric",),
                "missing",
                "the rubric has no judge",
                "add judges: {pointwise: [NAME]} here, or defaults: {judge: NAME} to edison.yaml",
            )
        if file.judges.pointwise is not None and file.rubric is None:
            self._refs.add(
                document,
                ("judges", "pointwise"),
                "missing",
                "judges need a rubric to score",
                "add rubric: rubrics/NAME.yaml, or remove them",
            )
        if not (_graded(file) or file.judges.pairwise):
            self._refs.add(
                document,
                (),
                "missing",
                "nothing grades the answers",
                "add checks, a rubric or a grader",
            )

    # --- gates ------------------------------------------------------------------------------------

    def _gates(self, file: ExperimentFile, document: Document, rubric: RubricFile | None) -> None:
        known: dict[str, list[str]] = {
            "check": _check_names(file),
            "grader": [grader.report_name for grader in file.judges.graders],
            "safety": sorted(file.safety.active()),
        }
        if rubric is not None:
            known["criterion"] = [name for c in rubric.criteria for name in (c.name, c.slug)]
        elif file.rubric is None:
            known["criterion"] = []  # an invalid rubric has its own problems
        for index, gate in enumerate(file.gates):
            family, _, name = gate.metric.partition(".")
            place: Path = ("gates", index, "metric")
            if family == "check" and name in file.named_checks():
                continue
            if family in NAMED_METRICS and family in known and name not in known[family]:
                message, hint = f"there is no {family} {name!r}", ""
                if family == "safety":  # the name is right, or the file would not have been read
                    message = f"the safety screen {name} is off"
                    hint = _switch_on(name)
                hint = hint or did_you_mean(name, known[family], label="there are") or _HOW[family]
                self._refs.add(document, place, "metric", message, hint)
            needed = _needed(file, gate.metric)
            if needed is not None:
                self._refs.add(document, place, "metric", *needed)
            elif gate.metric in ("pass_rate", "flips") and _cannot_fail(file, rubric):
                self._refs.warn(
                    document,
                    place,
                    "metric",
                    "nothing can fail: there is no check, no grader and no pass_at",
                    "set pass_at in the rubric, or gate on composite",
                )

    # --- checks -----------------------------------------------------------------------------------

    def _check(self, placed: CheckLocation, document: Document) -> None:
        check = placed.check
        if check.check == "json_schema":
            self._json_schema(placed, document)
        elif check.check == "python":
            fault = self._python(cast("Python", check))
            if fault is not None:
                place = placed.option(document, "value")
                self._refs.add(document, place, fault.code, fault.message, fault.hint)
        elif check.check == "similar" and (by := cast("Similar", check).by) is not None:
            self._embedder(by, (*placed.path, "by"), document)
        if placed.outer:
            for name in ("name", "weight", "threshold"):
                if getattr(check, name) is not None:
                    self._refs.warn(
                        document,
                        (*placed.path, name),
                        "no-effect",
                        f"{name} has no effect inside {placed.outer}",
                        f"write {placed.outer}: {{value: ..., {name}: ...}}",
                    )

    def _embedder(self, name: str, place: Path, document: Document) -> None:
        """Check that a model can embed texts."""
        model = self._refs.models.get(name)
        if model is None:
            self._refs.unknown_model(document, place, name)
        elif model.provider not in _EMBEDDERS:
            message = f"model {name!r}: provider {model.provider} has no embeddings here"
            hint = f"name a model of {', '.join(_EMBEDDERS)}; or leave out by, to embed locally"
            self._refs.add(document, place, "embedding", message, hint)
        elif model.capabilities.known and not model.capabilities.embedding:
            message = f"model {name!r}: {model.model} writes answers, it does not embed texts"
            hint = "name an embedding model, such as text-embedding-3-small of openai"
            self._refs.add(document, place, "embedding", message, hint)

    def _json_schema(self, placed: CheckLocation, document: Document) -> None:
        value: Any = getattr(placed.check, "value", None)
        place = placed.option(document, "value")
        if not isinstance(value, str):
            for fault in user_schemas.schema_faults(value, "the schema"):
                where = (*place, *fault.path)
                self._refs.add(document, where, fault.code, fault.message, fault.hint)
            return
        try:
            schema = self._refs.files.schema(value)
        except Fault as fault:
            self._refs.add(document, place, fault.code, fault.message, fault.hint)
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

    # --- data -------------------------------------------------------------------------------------

    def _data(self, file: ExperimentFile, document: Document) -> None:
        key = "dataset" if file.dataset is not None else "datasets"
        for index, entry in enumerate(file.data):
            place: Path = (key, index, "path") if key == "datasets" else (key,)
            if not self._refs.files.tree.exists(entry.path):
                suffix = entry.path[entry.path.rfind(".") :]
                folder = self._refs.header.paths.datasets
                self._refs.missing_file(document, place, entry.path, folder, suffix)
            allowed = self._refs.header.settings.allow_synthetic_datasets
            if entry.kind == "synthetic" and not allowed:
                self._refs.add(
                    document,
                    (key, index, "kind"),
                    "synthetic",
                    "synthetic data is not allowed in this project",
                    "leave it out, or set settings: {allow_synthetic_datasets: true}",
                )


_EMBEDDERS = ("openai", "openai_compatible", "azure", "ollama", "replay")
"""Providers whose models can embed, if they have an embeddings endpoint."""
_HOW = {
    "criterion": "add a rubric",
    "check": "add checks",
    "grader": "add judges: {graders: [...]}",
}


def _graded(file: ExperimentFile) -> bool:
    return bool(file.checks or file.rubric or file.judges.graders)


def _check_names(file: ExperimentFile) -> list[str]:
    """Return what a gate may call each check: its kind where that is unique, else its name."""
    names = [*file.named_checks()]
    kinds = [(name, name.partition(" ")[0]) for name in names]
    return [kind if check_named(kind, names) == name else name for name, kind in kinds]


def _needed(file: ExperimentFile, metric: str) -> tuple[str, str] | None:
    """Return why a metric cannot be computed, and a hint."""
    if metric == "win_rate" and file.judges.pairwise is None:
        return "win_rate needs a pairwise judge", "add judges: {pairwise: {by: NAME}}"
    if metric in ("composite", "pass_rate", "flips") and file.judges.pairwise and not _graded(file):
        return f"{metric} needs a check, a rubric or a grader", "add one, or gate on win_rate"
    return None


def _cannot_fail(file: ExperimentFile, rubric: RubricFile | None) -> bool:
    """Whether no answer can fail."""
    if rubric is None or file.checks or file.judges.graders:
        return False
    return rubric.pass_at is None and all(c.min is None for c in rubric.criteria)


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


def _top_level_names(tree: ast.Module) -> set[str]:
    """Return the top-level names of a module, including those in if and try."""
    found: set[str] = set()
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        else:
            stack.extend(ast.iter_child_nodes(node))
    return found


Point = tuple[str, Model, "Mapping[str, object]"]


class Parts(NamedTuple):
    """The resolved references of an experiment."""

    prompts: tuple[Prompt, ...]
    graders: tuple[Prompt, ...]
    rubric: RubricFile | None
    models: tuple[Point, ...]
    judges: tuple[Model, ...]
    judge_plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExperimentRules:
    """Resolves the references of an experiment and reports those that are missing or do not fit."""

    _refs: References

    def check(self, file: ExperimentFile, document: Document) -> Parts | None:
        """Return the resolved references, or None if one is missing."""
        before = len(self._refs.files.problems)
        self._counterpart(file, document)
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
            *judges,
        )

    def _counterpart(self, file: ExperimentFile, document: Document) -> None:
        """Report an experiment that has both a .yaml and a .yml file, at the second."""
        stem, _, suffix = document.file.rpartition(".")
        if suffix == "yml" and self._refs.files.tree.exists(f"{stem}.yaml"):
            self._refs.add(
                document,
                ("experiment",),
                "duplicate",
                f"{stem}.yaml is also the experiment {file.experiment!r}",
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
                    f"{first[prompt.id]} and {path} both have the id {prompt.id!r}",
                    "results are stored by prompt id: rename one of the files",
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
                    f"no model runs the grader {grader.report_name!r}",
                    "add by: NAME here, or defaults: {judge: NAME} to edison.yaml",
                )
            elif grader.by is not None:
                self._refs.answering_model(document, (*place, "by"), grader.by)
            prompt = found[-1]
            model = self._refs.models.get(grader.by or self._refs.header.defaults.judge or "")
            if prompt is not None and model is not None:
                self._params(document, place, prompt, (model.name, model, {}))
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
        """Check the schema files of a prompt; inline schemas are checked with its header."""
        output, tools = prompt.header.output, prompt.header.tools
        if isinstance(output, str):
            self._refs.in_json_file(output, user_schemas.schema_faults(prompt.output, output))
        if isinstance(tools, str):
            self._refs.in_json_file(tools, user_schemas.tool_faults(prompt.tools))

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
                    f"{labels} does not exist, so judges cannot decide gates yet",
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
                "the experiment has no model",
                "add models: [NAME] here, or defaults: {model: NAME} to edison.yaml",
            )
        points: list[tuple[Path, Point]] = []
        for place, use in uses:
            model = self._refs.models.get(use.use)
            if model is not None:
                points += [(place, (name, model, params)) for name, params in grid(use)]
            if place:  # a default is checked where it is set
                self._refs.answering_model(document, (*place, "use"), use.use)
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
        for place, point in points:
            self._params(document, place, prompt, point)
            name, model, params = point
            found = configure(name, model, prompt, params)
            identity = json.dumps([model.identity(), found.params], sort_keys=True, default=str)
            first = seen.setdefault(identity, name)
            if first is not name:
                self._refs.add(
                    document,
                    place,
                    "duplicate",
                    f"{first} and {name} are the same call",
                    "for several answers per case, set repeats",
                )

    def _params(self, document: Document, place: Path, prompt: Prompt, point: Point) -> None:
        """Report what a model does not take of a prompt and of the parameters here."""
        name, model, params = point
        header = prompt.header.written_params
        for key, message in params_refused(header, model.provider):
            said = f"{prompt.path} sets {key}, but {message}"
            hint = f"leave out {name}, or remove {key} from the prompt"
            self._refs.add(document, place, "params", said, hint)
        for key, message in params_refused(params, model.provider):
            where = (*place, "params", key)
            self._refs.add(document, where, "params", f"{name}: {message}", f"remove {key}")
        own = {**header, **params}
        written = {**model.params, **own}
        in_registry = {*problems_with(model, model.params)}
        for key, message in problems_with(model, written):
            if (key, message) not in in_registry:
                of = f"{name}: {prompt.path}" if key in header.keys() - params.keys() else name
                self._refs.add(document, place, "params", f"{of}: {message}", f"change {key}")
        for key in sent_params(model, written)[1]:
            if key in own:
                message = f"{name}: {left_out_message(model, key)}"
                self._refs.warn(document, place, "left-out", message, f"remove {key}")
        self._forms(document, place, prompt, point)

    def _forms(self, document: Document, place: Path, prompt: Prompt, point: Point) -> None:
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
                hint = "choose another model, or remove it from the prompt"
                self._refs.warn(document, place, "ability", message, hint)

    def _judges(
        self, file: ExperimentFile, document: Document, rubric: RubricFile | None
    ) -> tuple[tuple[Model, ...], tuple[str, ...]]:
        """Return the models that judge, and the names of judge plugins."""
        models, names = self._refs.models, file.judges.pointwise
        if names is None:
            default = self._refs.header.defaults.judge
            known = rubric is not None and default is not None and default in models
            return ((models[str(default)],) if known else ()), ()
        plugins = []
        for index, name in enumerate(names):
            place = ("judges", "pointwise", index)
            if name in models:
                self._refs.answering_model(document, place, name)
            elif JUDGES.load_class(name, JudgePlugin) is not None:
                plugins.append(name)
            else:
                self._refs.unknown_model(document, place, name, others=JUDGES.names())
        return tuple(models[name] for name in names if name in models), tuple(plugins)

    def _other_models(self, file: ExperimentFile, document: Document) -> None:
        named: list[tuple[Path, str | None]] = [(("refine", "by"), file.refine.by)]
        if file.judges.pairwise is not None:
            named.append((("judges", "pairwise", "by"), file.judges.pairwise.by))
        for kind in ("moderation", "toxicity"):
            screen = getattr(file.safety, kind)
            if screen is not None:
                path: Path = ("safety", kind, "by")
                self._refs.answering_model(document, path, screen.by, screens=True)
        for place, name in named:
            if name is not None:
                self._refs.answering_model(document, place, name)


def _switch_on(screen: str) -> str:
    """Return how to switch on a safety screen that a gate names."""
    inside = f"{{{screen}: ...}}"
    if screen == "any":
        inside = "{pii: flag}"
    elif screen.startswith("input_"):
        inside = f"{{inputs: {{{screen.removeprefix('input_')}: ...}}}}"
    return f"switch it on under safety: {inside}"


def _many(number: int) -> str:
    return str(number) if number < 1_000 else "1,000 or more"
