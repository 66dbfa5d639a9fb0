"""Cache of slow results, computed once and in the background where a visitor would wait.

Only immutable results are cached, with a key of everything they depend on. Background computations
run one after the other; the page shows what it has and reloads. Messages for the page after a form,
and texts that are edited, are stored here too: an address could contain any text.
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

    from edison_ci.web.page_context import PageContext

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
REFRESH_S = 2
"""Seconds after which a page with a pending result is reloaded."""
_MOST = 100

_messages: OrderedDict[str, tuple[str, ...]] = OrderedDict()
_drafts: OrderedDict[str, tuple[str, str]] = OrderedDict()
_results: OrderedDict[Hashable, Any] = OrderedDict()
_guard = threading.Lock()
_pending: dict[Hashable, threading.Event] = {}
_one_at_a_time = threading.Lock()


def cached(key: Hashable, work: Callable[[], _T]) -> _T:
    """Return the cached result of a key, or compute it now."""
    with _guard:
        if key in _results:
            _results.move_to_end(key)
            found: _T = _results[key]
            return found
    found = work()
    _store(key, found)
    return found


def cached_in_background(
    context: PageContext,
    key: Hashable,
    work: Callable[[PageContext], _T],
    *,
    patience_s: float = 0.02,
) -> _T | None:
    """Return the cached result of a key, or start to compute it; None while it is computed.

    The work gets its own connection, as the connection of a page is used by other pages.
    """
    with _guard:
        known = key in _results
        event = _pending.get(key)
        if not known and event is None and context.file is not None:
            event = _pending[key] = threading.Event()
            arguments = (context, context.file, key, work)
            threading.Thread(target=_work, args=arguments, daemon=True).start()
    if not known and event is not None:
        event.wait(patience_s)
    with _guard:
        if key not in _results:
            return None
        _results.move_to_end(key)
        found = _results[key]
    if isinstance(found, _Failure):
        raise found.error
    return found  # type: ignore[no-any-return]  # stored under this key by `work`


class _Failure:
    """A failed computation; it would fail again."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _work(
    context: PageContext, file: Path, key: Hashable, work: Callable[[PageContext], Any]
) -> None:
    found: Any
    with _one_at_a_time:
        try:
            with closing(open_reader(file)) as connection, one_state(connection):
                found = work(replace(context, connection=connection))
        except Exception as error:  # raised when the page is requested
            logger.warning("a background computation failed", exc_info=error)
            found = _Failure(error)
    _store(key, found)
    with _guard:
        _pending.pop(key).set()


def _store(key: Hashable, found: Any) -> None:
    with _guard:
        _results[key] = found
        while len(_results) > _MOST:
            _results.popitem(last=False)


def store_messages(texts: tuple[str, ...]) -> str:
    """Store messages for the next page; return their key, '' without messages."""
    if not texts:
        return ""
    name = secrets.token_hex(8)
    with _guard:
        _messages[name] = texts
        while len(_messages) > _MOST:
            _messages.popitem(last=False)
    return name


def store_draft(text: str, owner: str) -> str:
    """Store a text that a person edits, for their next page; return its key."""
    name = secrets.token_hex(16)
    with _guard:
        _drafts[name] = (owner, text)
        while len(_drafts) > _MOST:
            _drafts.popitem(last=False)
    return name


def stored_draft(name: str, owner: str) -> str | None:
    """Return a person's stored text; None if it is unknown, expired or another person's."""
    with _guard:
        found = _drafts.get(name)
    return found[1] if found is not None and found[0] == owner else None


def stored_messages(name: str) -> tuple[str, ...]:
    """Return the stored messages of a key; none if it is unknown or expired."""
    with _guard:
        return _messages.get(name, ())
