"""Is this still the same case, and what kind of case is it?

An id stays when somebody edits a case. Results of another run are set against these only where the
input and the expected output are what they were.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci.config.facets import words_in
from edison_ci.records import canonical_json
from edison_ci.store.runs import CaseFacts

if TYPE_CHECKING:
    from edison_ci.records import Case

_HEX = 16


def content_hash(case: Case) -> str:
    """Return the hash of what a case asks and what it expects."""
    told = canonical_json([case.inputs, case.expected])
    return hashlib.sha256(told.encode("utf-8", errors="surrogatepass")).hexdigest()[:_HEX]


def facts_of(case: Case) -> CaseFacts:
    """Return what is kept of a case beside its id, to look at its kind apart from the others."""
    tags = canonical_json(sorted(set(case.tags)))
    return CaseFacts(tags, case.difficulty, str(case.kind), words_in(case))
