"""Messages sent by e-mail, through a mail server with TLS.

The connection is encrypted by STARTTLS, or from the start on port 465, and the certificate is
verified. A server on this machine may lack TLS. The whole conversation has a deadline: a server
that answers byte by byte is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
import smtplib
import socket
import ssl
import threading
import time
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from edison_ci import utc
from edison_ci.access.job import key_environment
from edison_ci.api.notices import about, lines_of
from edison_ci.documents.secrets import remember
from edison_ci.errors import DeliveryError
from edison_ci.features.monitor.webhooks import TIMEOUT_S, variable
from edison_ci.git.host import is_loopback
from edison_ci.numeric import fixed
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.sections import Smtp

_TLS_PORT, _DEFAULT_PORT = 465, 587
_SHOWN = 200


class MailServer(NamedTuple):
    """Where mail is handed in, and as whom."""

    host: str
    port: int
    login: tuple[str, str] | None = None


def mail_server(smtp: Smtp, environ: Mapping[str, str]) -> MailServer:
    """Return the server that the environment names; raises DeliveryError without one."""
    value = variable(smtp.host_env, environ)
    try:
        parts = urlsplit(f"//{value}")
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
        host.encode("idna")  # fails for names that no lookup takes
    except ValueError:
        host, port, parts = "", 0, urlsplit("")
    if not host or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise DeliveryError(
            f"{smtp.host_env} does not hold host:port", hint="set it to mail.example.com:587"
        )
    if smtp.user_env is None or smtp.password_env is None:
        return MailServer(host, port)
    login = (variable(smtp.user_env, environ), variable(smtp.password_env, environ))
    remember([login[1]])
    return MailServer(host, port, login)


async def send_mail(
    smtp: Smtp,
    address: str,
    message: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    limit_s: float | None = None,
) -> str:
    """Send a message to one address and return what the server answered; raises DeliveryError.

    It takes `limit_s` seconds at most, also where a thread cannot be cancelled.
    """
    delivery = _MailDelivery(smtp, mail_server(smtp, environ), min(limit_s or TIMEOUT_S, TIMEOUT_S))
    mail = _mail(smtp, address, message)
    try:
        return await asyncio.to_thread(delivery.send, mail, address)
    finally:
        delivery.abort()  # a thread cannot be cancelled, but its connection can be closed


def mail_person(project: Project, address: str, title: str, sentences: Sequence[str]) -> str | None:
    """Send an e-mail by the first mail server of `notifications`; return why it failed, or ''.

    None if no mail server is configured.
    """
    smtp = next((entry.smtp for entry in project.file.notifications if entry.smtp), None)
    if smtp is None:
        return None
    message = {
        "id": secrets.token_hex(16),
        "at": utc.timestamp(utc.now()),
        "title": title,
        "sentences": sentences,
        "notices": (),
        "texts": (),
        "project": project.file.project,
        "experiment": None,
        "run_id": None,
    }
    try:
        asyncio.run(send_mail(smtp, address, message, key_environment(project)))
    except DeliveryError as error:
        return error.message
    return ""


def _mail(smtp: Smtp, address: str, message: Mapping[str, Any]) -> EmailMessage:
    """Return the mail; the id in its header is that of the message, so that doubles are known."""
    mail = EmailMessage()
    mail["From"], mail["To"] = smtp.sender, address
    mail["Subject"] = line(str(message["title"]))
    mail["Date"] = format_datetime(dt.datetime.fromisoformat(message["at"]))
    mail["Message-ID"] = f"<{message['id']}@{smtp.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n\n".join([*lines_of(message), f"-- \n{about(message)}"]))
    return mail


class _MailDelivery:
    """One conversation with a mail server."""

    def __init__(self, smtp: Smtp, server: MailServer, limit_s: float) -> None:
        self._smtp, self._server, self._limit_s = smtp, server, limit_s
        self._client: smtplib.SMTP | None = None
        self._deadline = time.monotonic() + limit_s

    def send(self, mail: EmailMessage, address: str) -> str:
        """Hand in a mail; raises DeliveryError."""
        watch = threading.Timer(self._limit_s, self.abort)
        watch.daemon = True
        watch.start()
        try:
            client = self._connect()
            self._secure(client)
            if self._server.login is not None:
                client.login(*self._server.login)
            client.send_message(mail, self._smtp.sender, [address])
            with contextlib.suppress(smtplib.SMTPException, OSError):
                client.quit()
            return "accepted by the mail server"
        except (smtplib.SMTPException, OSError) as error:
            failed = self._failure(error)
        finally:
            watch.cancel()
            if self._client is not None:
                self._client.close()
        # Raised outside of `except`: the error of a login would carry the password.
        raise failed

    def abort(self) -> None:
        """Close the connection, if it is still open."""
        sock = self._client.sock if self._client is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> smtplib.SMTP:
        host, port = self._server.host, self._server.port
        if port == _TLS_PORT:
            context = ssl.create_default_context()
            self._client = smtplib.SMTP_SSL(timeout=self._limit_s, context=context)
        else:
            self._client = smtplib.SMTP(timeout=self._limit_s)
        self._client._host = host  # type: ignore[attr-defined]  # what the certificate is for
        code, reply = self._client.connect(host, port)
        if code != 220:
            raise smtplib.SMTPResponseException(code, reply)
        self._client.ehlo_or_helo_if_needed()
        return self._client

    def _secure(self, client: smtplib.SMTP) -> None:
        if self._server.port == _TLS_PORT or not self._smtp.starttls:
            return
        if client.has_extn("starttls"):
            client.starttls(context=ssl.create_default_context())
            client.ehlo()
        elif not is_loopback(self._server.host):
            raise DeliveryError(
                "the mail server offers no TLS",
                hint="use a port with STARTTLS (587) or TLS (465); starttls: false goes without",
            )

    def _failure(self, error: Exception) -> DeliveryError:
        name = self._smtp.host_env
        # smtplib has other errors for a time-out as well.
        if isinstance(error, TimeoutError) or time.monotonic() >= self._deadline:
            return DeliveryError(
                f"no answer within {fixed(self._limit_s)} seconds",
                hint=f"check host and port in {name}, and the network",
            )
        if isinstance(error, ssl.SSLError):
            return _tls_failure(error)
        if isinstance(error, socket.gaierror):
            return DeliveryError("the host of the mail server is not known", hint=f"check {name}")
        if isinstance(error, ConnectionRefusedError):
            return DeliveryError("the connection was refused", hint=f"check the port in {name}")
        if isinstance(error, smtplib.SMTPAuthenticationError):
            return DeliveryError(
                f"the mail server does not accept user and password: {_reply(error)}",
                hint=f"check {self._smtp.user_env} and {self._smtp.password_env}",
            )
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            code, reply = next(iter(error.recipients.values()))
            return DeliveryError(
                f"the mail server refuses the address: {code} {_text(reply)}", hint="check `to`"
            )
        if isinstance(error, smtplib.SMTPResponseException):
            return DeliveryError(
                f"the mail server refuses: {_reply(error)}",
                hint="check `from`, and whether the server wants user and password",
                this_message=isinstance(error, smtplib.SMTPDataError),
            )
        return DeliveryError(
            f"the connection was interrupted: {line(str(error) or type(error).__name__)}"
        )


def _tls_failure(error: ssl.SSLError) -> DeliveryError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryError(
            f"the certificate of the mail server is not valid: {line(error.verify_message)}",
            hint="check the host; set SSL_CERT_FILE for an authority of your own",
        )
    return DeliveryError(
        f"the mail server does not speak TLS as expected: {line(str(error.reason or error))}",
        hint="port 465 is TLS from the start, 587 and 25 use STARTTLS",
    )


def _reply(error: smtplib.SMTPResponseException) -> str:
    return f"{error.smtp_code} {_text(error.smtp_error)}"


def _text(reply: bytes | str) -> str:
    return line(reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply)[:_SHOWN]
