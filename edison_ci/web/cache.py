"""State of the pages in the memory of a server: slow results, messages and edited texts.

Only immutable results are kept, with a key of everything they depend on. Background computations
run one after the other; the page shows what it has and reloads. Messages for the page after a form,
and texts that are edited, are kept here too: an address could contain any text.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci.results.stored_runs import open_results

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from edison_ci.web.page_context import PageContext

logger = logging.getLogger(__name__)

_K = TypeVar("_K")
_T = TypeVar("_T")
REFRESH_S = 2
"""Seconds after which a page with a pending result is reloaded."""
_MOST = 100


class _Newest(OrderedDict[_K, _T]):
    """Values of which the ones used last are kept."""

    def keep(self, key: _K, value: _T) -> None:
        self[key] = value
        while len(self) > _MOST:
            self.popitem(last=False)


class _Failure:
    """A failed computation; it would fail again."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class PageMemory:
    """What the pages of a server remember between requests."""

    def __init__(self) -> None:
        self._results: _Newest[Hashable, Any] = _Newest()
        self._messages: _Newest[str, tuple[str, ...]] = _Newest()
        self._drafts: _Newest[str, tuple[str, str]] = _Newest()
        self._pending: dict[Hashable, threading.Event] = {}
        self._guard = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def cached(self, key: Hashable, work: Callable[[], _T]) -> _T:
        """Return the result of a key, or compute it now."""
        with self._guard:
            if key in self._results:
                self._results.move_to_end(key)
                cached: _T = self._results[key]
                return cached
        result = work()
        with self._guard:
            self._results.keep(key, result)
        return result

    def in_background(
        self,
        context: PageContext,
        key: Hashable,
        work: Callable[[PageContext], _T],
        *,
        patience_s: float = 0.02,
    ) -> _T | None:
        """Return the result of a key, or start to compute it; None while it is computed.

        The work gets its own connection, as the connection of a page is used by other pages.
        """
        with self._guard:
            ready = key in self._results
            event = self._pending.get(key)
            if not ready and event is None and context.file is not None:
                event = self._pending[key] = threading.Event()
                arguments = (context, context.file, key, work)
                threading.Thread(target=self._work, args=arguments, daemon=True).start()
        if not ready and event is not None:
            event.wait(patience_s)
        with self._guard:
            if key not in self._results:
                return None
            self._results.move_to_end(key)
            result = self._results[key]
        if isinstance(result, _Failure):
            raise result.error
        return result  # type: ignore[no-any-return]  # kept under this key by `work`

    def _work(
        self,
        context: PageContext,
        file: Path,
        key: Hashable,
        work: Callable[[PageContext], Any],
    ) -> None:
        result: Any
        with self._one_at_a_time:
            try:
                with open_results(file) as connection:
                    result = work(replace(context, connection=connection))
            except Exception as error:  # raised when the page is requested
                logger.warning("a background computation failed", exc_info=error)
                result = _Failure(error)
        with self._guard:
            self._results.keep(key, result)
            self._pending.pop(key).set()

    def keep_messages(self, texts: tuple[str, ...]) -> str:
        """Keep messages for the next page; return their key, '' without messages."""
        if not texts:
            return ""
        name = secrets.token_hex(8)
        with self._guard:
            self._messages.keep(name, texts)
        return name

    def messages(self, name: str) -> tuple[str, ...]:
        """Return the messages of a key; none if it is unknown or expired."""
        with self._guard:
            return self._messages.get(name, ())

    def keep_draft(self, text: str, owner: str) -> str:
        """Keep a text that a person edits, for their next page; return its key."""
        name = secrets.token_hex(16)
        with self._guard:
            self._drafts.keep(name, (owner, text))
        return name

    def draft(self, name: str, owner: str) -> str | None:
        """Return a person's text; None if it is unknown, expired or another person's."""
        with self._guard:
            kept = self._drafts.get(name)
        return kept[1] if kept is not None and kept[0] == owner else None
