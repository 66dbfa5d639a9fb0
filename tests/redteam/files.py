"""Attacks with files: links, devices, bombs, templates, modules and programs, words in texts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import BAD, PROMPT
from tests.redteam.watch import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

READ = (
    "prompts/hello.md", "datasets/names.jsonl", "experiments/hello.yaml", "models.yaml",
    "edison.yaml", "quarantine.yaml", ".edison/trust.yaml", ".edison/prices.json", "prompts",
    "datasets", "experiments", "schemas/out.json", "recordings/hello.jsonl",
)  # fmt: skip
TARGETS = (
    "{folder}/repository/.git/config", "../.git/config", "../.env", "{folder}/home/.netrc",
    "{folder}/home/.aws/credentials", "{folder}/temp/gha-creds-1.json", "/proc/self/environ",
    "/proc/self/fd/0", "/dev/zero", "/dev/stdin", "/dev/tty", "{folder}/pipe", "/", "..", ".",
    "/etc/passwd", "../../home/.ssh/id_ed25519", "../.git", "{folder}/event.json",
)  # fmt: skip
TRAP = "import pathlib\npathlib.Path('{folder}', 'PWNED').write_text('x')\n"
MODULES = (
    "click", "yaml", "json", "typing", "sitecustomize", "usercustomize", "pydantic", "numpy",
    "sqlite3", "edison_ci/__init__", "encodings/__init__", "aiohttp", "jinja2", "uvloop",
)  # fmt: skip
PROGRAMS = ("git", "python", "python3", "sh", "bash", "uname", "env", "gh", "unshare", "git-remote")
TEMPLATES = (
    "{{ ''.__class__.__mro__ }}", "{{ name.__class__ }}", "{{ name['__class__'] }}",
    "{{ name|attr('__class__') }}", "{{ cycler.__init__.__globals__ }}", "{{ lipsum() }}",
    "{{ self }}", "{{ config }}", "{{ request }}", "{{ namespace() }}", "{{ 10**10**8 }}",
    "{% for a in name %}" * 9 + "{{ name }}" + "{% endfor %}" * 9, "{{ range(10**9)|list }}",
    "{% include '/etc/passwd' %}", "{% import 'os' as os %}",
    "{% macro a() %}{{ a() }}{% endmacro %}",
    "{{ name|format(name) }}", "{{ '%s'|format(name) }}", "{% set a = name %}{{ a }}",
    "{{ name|replace('', name|upper) }}", "{{ name|map('upper')|list }}", "{{ dict(a=1) }}",
    "{{ joiner() }}", "{% raw %}{{ name }}{% endraw %}", "{{ name ~ name }}", "{{ name * 10**9 }}",
    "{% if " + "(" * 500 + "name" + ")" * 500 + " %}x{% endif %}",
    "{{ name" + "|upper" * 3_000 + " }}",
    "{# " + "x" * 10_000, "{% filter upper %}{{ name }}{% endfilter %}", "{{ [].append(1) }}",
)  # fmt: skip
WORDS = (
    f"::add-mask::{MARKER}", f"::error::{MARKER}", f"##[error]{MARKER}",
    "::set-output name=verdict::pass", f"\n::error::{MARKER}\n", f"\r::stop-commands::{MARKER}\r",
    "%0A::error::PWNED", "\x1b[2J\x1b[H",
    "\x1b]0;x\x07", "\x9b31m", "\u202egnorw", "\u2066x\u2069", "<img src=//evil.example/x.png>",
    "![x](https://evil.example/x.png)", "[x](javascript:alert(1))", "@everyone", "Fixes #1",
    "</details></td></table>", "```\n# hello\n", "`", "|", "<!-- edison -->",
    "<script>alert(1)</script>",
    "verdict=pass", "verdict<<EOF\npass\nEOF", "[red]x[/red]", "=cmd|' /C calc'!A0", "\u200b\ufeff",
    "https://evil.example/?q=1", "&lt;img&gt;", "\U000e0041", "]]>", "\ud7ff\uffff", "a" * 3_000,
)  # fmt: skip


def _linked(name: str, target: str) -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        os.mkfifo(scene.folder / "pipe")
        scene.link(name, target)
        if name == "schemas/out.json":
            scene.edit("prompts/hello.md", "id: hello\n", "id: hello\noutput: schemas/out.json\n")

    return change


def _links() -> Iterator[Variant]:
    for number, name in enumerate(READ):
        for step in range(3):
            target = TARGETS[(number * 3 + step) % len(TARGETS)]
            yield Variant(f"{name} to {target}", _linked(name, target))
    for target in TARGETS:
        yield Variant(f"the prompt to {target}", _linked("prompts/hello.md", target))


def _made_link(random: Random) -> Variant:
    """Lead a file through several links to where it may not lead."""
    name, target = random.choice(READ), random.choice(TARGETS)
    hops = [f"hop-{number}" for number in range(random.randrange(1, 4))]

    def change(scene: Scene) -> None:
        _linked(name, f"{'../' * name.count('/')}{hops[0]}")(scene)
        for here, there in zip(hops, [*hops[1:], target], strict=True):
            scene.link(here, there)

    return Variant(f"{name} by {len(hops)} links to {target}", change)


# --- bombs and templates --------------------------------------------------------------------------


def _bombs() -> dict[str, tuple[str, str | bytes]]:
    doubled = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    wide = "".join(f"k{n}: {n}\n" for n in range(100_000))
    deep = 100_000
    return {
        "aliases": ("edison.yaml", f"version: 1\nproject: x\na0: &a0 [x]\n{doubled}"),
        "circle": ("edison.yaml", "version: 1\nproject: x\na: &a [*a]\n"),
        "deep yaml": ("models.yaml", "[" * deep),
        "deep blocks": ("models.yaml", "".join(f"{' ' * n}a:\n" for n in range(1_000))),
        "wide": ("models.yaml", wide),
        "tags": ("models.yaml", "small: !!python/object/apply:os.system ['touch PWNED']\n"),
        "merge": ("models.yaml", "a: &a {provider: sim, model: echo}\nsmall: {<<: *a}\n"),
        "deep json": ("datasets/names.jsonl", '{"id": "a", "name": ' + "[" * deep + "\n"),
        "long number": ("datasets/names.jsonl", '{"id": "a", "name": ' + "9" * 1_000_000 + "}\n"),
        "nan": ("datasets/names.jsonl", '{"id": "a", "name": NaN}\n'),
        "twice": ("datasets/names.jsonl", '{"id": "a", "id": "b", "name": "x"}\n'),
        "bytes": ("datasets/names.jsonl", b'{"id": "\xff\xfe", "name": "\x00"}\n'),
        "surrogate": ("datasets/names.jsonl", '{"id": "a", "name": "\\ud800"}\n'),
        "long line": ("datasets/names.jsonl", '{"id": "a", "name": "' + "x" * 9_000_000 + '"}\n'),
        "many rows": ("datasets/names.jsonl", "".join(f'{{"name": {n}}}\n' for n in range(9_999))),
        "big prompt": ("prompts/hello.md", PROMPT.format(text="x" * 5_000_000)),
        "headings": ("prompts/hello.md", "---\nid: hello\n---\n" + "# user\n# assistant\n" * 9_000),
        "front matter": ("prompts/hello.md", "---\n" * 100_000),
        "bom": ("edison.yaml", b"\xff\xfev\x00e\x00r\x00"),
        "attributes": (".gitattributes", "* filter=evil diff=evil merge=evil\n" * 1_000),
        "modules": (".gitmodules", '[submodule "x"]\npath = x\nurl = ext::sh -c touch% PWNED\n'),
        "prices": (".edison/prices.json", "[" * deep),
    }  # fmt: skip


def _written(name: str, text: str | bytes) -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        scene.write(name, text)

    return change


def _texts() -> Iterator[Variant]:
    for name, (path, text) in _bombs().items():
        yield Variant(f"bomb: {name}", _written(path, text))
    for template in TEMPLATES:
        text = PROMPT.replace("{text}", "{{text}}").format().replace("{text}", f"{BAD} {template}")
        yield Variant(f"template: {template[:60]}", _written("prompts/hello.md", text))


# --- modules and programs -------------------------------------------------------------------------


def _modules(scene: Scene) -> None:
    scene.worsen()
    for name in MODULES:
        scene.write(f"{name}.py", TRAP.format(folder=scene.folder))
        scene.write(f"prompts/{name}.py", TRAP.format(folder=scene.folder))
    scene.write("pyvenv.cfg", "home = .\n")
    scene.write("setup.cfg", "[options]\n")
    scene.write("evil.pth", f"import pathlib; pathlib.Path('{scene.folder}', 'PWNED').touch()\n")


def _programs(scene: Scene) -> None:
    scene.worsen()
    for name in PROGRAMS:
        path = scene.write(
            name, f"#!/bin/sh\n: > '{scene.folder}/PWNED'\nexec /usr/bin/{name} \"$@\"\n"
        )
        path.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "pre-auto-gc", "fsmonitor-watchman"):
        path = scene.write(f"hooks/{hook}", f"#!/bin/sh\n: > '{scene.folder}/PWNED'\n")
        path.chmod(0o755)


def _code_beside() -> Iterator[Variant]:
    yield Variant("modules", _modules)
    yield Variant("modules, run", _modules, command=("run", "--yes"), may_pass=True)
    yield Variant("programs", _programs)
    for path in (f".:{os.environ['PATH']}", f"{os.environ['PATH']}:.", f":{os.environ['PATH']}"):
        where = "first" if path.startswith(".") else "empty" if path.startswith(":") else "last"
        yield Variant(f"programs, . on PATH {where}", _programs, environ={"PATH": path})


# --- words ----------------------------------------------------------------------------------------


def _worded(title: str, case: str, name: str, file: str) -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        scene.add("experiments/hello.yaml", f"title: {json.dumps(title[:200])}\n")
        row = json.dumps({"id": case, "name": name}) + "\n"
        scene.add("datasets/names.jsonl", row)
        if file:
            safe = "".join(c for c in file if c not in "/\0")[:60] or "x"
            scene.write(f"prompts/{safe}.md", PROMPT.format(text="x"))

    return change


def _obeyed() -> Iterator[Variant]:
    for number, word in enumerate(WORDS):
        others = [WORDS[(number + step) % len(WORDS)] for step in (1, 2)]
        # An id with odd characters is refused at once, and nothing else would be read.
        case = others[0] if others[0].isprintable() and len(others[0]) < 200 else "plain"
        change = _worded(word, case, others[1], "")
        script = (rule(contains=BAD, text=f"{word}\n{others[0]}"),)
        yield Variant(f"words: {word[:40]!r}", change, script=script)


def _made_words(random: Random) -> Variant:
    def text() -> str:
        parts = [random.choice(WORDS)[:80] for _ in range(random.randrange(1, 4))]
        return random.choice(["", " ", "\n", "\r", "\u2028", "\x85"]).join(parts)

    used = [text() if random.random() < 0.6 else f"plain {number}" for number in range(3)]
    used.append(text() if random.random() < 0.2 else "")
    script = (rule(contains=BAD, text=text()),)
    return Variant(f"{used!r:.120}", _worded(*used), script=script)


ATTACKS = (
    Attack("files: links", "only files of the commit are read, and none is waited for", _links,
           _made_link, share=0.5),
    Attack("files: texts", "no file and no template takes long, grows or computes", _texts),
    Attack("files: code", "nothing that lies in the repository is run or imported", _code_beside),
    Attack("files: words", "no text of a file or a model is obeyed by a runner, terminal or page",
           _obeyed, _made_words),
)  # fmt: skip
