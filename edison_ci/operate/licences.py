"""How does a licence get into licences.yaml?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.config.licences import LICENCES
from edison_ci.documents.replace_file import replace_file
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from edison_ci.config.licences import Licence, LicencesFile
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.site import Site


def write_licence(site: Site, actor: Actor, known: LicencesFile, licence: Licence) -> LicencesFile:
    """Write a licence in place of the one that the same judges had; return the new file."""
    before = known.of(licence.rubric, licence.judges, licence.combine)
    changed = known.with_licence(licence)
    told = [None if entry is None else entry.model_dump(mode="json") for entry in (before, licence)]
    entity = f"{licence.rubric} by {', '.join(licence.judges)}"
    entry = site.entry(actor, "calibrate", entity, before=told[0], after=told[1])
    replace_file(
        site.root / LICENCES,
        changed.text().encode("utf-8"),
        just_before=lambda: write_audit(site.results, entry),
    )
    return changed
