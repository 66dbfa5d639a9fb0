"""What the repository promises about its own files."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT_FILES = sorted((ROOT / "requirements").glob("*.txt"))

# Written in pieces, so that this file does not name the hosts either.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
    )
]


def repository_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def requirement_lines(path: Path) -> list[str]:
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def test_no_file_names_a_package_registry() -> None:
    pattern = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode(), re.IGNORECASE)
    naming = [
        str(path.relative_to(ROOT))
        for path in repository_files()
        if pattern.search(path.read_bytes())
    ]
    assert naming == []


@pytest.mark.parametrize("path", REQUIREMENT_FILES, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    lines = requirement_lines(path)
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9][a-z0-9.-]*==\S+ ", line), line
        assert re.search(r" --hash=sha256:[0-9a-f]{64}\b", line), line


@pytest.mark.parametrize("name", ["run.txt", "build.txt"])
def test_what_is_shipped_is_what_is_tested(name: str) -> None:
    shipped, tested = (
        {line.split()[0] for line in requirement_lines(ROOT / "requirements" / file)}
        for file in (name, "dev.txt")
    )
    assert shipped <= tested


def test_every_required_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = {line.split("==")[0] for line in requirement_lines(ROOT / "requirements" / "run.txt")}
    required = {re.split(r"[<>=!~; \[]", entry)[0] for entry in project["dependencies"]}
    assert required <= locked


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "exec make test"
    assert script.stat().st_mode & 0o111
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "run: make test\n" in workflow


def test_licence_is_apache_2() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    ours, *others = project["license-files"]
    text = (ROOT / ours).read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    for name in others:
        assert "Permission is hereby granted" in (ROOT / name).read_text(encoding="utf-8")
