"""A pushed tag becomes a release: what of that can be tried without GitHub."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import yaml

import edison_ci
from requirements.release import main, notes, version, wrong_with

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
WORKFLOW: dict[str, Any] = yaml.safe_load(SOURCE)
THIS = f"v{edison_ci.__version__}"

CHANGELOG = """# Changelog

## [Unreleased]

- run: later

## [1.2.3] - 2027-01-31

### Fixed

- run: fixed

## [1.2.2] - 2026-12-01

- run: older
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "edison_ci").mkdir()
    (tmp_path / "edison_ci/__init__.py").write_text('"""A package."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


# --- the version ----------------------------------------------------------------------------------


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "edison_ci/__init__.py"
    assert version() == edison_ci.__version__


def test_this_version_could_be_tagged_now() -> None:
    assert wrong_with(THIS) == []


def test_a_tag_that_fits_passes_and_has_its_notes(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "v1.2.3"], checkout) == 0
    assert capsys.readouterr().out == "v1.2.3 may be released\n"
    assert main(["notes", "v1.2.3"], checkout) == 0
    assert capsys.readouterr().out == "### Fixed\n\n- run: fixed\n"


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("v1.2.4", "the tag says 1.2.4, but edison_ci/__init__.py says 1.2.3"),
        ("1.2.3", "'1.2.3' is not the tag of a release"),
        ("v1.2", "'v1.2' is not the tag of a release"),
        ("v1.2.3; rm -rf /", "is not the tag of a release"),
        ("v1.2.3rc1", "the tag says 1.2.3rc1, but edison_ci/__init__.py says 1.2.3"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str], tag: str, said: str
) -> None:
    assert main(["check", tag], checkout) == 1
    assert said in capsys.readouterr().err


def test_a_release_without_a_section_in_the_changelog_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("[1.2.3]", "[1.2.1]"))
    assert wrong_with("v1.2.3", checkout) == [
        "CHANGELOG.md has nothing below ## [1.2.3]: say what the release changes"
    ]
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("- run: fixed\n", ""))
    assert wrong_with("v1.2.3", checkout)


def test_a_pre_release_has_the_notes_of_its_version(checkout: Path) -> None:
    package = checkout / "edison_ci/__init__.py"
    package.write_text(package.read_text().replace("1.2.3", "1.2.3rc1"))
    assert wrong_with("v1.2.3rc1", checkout) == []
    assert notes("v1.2.3rc1", checkout) == notes("v1.2.3", checkout)


def test_wrong_usage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release"]) == 2
    assert "usage: release.py check TAG" in capsys.readouterr().err


