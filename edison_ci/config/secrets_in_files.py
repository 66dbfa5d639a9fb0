"""Does a file contain something that looks like a secret?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{16,}",
    "an OpenAI key": r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a Slack webhook": r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Groq key": r"\bgsk_[A-Za-z0-9]{40,}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in an address": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,100}:[^\s/@'\"{]{3,200}@",
}
_ANY = re.compile(
    "|".join(f"(?P<k{index}>{pattern})" for index, pattern in enumerate(_KINDS.values()))
)
_NAMES = list(_KINDS)


def redacted(text: str) -> str:
    """Return the text with whatever looks like a secret cut down to its first four characters."""
    return _ANY.sub(lambda found: f"{found.group()[:4]}...", text)


def secrets_in(text: str) -> Iterator[Fault]:
    """Yield a fault for each literal that looks like a secret; the literal itself is not shown."""
    for found in _ANY.finditer(text):
        kind = _NAMES[int((found.lastgroup or "k0")[1:])]
        yield Fault(
            "secret",
            f"this looks like {kind} ({found.group()[:4]}...)",
            "remove it, revoke it, and name an environment variable instead",
            at=place(text, found.start()),
        )
