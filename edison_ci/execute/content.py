"""Is this still the same case?

An id stays when somebody edits a case. Results of another run are set against these only where the
input and the expected output are what they were.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edison_ci.records import Case

_HEX = 16
# Made once: `json.dumps` would make an encoder for each cell.
_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def content_hash(case: Case) -> str:
    """Return the hash of what a case asks and what it expects."""
    told = _canonical([case.inputs, case.expected])
    return hashlib.sha256(told.encode("utf-8", errors="surrogatepass")).hexdigest()[:_HEX]
