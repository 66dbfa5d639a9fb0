"""Models opened with the keys of this process: what is refused, and the audit of each key."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci.access import programs
from edison_ci.access.job import key_environment, on_base_terms
from edison_ci.config import service_paths
from edison_ci.errors import TrustError
from edison_ci.providers import command
from edison_ci.providers.adapters import provider_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.access.site import Site
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider


def model_caller(project: Project, *, offline: bool = False) -> Callable[[Model], Provider]:
    """Return what opens models with the keys of this process, as far as the project allows."""
    terms = on_base_terms(project)
    environ = key_environment(terms)
    opened = partial(
        provider_for,
        environ=environ,
        offline=offline,
        tree=terms.tree,
        trust=service_paths.effective_trust(terms, environ),
    )

    def provider(model: Model) -> Provider:
        if reason := terms.refused.get(model.name):
            return command.SkippedProgram(reason)
        return opened(model)

    return provider if terms.refused else opened


def audited_caller(
    project: Project, site: Site, *, offline: bool = False
) -> Callable[[Model], Provider]:
    """Return the same, with programs of the repository, and an audit of keys that are refused."""
    terms = on_base_terms(project)
    called, environ = model_caller(project, offline=offline), key_environment(terms)

    def provider(model: Model) -> Provider:
        if model.provider == "command":
            return programs.ProgramRules(terms, environ, offline=offline).provider(model)
        try:
            return called(model)
        except TrustError as refused:
            actor, why = site.actor(), refused.message
            site.note(site.entry(actor, "refused: send a key", model.name, after=why))
            raise

    return provider


class KeyUses:
    """Audits each key that is taken for calls, by name: once for a run and a host."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, model: Model, run_id: str) -> None:
        """Write a row for each key of a model that is new in this run."""
        address = model.address or os.environ.get(model.base_url_env or "", "")
        host = urlsplit(address).netloc.rpartition("@")[2]
        for name in model.keys.values():
            if (run_id, name, host) in self._seen:
                continue
            self._seen.add((run_id, name, host))
            after = {"host": host, "model": model.name}
            entry = self._site.entry(self._site.actor(), "use key", name, after=after)
            self._site.note(replace(entry, run_id=run_id))
