"""Redaction of secrets: known values, and texts that look like keys."""

from __future__ import annotations

import base64
import itertools
import math
import os
import re
import reprlib
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# A key may look like any other text, and a provider may return it: in an answer, in an error, as
# base64 or in a URL. So the process keeps the values of its secrets, from the environment and from
# every use of a key, and removes them from everything that leaves it: streams, files, results and
# requests to a forge. The list is global, because standard output is.
SHORTEST = 8
"""Shorter values would match harmless texts."""
MASK = "[key]"
_NAMES = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|PAT|SECRET|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY|PASSWORD|PASSWD|"
    r"CREDENTIALS|WEBHOOK|WEBHOOK_URL)$"
)
"""Pattern of the names of variables that hold secrets."""
_PLAIN = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|[0-9]{1,15}|(?:[~./]|[A-Za-z]:\\).*", re.DOTALL)
"""Values that are words, numbers or paths: not secrets, and common in harmless texts."""


class _KnownSecrets:
    """The secrets of this process."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()
        self.spelt: re.Pattern[str] | None = None

    def set(self, values: Iterable[str]) -> None:
        stripped = frozenset(value.strip() for value in values)
        self._values = frozenset(value for value in stripped if len(value) >= SHORTEST)
        forms = {form for value in self._values for form in forms_of(value)}
        self.forms = tuple(sorted(forms, key=len, reverse=True))
        spelt = sorted((_escaped_pattern(value) for value in self._values), key=len, reverse=True)
        self.spelt = re.compile("|".join(spelt)) if spelt else None

    def add(self, values: Iterable[str]) -> None:
        new = {value.strip() for value in values} - self._values
        if any(len(value) >= SHORTEST for value in new):
            self.set(self._values | new)


_KNOWN = _KnownSecrets()


HIDDEN: dict[str, str] = {}
"""Variables that are removed from the environment while litellm is in use."""


def variable(name: str, environ: Mapping[str, str]) -> str:
    """Return a variable, also while it is hidden from litellm; empty if it is not set."""
    value = environ.get(name, "")
    if not value.strip() and environ is os.environ:
        value = HIDDEN.get(name, "")
    return value if value.strip() else ""


def learn(environ: Mapping[str, str]) -> None:
    """Set the known secrets to those of an environment."""
    _KNOWN.set(
        value
        for name, value in environ.items()
        if _NAMES.search(name.upper()) and not _PLAIN.fullmatch(value)
    )


def names_secret(header: str) -> bool:
    """Whether a header of this name holds a secret."""
    name = header.upper().replace("-", "_")
    return name in ("AUTHORIZATION", "PROXY_AUTHORIZATION", "COOKIE") or bool(_NAMES.search(name))


def remember(values: Iterable[str]) -> None:
    """Add values that are used as secrets."""
    _KNOWN.add(values)


def hidden(text: str) -> str:
    """Return a text without the known secrets, in any of their forms."""
    for form in _KNOWN.forms:
        if form in text:
            text = text.replace(form, MASK)
    if _KNOWN.spelt is not None and ("\\" in text or "%" in text):
        text = _KNOWN.spelt.sub(MASK, text)
    return text


def hidden_in(value: Any) -> Any:
    """Return a JSON value with the known secrets removed from its texts and keys."""
    if not _KNOWN.forms:
        return value
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, dict):
        return {hidden_in(name): hidden_in(item) for name, item in value.items()}
    return [hidden_in(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def forms_of(secret: str) -> frozenset[str]:
    """Return the forms of a secret: plain, base64 and hexadecimal."""
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, raw.hex(), raw.hex().upper()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms |= {
            _base64_core(encode(b"\0" * before + raw), before, len(raw)) for before in range(3)
        }
    return frozenset(form for form in forms if len(form) >= SHORTEST)


def _escaped_pattern(secret: str) -> str:
    """Return a pattern for a secret with escaped characters, as in JSON, nested JSON and URLs.

    The number of backslashes before a character is bounded, so that a long row of them is not
    searched again from each.
    """
    atoms = []
    for letter in secret:
        quoted = "".join(f"%{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
        atoms.append(f"(?:{re.escape(letter)}|(?i:u{ord(letter):04x}|{quoted}))")
    return r"\\{0,8}".join(atoms)


def _base64_core(encoded: bytes, before: int, length: int) -> str:
    """Return the base64 characters that depend on the secret only, not on its surroundings.

    Base64 writes three bytes as four characters, so that an embedded text has three forms.
    """
    first = -(-before * 8 // 6)
    last = (before + length) * 8 // 6
    return encoded[first:last].decode()


class RedactingStream:
    """A wrapper of a text stream that redacts known secrets."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without the known secrets."""
        return self._stream.write(hidden(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for text in lines:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Kind(NamedTuple):
    name: str
    marks: tuple[str, ...]
    """Texts that every secret of this kind contains, for a quick test."""
    pattern: str


_KINDS = (
    _Kind("a private key", ("-----BEGIN ",), r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    _Kind("an Anthropic key", ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{16,}"),
    _Kind("an OpenAI key", ("sk-",), r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}"),
    _Kind("an AWS key", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _Kind(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    ),
    _Kind("a Google key", ("AIza",), r"\bAIza[0-9A-Za-z_-]{35}"),
    _Kind("a Slack token", ("xox",), r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    _Kind(
        "a Slack webhook",
        ("hooks.slack.com",),
        r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    ),
    _Kind("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,}"),
    _Kind("an xAI key", ("xai-",), r"\bxai-[A-Za-z0-9]{40,}"),
    _Kind("a Perplexity key", ("pplx-",), r"\bpplx-[A-Za-z0-9]{40,}"),
    _Kind("an NVIDIA key", ("nvapi-",), r"\bnvapi-[A-Za-z0-9_-]{40,}"),
    _Kind("a Replicate token", ("r8_",), r"\br8_[A-Za-z0-9]{30,}"),
    _Kind("a Cerebras key", ("csk-",), r"\bcsk-[a-z0-9]{40,}"),
    _Kind("a Google token", ("ya29.", "GOCSPX-"), r"\b(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{24,}"),
    _Kind("a Stripe key", ("_live_",), r"\b[rs]k_live_[A-Za-z0-9]{20,}"),
    _Kind("a GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}"),
    _Kind("a Groq key", ("gsk_",), r"\bgsk_[A-Za-z0-9]{40,}"),
    _Kind("a private key of edison", ("edison_key_",), r"\bedison_key_[A-Za-z0-9_-]{43}"),
    _Kind("a token of edison", ("edison_token_",), r"\bedison_token_[A-Za-z0-9_-]{43}"),
    _Kind(
        "a JSON web token",
        ("eyJ",),
        # Not \b: a token must not start inside a run of these characters, or the runs of a
        # hostile file would be searched again from each dash.
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    ),
    _Kind(
        "a password in an address",
        ("://",),
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,100}:[^\s/@'\"{]{3,200}@",
    ),
)
_MARKS = tuple((mark, index) for index, kind in enumerate(_KINDS) for mark in kind.marks)
_MOST = 20
_MOST_SEARCHED = 1_000


@cache
def _any_of(kinds: tuple[int, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<k{index}>{_KINDS[index].pattern})" for index in kinds))


def _matches(text: str) -> Iterator[re.Match[str]]:
    kinds = {index for mark, index in _MARKS if mark in text}
    return _any_of(tuple(sorted(kinds))).finditer(text) if kinds else iter(())


def redacted(text: str) -> str:
    """Return the text without secrets.

    Known secrets are removed; texts that look like keys are cut to their first four characters.
    """
    return _replaced(text, 4, "...")


def masked(text: str) -> str:
    """Return the text with a mask in place of every secret, and of what looks like a key."""
    return _replaced(text, 0, MASK)


def _replaced(text: str, kept: int, sign: str) -> str:
    text = hidden(text)
    pieces, start = list[str](), 0
    for match in _matches(text):
        pieces += [text[start : match.start() + kept], sign]
        start = match.end()
    return "".join([*pieces, text[start:]])


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 60


def brief(value: object) -> str:
    """Return a value for a message: quoted, short, and redacted."""
    # Redacted before it is shortened: a key without its middle no longer looks like one.
    safe = redacted(value) if isinstance(value, str) else value
    return shortened(redacted(_BRIEF.repr(safe)), 60)


def secrets_in(text: str) -> Iterator[Fault]:
    """Yield a fault for each literal that looks like a secret, without showing it."""
    for match in itertools.islice(_matches(text), _MOST):
        kind = _KINDS[int(str(match.lastgroup)[1:])].name
        yield Fault(
            "secret",
            f"this looks like {kind} ({match.group()[:4]}...)",
            "remove it, revoke it, and use an environment variable instead",
            at=place(text, match.start()),
        )


NOT_A_SECRET = "not-a-secret"
"""A line with this word is not searched for leaked keys."""
_LEAST_ENTROPY = 3.0
"""Bits per character: 20 random letters and digits have over 4, `xxxx-xxxx` has below 2."""
_LEAST_MIXING = 0.2
"""Share of neighbours of different kinds: of random letters and digits over half differ, of
hexadecimal ones nearly half, of words such as `sk-your-api-key-goes-here` next to none."""
_WORDS = re.compile(r"example|placeholder|dummy|redacted", re.IGNORECASE)
_HELD_TO_MIXING = ("sk-", "csk-", "nvapi-", "glpat-", "xox")
"""Starts of keys whose rest may be words, too."""


def leaked_in(text: str) -> Iterator[Fault]:
    """Yield a fault for each key that looks real; not for examples, nor in lines that say so."""
    lines = text.split("\n")
    for match in itertools.islice(_matches(text), _MOST_SEARCHED):
        line, column = place(text, match.start())
        if _is_example(match.group()) or NOT_A_SECRET in lines[line]:
            continue
        kind = _KINDS[int(str(match.lastgroup)[1:])].name
        yield Fault(
            "leaked-key",
            f"this looks like {kind} ({match.group()[:4]}...)",
            f"revoke it, and remove it; if it is none, write {NOT_A_SECRET} on its line",
            at=(line, column),
        )


def _is_example(text: str) -> bool:
    """Whether a text that has the form of a key is one of a manual."""
    if text.startswith("-----BEGIN"):
        return False
    if _WORDS.search(text) or _entropy(text) < _LEAST_ENTROPY:
        return True
    return text.startswith(_HELD_TO_MIXING) and _mixing(text) < _LEAST_MIXING


def _entropy(text: str) -> float:
    """Return the Shannon entropy of a text in bits per character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def _mixing(text: str) -> float:
    """Return the share of neighbours of which one is a digit or capital, and the other is not."""
    kinds = ["0" if c.isdigit() else "A" if c.isupper() else "a" for c in text if c.isalnum()]
    pairs = list(itertools.pairwise(kinds))
    return sum(first != second for first, second in pairs) / max(len(pairs), 1)
