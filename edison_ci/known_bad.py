"""Releases of the packages that we use which nobody should have: stolen ones, and those with holes.

`known_bad.json` lists them with the day it was made; a workflow makes it anew from the public
database of advisories (`requirements/known_bad.py`). `edison doctor` looks at what is installed,
and a test at what is locked. Nothing is asked over the network for it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


class Advisory(NamedTuple):
    """Why some releases of a package are bad."""

    package: str
    id: str
    why: str
    ranges: tuple[tuple[str, str | None], ...] = ()
    """From which version on, up to which one it is mended in; None if it is in none."""
    versions: tuple[str, ...] = ()
    """Single versions."""

    def covers(self, version: str) -> bool:
        """Whether a version is one of them."""
        here = release(version)
        if version in self.versions:
            return True
        return bool(here) and any(
            release(first) <= here and (end is None or here < release(end))
            for first, end in self.ranges
        )


class KnownBad(NamedTuple):
    """The list, and the day it was made."""

    date: str
    advisories: tuple[Advisory, ...]

    def about(self, package: str, version: str) -> list[Advisory]:
        """Return what is known against a release."""
        name = normal(package)
        return [a for a in self.advisories if a.package == name and a.covers(version)]


@cache
def known_bad() -> KnownBad:
    """Return the list that comes with the program."""
    value = json.loads(Path(__file__).with_name("known_bad.json").read_text(encoding="utf-8"))
    found = tuple(
        Advisory(
            row["package"],
            row["id"],
            row["why"],
            tuple((first, end) for first, end in row.get("ranges", ())),
            tuple(row.get("versions", ())),
        )
        for row in value["advisories"]
    )
    return KnownBad(value["date"], found)


def normal(package: str) -> str:
    """Return the name of a package in its one form."""
    return re.sub(r"[-_.]+", "-", package).lower()


def release(version: str) -> tuple[int, ...]:
    """Return the numbers at the front of a version, without zeros at the end: all that counts."""
    found = _RELEASE.match(version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
