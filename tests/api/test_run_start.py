"""A start that is sent several times at once is carried out once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.api import run_start
from edison_ci.api.run_start import CannotStart, Start, start_run
from edison_ci.store.steering import StartRequest
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import Folder

ACTOR = Actor(Identity("git", email="ann@example.org"), Role.EDITOR)


class Starts:
    """Starts that wait to be let go, and how many there are at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        monkeypatch.setattr(run_start, "_start_once", self)

    def __call__(self, _site: Any, actor: Actor, start: Start, *, offline: bool) -> StartRequest:
        assert not offline
        self.begun.release()
        assert self.go.wait(PATIENCE_S)
        return StartRequest(start.key, "run", start.experiment, "", actor.name, "")


def test_starts_with_one_key_wait_for_each_other_and_others_do_not(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, site = Starts(monkeypatch), open_site(mini.path)

    def send(key: str) -> str:
        return start_run(site, ACTOR, Start("hello", "", key, "api")).key

    with ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(send, key) for key in ("a", "a", "b")]
        assert all(starts.begun.acquire(timeout=PATIENCE_S) for _ in range(2))
        time.sleep(0.2)
        assert not starts.begun.acquire(blocking=False), "the second with the key of the first"
        starts.go.set()
        assert [start.result(PATIENCE_S) for start in sent] == ["a", "a", "b"]
    assert starts.begun.acquire(timeout=PATIENCE_S)


def test_a_start_that_waits_for_too_long_is_refused_and_nothing_is_forgotten(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, site = Starts(monkeypatch), open_site(mini.path)
    monkeypatch.setattr(run_start, "_PATIENCE_S", 0.01)
    start = Start("hello", "", "a", "api")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(start_run, site, ACTOR, start)
        assert starts.begun.acquire(timeout=PATIENCE_S)
        with pytest.raises(CannotStart, match="a start with this key is under way"):
            start_run(site, ACTOR, start)
        starts.go.set()
        assert first.result(PATIENCE_S).key == "a"
