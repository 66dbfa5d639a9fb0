"""Work that a page starts and does not wait for: in a thread, and kept in memory for its page.

It is forgotten with the server; what it bought stays in the results file, so starting it again
costs little. Each person has one job at a time.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from edison_ci.errors import BusyError, EdisonError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_KEPT = 100


class Job:
    """Work in progress, read by pages while a thread does it."""

    def __init__(self, owner: str, about: str) -> None:
        self.key = secrets.token_hex(16)
        self.owner, self.about = owner, about
        """Who started it, and the prompt, cell or suggestion."""
        self.problem = ""
        """Why it ended early; empty if it did not."""
        self.guard = threading.Lock()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        with self.guard:
            return self._ended

    def end(self, problem: str = "") -> None:
        """Note that nothing more comes."""
        with self.guard:
            self._ended, self.problem = True, problem


Kind = TypeVar("Kind", bound=Job)

_jobs: OrderedDict[str, Job] = OrderedDict()
_guard = threading.Lock()


def start_job(job: Job, work: Callable[[], None]) -> None:
    """Do the work in a thread; raises BusyError while its owner has another job."""
    _admit(job)

    def run() -> None:
        try:
            work()
        except EdisonError as error:
            job.end(error.message)
        except Exception as error:
            logger.error("%s failed", type(job).__name__, exc_info=error)
            job.end(f"a bug in edison: {type(error).__name__}")
        else:
            job.end()

    threading.Thread(target=run, daemon=True, name=f"job-{job.key[:8]}").start()


def _admit(job: Job) -> None:
    with _guard:
        if any(other.owner == job.owner and not other.ended for other in _jobs.values()):
            raise BusyError(
                "another try of yours is not complete", hint="wait for its answers, then try again"
            )
        _jobs[job.key] = job
        ended = [key for key, other in _jobs.items() if other.ended]
        for key in ended[: max(0, len(_jobs) - _KEPT)]:
            del _jobs[key]


def find_job(kind: type[Kind], key: str, owner: str) -> Kind | None:
    """Return a person's job of a kind; None if it is forgotten, or another person's."""
    with _guard:
        job = _jobs.get(key)
    return job if isinstance(job, kind) and job.owner == owner else None
