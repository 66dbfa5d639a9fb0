"""Counts of the requests to the pages, since the server was started."""

from __future__ import annotations

BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the times that are counted together."""
_METHODS = frozenset({"GET", "HEAD", "POST"})


class Traffic:
    """Requests by page, method and status, their times, and who signed in."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.times: dict[str, tuple[list[int], float]] = {}
        self.sign_ins = {"accepted": 0, "refused": 0}

    def count(self, page: str, method: str, status: int, seconds: float) -> None:
        """Count a request; `page` is one of a fixed set of names."""
        key = (page, method if method in _METHODS else "other", status)
        self.requests[key] = self.requests.get(key, 0) + 1
        counts, total = self.times.get(page, ([0] * (len(BOUNDS_S) + 1), 0.0))
        place = next((n for n, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        counts[place] += 1
        self.times[page] = (counts, total + seconds)
        if (page, method) == ("sign-in", "POST"):
            self.sign_ins["accepted" if status == 303 else "refused"] += 1
