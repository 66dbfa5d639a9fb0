"""How does a licence get into licences.yaml?"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from edison_ci.config.licences import LICENCES
from edison_ci.errors import UsageError
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from edison_ci.config.licences import Licence, LicencesFile
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.site import Site


def write_licence(site: Site, actor: Actor, known: LicencesFile, licence: Licence) -> LicencesFile:
    """Write a licence in place of the one that the same judges had; return the new file."""
    before = known.of(licence.rubric, licence.judges, licence.combine)
    changed = known.with_licence(licence)
    path = site.root / LICENCES
    aside = path.with_name(f".{LICENCES}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(changed.text())
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        said = f"{LICENCES} cannot be written: {error.strerror}"
        raise UsageError(said, hint="see who may write the folder") from None
    finally:
        aside.unlink(missing_ok=True)
    told = [None if entry is None else entry.model_dump(mode="json") for entry in (before, licence)]
    entity = f"{licence.rubric} by {', '.join(licence.judges)}"
    entry = site.entry(actor, "calibrate", entity, before=told[0], after=told[1])
    write_audit(site.results, entry)
    return changed
