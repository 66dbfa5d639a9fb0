"""What the repository promises about its own files."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def ci_jobs() -> dict[str, Any]:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    jobs: dict[str, Any] = yaml.safe_load(workflow)["jobs"]
    return jobs


def test_long_targets_are_run_by_their_workflows() -> None:
    commands = {
        name: re.findall(r"run: (make .*)", (ROOT / f".github/workflows/{name}.yml").read_text())
        for name in ("nightly", "weekly")
    }
    assert commands == {
        "nightly": ["make nightly"],
        "weekly": [
            "make coverage",
            "make simulate",
            "make soak",
            "make bench",
            "make redteam COUNT=10",
        ],
    }


def test_the_machines_and_pythons_that_are_promised_are_those_of_ci() -> None:
    jobs = ci_jobs()
    machines = {name: jobs[name]["strategy"]["matrix"] for name in ("test", "check")}
    runs = {name: [step.get("run", "") for step in jobs[name]["steps"]] for name in jobs}
    assert {name: next(r for r in runs[name] if r.startswith("make ")) for name in jobs} == {
        "test": "make test",
        "check": "make check",
    }
    assert machines["test"]["machine"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert machines["check"]["machine"] == ["macos-15", "macos-15-intel"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = [c.rpartition(" :: ")[2] for c in project["classifiers"] if ":: 3." in c]
    assert machines["test"]["python"] == classified
    assert set(machines["check"]["python"]) <= set(classified)
    systems = {c for c in project["classifiers"] if c.startswith("Operating System")}
    assert systems == {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"}

    lock = (ROOT / "requirements" / "lock.sh").read_text(encoding="utf-8")
    assert f"readonly PYTHONS=({' '.join(classified)})\n" in lock
    platforms = re.search(r"readonly PLATFORMS=\((.+)\)\n", lock)
    assert platforms is not None
    assert [name.split("-")[:2] for name in platforms[1].split()] == [
        ["x86_64", "manylinux_2_28"],
        ["aarch64", "manylinux_2_28"],
        ["aarch64", "apple"],
        ["x86_64", "apple"],
    ]
    named = re.search(r"readonly LOCKS=\((.+)\)\n", lock)
    assert named is not None
    assert sorted(named[1].split()) == [path.name for path in REQUIREMENT_FILES]


def test_the_wheel_that_the_readme_installs_is_the_one_that_make_builds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"dist/\S*?\.whl", readme)) == {"dist/*.whl"}
    assert project["scripts"].keys() == {"edison", project["name"]}, "uvx runs the latter by itself"


def test_licence_is_apache_2() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    ours, *others = project["license-files"]
    text = (ROOT / ours).read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    for name in others:
        assert "Permission is hereby granted" in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.nightly
def test_hooks_before_a_commit_are_the_quick_steps_of_make_lint() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (local,) = yaml.safe_load(text)["repos"]
    entries = {hook["id"]: hook["entry"].split() for hook in local["hooks"]}
    for entry in entries.values():
        assert (ROOT / entry[0]).is_file() or entry[0] == "bash"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for tool in (entries["ruff-format"][:2], entries["ruff-check"][:2], entries["mypy"][:1]):
        assert " ".join(tool).replace(".venv/bin", "$(BIN)") in makefile
    command = shlex.split(" ".join(entries["edison-validate"]))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("ok: 1 experiment")) == (0, 5), done
