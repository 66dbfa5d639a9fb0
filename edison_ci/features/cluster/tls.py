"""TLS between the parts of a cluster: addresses, certificates of a team, and what Dask gets.

A Dask scheduler and its workers do what a connection asks of them, so that both sides of every
connection show a certificate of the team's own authority. `edison worker keys` makes that authority
and a certificate for each machine. Plain connections are possible on this machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import CallFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate
    from distributed.security import Security

DEFAULT_PORT = 8786
TLS_FOLDER = "EDISON_TLS"
"""Variable with the folder of the certificates of this machine."""
_CA, _CA_KEY, _CERT, _KEY = "ca.pem", "ca.key", "cert.pem", "key.pem"
_ISSUED = "issued"
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_AUTHORITY_DAYS = 3_650
_EARLIER = dt.timedelta(minutes=5)
"""Certificates are valid from a little earlier, for machines whose clock is behind."""
_READABLE_BY_ALL = 0o007
_PROBE_S = 10.0
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SCHEMES = {"dask": True, "tls": True, "tcp": False}


class ClusterAddress(NamedTuple):
    """The address of a scheduler."""

    host: str
    port: int
    tls: bool

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host in _LOCAL or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def written_host(self) -> str:
        """The host as it is written in an address: one of IPv6 has brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}://{self.written_host}:{self.port}"


def read_address(text: str) -> ClusterAddress:
    """Return the address of a scheduler; raises UsageError, also for a plain one elsewhere."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in _SCHEMES or not host or extra:
        raise UsageError(
            f"{text!r} is not the address of a scheduler",
            hint="write tls://HOST:PORT, as printed by: edison worker scheduler",
        )
    address = ClusterAddress(host, DEFAULT_PORT if port is None else port, _SCHEMES[parts.scheme])
    refuse_plain(address)
    return address


def refuse_plain(address: ClusterAddress) -> None:
    """Raise UsageError if other machines could reach an address without TLS."""
    if not address.tls and not address.local:
        raise UsageError(
            f"{address} is not encrypted, and anyone who reaches a scheduler can use it",
            hint=f"use {address._replace(tls=True)}, with certificates of edison worker keys; "
            "tcp:// is for this machine only",
        )


def tls_folder(folder: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the certificates of this machine."""
    if folder is not None or environ.get(TLS_FOLDER):
        return folder or Path(environ[TLS_FOLDER])
    config = environ.get("XDG_CONFIG_HOME", "")
    home = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    return home / "edison" / "cluster"


class Issued(NamedTuple):
    """A certificate that was written."""

    machine: str
    """Empty for this machine."""
    folder: Path
    until: dt.datetime


def issue_certificates(folder: Path, machines: tuple[str, ...], *, days: int) -> list[Issued]:
    """Write an authority, if there is none, and certificates for this and other machines.

    The folder has the files of this machine, and `issued/NAME` what is to be copied to another one.
    Private keys are readable by their owner only.
    """
    for name in machines:
        if not _MACHINE.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for a machine",
                hint="use letters, digits, dots and hyphens; 63 at most",
            )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _open_authority(folder) or _new_authority(folder)
        issued = [_issue(authority, "", folder, days)]
        for name in machines:
            issued.append(_issue(authority, name, folder / _ISSUED / name, days))
    except OSError as error:
        raise UsageError(
            f"the certificates cannot be written to {error.filename or folder}: {error.strerror}",
            hint="check the folder, or name another one: --tls DIR",
        ) from None
    return issued


class _Authority(NamedTuple):
    certificate: Certificate
    key: EllipticCurvePrivateKey


