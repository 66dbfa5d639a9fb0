"""Cache of what takes long: worked out once, and not while a visitor waits.

Only what can no longer change is remembered, under a name that says all it depends on. What would
keep a visitor waiting is worked out aside, one thing after the other; the page shows what it has
until then, and is loaded again. What is to be said once, on the page after a form, is kept here
too: an address could say anything.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci.store.database import one_state, open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from edison_ci.web.page_context import Look

logger = logging.getLogger(__name__)

Found = TypeVar("Found")
AGAIN_S = 2
"""Seconds after which a page that waits for something is loaded again."""
_MOST = 100

_told: OrderedDict[str, tuple[str, ...]] = OrderedDict()
_kept: OrderedDict[Hashable, Any] = OrderedDict()
_guard = threading.Lock()
_begun: dict[Hashable, threading.Event] = {}
_turn = threading.Lock()


def remembered(key: Hashable, work: Callable[[], Found]) -> Found:
    """Return what was worked out under a name before, or work it out now."""
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            found: Found = _kept[key]
            return found
    found = work()
    _keep(key, found)
    return found


def aside(
    look: Look, key: Hashable, work: Callable[[Look], Found], *, patience_s: float = 0.02
) -> Found | None:
    """Return what was worked out before, or begin to work it out; None while that goes on.

    The work gets a look of its own, since the connection of a page is in use by other pages.
    """
    with _guard:
        known = key in _kept
        event = _begun.get(key)
        if not known and event is None and look.file is not None:
            event = _begun[key] = threading.Event()
            arguments = (look, look.file, key, work)
            threading.Thread(target=_work, args=arguments, daemon=True).start()
    if not known and event is not None:
        event.wait(patience_s)
    with _guard:
        if key not in _kept:
            return None
        _kept.move_to_end(key)
        found = _kept[key]
    if isinstance(found, _Broken):
        raise found.error
    return found  # type: ignore[no-any-return]  # as it was put there


class _Broken:
    """What came of work that failed; it would fail again."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _work(look: Look, file: Path, key: Hashable, work: Callable[[Look], Any]) -> None:
    found: Any
    with _turn:
        try:
            with closing(open_reader(file)) as connection, one_state(connection):
                found = work(replace(look, connection=connection))
        except Exception as error:  # whoever asks for the page is told
            logger.warning("what a page shows could not be worked out", exc_info=error)
            found = _Broken(error)
    _keep(key, found)
    with _guard:
        _begun.pop(key).set()


def _keep(key: Hashable, found: Any) -> None:
    with _guard:
        _kept[key] = found
        while len(_kept) > _MOST:
            _kept.popitem(last=False)


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
