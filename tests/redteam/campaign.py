"""All variants of all attacks, tried by a few workers, and the page with what came of them."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from tests.redteam.bench import Site
from tests.redteam.watch import Canaries, findings, planted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.redteam.attack import Attack, Variant

_MEMORY = Path("/dev/shm")


class Options(Protocol):
    """What was asked for."""

    seed: int
    count: int
    jobs: int
    extras: str
    bare: bool


@dataclass(frozen=True)
class Outcome:
    """What came of one variant."""

    attack: str
    variant: str
    ended: str
    """The verdict, or how the command ended without one."""
    seconds: float
    calls: int
    """How many calls the model got: none if the attack was refused before."""
    findings: tuple[str, ...]
    said: str
    """The last lines of its errors, to see why."""


def campaign(
    attacks: Sequence[Attack], edison: Path, asked: Options, tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Try the variants of some attacks; return what came of each, in their order."""
    canaries = Canaries.made(Random(asked.seed))
    tasks = [
        (attack.name, variant)
        for attack in attacks
        for variant in attack.variants(Random(f"{asked.seed} {attack.name}"), asked.count)
    ]
    own, sites, lock = threading.local(), list[Site](), threading.Lock()
    memory = str(_MEMORY) if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="redteam-", dir=memory) as name:

        def one(task: tuple[str, Variant]) -> Outcome:
            if not hasattr(own, "site"):
                with lock:
                    folder = Path(name) / f"worker-{len(sites)}"
                    folder.mkdir()
                    made = Site(
                        folder, (str(edison),), canaries, extras=asked.extras, bare=asked.bare
                    )
                    own.site = made.__enter__()
                    sites.append(own.site)
            found = attempt(own.site, *task)
            with lock:
                tell(found)
            return found

        try:
            with ThreadPoolExecutor(asked.jobs) as pool:
                return list(pool.map(one, tasks))
        finally:
            for site in sites:
                site.__exit__()


def attempt(site: Site, attack: str, variant: Variant) -> Outcome:
    """Try one variant."""
    scene, start = site.scene(variant), time.monotonic()
    try:
        scene.prepare(variant)
        before = planted(scene)
        done = scene.run(variant)
        found = tuple(dict.fromkeys(findings(scene, variant, done, before)))
        said = _last(done.err.decode(errors="replace"))
        calls = len(site.model.requests)
        return Outcome(attack, variant.name, done.verdict, done.seconds, calls, found, said)
    except Exception as error:  # one attack that cannot be set up must not end the others
        said = f"it could not be tried: {type(error).__name__}: {error}"
        took = time.monotonic() - start
        return Outcome(attack, variant.name, "not tried", took, 0, (said[:300],), "")
    finally:
        scene.remove()


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line and not line.startswith("::")]
    return " | ".join(lines[-3:])[-400:]


def page(attacks: Sequence[Attack], found: Sequence[Outcome], asked: Any) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# Attacks",
        "",
        f"`make redteam SEED={asked.seed} COUNT={asked.count}`: attacks on an installed wheel, as "
        "a job of GitHub runs it, with a model,",
        "a thief and a GitHub on this machine. `tests/redteam` says what counts as broken.",
        "",
        "| attack | promise | variants | ended with | result |",
        "| --- | --- | --- | --- | --- |",
    ]
    for attack in attacks:
        own = [outcome for outcome in found if outcome.attack == attack.name]
        broken = [outcome for outcome in own if outcome.findings]
        ends = Counter(outcome.ended for outcome in own)
        told = ", ".join(f"{end} {count}" for end, count in ends.most_common())
        result = f"**broken: {len(broken)}**" if broken else "held"
        lines.append(f"| {attack.name} | {attack.promise} | {len(own)} | {told} | {result} |")
    broken = [outcome for outcome in found if outcome.findings]
    lines += ["", f"{len(found)} variants, {len(broken)} broken.", ""]
    for outcome in broken:
        told = re.sub(r"[|`<>\n]", " ", "; ".join(outcome.findings))
        lines.append(f"- {outcome.attack}: `{_plain(outcome.variant)}`: {told}")
    return "\n".join(lines).rstrip() + "\n"


def _plain(text: str) -> str:
    return text.encode("unicode_escape").decode().replace("`", "'")
