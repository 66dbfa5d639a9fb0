"""How is what takes long worked out once, and not for each visitor?

Only what can no longer change is remembered, under a name that says all it depends on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Found = TypeVar("Found")
_MOST = 100

_kept: OrderedDict[Hashable, Any] = OrderedDict()
_guard = threading.Lock()


def remembered(key: Hashable, work: Callable[[], Found]) -> Found:
    """Return what was worked out under a name before, or work it out now."""
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            found: Found = _kept[key]
            return found
    found = work()
    with _guard:
        _kept[key] = found
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return found
