"""What tests of adapters need: models, requests, certificates."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.config.models import RegistryReader
from edison_ci.config.prices import load_prices
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.records import Message, Request
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.models import Model
    from edison_ci.records import Json

KEY = "sk-canary-0123456789abcdefghij"
"""Must never be seen but in the header that is meant for it."""


def model(text: str) -> Model:
    """Return the model `m` of a registry with this one line."""
    reader = RegistryReader(read_yaml(f"m: {text}\n".encode(), "models.yaml"))
    models = reader.read()
    assert not reader.problems, [str(problem) for problem in reader.problems]
    return replace(models["m"], capabilities=load_prices().capabilities(models["m"]))


def refused(text: str) -> list[str]:
    """Return what is wrong with the model `m` of a registry with this one line."""
    reader = RegistryReader(read_yaml(f"m: {text}\n".encode(), "models.yaml"))
    assert "m" not in reader.read()
    return [str(problem) for problem in reader.problems]


def ask(
    text: str = "Say hello.",
    *,
    model: str = "m",
    system: str = "",
    params: dict[str, Json] | None = None,
    **others: Any,
) -> Request:
    """Return a request."""
    first = (Message("system", system),) if system else ()
    messages = (*first, Message("user", text))
    given = {"max_tokens": 50} if params is None else params
    return Request("p", "", model, messages, given, **others)


def certificate(folder: Path, *, host: str, expired: bool = False) -> tuple[Path, Path]:
    """Make a certificate that signs itself, and its key."""
    folder.mkdir(exist_ok=True)
    key, request, made = folder / "key.pem", folder / "request.pem", folder / "certificate.pem"
    settings = folder / "openssl.cnf"
    settings.write_text(
        f"[ca]\ndefault_ca=own\n[own]\nnew_certs_dir={folder}\ndatabase={folder}/index\n"
        f"serial={folder}/serial\ndefault_md=sha256\npolicy=any\nx509_extensions=names\n"
        f"[any]\ncommonName=supplied\n[names]\nsubjectAltName={host}\n"
        "[req]\ndistinguished_name=who\n[who]\n"
    )
    (folder / "index").touch()
    (folder / "serial").write_text("01\n")
    _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", str(key), "-out", str(request), "-subj", "/CN=loopback",
             "-config", str(settings))  # fmt: skip
    end = "20200102000000Z" if expired else "20990101000000Z"
    _openssl("ca", "-batch", "-selfsign", "-notext", "-config", str(settings), "-in", str(request),
             "-keyfile", str(key), "-out", str(made), "-startdate", "20200101000000Z",
             "-enddate", end)  # fmt: skip
    return made, key


def _openssl(*args: str) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=PATIENCE_S)
