"""Mail goes out encrypted and to each address on its own, and a refusal is said as it is."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.sections import Smtp
from edison_ci.documents.secrets import redacted
from edison_ci.errors import DeliveryError
from edison_ci.features.monitor import mail
from edison_ci.features.monitor.mail import mail_server, send_mail
from edison_ci.features.monitor.notifications import Delivery
from edison_ci.features.monitor.webhooks import TIMEOUT_S
from tests.features.monitor.mailbox import Certificate, Mailbox, mailbox, make_certificate
from tests.features.monitor.receiver import Receiver, receiving
from tests.features.monitor.test_notifications import Town
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

MESSAGE: dict[str, Any] = {
    "id": "0123456789abcdef",
    "project": "mini",
    "occasion": "alert",
    "title": "the score fell, größer als je",
    "sentences": ["It fell by 12 points.", "See edison alerts list."],
    "experiment": "hello",
    "run_id": "r1",
    "at": "2027-03-01T12:00:00.000Z",
    "texts": [],
    "notices": [],
}


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """A certificate of localhost that this machine trusts."""
    made = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.path))
    return made


def smtp(**more: Any) -> Smtp:
    given = {"host_env": "MAIL", "from": "edison@acme.example", "to": ["ada@acme.example"], **more}
    return Smtp.model_validate(given)


def send(box: Mailbox, how: Smtp | None = None, **environ: str) -> str:
    environ = {"MAIL": f"localhost:{box.port}", **environ}
    how = how or smtp()
    return asyncio.run(send_mail(how, how.to[0], MESSAGE, environ))


def test_a_mail_is_encrypted_by_starttls(certificate: Certificate) -> None:
    with mailbox(certificate) as box:
        assert send(box) == "accepted by the mail server"
    [found] = box.mails
    assert box.encrypted == [True]
    assert found["Subject"] == "the score fell, größer als je"
    assert (found["From"], found["To"]) == ("edison@acme.example", "ada@acme.example")
    assert found["Message-ID"] == "<0123456789abcdef@acme.example>"
    assert found["Auto-Submitted"] == "auto-generated"
    body = found.get_body()
    assert body is not None
    assert body.get_content().splitlines() == [
        "It fell by 12 points.",
        "",
        "See edison alerts list.",
        "",
        "-- ",
        "project mini, experiment hello, run r1, 2027-03-01T12:00:00.000Z",
    ]


def test_port_465_is_encrypted_from_the_start(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mailbox(certificate, implicit=True) as box:
        monkeypatch.setattr(mail, "_TLS_PORT", box.port)
        send(box)
    assert len(box.mails) == 1


def test_user_and_password_are_sent_after_tls_and_shown_nowhere(certificate: Certificate) -> None:
    how = smtp(user_env="MAIL_USER", password_env="MAIL_PASSWORD")
    with mailbox(certificate, login=True) as box:
        send(box, how, MAIL_USER="edison", MAIL_PASSWORD=box.password)
        assert len(box.mails) == 1
        with pytest.raises(DeliveryError) as refused:
            send(box, how, MAIL_USER="edison", MAIL_PASSWORD="quite another one")
    assert refused.value.message.startswith(
        "the mail server does not accept user and password: 535"
    )
    assert refused.value.hint == "check MAIL_USER and MAIL_PASSWORD"
    assert redacted(f"it is {box.password}") == "it is [key]"


def test_a_server_that_wants_a_login_is_said(certificate: Certificate) -> None:
    with mailbox(certificate, login=True) as box, pytest.raises(DeliveryError) as refused:
        send(box)
    assert refused.value.message.startswith("the mail server refuses: 530")


@pytest.mark.parametrize(("name", "days"), [("mail.acme.example", 1), ("localhost", -1)])
def test_a_certificate_of_another_host_or_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, days: int
) -> None:
    made = make_certificate(tmp_path, name=name, days=days)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.path))
    with mailbox(made) as box, pytest.raises(DeliveryError) as refused:
        send(box)
    assert refused.value.message.startswith("the certificate of the mail server is not valid: ")
    assert box.mails == []


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    with mailbox(make_certificate(tmp_path)) as box, pytest.raises(DeliveryError) as refused:
        send(box)
    assert refused.value.message.startswith("the certificate of the mail server is not valid: ")


def test_without_tls_only_this_machine_or_a_stated_exception_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mailbox() as box:
        send(box)
        monkeypatch.setattr(mail, "is_loopback", lambda _: False)
        with pytest.raises(DeliveryError, match="the mail server offers no TLS"):
            send(box)
        send(box, smtp(starttls=False))
    assert len(box.mails) == 2


def test_a_server_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with mailbox() as box:
        pass
    with pytest.raises(DeliveryError, match="the connection was refused"):
        send(box)

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DeliveryError, match="the host of the mail server is not known"):
        send(box)


def test_an_address_that_cannot_be_one_is_said() -> None:
    too_long = f"{'x' * 64}.example:25"
    for wrong in (
        too_long,
        "https://mail.example",
        "mail.example:port",
        "a@b:25",
        "mail.example:99999",
        "/",
    ):
        with pytest.raises(DeliveryError, match="MAIL does not hold host:port"):
            mail_server(smtp(), {"MAIL": wrong})
    assert mail_server(smtp(), {"MAIL": "[::1]:25"}) == ("::1", 25, None)
    assert mail_server(smtp(), {"MAIL": "mail.example"}) == ("mail.example", 587, None)


@pytest.mark.parametrize("greeting", [b"", b"220 mail.exam"])
def test_a_server_that_hangs_or_dribbles_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes
) -> None:
    monkeypatch.setattr(mail, "TIMEOUT_S", 1.0)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def dribble() -> None:
            connection, _ = server.accept()
            with connection:
                while not stop.wait(PATIENCE_S / 30_000):
                    try:
                        connection.sendall(greeting[:1])
                    except OSError:
                        return

        thread = threading.Thread(target=dribble)
        thread.start()
        begun = time.monotonic()
        try:
            with pytest.raises(DeliveryError, match="no answer within 1 seconds"):
                send(Mailbox(server.getsockname()[1]))
        finally:
            stop.set()
            thread.join()
        assert time.monotonic() - begun < 60


def test_a_run_does_not_wait_for_a_mail_server(mini: Folder, server: Receiver) -> None:
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENT)
    town = Town(mini, server)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        town.environ["MAIL"] = f"127.0.0.1:{silent.getsockname()[1]}"
        town.tell()
        begun = time.monotonic()
        assert town.deliver(seconds=0.2).sent == 0
        assert time.monotonic() - begun < TIMEOUT_S


RECIPIENT = """
notifications:
  - name: mail
    on: [alert]
    smtp: {host_env: MAIL, from: edison@acme.example, to: [ada@acme.example, bo@acme.example]}
"""


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_a_mailbox_that_refuses_keeps_no_other_waiting_and_is_asked_again(
    mini: Folder, server: Receiver
) -> None:
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENT)
    town = Town(mini, server)
    with mailbox() as box:
        town.environ["MAIL"] = f"127.0.0.1:{box.port}"
        box.refused["bo@acme.example"] = "450 greylisted, come back later"
        assert town.tell() == 1
        said = "the mail server refuses the address: 450 greylisted, come back later"
        assert town.deliver() == Delivery(sent=1, problems=(("mail", said),))
        assert [found["To"] for found in box.mails] == ["ada@acme.example"]
        town.clock.go(minutes=1)
        box.refused.clear()
        box.reply = "451 try again"
        said = "the mail server refuses: 451 try again"
        assert town.deliver().problems == (("mail", said),)
        town.clock.go(minutes=5)
        box.reply = "250 OK"
        assert town.deliver() == Delivery(sent=1)
    assert [found["To"] for found in box.mails] == ["ada@acme.example", "bo@acme.example"]
    assert town.rows("address, state") == [
        ("ada@acme.example", "sent"),
        ("bo@acme.example", "sent"),
    ]
