"""Certificates of a team: issued by one command, checked before use, and refused with a reason."""

from __future__ import annotations

import datetime as dt
import shutil
from typing import TYPE_CHECKING

import pytest

from edison_ci import utc
from edison_ci.errors import UsageError
from edison_ci.features.cluster.tls import (
    issue_certificates,
    read_address,
    read_certificates,
    tls_folder,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """The certificates of this machine, and of the machine build-1."""
    issue_certificates(tmp_path / "team", ("build-1",), days=30)
    return tmp_path / "team"


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as refused:
        read_certificates(folder)
    return str(refused.value)


def test_private_keys_are_readable_by_their_owner_only(team: Path) -> None:
    files = sorted(path for path in team.rglob("*") if path.is_file())
    names = [str(path.relative_to(team)) for path in files]
    other = [f"issued/build-1/{name}" for name in ("ca.pem", "cert.pem", "key.pem")]
    assert names == ["ca.key", "ca.pem", "cert.pem", *other, "key.pem"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_more_certificates_are_of_the_same_authority(team: Path) -> None:
    authority = (team / "ca.pem").read_bytes()
    issue_certificates(team, ("build-2",), days=1)
    assert (team / "ca.pem").read_bytes() == authority
    for machine in ("build-1", "build-2"):
        read_certificates(team / "issued" / machine)
    shutil.rmtree(team / "issued" / "build-1")
    (team / "issued" / "build-2").rename(team / "there")
    with pytest.raises(UsageError, match=r"not the key of their authority \(ca\.key\)"):
        issue_certificates(team / "there", ("build-3",), days=1)


def test_what_is_wrong_with_certificates_is_said(team: Path, tmp_path: Path) -> None:
    other, mixed = tmp_path / "other", tmp_path / "mixed"
    issue_certificates(other, (), days=30)
    assert "has no ca.pem and no cert.pem and no key.pem" in refusal(mixed)

    shutil.copytree(team, mixed)
    shutil.copy(other / "ca.pem", mixed)
    assert "cert.pem was not issued by the authority in" in refusal(mixed)

    shutil.copy(team / "ca.pem", mixed)
    shutil.copy(other / "key.pem", mixed)
    assert f"{mixed / 'key.pem'} is not the key of {mixed / 'cert.pem'}" in refusal(mixed)

    (mixed / "key.pem").chmod(0o644)
    assert refusal(mixed).endswith(f"(mode 0644)\n  chmod 600 {mixed / 'key.pem'}")

    shutil.copy(team / "key.pem", mixed)
    (mixed / "key.pem").chmod(0o640)  # the group may read it, as in a pod
    read_certificates(mixed)
    (mixed / "cert.pem").write_text("nothing")
    assert "cert.pem is not a certificate in PEM form" in refusal(mixed)


def test_expired_certificates_are_named_with_their_date(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utc.now()
    later = now + dt.timedelta(days=31)
    monkeypatch.setattr(utc, "now", lambda: later)
    assert f"cert.pem expired on {now + dt.timedelta(days=30):%Y-%m-%d}" in refusal(team)
    monkeypatch.setattr(utc, "now", lambda: now - dt.timedelta(days=1))
    assert "set the clock of this machine" in refusal(team)


def test_plain_addresses_are_refused_beyond_this_machine() -> None:
    assert str(read_address("dask://build-1")) == "tls://build-1:8786"
    assert str(read_address("tls://[2001:db8::1]:9")) == "tls://[2001:db8::1]:9"
    for local in ("tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1"):
        assert read_address(local).local
    for remote in ("tcp://192.0.2.7:8786", "tcp://build-1", "tcp://0.0.0.0:0", "tcp://[::]:0"):
        with pytest.raises(UsageError, match="is not encrypted"):
            read_address(remote)
    for wrong in ("build-1:8786", "http://build-1", "tls://", "tls://a:99999", "tls://a/b", "tls:"):
        with pytest.raises(UsageError, match="is not the address of a scheduler"):
            read_address(wrong)


def test_the_folder_is_that_of_the_user_unless_another_is_named(tmp_path: Path) -> None:
    assert tls_folder(None, {"XDG_CONFIG_HOME": "/c"}).as_posix() == "/c/edison/cluster"
    assert tls_folder(None, {"EDISON_TLS": "/k"}).as_posix() == "/k"
    assert tls_folder(tmp_path, {"EDISON_TLS": "/k"}) == tmp_path


def test_keys_says_what_to_copy_where(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "worker", "keys", "build-1", "--tls", "team", "--days", "2")
    assert done.code == 0
    until = utc.now() + dt.timedelta(days=2)
    assert f"issued build-1: team/issued/build-1, until {until:%Y-%m-%d}\n" in done.out
    assert done.err == "scp -r team/issued/build-1/. build-1:.config/edison/cluster\n"
    wrong = edison(folder, "worker", "keys", "../up", "--tls", "team")
    assert (wrong.code, wrong.err.splitlines()[0]) == (
        2,
        "error: '../up' is not a name for a machine",
    )
