"""Does an experiment grade with things that exist, and gate on what it grades?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edison_ci.config.decisions import NAMED_METRICS
from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.documents.marks import Fault
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.options import Check
    from edison_ci.config.experiment import ExperimentFile
    from edison_ci.config.references import Path, References
    from edison_ci.config.rubric import RubricFile
    from edison_ci.documents.marks import Document


@dataclass(frozen=True, slots=True)
class GradingRules:
    """Checks on grading, gates, checks and data of an experiment."""

    _refs: References

    def check(self, file: ExperimentFile, document: Document, rubric: RubricFile | None) -> None:
        """Report what does not fit together."""
        self._grading(file, document)
        self._gates(file, document, rubric)
        self._checks(file, document)
        self._data(file, document)

    def _grading(self, file: ExperimentFile, document: Document) -> None:
        judged = file.judges.pointwise is not None or self._refs.header.defaults.judge is not None
        if file.rubric is not None and not judged:
            self._refs.add(
                document,
                ("rubric",),
                "missing",
                "nobody judges the rubric",
                "add judges: {pointwise: [NAME]}",
            )
        if file.judges.pointwise is not None and file.rubric is None:
            self._refs.add(
                document,
                ("judges", "pointwise"),
                "missing",
                "judges need a rubric",
                "add rubric: rubrics/NAME.yaml",
            )
        if not (file.checks or file.rubric or file.judges.graders or file.judges.pairwise):
            self._refs.add(
                document,
                (),
                "missing",
                "nothing grades the answers",
                "add checks, a rubric or a grader",
            )

    def _gates(self, file: ExperimentFile, document: Document, rubric: RubricFile | None) -> None:
        known: dict[str, list[str]] = {
            "check": list(file.named_checks()),
            "grader": [
                g.name or g.prompt.rpartition("/")[2].removesuffix(".md")
                for g in file.judges.graders
            ],
            "safety": sorted(file.safety.active()),
        }
        if rubric is not None:
            known["criterion"] = [n for c in rubric.criteria for n in (c.name, c.slug)]
        elif file.rubric is not None:
            known.pop("criterion", None)  # the rubric's own problems are reported
        else:
            known["criterion"] = []
        for index, gate in enumerate(file.gates):
            family, _, name = gate.metric.partition(".")
            place: Path = ("gates", index, "metric")
            if family in NAMED_METRICS and family in known and name not in known[family]:
                self._refs.add(
                    document,
                    place,
                    "metric",
                    f"there is no {family} {name!r}",
                    did_you_mean(name, known[family], label="there are"),
                )
            if gate.metric == "win_rate" and file.judges.pairwise is None:
                self._refs.add(
                    document,
                    place,
                    "metric",
                    "win_rate needs a pairwise judge",
                    "add judges: {pairwise: {by: NAME}}",
                )

    def _checks(self, file: ExperimentFile, document: Document) -> None:
        for index, check in enumerate(file.checks):
            for place, part in _walk(check, ("checks", index)):
                for fault in self._check_faults(part):
                    self._refs.add(document, place, fault.code, fault.message, fault.hint)
        names = [check.name for check in file.checks if check.name]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._refs.add(document, ("checks",), "duplicate", f"two checks are named {name!r}")

    def _check_faults(self, check: Check) -> Iterator[Fault]:
        value: Any = getattr(check, "value", None)
        if check.check == "json_schema":
            try:
                schema = self._refs.files.schema(value) if isinstance(value, str) else value
            except Fault as fault:
                yield fault
            else:
                yield from schema_faults(schema, "json_schema")
        elif check.check == "python" and not self._refs.files.tree.exists(value.rpartition(":")[0]):
            yield Fault("not-found", f"{value.rpartition(':')[0]} does not exist")
        elif check.check == "similar":
            by = getattr(check, "by", None)
            if by is not None and by not in self._refs.models:
                yield Fault(
                    "unknown-model", f"unknown model {by!r}", did_you_mean(by, self._refs.models)
                )

    def _data(self, file: ExperimentFile, document: Document) -> None:
        key = "dataset" if file.dataset is not None else "datasets"
        for index, entry in enumerate(file.data):
            place: Path = (key, index, "path") if key == "datasets" else (key,)
            if not self._refs.files.tree.exists(entry.path):
                suffix = entry.path[entry.path.rfind(".") :]
                self._refs.missing_file(
                    document, place, entry.path, self._refs.header.paths.datasets, suffix
                )
            if (
                entry.kind == "synthetic"
                and not self._refs.header.settings.allow_synthetic_datasets
            ):
                self._refs.add(
                    document,
                    (key, index, "kind"),
                    "synthetic",
                    "synthetic data is not allowed",
                    "settings.allow_synthetic_datasets is false",
                )


def _walk(check: Check, place: Path) -> Iterator[tuple[Path, Check]]:
    yield (*place, check.check), check
    for part in check.parts():
        yield from _walk(part, (*place, check.check))
