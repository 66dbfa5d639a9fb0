"""Rules across the files of a project: what they refer to exists, and fits.

The rules of an experiment are in `experiment_rules.py`.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import trust
from edison_ci.config.models import left_out_message, problems_with, retirement, sent_params
from edison_ci.config.project_files import PROJECT, QUARANTINE, TRUST, only_errors
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, Problem, Severity
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.models import Model
    from edison_ci.config.prices import PriceTable
    from edison_ci.config.project import ProjectFile
    from edison_ci.config.project_files import ProjectFiles
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.config.user_schemas import SchemaFault
    from edison_ci.documents.marks import Document

Path = tuple[str | int, ...]
OLDEST_PRICES = dt.timedelta(days=365)
"""Age from which a price table is too old."""


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
        written = self.files.documents.get(registry)
        entries = written.value if written is not None and isinstance(written.value, dict) else {}
        if written is None or (name in entries and name != "version"):
            return  # the registry, or the entry, has its own problems
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
        document: Document | None = None
        for fault in faults:
            try:
                document = document or read_json(read(self.files.tree, path), path)
            except Fault:
                return  # reported where the file is named
            self.add(document, fault.path, fault.code, fault.message, fault.hint)


@dataclass(frozen=True, slots=True)
class RegistryRules:
    """Checks of models, prices, trust and quarantine, independent of experiments."""

    _refs: References
    _trust: trust.TrustFile
    _prices: PriceTable
    _today: dt.date

    def check_models(self) -> None:
        """Check keys against trust, prices against the table, defaults against the registry."""
        files, header = self._refs.files, self._refs.header
        registry = files.documents.get(header.paths.models)
        for model in self._refs.models.values():
            self._check_price(model)
            if registry is not None:
                self._check_headers(model, registry)
                self._check_params(model, registry)
                self._check_files(model, registry)
        self._check_trust()
        self._check_age()
        document = files.documents.get(PROJECT)
        for role in ("model", "judge", "refiner") if document is not None else ():
            name = getattr(header.defaults, role)
            if name is not None and document is not None:
                self._refs.answering_model(document, ("defaults", role), name)

    def _add(
        self, model: Model, code: str, message: str, hint: str, severity: Severity = Severity.ERROR
    ) -> None:
        self._refs.files.problems.append(Problem(model.where, code, message, hint, severity))

    def _check_trust(self) -> None:
        """Report each key and host that is not allowed once, at the first model that uses them."""
        if any(problem.where.file == TRUST for problem in only_errors(self._refs.files.problems)):
            return  # what it allows is not known
        models_by_pair: dict[tuple[str, str], list[Model]] = {}
        for model in self._refs.models.values():
            address = model.service or ""
            if model.base_url_env is not None or (
                address and self._trust.identity(model.provider, address) is not None
            ):
                continue  # checked before a run; or called without a key, or one of that host
            for env in model.keys.values():
                if not (address and self._trust.allows(env, address, model.provider)):
                    host = trust.origin(address) if address else ""
                    models_by_pair.setdefault((env, host), []).append(model)
        for (env, host), models in models_by_pair.items():
            names = ", ".join(repr(model.name) for model in models)
            who = f"model {names} would" if len(models) == 1 else f"models {names} would"
            message = f"{who} send {env} to {host or 'an unknown host'}"
            hint = trust.trust_hint(env, host) or f"add base_url, then: edison trust add {env} HOST"
            self._add(models[0], "trust", message, hint)

    def _check_headers(self, model: Model, registry: Document) -> None:
        """Check the headers of an http model against the closed list and trust."""
        if model.base_url is None:
            return  # checked before a call
        for refusal in self._trust.header_refusals(model, model.base_url):
            place = (model.name, "options", "headers", refusal.name)
            self._refs.add(registry, place, "request-header", refusal.message, refusal.hint)

    def _check_price(self, model: Model) -> None:
        if self._prices.price_of(model) is None:
            unknown = f"the price of model {model.name!r} is unknown"
            hint = f"add price: {{in: ..., out: ...}} or price: free; table of {self._prices.date}"
            message = f"{unknown}; runs with a budget will refuse it"
            self._add(model, "price", message, hint, Severity.WARNING)
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

    def _check_params(self, model: Model, registry: Document) -> None:
        """Check the parameters in models.yaml against the table of models."""
        for key, message in problems_with(model, model.params):
            place = (model.name, "params", key)
            self._refs.add(registry, place, "params", message, f"change {key}")
        for key in sent_params(model, model.params)[1]:
            message, place = left_out_message(model, key), (model.name, "params", key)
            self._refs.warn(registry, place, "left-out", message, f"remove {key}")

    def _check_files(self, model: Model, registry: Document) -> None:
        """Check that the answer files and the programs of models exist."""
        files: dict[Path, str | None] = {("store",): model.store, ("options", "file"): model.script}
        if model.provider == "command":
            named = enumerate(model.options["files"])
            files |= {("options", "files", number): path for number, path in named}
        tree = self._refs.files.tree
        for place, path in files.items():
            if path is None or tree.exists(path) or tree.names(path):
                continue
            hint = "write it, or name another file"
            if place == ("store",):
                hint = "create one with: edison run --record PATH"
            where = (model.name, *place)
            self._refs.add(registry, where, "not-found", f"{path} does not exist", hint)

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
                message = f"there is no experiment {entry.experiment!r}"
                hint = did_you_mean(entry.experiment, experiments, label="there are")
                place = ("cases", index, "experiment")
                hint = hint or "remove the entry"
                self._refs.add(document, place, "unknown-experiment", message, hint)
            if entry.until < self._today.isoformat():
                message = f"the quarantine of {entry.case!r} ended on {entry.until}"
                hint = "fix the case and remove the entry, or set a new date"
                self._refs.add(document, ("cases", index, "until"), "expired", message, hint)