def _open_authority(folder: Path) -> _Authority | None:
    """Return the authority of a folder; None if it has none."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    present = [(folder / name).exists() for name in (_CA, _CA_KEY)]
    if not any(present):
        return None
    if not all(present):
        raise UsageError(
            f"{folder} has certificates, but not the key of their authority ({_CA_KEY})",
            hint="issue more on the machine that made them, or make new ones with --tls DIR",
        )
    certificate = _read_certificate(folder / _CA)
    _check_dates(certificate, folder / _CA)
    try:
        key = load_pem_private_key(_read(folder / _CA_KEY), None)
    except ValueError:
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise _damaged(folder / _CA_KEY, "a private key")
    return _Authority(certificate, key)


def _new_authority(folder: Path) -> _Authority:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import BasicConstraints

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("edison-ci cluster")
    builder = _builder(name, name, key, _AUTHORITY_DAYS)
    builder = builder.add_extension(BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = _sign(builder, key)
    _write(folder / _CA_KEY, _pem_of(key))
    _write(folder / _CA, _pem(certificate))
    return _Authority(certificate, key)


def _issue(authority: _Authority, machine: str, folder: Path, days: int) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = machine or "this-machine"
    builder = _builder(_name(name), authority.certificate.subject, key, days)
    uses = x509.ExtendedKeyUsage([Usage.CLIENT_AUTH, Usage.SERVER_AUTH])
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    basic = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(basic, critical=True)
    builder = builder.add_extension(uses, critical=False).add_extension(names, critical=False)
    certificate = _sign(builder, authority.key)
    _write(folder / _KEY, _pem_of(key))
    _write(folder / _CERT, _pem(certificate))
    if machine:
        _write(folder / _CA, _pem(authority.certificate))
    return Issued(machine, folder, certificate.not_valid_after_utc)


def _name(text: str) -> Any:
    from cryptography.x509 import Name, NameAttribute
    from cryptography.x509.oid import NameOID

    return Name([NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: Any, issuer: Any, key: EllipticCurvePrivateKey, days: int) -> Any:
    from cryptography.x509 import CertificateBuilder, random_serial_number

    now = utc.now()
    return (
        CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _sign(builder: Any, key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    certificate: Certificate = builder.sign(key, hashes.SHA256())
    return certificate


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_of(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, text: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    made.replace(path)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of this machine, found to be in order."""

    folder: Path
    until: dt.datetime

    @property
    def _files(self) -> tuple[str, str, str]:
        ca, cert, key = (str(self.folder / name) for name in (_CA, _CERT, _KEY))
        return ca, cert, key

    def security(self) -> Security:
        """Return what Dask gets: the same certificate for each role."""
        from distributed.security import Security

        ca, cert, key = self._files
        roles = {
            f"tls_{role}_{what}": path
            for role in ("client", "scheduler", "worker")
            for what, path in (("cert", cert), ("key", key))
        }
        create: Any = Security  # without types
        security: Security = create(require_encryption=True, tls_ca_file=ca, **roles)
        return security

    def context(self) -> ssl.SSLContext:
        """Return the context of a connection to a scheduler, with the rules of Dask."""
        ca, cert, key = self._files
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        # Machines are known by their certificate, not by a name: they have changing addresses.
        context.check_hostname = False
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def read_certificates(folder: Path) -> Certificates:
    """Return the certificates of a folder; raises UsageError that says what is wrong with them."""
    lacking = [name for name in (_CA, _CERT, _KEY) if not (folder / name).is_file()]
    if lacking:
        raise UsageError(
            f"{folder} has no {' and no '.join(lacking)}, and other machines are reached with TLS "
            "only",
            hint="make them with edison worker keys, or copy the folder that it made for this "
            "machine; --tls DIR names another folder",
        )
    mode = (folder / _KEY).stat().st_mode & 0o777
    if mode & _READABLE_BY_ALL:
        raise UsageError(
            f"everyone on this machine can read {folder / _KEY} (mode {mode:04o})",
            hint=f"chmod 600 {folder / _KEY}",
        )
    authority, own = _read_certificate(folder / _CA), _read_certificate(folder / _CERT)
    _check_dates(authority, folder / _CA)
    _check_dates(own, folder / _CERT)
    _check_issued(authority, own, folder)
    until = min(authority.not_valid_after_utc, own.not_valid_after_utc)
    certificates = Certificates(folder, until)
    try:
        certificates.context()
    except ssl.SSLError as error:
        raise UsageError(
            f"{folder / _KEY} is not the key of {folder / _CERT} ({error.reason or error})",
            hint="copy both files of one machine, or issue them again: edison worker keys",
        ) from None
    return certificates


def _check_issued(authority: Certificate, own: Certificate, folder: Path) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise UsageError(
            f"{folder / _CERT} was not issued by the authority in {folder / _CA}",
            hint="copy both files from one folder, made by: edison worker keys",
        ) from None


def _check_dates(certificate: Certificate, path: Path) -> None:
    now = utc.now()
    if now > certificate.not_valid_after_utc:
        raise UsageError(
            f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}",
            hint="issue it again where the authority is: edison worker keys [MACHINE]",
        )
    if now < certificate.not_valid_before_utc:
        raise UsageError(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and "
            f"it is {now:%Y-%m-%d %H:%M} here",
            hint="set the clock of this machine",
        )


def _read_certificate(path: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(_read(path))
    except ValueError:
        raise _damaged(path, "a certificate") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _damaged(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is not {what} in PEM form", hint="copy it again, or issue it: edison worker keys"
    )


def certificates_for(address: ClusterAddress, folder: Path | None) -> Certificates | None:
    """Return what connects to an address; None for a plain one on this machine."""
    refuse_plain(address)
    return read_certificates(tls_folder(folder)) if address.tls else None


async def probe(
    address: ClusterAddress, certificates: Certificates | None, within_s: float = _PROBE_S
) -> None:
    """Connect once; raises CallFailed if nothing answers there, UsageError for certificates.

    Dask repeats a failed handshake until it gives up, and then speaks of time only.
    """
    context = None if certificates is None else certificates.context()
    try:
        async with asyncio.timeout(min(within_s, _PROBE_S)):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname="" if context else None
            )
            try:
                # A server of Dask speaks first. With TLS 1.3 it refuses a certificate only now.
                spoken = await reader.read(1)
            finally:
                writer.transport.abort()  # to end TLS politely needs an answer
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message
        raise UsageError(
            f"the certificate of {address} is not one of this team: {why}",
            hint="both sides need certificates of one authority (ca.pem): edison worker keys",
        ) from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise UsageError(
            f"{address} refuses the certificate of this machine, or speaks no TLS "
            f"({getattr(error, 'reason', None) or error.strerror or error})",
            hint="both sides need certificates of one authority (ca.pem): edison worker keys",
        ) from None
    except (OSError, TimeoutError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else "no answer in time"
        raise CallFailed(
            f"no scheduler answers at {address}: {why}",
            hint="start one there: edison worker scheduler",
        ) from None
    if not spoken:
        raise CallFailed(
            f"{address} closes the connection: it is no scheduler, or refuses plain connections",
            hint="use tls://, if it was started with certificates",
        )
