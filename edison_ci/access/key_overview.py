"""The keys of a project: where each comes from, who uses it, and how old it is."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config.vendors import VENDORS
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from edison_ci.access.job import KeyEnvironment
    from edison_ci.config.load import Project

Source = Literal["environment", "sealed", "identity", "missing"]
SHOWN = 4
LEAST = 12
"""Of a shorter key nothing is shown."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key that a model or a notification names, or that is sealed."""

    name: str
    source: Source
    """Where a run would take it from."""
    sealed: bool
    ending: str = ""
    """Its last characters; empty if it is short, or cannot be opened here."""
    since: str = ""
    """Day on which it was sealed."""
    age_days: int | None = None
    """Days since then; None if it is not sealed, or dated in the future."""
    models: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    """Vendors whose models take it unless they name another one."""
    fault: str = ""
    """Why it cannot be opened here."""


def key_states(project: Project, environ: KeyEnvironment, today: dt.date) -> list[KeyState]:
    """Return the keys that models and notifications name, and all sealed ones, by name."""
    users: dict[str, list[str]] = {key.name: [] for key in environ.secrets.keys}
    for model in project.models.values():
        for name in model.keys.values():
            users.setdefault(name, []).append(model.name)
    for program in project.trust.programs:
        for name in program.env:
            users.setdefault(name, []).append(program.model)
    for recipient in project.file.notifications:
        for name in recipient.secrets:
            users.setdefault(name, []).append(f"notification {recipient.name}")
    found = [_state(name, users[name], environ, today) for name in sorted(users)]
    return [
        replace(each, source="identity") if _is_replaced(project, each) else each for each in found
    ]


def _is_replaced(project: Project, key: KeyState) -> bool:
    """Whether jobs of GitHub call all models that name a missing key with an identity."""
    models = [project.models[name] for name in key.models if name in project.models]
    return bool(key.source == "missing" and models) and all(
        project.trust.identity(model.provider, model.service or "") for model in models
    )


def _state(name: str, users: list[str], environ: KeyEnvironment, today: dt.date) -> KeyState:
    sealed = environ.secrets.of(name)
    value, fault = "", ""
    try:
        value = environ.get(name, "").strip()
    except UsageError as error:
        fault = f"{error.message} ({error.hint})"
    days = None if sealed is None else (today - dt.date.fromisoformat(sealed.since)).days
    source: Source = "environment" if environ.is_set(name) else "sealed" if sealed else "missing"
    return KeyState(
        name,
        source,
        sealed is not None,
        value[-SHOWN:] if len(value) >= LEAST and value.isprintable() else "",
        "" if sealed is None else sealed.since,
        days if days is not None and days >= 0 else None,
        tuple(dict.fromkeys(users)),
        tuple(vendor for vendor, known in VENDORS.items() if known.key_env == name),
        fault,
    )
