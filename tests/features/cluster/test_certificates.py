"""Certificates that are not those of the team: nobody says a word to who shows one."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("distributed")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

from edison_ci import utc
from edison_ci.errors import UsageError
from edison_ci.features.cluster import tls
from edison_ci.features.cluster.dask_executor import DaskExecutor
from edison_ci.features.cluster.nodes import PlainScheduler, carry_plain_data
from edison_ci.features.cluster.tls import (
    ClusterAddress,
    issue_certificates,
    probe,
    read_certificates,
)
from tests.features.cluster.test_executor import model
from tests.features.cluster.test_nodes import first_byte, scheduler
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

BOTH = (Usage.CLIENT_AUTH, Usage.SERVER_AUTH)
NOW = utc.now()


class Signed(NamedTuple):
    """A certificate with its key, and those between it and the authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    between: tuple[x509.Certificate, ...] = ()


def signed(
    by: Signed | None,
    *,
    name: str = "machine",
    uses: tuple[x509.ObjectIdentifier, ...] = BOTH,
    authority: bool = False,
    days: tuple[int, int] = (-1, 1),
) -> Signed:
    """Return a certificate; without an issuer it is signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = tls._name(name)
    issuer = subject if by is None else by.certificate.subject
    builder = tls._builder(subject, issuer, key, 1)
    builder._not_valid_before, builder._not_valid_after = (
        (NOW + dt.timedelta(days=day)).replace(tzinfo=None, microsecond=0) for day in days
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=authority, path_length=None), critical=True
    )
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage([*uses]), critical=False)
    between = () if by is None else (by.certificate, *by.between)
    return Signed(tls._sign(builder, key if by is None else by.key), key, between)


def certificates_of_others(team: Path) -> dict[str, Signed]:
    """Return certificates that are no certificates of the team."""
    authority = tls._open_authority(team)
    assert authority is not None
    ours = Signed(*authority)
    member = signed(ours)
    name = "edison-ci cluster"
    return {
        "signed by itself": signed(None),
        "another authority": signed(signed(None, authority=True)),
        "another authority of our name": signed(signed(None, name=name, authority=True)),
        "by itself with our name": signed(None, name=name, authority=True),
        "expired": signed(ours, days=(-3, -1)),
        "of next week": signed(ours, days=(7, 8)),
        "for mail": signed(ours, uses=(Usage.EMAIL_PROTECTION,)),
        "for code": signed(ours, uses=(Usage.CODE_SIGNING,)),
        "made by a member": signed(member),
        "made by a member as authority": signed(signed(member, authority=True)),
        "made by an authority below ours": signed(signed(ours, authority=True)),
    }


def context_of(found: Signed | None, folder: Path, *, server: bool) -> ssl.SSLContext:
    """Return the context of somebody who checks nobody."""
    protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if found is not None:
        chain = b"".join(map(tls._pem, (found.certificate, *found.between)))
        (folder / "chain.pem").write_bytes(chain)
        (folder / "key.pem").write_bytes(tls._pem_of(found.key))
        context.load_cert_chain(folder / "chain.pem", folder / "key.pem")
    return context


@pytest.fixture
def team(tmp_path: Path) -> Path:
    issue_certificates(tmp_path / "team", (), days=2)
    return tmp_path / "team"


@contextlib.asynccontextmanager
async def scheduler_of(team: Path) -> AsyncIterator[str]:
    carry_plain_data()
    here = ClusterAddress("127.0.0.1", 0, tls=True)
    async with PlainScheduler(
        here, read_certificates(team).security(), lambda _: None
    ) as scheduler:
        yield scheduler.address


@pytest.mark.nightly
async def test_a_scheduler_speaks_with_nobody_who_is_not_of_the_team(
    team: Path, tmp_path: Path
) -> None:
    foreign: dict[str, Signed | None] = {**certificates_of_others(team), "none": None}
    authority = tls._open_authority(team)
    assert authority is not None
    ours = Signed(*authority)
    foreign["for servers only"] = signed(ours, uses=(Usage.SERVER_AUTH,))
    async with asyncio.timeout(PATIENCE_S), scheduler_of(team) as address:
        for attack, found in foreign.items():
            context = context_of(found, tmp_path, server=False)
            assert await first_byte(address, context) == b"", attack
        old = read_certificates(team).context()
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        assert await first_byte(address, old) == b"", "an old version of TLS"
        place = tls.read_address(address)
        assert await plainly(place, b"GET / HTTP/1.1\r\n\r\n") == b"", "a page"
        for few in (BOTH, (Usage.CLIENT_AUTH,)):
            context = context_of(signed(ours, uses=few), tmp_path, server=False)
            assert await first_byte(address, context) != b"", "one of the team is heard"


async def plainly(place: ClusterAddress, said: bytes) -> bytes:
    """Return the readable part of what is answered to bytes without TLS."""
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(said)
    with contextlib.suppress(OSError):
        reply = await reader.read(1_000)
        writer.close()
        return b"" if reply[:1] in (b"\x15", b"") else reply  # an alert of TLS
    return b""


async def test_a_run_says_nothing_to_a_scheduler_that_is_not_of_the_team(
    team: Path, tmp_path: Path
) -> None:
    authority = tls._open_authority(team)
    assert authority is not None
    ours, own = Signed(*authority), read_certificates(team)
    foreign = certificates_of_others(team)
    foreign["for clients only"] = signed(ours, uses=(Usage.CLIENT_AUTH,))
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"\0")
            heard.append(await reader.read(1_000))
        writer.close()

    this = model(tmp_path)
    async with asyncio.timeout(PATIENCE_S):
        for attack, found in foreign.items():
            context = context_of(found, tmp_path, server=True)
            async with await asyncio.start_server(listen, "127.0.0.1", ssl=context) as server:
                port = server.sockets[0].getsockname()[1]
                address = ClusterAddress("127.0.0.1", port, tls=True)
                with pytest.raises(UsageError, match="is not one of this team") as refused:
                    await probe(address, own)
                assert (refused.value.exit_code, attack) == (2, attack)
                said: list[str] = []
                run = DaskExecutor(str(address), own.security(), "run-1", [this], said.append)
                await run._look()
                assert len(said) == 1 and "the scheduler does not answer" in said[0], attack
        assert not any(heard)
        context = context_of(signed(ours), tmp_path, server=True)
        async with await asyncio.start_server(listen, "127.0.0.1", ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            await probe(ClusterAddress("127.0.0.1", port, tls=True), own)


async def test_a_run_with_certificates_speaks_to_no_worker_without(
    team: Path, tmp_path: Path
) -> None:
    """A scheduler that was taken over names workers that are none."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            heard.append(await reader.read(1_000))
        writer.close()

    carry_plain_data()
    own = read_certificates(team)
    foreign = certificates_of_others(team)
    async with asyncio.timeout(PATIENCE_S), contextlib.AsyncExitStack() as stack:
        plain = await stack.enter_async_context(await asyncio.start_server(listen, "127.0.0.1"))
        listed: dict[str, Any] = {f"tcp://127.0.0.1:{plain.sockets[0].getsockname()[1]}": {}}
        for found in foreign.values():
            context = context_of(found, tmp_path, server=True)
            server = await asyncio.start_server(listen, "127.0.0.1", ssl=context)
            await stack.enter_async_context(server)
            listed[f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"] = {}
        here = ClusterAddress("127.0.0.1", 0, tls=True)
        scheduler = PlainScheduler(here, own.security(), lambda _: None)
        scheduler.handlers["identity"] = lambda **_: {"workers": listed}
        await stack.enter_async_context(scheduler)
        said: list[str] = []
        run = DaskExecutor(
            scheduler.address, own.security(), "run-1", [model(tmp_path)], said.append
        )
        await run._look()
        assert run.states() == []
        assert not any(heard)


@pytest.mark.nightly
def test_a_run_with_other_certificates_ends_before_its_first_call(
    team: Path, tmp_path: Path, edison: Edison, mini: Folder
) -> None:
    authority = tls._open_authority(team)
    assert authority is not None
    ours = Signed(*authority)
    folders: dict[str, str] = {}
    for attack, found in {
        "expired": signed(ours, days=(-3, -1)),
        "of next week": signed(ours, days=(7, 8)),
        "signed by itself": signed(None),
        "another authority of our name": signed(
            signed(None, name="edison-ci cluster", authority=True)
        ),
        "for servers only": signed(ours, uses=(Usage.SERVER_AUTH,)),
    }.items():
        folder = tmp_path / attack
        folder.mkdir()
        (folder / "ca.pem").write_bytes((team / "ca.pem").read_bytes())
        (folder / "cert.pem").write_bytes(tls._pem(found.certificate))
        tls._write(folder / "key.pem", tls._pem_of(found.key))
        folders[attack] = str(folder)
    issue_certificates(tmp_path / "other", (), days=2)
    folders["another team"] = str(tmp_path / "other")
    folders["none"] = str(tmp_path / "none")
    for attack in ("open to all", "the key of another", "no certificate"):
        shutil.copytree(team, tmp_path / attack)
        folders[attack] = str(tmp_path / attack)
    (tmp_path / "open to all/key.pem").chmod(0o644)
    (tmp_path / "the key of another/key.pem").write_bytes((tmp_path / "other/key.pem").read_bytes())
    (tmp_path / "no certificate/cert.pem").write_text("-----BEGIN CERTIFICATE-----")
    with scheduler(team) as address:
        for attack, folder_of_attack in folders.items():
            done = edison(mini, "run", "--on", address, "--tls", folder_of_attack)
            assert done.code == 2, (attack, done.all)
            assert not (mini.path / ".edison/results.db").exists(), attack
