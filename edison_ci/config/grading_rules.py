"""Does an experiment grade with things that exist, and gate on what it grades?"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from edison_ci.config.decisions import NAMED_METRICS
from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.documents.files import read
from edison_ci.documents.marks import Fault
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.code import Python
    from edison_ci.checks.options import Check
    from edison_ci.config.experiment import ExperimentFile
    from edison_ci.config.references import Path, References
    from edison_ci.config.rubric import RubricFile
    from edison_ci.documents.marks import Document


class Placed(NamedTuple):
    """A check and where its argument stands in the file."""

    check: Check
    path: Path
    outer: str = ""
    """Name of the combinator it is inside of."""

    def option(self, document: Document, name: str) -> Path:
        """Return where an option stands, or the bare argument that stands for it."""
        return (*self.path, name) if name in _map_at(document, self.path) else self.path


@dataclass(frozen=True, slots=True)
class GradingRules:
    """Checks on grading, gates, checks and data of an experiment."""

    _refs: References

    def check(self, file: ExperimentFile, document: Document, rubric: RubricFile | None) -> None:
        """Report what does not fit together."""
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
                "nobody judges the rubric",
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
            "check": list(file.named_checks()),
            "grader": [grader.known_as for grader in file.judges.graders],
            "safety": sorted(file.safety.active()),
        }
        if rubric is not None:
            known["criterion"] = [name for c in rubric.criteria for name in (c.name, c.slug)]
        elif file.rubric is None:
            known["criterion"] = []  # a rubric that cannot be read has problems of its own
        for index, gate in enumerate(file.gates):
            family, _, name = gate.metric.partition(".")
            place: Path = ("gates", index, "metric")
            if family in NAMED_METRICS and family in known and name not in known[family]:
                message, hint = f"there is no {family} {name!r}", ""
                if family == "safety":  # the name is right, or the file would not have been read
                    message = f"safety does not look for {name}"
                    hint = f"switch it on under safety: {{{name}: ...}}"
                hint = hint or did_you_mean(name, known[family], label="there are") or _HOW[family]
                self._refs.add(document, place, "metric", message, hint)
            needed = _needed(file, gate.metric)
            if needed is not None:
                self._refs.add(document, place, "metric", *needed)
            elif gate.metric == "pass_rate" and _cannot_fail(file, rubric):
                self._refs.warn(
                    document,
                    place,
                    "metric",
                    "nothing can fail: there is no check, no grader and no pass_at",
                    "set pass_at in the rubric, or gate on composite",
                )

    # --- checks -----------------------------------------------------------------------------------

    def _check(self, placed: Placed, document: Document) -> None:
        check = placed.check
        if check.check == "json_schema":
            self._json_schema(placed, document)
        elif check.check == "python":
            fault = self._python(cast("Python", check))
            if fault is not None:
                place = placed.option(document, "value")
                self._refs.add(document, place, fault.code, fault.message, fault.hint)
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

    def _json_schema(self, placed: Placed, document: Document) -> None:
        value: Any = getattr(placed.check, "value", None)
        place = placed.option(document, "value")
        if not isinstance(value, str):
            for fault in schema_faults(value, "the schema"):
                where = (*place, *fault.path)
                self._refs.add(document, where, fault.code, fault.message, fault.hint)
            return
        try:
            schema = self._refs.files.schema(value)
        except Fault as fault:
            self._refs.add(document, place, fault.code, fault.message, fault.hint)
        else:
            self._refs.in_json_file(value, schema_faults(schema, "the schema"))

    def _python(self, check: Python) -> Fault | None:
        """Return what is wrong with the code of a check, which is parsed and never run."""
        try:
            source = read(self._refs.files.tree, check.path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes are the author's business
                names = _top_level_names(ast.parse(source))
        except Fault as fault:
            return fault
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            line = getattr(error, "lineno", None)
            at = f" in line {line}" if line else ""
            return Fault("python", f"{check.path} is not valid Python{at}: {what}", "mend it")
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


_HOW = {
    "criterion": "add a rubric",
    "check": "add checks",
    "grader": "add judges: {graders: [...]}",
}


def _graded(file: ExperimentFile) -> bool:
    return bool(file.checks or file.rubric or file.judges.graders)


def _needed(file: ExperimentFile, metric: str) -> tuple[str, str] | None:
    """Return what an experiment lacks to compute a metric, and the hint."""
    if metric == "win_rate" and file.judges.pairwise is None:
        return "win_rate needs a pairwise judge", "add judges: {pairwise: {by: NAME}}"
    if metric in ("composite", "pass_rate") and file.judges.pairwise and not _graded(file):
        return f"{metric} needs a check, a rubric or a grader", "add one, or gate on win_rate"
    return None


def _cannot_fail(file: ExperimentFile, rubric: RubricFile | None) -> bool:
    """Whether every draw passes, whatever it says."""
    if rubric is None or file.checks or file.judges.graders:
        return False
    return rubric.pass_at is None and all(c.min is None for c in rubric.criteria)


def placed_checks(
    check: Check, document: Document, entry: Path, outer: str = ""
) -> Iterator[Placed]:
    """Yield a check and those inside it, each with the place of its argument."""
    path = (*entry, check.check)
    yield Placed(check, path, outer)
    inner = (*path, "value") if "value" in _map_at(document, path) else path
    for index, part in enumerate(check.parts()):
        place = inner if check.check == "not" else (*inner, index)
        yield from placed_checks(part, document, place, check.check)


def _map_at(document: Document, path: Path) -> dict[str, Any]:
    """Return the mapping at a place of a file; empty if there is none."""
    value: Any = document.value
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return value if isinstance(value, dict) else {}


def _top_level_names(tree: ast.Module) -> set[str]:
    """Return the names that a module binds at its top level, inside if and try too."""
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
