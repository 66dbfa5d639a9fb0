"""Attacks by bundles: runs, grades, costs and files of a stranger count as one's own."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.documents.signatures import Signer
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import KEY
from tests.redteam.results import OURS, THEIRS, forged, trusting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Done, Scene

FORGED = "20260101T000000-abcdef"
MILLION = 1_000_000_000_000
GRADES = (
    "insert into manual_grade (cell_id, experiment, case_id, request_hash, answer_no, actor, "
    "scale, score, passed, flagged, seed, graded_at) select id, 'hello', case_id, request_hash, "
    "answer_no, 'eve@example.com', '0-1', 1, 1, 1, 0, '2026-11-19T05:00:00Z' from cell"
)
HUMAN = "gates:\n  - {metric: pass_rate, at_least: 60%, use: human}\n"
_SUMS = (
    "sum(cost_microusd), (select sum(coalesce(a.tokens_in + a.tokens_out, t.est_tokens)) from "
    "attempt t join answer a on a.attempt = t.id) from attempt group by 2"
)
CLAIMS = {
    "as it was": (),
    "its costs": (
        f"update attempt set cost_microusd = {MILLION}, est_microusd = {MILLION}",
        f"update answer set cost_microusd = {MILLION}",
        "delete from booked",
        *(
            f"insert into booked select {scope}, substr(sent_at, 1, 10), {_SUMS}"
            for scope in ("'project'", "'experiment:hello'", "'run:' || run_id")
        ),
    ),
    "grades": (GRADES,),
    "a trusted origin": (
        "insert into run_origin select id, 'ann', 'here', 'cli', 'import', 'run.zip', 'ann', "
        f"'2026-11-19T05:00:00Z', '{OURS.public}', 1 from run",
        "update attempt set origin = (select run_id from run_origin)",
        "delete from booked where scope not like 'run:%'",
    ),
}
"""What a stranger writes into the rows."""
SIGNED = ("none", "theirs", "ours, changed since", "theirs as ours", "of another bundle", "zeros")
MACHINE = (
    ".edison/auth.db", ".EDISON/auth.db", ".edison/auth.db-wal", ".edison/leases.db",
    ".edison/secrets.yaml", ".edison/results.db-wal", ".edison/locks/x", ".env", ".ENV.local",
    "sub/.edison/auth.db", ".edison/./auth.db", "../.edison/auth.db", "/tmp/PWNED", "../PWNED",
    ".git/hooks/post-checkout", ".git/config", "id_ed25519", ".edison/trust.yaml.bundled",
)  # fmt: skip
"""Members of a project bundle that belong to a machine, or that land elsewhere."""


def _said(
    scene: Scene, *words: str, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(scene.folder), **variables}
    return subprocess.run(
        [*scene.site.edison, *words], cwd=cwd, env=environ, capture_output=True, check=False
    )


def _whole(scene: Scene, name: str, *words: str) -> Path:
    """Return a bundle of the project in which the worse prompt answers well, made once."""
    made = scene.site.folder / name
    if not made.exists():
        forged(scene)
        done = _said(scene, *words, str(made), cwd=scene.site.folder / "forge")
        if done.returncode:
            raise ValueError(done.stderr.decode()[-300:])
    return made


def _renamed(connection: sqlite3.Connection) -> None:
    """Let the run of a bundle be another one, of long ago."""
    tables = connection.execute(
        "select t.name from sqlite_schema t, pragma_table_info(t.name) c where t.type = 'table' "
        "and c.name = 'run_id' and t.name not in ('attempt', 'audit')"
    ).fetchall()
    for (table,) in tables:
        connection.execute(f"update {table} set run_id = ?", (FORGED,))
    connection.execute("update run set id = ?, created_at = '2026-01-01T00:00:00.000Z'", (FORGED,))


def runs_of_a_stranger(
    scene: Scene, changes: tuple[str, ...], signed: str, own: Path | None = None
) -> Path:
    """Return a bundle of runs as a stranger changes and signs it, or that of a run of ours."""
    whole = own or _whole(scene, "runs.zip", "report", "--format", "bundle", "--out")
    inner, target = scene.folder / "inner.db", scene.folder / "evil.zip"
    with zipfile.ZipFile(whole) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        inner.write_bytes(archive.read("results.db"))
    with closing(sqlite3.connect(inner)) as connection:
        triggers = connection.execute(
            "select name, sql from sqlite_schema where type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        if own is not None:
            _renamed(connection)
            manifest["runs"][0]["id"] = FORGED
        for change in changes:
            connection.execute(change)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()
        connection.execute("vacuum")
    raw = inner.read_bytes()
    inner.unlink()
    manifest["files"][0] |= {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    signer = Signer((OURS if signed.startswith("ours") else THEIRS).private)
    if signed != "none":
        manifest["public_key"] = OURS.public if signed == "theirs as ours" else signer.public
    text = json.dumps(manifest).encode()
    about = b"another bundle" if signed in ("ours, changed since", "of another bundle") else text
    proof = signer.sign(b"edison-ci bundle 1\n", hashlib.sha256(about).digest()).signature
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("results.db", raw)
        if signed != "none":
            archive.writestr("manifest.json.sig", "A" * 86 + "==" if signed == "zeros" else proof)
    return target


def _imported(changes: tuple[str, ...], signed: str, own: str = "") -> Change:
    def left(scene: Scene) -> None:
        known = scene.path / own if own else None
        bundle = runs_of_a_stranger(scene, changes, signed, known)
        done = _said(scene, "import", "bundle", str(bundle), cwd=scene.path)
        if signed == "none" and done.returncode:
            raise ValueError(done.stderr.decode()[-300:])

    return left


def _worse(scene: Scene) -> None:
    scene.worsen()


def _judged_by_people(scene: Scene) -> None:
    trusting(OURS.public)(scene)
    text = scene.read("experiments/hello.yaml")
    scene.write("experiments/hello.yaml", text[: text.index("gates:")] + HUMAN)


OF_A_PERSON = {"GITHUB_ACTIONS": "false", "CI": "", "GITHUB_EVENT_NAME": ""}
AGAINST = ("run", "--yes", "--against", "main", "--json")
AGAIN = ("compare", "latest", "--gates", "--json")


def _counts(name: str, changes: tuple[str, ...], signed: str) -> Variant:
    """Return a variant that passes, or may spend nothing, if rows of a stranger count."""
    base, left = trusting(OURS.public), _imported(changes, signed)
    return Variant(
        f"{name}, signed: {signed}", _worse, base, left, command=AGAINST, environ=OF_A_PERSON,
        must="fail",
    )  # fmt: skip


def _graded(signed: str) -> Variant:
    """Return a variant that passes if grades of a stranger count, as those of the base's key do."""

    def left(scene: Scene) -> None:
        key = {KEY: scene.site.canaries.values[KEY]}
        _said(scene, "run", "--yes", cwd=scene.path, **key)  # the answers that are graded
        _said(scene, "report", "--format", "bundle", "--out", "../own.zip", cwd=scene.path)
        _imported((GRADES,), signed, "../own.zip")(scene)

    ours = signed == "ours"
    return Variant(
        f"people's grades, signed: {signed}", _worse, _judged_by_people, left, command=AGAIN,
        environ=OF_A_PERSON, may_pass=ours, must="pass" if ours else "",
    )  # fmt: skip


