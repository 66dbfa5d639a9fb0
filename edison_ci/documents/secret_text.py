"""Does a text contain a secret, or something that looks like one?"""

from __future__ import annotations

import itertools
import re
import reprlib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.decoding import place
from edison_ci.documents.known_secrets import hidden
from edison_ci.documents.marks import Fault, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Kind(NamedTuple):
    name: str
    marks: tuple[str, ...]
    """A secret of this kind contains one of these, so that most texts need no searching."""
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
    _Kind("a GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}"),
    _Kind("a Groq key", ("gsk_",), r"\bgsk_[A-Za-z0-9]{40,}"),
    _Kind("a token of edison", ("edison_token_",), r"\bedison_token_[A-Za-z0-9_-]{43}"),
    _Kind(
        "a JSON web token",
        ("eyJ",),
        # Not \b: a token may not start inside a run of these characters, or the runs of a hostile
        # file would be searched again from each of their dashes.
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


@cache
def _any_of(kinds: tuple[int, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<k{index}>{_KINDS[index].pattern})" for index in kinds))


def _found(text: str) -> Iterator[re.Match[str]]:
    kinds = {index for mark, index in _MARKS if mark in text}
    return _any_of(tuple(sorted(kinds))).finditer(text) if kinds else iter(())


def redacted(text: str) -> str:
    """Return the text without secrets.

    One that is in use is gone; what only looks like one is cut down to its first four characters.
    """
    text = hidden(text)
    pieces, start = [], 0
    for found in _found(text):
        pieces += [text[start : found.start() + 4], "..."]
        start = found.end()
    return "".join([*pieces, text[start:]])


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 60


def brief(value: object) -> str:
    """Return a value for a message: quoted, short, and without what looks like a secret."""
    # Cut out before it is shortened: a key without its middle no longer looks like one.
    shown = redacted(value) if isinstance(value, str) else value
    return shortened(redacted(_BRIEF.repr(shown)), 60)


def secrets_in(text: str) -> Iterator[Fault]:
    """Yield a fault for each literal that looks like a secret; the literal itself is not shown."""
    for found in itertools.islice(_found(text), _MOST):
        kind = _KINDS[int(str(found.lastgroup)[1:])].name
        yield Fault(
            "secret",
            f"this looks like {kind} ({found.group()[:4]}...)",
            "remove it, revoke it, and name an environment variable instead",
            at=place(text, found.start()),
        )
