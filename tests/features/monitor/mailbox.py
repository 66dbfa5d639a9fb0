"""A mail server on loopback, with a certificate made for the test."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.fixed_keys import certificate_key
from tests.ports import held_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage
    from pathlib import Path


@dataclass
class Mailbox:
    """What arrived, and what the server refuses."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Addresses that are refused, and the reply."""
    reply: str = "250 OK"
    """To the text of a mail."""
    password: str = "open sesame 123"

    async def handle_RCPT(
        self, server: SMTP, _: Session, envelope: Envelope, address: str, __: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: SMTP, session: Session, envelope: Envelope) -> str:
        if self.reply.startswith("250"):
            content = envelope.content
            assert isinstance(content, bytes)
            self.mails.append(message_from_bytes(content, policy=policy.default))
            self.encrypted.append(session.ssl is not None)
        return self.reply

    def authenticate(self, *said: Any) -> AuthResult:
        login = said[-1]
        assert isinstance(login, LoginPassword)
        good = (login.login, login.password) == (b"edison", self.password.encode())
        return AuthResult(success=good, handled=False)


@dataclass(frozen=True)
class Certificate:
    """A certificate of its own authority, on disk."""

    path: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.path, self.key)
        return context


def make_certificate(folder: Path, *, name: str = "localhost", days: int = 1) -> Certificate:
    """Write a certificate for a host, valid from yesterday for some days."""
    key = certificate_key(name)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    hosts: list[x509.GeneralName] = [x509.DNSName(name)]
    if name == "localhost":
        hosts.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=2 + days))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    found = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    found.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return found


@contextmanager
def mailbox(
    certificate: Certificate | None = None, *, implicit: bool = False, login: bool = False
) -> Iterator[Mailbox]:
    """Yield a running mail server: with STARTTLS, with TLS from the start, or without."""
    found = Mailbox()
    options: dict[str, Any] = {}
    if certificate is not None:
        options["ssl_context" if implicit else "tls_context"] = certificate.context
    if login:
        secured = certificate is not None and not implicit
        options |= {"authenticator": found.authenticate, "auth_required": True}
        options["auth_require_tls"] = secured
    with held_port() as found.port:
        controller = Controller(found, hostname="127.0.0.1", port=found.port, **options)
        controller.start()
        try:
            yield found
        finally:
            controller.stop()
