"""Signed tags: made with the key that the user has configured, read and verified.

Programs that make or check signatures (gpg, ssh-keygen) are those of the user's own configuration,
or the usual ones; never those that the configuration of the repository names.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.git.command import GitOutput, decode, run_git

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAMS = {
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.x509.program": "gpgsm",
    "gpg.ssh.program": "ssh-keygen",
    "gpg.ssh.defaultKeyCommand": "",
}
_NO_KEY = re.compile(rb"allowedSignersFile|No public key|NO_PUBKEY|No principal matched")
"""What Git says if it does not know whose signature it is."""
_MOST_TAGS = 10_000


class Signature(StrEnum):
    """Whether the signature of a tag is good."""

    GOOD = "good"
    UNKNOWN = "unknown"
    """Nothing here says whose key it is."""
    BAD = "bad"
    """The tag was changed, or was never signed."""


class SignedTag(NamedTuple):
    """A tag with its message."""

    name: str
    message: str
    signature: Signature


def sign_tag(root: Path, name: str, message: str) -> None:
    """Make a signed tag of the current commit; raises UsageError if Git cannot sign."""
    done = _git(root, "tag", "--sign", "--file=-", name, "HEAD", stdin=message.encode())
    if done.code == 0:
        return
    if run_git("rev-parse", "--verify", "--quiet", "HEAD", cwd=root).code:
        raise UsageError("there is no commit to tag", hint="commit something first")
    raise UsageError(
        f"Git could not sign the tag: {done.reason}",
        hint="set up a key: git config --global gpg.format ssh, "
        "git config --global user.signingKey ~/.ssh/id_ed25519.pub",
    )


def signed_tags(root: Path, folder: str) -> list[SignedTag]:
    """Return the tags of a folder with their messages, oldest first; none outside of Git."""
    form = "--format=%(refname)%00%(objecttype)%00%(contents:subject)%0a%0a%(contents:body)%00%00"
    count = f"--count={_MOST_TAGS}"
    listed = run_git("for-each-ref", "--sort=creatordate", count, form, f"refs/tags/{folder}/",
                     cwd=root)  # fmt: skip
    if listed.code:
        return []
    found = []
    for entry in decode(listed.out).split("\0\0\n")[:-1]:
        ref, kind, message = entry.split("\0", 2)
        signature = _signature(root, ref) if kind == "tag" else Signature.BAD
        found.append(SignedTag(ref.removeprefix("refs/tags/"), message, signature))
    return found


def _signature(root: Path, ref: str) -> Signature:
    checked = _git(root, "verify-tag", "--raw", "--", ref)
    if checked.code == 0:
        return Signature.GOOD
    return Signature.UNKNOWN if _NO_KEY.search(checked.err + checked.out) else Signature.BAD


def _git(root: Path, *args: str, stdin: bytes = b"") -> GitOutput:
    own = run_git("config", "--global", "-z", "--get-regexp", r"^gpg\.", cwd=root).out
    told = dict(decode(entry).partition("\n")[::2] for entry in own.split(b"\0") if entry)
    settings = {name: told.get(name.lower(), usual) for name, usual in _PROGRAMS.items()}
    # Git takes these from the environment after every file, as `-c` does.
    environment = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    if "GNUPGHOME" in os.environ:
        environment["GNUPGHOME"] = os.environ["GNUPGHOME"]
    return run_git(*args, cwd=root, stdin=stdin, environment=environment)
