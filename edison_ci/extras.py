"""Optional libraries: the extra that brings each, whether it works here, and how to install it.

Nothing is imported to find out: a library may take seconds to load, and a stolen release runs its
code on import.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from edison_ci._dataclass import dataclass


def search_path() -> str:
    """Return PATH without relative entries, which would find programs in the repository."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())


def find_program(name: str) -> str | None:
    """Return the path of a program, or None."""
    return shutil.which(name, path=search_path())


# `known_bad.json` lists them with the day it was made; a workflow makes it anew from the public
# database of advisories (`requirements/known_bad.py`). `edison doctor` looks at what is installed,
# and a test at what is locked. Nothing is asked over the network for it.
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


@dataclass(frozen=True, slots=True)
class Library:
    """A library that an extra installs; on the index it has the name of its module."""

    module: str
    extra: str
    requirement: str
    """What to install, as pyproject.toml says it."""
    at_least: str = ""
    """The oldest version that works, where an older one may be around."""

    def fault(self) -> str:
        """Return why the library cannot be used, after its name; empty if it can."""
        if self._origin() is None:
            return "is not installed"
        if not self.at_least:
            return ""
        version = self.version()
        if bad := known_bad().about(self.module, version):
            return f"{version} {bad[0].why}"
        if version and release(version) < release(self.at_least):
            return f"{version} is too old; {self.at_least} or newer is needed"
        return ""

    def version(self) -> str:
        """Return the version that is installed; empty if nothing tells."""
        # By the name of a folder: importlib.metadata takes longer to load than a validation.
        origin = self._origin()
        found = [] if origin is None else origin.parent.parent.glob(f"{self.module}-*.dist-info")
        names = [path.name.removesuffix(".dist-info") for path in found]
        return names[0].removeprefix(f"{self.module}-") if names else ""

    def folder(self) -> Path:
        """Return the folder of the files that the library carries.

        Raises:
            FileNotFoundError: it is not installed.
        """
        origin = self._origin()
        if origin is None:
            raise FileNotFoundError(f"{self.module} is not installed")
        return origin.parent

    def _origin(self) -> Path | None:
        """Return the file that would be imported; None if there is none."""
        spec = find_spec(self.module)
        # A folder of this name in the working directory has a spec too, without an origin.
        return None if spec is None or spec.origin is None else Path(spec.origin)


LITELLM = Library("litellm", "litellm", "litellm>=1.100,!=1.82.7,!=1.82.8,<2", at_least="1.100")
SAFETENSORS = Library("safetensors", "embeddings", "safetensors>=0.5")
TOKENIZERS = Library("tokenizers", "embeddings", "tokenizers>=0.20")
WORDLLAMA = Library("wordllama", "embeddings", "wordllama==0.2.2.post0")
PY3LANGID = Library("py3langid", "metrics", "py3langid>=0.4")
SACREBLEU = Library("sacrebleu", "metrics", "sacrebleu>=2.6")
PHONENUMBERS = Library("phonenumbers", "pii", "phonenumbers>=9")

LIBRARIES = (
    LITELLM, SAFETENSORS, TOKENIZERS, WORDLLAMA, PY3LANGID, SACREBLEU, PHONENUMBERS,
)  # fmt: skip
EXTRAS = {
    "litellm": "models of vertex, bedrock and litellm",
    "embeddings": "the check similar",
    "metrics": "the checks bleu, chrf and language",
    "pii": "telephone numbers by the plan of each country in safety.pii, else by length",
}
"""The extras of pyproject.toml, and what each is for."""


def faults_of(extra: str) -> list[str]:
    """Return what keeps the libraries of an extra from being used, one text for each."""
    libraries = [library for library in LIBRARIES if library.extra == extra]
    return [f"{each.module} {fault}" for each in libraries if (fault := each.fault())]


def install_command(extra: str) -> str:
    """Return the command that installs an extra where edison runs, as far as files there tell.

    It names the libraries and not the extra: that would have edison itself looked for on the index,
    where it is not yet, and anybody could put something of that name.
    """
    libraries = (library for library in LIBRARIES if library.extra == extra)
    words = shlex.join(library.requirement for library in libraries)
    here = Path(sys.prefix)
    if (here / "pipx_metadata.json").is_file():
        return f"pipx inject edison-ci {words}"
    if (here / "uv-receipt.toml").is_file():
        return f"uv pip install --python {shlex.quote(str(here))} {words}"
    return f"{'uv ' if _made_by_uv(here) else ''}pip install {words}"


def _made_by_uv(environment: Path) -> bool:
    """Whether uv made the environment, which then has no pip of its own."""
    settings = environment / "pyvenv.cfg"
    if not settings.is_file():
        return False
    return any(line.startswith("uv =") for line in settings.read_text("utf-8").splitlines())
