"""Attacks with results: answers that nobody gave, in a commit, a cache or a kept workspace."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

from edison_ci.access.own_results import sign
from tests.fixed_keys import signing_keys
from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import BAD, PROMPT, TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

OURS, THEIRS = signing_keys("the default branch"), signing_keys("the attacker")
"""Keys of the default branch, and of the attacker."""
SETTINGS = "version: 1\nproject: greetings\nresults: {place}\n"
NAMES = (
    ".edison/results.db", "data.db", ".edison/schemas/results.db", "kept/answers.db",
    ".edison/schemas/trust.schema.json", ".EDISON/results.db", ".edison/Results.DB",
    "datasets/names.db", "./.edison//schemas/../results.db", "a b.db", "results.db",
    ".edison/trust.yaml.db", ".edison/locks/../results.db",
)  # fmt: skip
LINKS = {
    "file": (".edison/results.db", "../data.db", "data.db"),
    "file outside": (".edison/results.db", "{folder}/planted.db", "{folder}/planted.db"),
    "folder": (".edison", "kept", "kept/results.db"),
    "folder outside": (".edison", "{folder}/kept", "{folder}/kept/results.db"),
    "log": (".edison/results.db-wal", "../data.db", "data.db"),
    "lock": (".edison/locks", "../kept", "kept/experiment-hello.lock"),
}
"""A link, what it leads to, and where the answers are."""


def forged(scene: Scene) -> Path:
    """Return results in which the worse prompt answers well, made once for each worker."""
    made = scene.site.folder / "forged.db"
    if made.exists():
        return made
    project = scene.site.folder / "forge"
    shutil.copytree(scene.site.folder / "template", project)
    (project / "prompts/hello.md").write_text(PROMPT.format(text=BAD), encoding="utf-8")
    usual = [*scene.site.model.script]
    scene.site.model.script[:] = [rule(text="Welcome, dear friend.")]
    environ = {"PATH": os.environ["PATH"], "HOME": str(project)}
    environ["VENDOR_API_KEY"] = scene.site.canaries.values["VENDOR_API_KEY"]
    command = [*scene.site.edison, "run", "-q", "--yes", "--against", "main"]
    command += ["--record", "recordings/hello.jsonl"]
    (project / "recordings").mkdir()
    subprocess.run(command, cwd=project, env=environ, check=True, capture_output=True)
    scene.site.model.script[:] = usual
    scene.site.model.requests.clear()
    scene.site.model.ledger.unlink(missing_ok=True)
    with sqlite3.connect(project / ".edison/results.db") as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.execute("pragma journal_mode = delete")
    connection.close()
    shutil.copy(project / ".edison/results.db", made)
    return made


def put(scene: Scene, place: str) -> Path:
    target = scene.path / os.path.normpath(place.format(folder=scene.folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(forged(scene), target)
    return target


def _committed(place: str, suffix: str = "") -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        put(scene, f"{place}{suffix}")
        scene.write(".gitignore", "")
        if place != ".edison/results.db":
            scene.write("edison.yaml", SETTINGS.format(place=place))

    return change


def _linked(name: str, target: str, answers: str) -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        scene.write(".gitignore", "")
        trust = scene.read(".edison/trust.yaml")
        put(scene, answers)
        scene.link(name, target)
        if name == ".edison":
            (scene.path / ".edison/trust.yaml").write_text(trust, encoding="utf-8")

    return change


def _plants() -> Iterator[Variant]:
    for name in NAMES:
        yield Variant(f"committed as {name}", _committed(name))
    for suffix in ("-wal", "-shm", "-journal", ".sig"):
        yield Variant(f"committed with {suffix}", _committed(".edison/results.db", suffix))
    for name, link in LINKS.items():
        yield Variant(f"linked {name}", _linked(*link))


def _made_plant(random: Random) -> Variant:
    """Spell the place of the results, and where they are committed, in two ways."""
    parts = random.choice(
        [[".edison", "results.db"], ["kept", "data.db"], [".edison", "x", "y.db"]]
    )
    real = "/".join(_cased(part, random) for part in parts)
    spelled = random.choice(["", "./", ".//", "x/../"]) + random.choice(["/", "//", "/./"]).join(
        _cased(part, random) if random.random() < 0.3 else part for part in parts
    )

    def change(scene: Scene) -> None:
        scene.worsen()
        put(scene, real)
        scene.write(".gitignore", "")
        scene.write("edison.yaml", SETTINGS.format(place=spelled))

    return Variant(f"{real} as {spelled}", change)


def _cased(text: str, random: Random) -> str:
    return "".join(c.upper() if random.random() < 0.2 else c for c in text)


# --- restored -------------------------------------------------------------------------------------


def trusting(public: str) -> Change:
    def base(scene: Scene) -> None:
        listed = f"results: {{public_keys: ['{public}']}}\n"
        scene.write(".edison/trust.yaml", TRUST.format(host=scene.site.model.url) + listed)

    return base


def _restored(place: str, then: Callable[[Path], None]) -> Change:
    def left(scene: Scene) -> None:
        folder = scene.folder / "temp/edison" if place == "cache" else scene.path / ".edison"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / "results.db"
        shutil.copy(forged(scene), target)
        then(target)

    return left


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _unsigned(path: Path) -> None:
    assert path.exists()


def _by_another(path: Path) -> None:
    sign(path, THEIRS.private)


def _changed_since(path: Path) -> None:
    sign(path, OURS.private)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _longer_since(path: Path) -> None:
    sign(path, OURS.private)
    path.write_bytes(path.read_bytes() + b"\0")


def _with_a_log(path: Path) -> None:
    sign(path, OURS.private)
    path.with_name(f"{path.name}-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(60))


def _of_another_file(path: Path) -> None:
    other = path.with_name("other.db")
    other.write_bytes(b"what the default branch once signed")
    sign(other, OURS.private)
    shutil.copy(_beside(other), _beside(path))


def _linked_signature(path: Path) -> None:
    sign(path, THEIRS.private)
    _beside(path).rename(path.with_name("elsewhere"))
    _beside(path).symlink_to("elsewhere")


def _with(text: bytes) -> Callable[[Path], None]:
    def then(path: Path) -> None:
        _beside(path).write_bytes(text)

    return then


SIGNATURES: dict[str, Callable[[Path], None]] = {
    "none": _unsigned,
    "by another": _by_another,
    "changed since": _changed_since,
    "longer since": _longer_since,
    "with a log": _with_a_log,
    "of another file": _of_another_file,
    "a link": _linked_signature,
    "empty": _with(b""),
    "of zeros": _with(b"ed25519 " + b"A" * 86 + b"==\n"),
    "of another kind": _with(b"none \n"),
    "huge": _with(b"ed25519 " + b"A" * 10_000_000),
    "the public key": _with(f"ed25519 {OURS.public}\n".encode()),
}


def _signed(path: Path) -> None:
    sign(path, OURS.private)


def _worse_and_trusting(scene: Scene) -> None:
    scene.worsen()
    trusting(THEIRS.public)(scene)


def _worse(scene: Scene) -> None:
    scene.worsen()


def _restores() -> Iterator[Variant]:
    base = trusting(OURS.public)
    for place in ("cache", "workspace"):
        left = _restored(place, _signed)
        yield Variant(
            f"{place}: signed by the base", _worse, base, left, may_pass=True, must="pass"
        )
        for name, then in SIGNATURES.items():
            left = _restored(place, then)
            yield Variant(f"{place}: {name}", _worse, base, left)
            yield Variant(f"{place}: {name}, replayed", _worse, base, left, command=REPLAY)
        left = _restored(place, _by_another)
        yield Variant(f"{place}: key of the head", _worse_and_trusting, base, left)
        yield Variant(f"{place}: key of the head alone", _worse_and_trusting, left=left)
        left = _restored(place, _unsigned)
        for command in (("github", "summary"), ("github", "comment"), ("github", "annotations")):
            yield Variant(
                f"{place}: {' '.join(command)}", _worse, base, left, command=(*command, "--json"),
                may_pass=True,
            )  # fmt: skip


REPLAY = ("github", "run", "--mode", "replay")

ATTACKS = (
    Attack(
        "results: planted",
        "nothing that only a run writes may come with a commit",
        _plants,
        _made_plant,
        share=0.5,
    ),
    Attack(
        "results: restored",
        "restored answers count only with a signature of a key of the base",
        _restores,
    ),
)
