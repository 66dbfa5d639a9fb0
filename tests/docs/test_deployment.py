"""The files of docs/deploy are valid, start commands that exist, and do what they say."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"])


def test_the_compose_file_is_valid_by_its_schema() -> None:
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [sys.executable, *command, str(DEPLOY / "compose.yaml")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_containers_may_do_little() -> None:
    assert set(services()) == {"serve", "scheduler", "backup"}
    for service in services().values():
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    keys = [name for name, service in services().items() if "env_file" in service]
    assert keys == ["scheduler"], "only runs need keys"
    assert all(port.startswith("127.0.0.1:") for port in services()["serve"]["ports"])
    assert services()["backup"]["network_mode"] == "none"


def pods() -> dict[str, Any]:
    """Return the pods of the manifest for workers, by name."""
    text = (DEPLOY / "edison-workers.yaml").read_text("utf-8")
    found = [each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in found}


def test_pods_may_do_little_and_have_time_to_drain() -> None:
    assert set(pods()) == {"edison-scheduler", "edison-worker"}
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        limits = container["securityContext"]
        assert limits["capabilities"] == {"drop": ["ALL"]}
        assert limits["readOnlyRootFilesystem"] is True
        tls = next(volume for volume in pod["volumes"] if volume["name"] == "tls")
        assert tls["secret"]["defaultMode"] & 0o007 == 0, "edison refuses a key that all can read"
    keys = [name for name, pod in pods().items() if "envFrom" in pod["containers"][0]]
    assert keys == ["edison-worker"], "only workers need keys"
    worker = pods()["edison-worker"]
    words = worker["containers"][0]["args"]
    assert worker["terminationGracePeriodSeconds"] > int(words[words.index("--grace") + 1])


def started() -> list[list[str]]:
    """Return the commands of edison that the files start, and those that docs/scale.md launches."""
    found = [s["command"] for s in services().values() if "entrypoint" not in s]
    found += [pod["containers"][0]["args"] for pod in pods().values()]
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    found += [words.split() for words in re.findall(r"\bedison (worker [^'#\n]+)", text)]
    for unit in UNITS:
        program, *words = shlex.split(parsed(unit)["Service"]["ExecStart"])
        assert program == "/opt/edison/bin/edison"
        found.append(words)
    return found


def parsed(unit: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=True, interpolation=None)
    found.optionxform = str  # type: ignore[method-assign,assignment]  # keys keep their case
    found.read_string(unit.read_text("utf-8"))
    return found


@pytest.mark.parametrize("words", started(), ids=" ".join)
def test_the_commands_exist_with_their_options(
    edison: Edison, folder: Folder, words: list[str]
) -> None:
    done = edison(folder, *words, "--help")
    assert done.code == 0, done.err
    for option in (word for word in words if word.startswith("--")):
        assert option in done.out


def test_the_health_check_asks_for_an_address_without_sign_in() -> None:
    text = " ".join(services()["serve"]["healthcheck"]["test"])
    assert "http://127.0.0.1:8001/-/edison/ready" in text
    compile(services()["serve"]["healthcheck"]["test"][-1], "healthcheck", "exec")


def test_backups_are_copied_and_old_copies_go(tmp_path: Path) -> None:
    made, copies = tmp_path / ".edison" / "backups", tmp_path / "copies"
    made.mkdir(parents=True)
    copies.mkdir()
    (made / "results-20261115T000000Z.db").write_text("new")
    (made / "before-restore-20261115T000000Z.db").write_text("not this one")
    old = copies / "results-20260101T000000Z.db"
    old.write_text("old")
    os.utime(old, (1_700_000_000, 1_700_000_000))
    (copies / "mine.db").write_text("mine")
    os.utime(copies / "mine.db", (1_700_000_000, 1_700_000_000))
    (script,) = services()["backup"]["command"]
    once = script.replace("sleep 3600", "exit 0").replace("/backups/ ", f"{copies}/ ")
    once = once.replace("find /backups", f"find {copies}")
    done = subprocess.run(["/bin/sh", "-c", once], cwd=tmp_path, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
    names = sorted(path.name for path in copies.iterdir())
    assert names == ["mine.db", "results-20261115T000000Z.db"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_restart_and_are_kept_in(unit: Path) -> None:
    found = parsed(unit)
    assert found.sections() == ["Unit", "Service", "Install"]
    service = found["Service"]
    assert service["Restart"] == "on-failure"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == service["WorkingDirectory"]


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is for Linux")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "edison"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = unit.read_text("utf-8").replace("/opt/edison/bin/edison", str(program))
    copy = tmp_path / unit.name
    copy.write_text(re.sub("(?m)^User=.*$", "User=root", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == []
    copy.write_text(copy.read_text().replace("Restart=on-failure", "Restart=perhaps"))
    wrong = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "perhaps" in wrong.stderr, "it does look"