# --- the files ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_source_and_wheel_are_built_with_the_version_and_all_data(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(BIN)/python -m build --no-isolation --outdir dist >/dev/null" in makefile
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"edison_ci-{edison_ci.__version__}"
    wheel, source = tmp_path / f"{name}-py3-none-any.whl", tmp_path / f"{name}.tar.gz"
    assert sorted(tmp_path.iterdir()) == sorted([wheel, source])

    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
        metadata = message_from_string(file.read(f"{name}.dist-info/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("edison-ci", edison_ci.__version__)
    shipped = "edison_ci/_shipped"
    assert f"{shipped}/requirements/run.txt" in inside, "built from the source distribution"
    assert f"{shipped}/schemas/experiment.schema.json" in inside
    with tarfile.open(source) as archive:
        assert f"{name}/CHANGELOG.md" in archive.getnames()


# --- the workflow ---------------------------------------------------------------------------------


def script(job: str, step: str) -> str:
    (found,) = [each["run"] for each in WORKFLOW["jobs"][job]["steps"] if each["name"] == step]
    return str(found)


def bash(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as the runner does, with `gh` that only says how it was called."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "gh").write_text('#!/bin/sh\nfor word; do printf "[%s] " "$word"; done; echo\n')
    (tools / "gh").chmod(0o755)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=folder,
        env={"PATH": f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
    )


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    command = ["git", *identity, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(checkout: Path, tmp_path: Path) -> Path:
    """A clone with a tag on the default branch, and one beside it."""
    work = tmp_path / "work"
    (tmp_path / "origin").mkdir()
    git(tmp_path / "origin", "init", "--bare", "--quiet", "-b", "main")
    git(tmp_path, "clone", "--quiet", str(tmp_path / "origin"), str(work))
    (work / "edison_ci").mkdir()
    for name in ("edison_ci/__init__.py", "CHANGELOG.md"):
        (work / name).write_text((checkout / name).read_text())
    (work / "requirements").mkdir()
    (work / "requirements/release.py").write_text(
        (ROOT / "requirements/release.py").read_text("utf-8")
    )
    git(work, "switch", "--quiet", "-c", "main")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "Release 1.2.3")
    git(work, "tag", "v1.2.3")
    git(work, "push", "--quiet", "origin", "main", "v1.2.3")
    return work


def test_only_a_tag_of_the_default_branch_is_released(repository: Path) -> None:
    step = script("build", "Check the tag")
    done = bash(step, repository, TAG="v1.2.3", BRANCH="main")
    assert (done.returncode, done.stdout) == (0, "v1.2.3 may be released\n"), done.stderr

    git(repository, "switch", "--quiet", "-c", "aside")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Not reviewed")
    git(repository, "tag", "--force", "v1.2.3")
    assert bash(step, repository, TAG="v1.2.3", BRANCH="main").returncode == 1
    assert bash(step, repository, TAG="v1.2.4", BRANCH="main").returncode == 1


@pytest.mark.parametrize(("tag", "flag"), [("v1.2.3", ""), ("v1.2.3rc1", " [--prerelease]")])
def test_the_release_is_made_of_the_tag_the_notes_and_the_files(
    repository: Path, tag: str, flag: str
) -> None:
    (repository / "dist").mkdir()
    (repository / "dist" / "a b.whl").write_text("")
    done = bash(script("announce", "Create the release"), repository, TAG=tag)
    assert done.stdout == (
        f"[release] [create] [{tag}] [--verify-tag] [--title] [{tag}] [--notes-file] [notes.md]"
        f"{flag} [dist/a b.whl] \n"
    )


def test_the_tag_of_the_action_moves_with_a_release_only(repository: Path, tmp_path: Path) -> None:
    step, origin = script("announce", "Tag the action"), tmp_path / "origin"
    origin.rename(tmp_path / "edison.git")
    places = {"SERVER": str(tmp_path), "REPOSITORY": "edison"}
    assert bash(step, repository, TAG="v1.2.3rc1", **places).returncode == 0
    assert git(tmp_path / "edison.git", "tag") == "v1.2.3"
    for _ in range(2):
        done = bash(step, repository, TAG="v1.2.3", **places)
        assert done.returncode == 0, done.stderr
        head = git(repository, "rev-parse", "HEAD")
        assert git(tmp_path / "edison.git", "rev-parse", "v1") == head
        git(repository, "commit", "--quiet", "--allow-empty", "-m", "Next")


def test_the_notes_are_those_of_the_changelog(repository: Path) -> None:
    assert bash(script("build", "Write the notes"), repository, TAG="v1.2.3").returncode == 0
    assert (repository / "notes.md").read_text() == "### Fixed\n\n- run: fixed\n"


def test_nothing_is_published_that_was_not_tested_and_attested() -> None:
    jobs = WORKFLOW["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "attest": "build",
        "publish": "attest",
        "image": "publish",
        "announce": ["publish", "image"],
    }
    built = [step.get("run") for step in jobs["build"]["steps"]]
    assert built.index("make test") < built.index("make dist")
    assert WORKFLOW["permissions"] == {}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    may_sign = {name for name, job in jobs.items() if "id-token" in job["permissions"]}
    assert may_sign == {"attest", "publish", "image"}, "only jobs that run no code of ours, but uv"
    assert jobs["publish"]["environment"] == "release"
    assert "--trusted-publishing always" in script("publish", "Publish")
    assert "secrets" not in SOURCE


def test_uv_that_publishes_is_locked() -> None:
    assert "--requirement requirements/maintain.txt" in script("publish", "Publish")
    assert re.search(r"(?m)^uv==", (ROOT / "requirements/maintain.txt").read_text("utf-8"))


# --- containers and forms -------------------------------------------------------------------------


def test_the_image_is_made_of_the_wheel_and_of_locked_packages() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", text)
    assert copied == ["requirements/run.txt dist/edison_ci-*.whl"]
    seen = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert seen[1:] == ["*", *(f"!{name}" for name in copied[0].split())]
    assert "--require-hashes --no-deps --only-binary :all:" in text
    assert "--no-deps --no-index /tmp/edison/edison_ci-*.whl" in text
    users = re.findall(r"(?m)^USER (.+)$", text)
    assert users and users[-1] != "root"
    assert text.index("\nUSER ") < text.index('\nENTRYPOINT ["edison"]')


def test_the_dev_container_sets_up_what_a_contributor_needs() -> None:
    found = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (target,) = re.findall(r"make ([a-z-]+)", found["postCreateCommand"])
    assert f"\n{target}: " in makefile
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = found["image"].rpartition(":")[2]
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]


def test_a_report_of_a_bug_asks_for_what_is_needed_to_see_it() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8"))
    needed = {part["id"] for part in form["body"] if part.get("validations", {}).get("required")}
    assert needed == {"done", "seen", "doctor"}


def test_what_cannot_be_verified_here_is_listed() -> None:
    page = (ROOT / "docs/releasing.md").read_text(encoding="utf-8")
    listed = page.partition("## What no test here can prove")[2]
    for part in ("trusted publishing", "attestations", "digests of the base images", "the image"):
        assert f"| {part}" in listed
    unpinned = [
        line
        for name in ("Dockerfile", ".devcontainer/devcontainer.json")
        for line in (ROOT / name).read_text("utf-8").splitlines()
        if re.search(r"BASE=|\"image\"", line) and "@sha256:" not in line
    ]
    assert len(unpinned) == 2, "pinned now: take the row on digests out of docs/releasing.md"
