"""What shows that a variant got through: canaries, requests, money, verdicts, files, words.

Every finding is one sentence. A canary is looked for as it is, as base64, in hexadecimal digits and
as an address has it, in everything that servers received and in everything that the job left.
"""

from __future__ import annotations

import base64
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.features.github.fake_state import REPOSITORY
from tests.redteam.bench import FILES, KEY, TOKEN, VARIABLES
from tests.report.page import assert_harmless
from tests.report.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

    from tests.redteam.attack import Variant
    from tests.redteam.bench import Done, Scene

PASSED = ("pass", "skipped", "ended with 0")
MARKER = "PWNED"
"""The name of the file that code of an attack makes, and the word of its commands."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_OURS = frozenset({"error", "warning", "notice", "debug", "group", "endgroup"})
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True)
class Canaries:
    """Secrets that no attack may see, by the variable or file that holds them."""

    values: dict[str, str]

    @classmethod
    def made(cls, random: Random) -> Canaries:
        names = (*VARIABLES, *FILES, ".env", ".git/config")
        return cls({name: f"cnry/{random.getrandbits(96):024x}+Zq" for name in names})

    def seen_in(self, data: bytes, *, but: str = "") -> list[str]:
        """Return the names of the canaries that some bytes hold, in any form."""
        if not _MAYBE.search(data):
            return []
        return [
            name
            for name, value in self.values.items()
            if name != but and any(form in data for form in forms(value))
        ]


def forms(secret: str) -> set[bytes]:
    """Return what a secret looks like: as it is, in an address, as digits, within base64."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), raw.hex().encode(), raw.hex().upper().encode()}
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw)
        # Characters at the edges depend on what stands beside the secret.
        part = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        found |= {part, part.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


_MAYBE = re.compile(
    b"|".join(re.escape(form[:5]) for form in sorted(forms("cnry/0123456789")) if form), re.I
)
"""The beginning of every form, as canaries have one beginning: most files need no second look."""


def planted(scene: Scene) -> set[Path]:
    """Return the files that hold a canary before the job starts, as the runner put it there."""
    return {path for path, data in _files(scene) if scene.site.canaries.seen_in(data)}


def findings(scene: Scene, variant: Variant, done: Done, before: set[Path]) -> list[str]:
    """Return what got through; nothing if the promise held."""
    return [
        *_ended(variant, done),
        *_arrived(scene),
        *_spent(scene, variant),
        *_left(scene, done, before),
        *_said(scene, done),
        *(variant.then(scene, done) if variant.then is not None else ()),
    ]


def _ended(variant: Variant, done: Done) -> Iterator[str]:
    if done.code is None:
        yield f"it did not end within {variant.limit_s:.0f} s"
    if variant.must and done.verdict != variant.must:
        yield f"a control ended with {done.verdict!r} instead of {variant.must!r}"
    if done.code == 0 and done.verdict in PASSED and not variant.may_pass:
        yield f"it passed: the verdict is {done.verdict!r}"
    if done.code == 70 or b"Traceback (most recent call last)" in done.out + done.err:
        *_, last = done.err.decode(errors="replace").strip().splitlines() or [""]
        yield f"it ended with a bug of its own: {last[:200]}"
    if done.code is not None and done.code < 0:
        yield f"it was ended by signal {-done.code}"


def _arrived(scene: Scene) -> Iterator[str]:
    site = scene.site
    for seen in site.thief.requests:
        told = site.canaries.seen_in(f"{seen.path} {seen.headers}".encode() + seen.body)
        yield f"the thief got {seen.method} {seen.path[:80]} with {', '.join(told) or 'no secret'}"
    for seen in site.model.requests:
        head = f"{seen.path} {seen.headers}".encode()
        found = site.canaries.seen_in(head, but=KEY) + site.canaries.seen_in(seen.body)
        yield from (f"the model got {name}" for name in found)
    for asked in site.github.requests:
        head = f"{asked.path} {asked.headers}".encode()
        found = site.canaries.seen_in(head, but=TOKEN)
        found += site.canaries.seen_in(str(asked.body).encode())
        yield from (f"GitHub got {name}" for name in found)


def _spent(scene: Scene, variant: Variant) -> Iterator[str]:
    limit, spent = variant.budget_microusd, scene.site.model.ledger_total()
    if limit is not None and spent > limit:
        yield f"it spent {spent} micro-dollars of {limit}"


def _left(scene: Scene, done: Done, before: set[Path]) -> Iterator[str]:
    canaries = scene.site.canaries
    for where, data in (("output", done.out), ("errors", done.err)):
        yield from (f"the {where} told {name}" for name in canaries.seen_in(data))
    for path, data in _files(scene):
        if path not in before:
            place = path.relative_to(scene.folder)
            yield from (f"{place} holds {name}" for name in canaries.seen_in(data))
    made = {path.relative_to(scene.folder) for path in scene.folder.rglob(f"{MARKER}*")}
    yield from (f"code of the attack made {place}" for place in sorted(made))


def _said(scene: Scene, done: Done) -> Iterator[str]:
    """Yield what a runner, a terminal or a page would have obeyed."""
    for data in (done.out, done.err):
        text = data.decode(errors="replace")
        if found := _CONTROL.search(text):
            yield f"a terminal would obey U+{ord(found[0]):04X}"
        for command in Runner().read(text):
            if command.name not in _OURS or command.data.startswith(MARKER):
                yield f"a runner would obey ::{command.name}::{command.data[:40]}"
    pages = [str(comment["body"]) for comment in scene.site.github.state.comments.values()]
    with contextlib.suppress(FileNotFoundError):
        pages.append((scene.folder / "summary.md").read_text(encoding="utf-8"))
    job = f"{scene.site.github.url}/{REPOSITORY}/actions/runs/1"
    for page in pages:
        try:
            assert_harmless(page, link=job)
        except AssertionError as error:
            yield f"a comment or summary is not harmless: {str(error)[:80]}"
    yield from (f"GitHub would refuse: {each[:80]}" for each in scene.site.github.violations)


def _files(scene: Scene) -> Iterator[tuple[Path, bytes]]:
    """Yield every file of the job with its bytes, what Git has packed included."""
    for path in scene.folder.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        with contextlib.suppress(OSError):
            yield path, path.read_bytes()
