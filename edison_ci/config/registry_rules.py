"""Are the models of the registry trusted, priced and still served? Has a quarantine run out?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.config.model_rules import LITELLM_VENDORS
from edison_ci.config.models import Model, retirement
from edison_ci.config.project_files import PROJECT, QUARANTINE
from edison_ci.config.trust import TrustFile, origin
from edison_ci.errors import Problem, Severity
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    import datetime as dt

    from edison_ci.config.prices import PriceTable
    from edison_ci.config.quarantine import QuarantineFile
    from edison_ci.config.references import References


def service_of(model: Model) -> str | None:
    """Return the address that a model's keys are sent to; None when nobody can tell."""
    if model.base_url is not None:
        return model.base_url
    if model.provider == "bedrock":
        return f"https://bedrock-runtime.{model.options['region']}.amazonaws.com"
    if model.provider == "vertex":
        location = model.options["location"]
        prefix = "" if location == "global" else f"{location}-"
        return f"https://{prefix}aiplatform.googleapis.com"
    return LITELLM_VENDORS.get(model.model.partition("/")[0])


@dataclass(frozen=True, slots=True)
class RegistryRules:
    """Checks that hold for the project, whatever its experiments are."""

    _refs: References
    _trust: TrustFile
    _prices: PriceTable
    _today: dt.date

    def check_models(self) -> None:
        """Check keys against trust, prices against the table, defaults against the registry."""
        for model in self._refs.models.values():
            self._check_trust(model)
            self._check_price(model)
            self._check_files(model)
        document = self._refs.files.documents.get(PROJECT)
        for role in ("model", "judge", "refiner"):
            name = getattr(self._refs.header.defaults, role)
            if name is not None and name not in self._refs.models and document is not None:
                self._refs.unknown_model(document, ("defaults", role), name)

    def _check_trust(self, model: Model) -> None:
        if model.base_url_env is not None:
            return  # where the keys go is known, and checked, before a run
        address = service_of(model)
        for env in model.keys.values():
            if address is None:
                said = f"model {model.name!r} would send {env} to a host that is not known"
                hint = "add base_url, and allow its host in .edison/trust.yaml"
                self._refs.files.problems.append(Problem(model.where, "trust", said, hint))
            elif not self._trust.allows(env, address, model.provider):
                host = origin(address)
                self._refs.files.problems.append(
                    Problem(
                        model.where,
                        "trust",
                        f"model {model.name!r} would send {env} to {host}",
                        f'allow it in .edison/trust.yaml: {{env: {env}, hosts: ["{host}"]}}',
                    )
                )

    def _check_price(self, model: Model) -> None:
        if self._prices.price_of(model) is None:
            hint = f"add price: {{in: ..., out: ...}} or price: free; table of {self._prices.date}"
            self._refs.files.problems.append(
                Problem(
                    model.where,
                    "price",
                    f"the price of model {model.name!r} is not known; "
                    "a run with a budget will refuse it",
                    hint,
                    Severity.WARNING,
                )
            )
        retires = self._prices.retires(model)
        if retires:
            warning = retirement(model.name, retires, self._today.isoformat(), model.where)
            if warning:
                self._refs.files.problems.append(warning)

    def _check_files(self, model: Model) -> None:
        """Check that the files a model answers from are there."""
        document = self._refs.files.documents.get(self._refs.header.paths.models)
        named = {("store",): model.store, ("options", "file"): model.options.get("file")}
        for place, path in named.items():
            if document is None or path is None or self._refs.files.tree.exists(path):
                continue
            hint = "make one with: edison run --record PATH"
            self._refs.add(
                document,
                (model.name, *place),
                "not-found",
                f"{path} does not exist",
                hint if place == ("store",) else "write it, or name another file",
            )

    def check_quarantine(self, file: QuarantineFile, experiments: set[str]) -> None:
        """Check that entries name experiments and have not run out."""
        document = self._refs.files.documents.get(QUARANTINE)
        if document is None:
            return
        folder = self._refs.header.paths.experiments
        for path in self._refs.files.in_folder(folder, (".yaml", ".yml")):
            # one that is not valid has problems of its own
            experiments = experiments | {path.rpartition("/")[2].rpartition(".")[0]}
        for index, entry in enumerate(file.cases):
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
                    "mend the case and remove the entry, or set a new date",
                )
