"""How is what takes long worked out once, and not for each visitor?

Only what can no longer change is remembered, under a name that says all it depends on. What is to
be said once, on the page after a form, is kept here too: an address could say anything.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Found = TypeVar("Found")
_MOST = 100

_told: OrderedDict[str, tuple[str, ...]] = OrderedDict()
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


def keep_words(words: tuple[str, ...]) -> str:
    """Keep what is to be said on another page; return the name to ask for it, '' for nothing."""
    if not words:
        return ""
    name = secrets.token_hex(8)
    with _guard:
        _told[name] = words
        while len(_told) > _MOST:
            _told.popitem(last=False)
    return name


def kept_words(name: str) -> tuple[str, ...]:
    """Return what was kept under a name; nothing if it is not known, or no longer."""
    with _guard:
        return _told.get(name, ())