def restored(scene: Scene, member: str) -> None:
    """Restore a bundle of a project, with one more file in it and in its list."""
    whole = _whole(scene, "project.zip", "admin", "bundle", "create")
    target = scene.folder / "evil.zip"
    with zipfile.ZipFile(whole) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    data = b"hashes"
    entry = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    like = manifest["files"][0]
    named = next(key for key in like if key not in entry)
    manifest["files"].append({**entry, named: member})
    files["manifest.json"] = json.dumps(manifest).encode()
    prefix = next((n[: -len(like[named])] for n in files if n.endswith(like[named])), "")
    files[prefix + member] = data
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def _then_restored(member: str) -> Variant:
    def left(scene: Scene) -> None:
        restored(scene, member)

    def planted(scene: Scene, _: Done) -> Iterator[str]:
        for path in scene.folder.rglob("*"):
            if path.is_file() and path.name != "evil.zip" and path.read_bytes() == b"hashes":
                yield f"the bundle has put {path.relative_to(scene.folder)} on this machine"

    return Variant(
        f"restored with {member}", _worse, None, left, may_pass=True, then=planted,
        command=("admin", "bundle", "restore", "../evil.zip", "../restored"),
    )  # fmt: skip


def _fixed() -> Iterator[Variant]:
    yield _graded("ours")
    for name, changes in CLAIMS.items():
        yield _counts(name, changes, "none")
    for signed in SIGNED[1:]:
        yield _counts("as it was", (), signed)
    for signed in SIGNED:
        yield _graded(signed)
    for member in MACHINE:
        yield _then_restored(member)


def _made(random: Random) -> Variant:
    if random.random() < 0.3:
        member = random.choice(MACHINE)
        return _then_restored("".join(c.upper() if random.random() < 0.1 else c for c in member))
    names = random.sample(sorted(CLAIMS), random.choice([1, 2, 3]))
    changes = tuple(change for name in names for change in CLAIMS[name])
    return _counts(" and ".join(names), changes, random.choice(SIGNED))


ATTACKS = (
    Attack(
        "bundles",
        "what a bundle brings is shown, and decides and pays for nothing",
        _fixed,
        _made,
        share=0.5,
    ),
)
