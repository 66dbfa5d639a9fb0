"""Attacks by what a model answers: texts that take for ever to read, or show what they may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import PROMPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.bench import Scene

MARKS = (
    "```", "```json\n", "~~~", "<response>", "</response>", "<thinking>", "</thinking>", "<", ">",
    "[", "]", "{", "}", "(", ")", '"', "'", "\\", "\\\\", "\n", "\r\n", "\t", "\u00a0", "\u3000",
    "#", "*", "_", "`", "|", "|-", "-", "--- a/x\n+++ b/x\n", "@@ -1 +1 @@\n", "+", "0", "1e", ".",
    ",", "-1.", "$", "&", "&amp;", "<!--", "-->", "<a", "</a>", "<a href=", "![", "](", "~", "\0",
    "\u202e", "\u0301", "\U0001f468\u200d\U0001f469", "\ufeff", "\u2028", "a", "a.", "A. ", "::",
    "::error::PWNED\n", "##[error]PWNED\n", "\x1b[2J", "\x9b2J", '{"a":', '"a":[', "- a\n", "a: ",
    "&a [*a]", "select ", "(select ", "/*", "--\n", "sk-", "eyJ", "@", "a@a.", "http://", "1 ",
    "+49 ", "4111 ",
)  # fmt: skip
READERS = (
    "is_json: {}", "is_xml: {}", "is_html: {}", "is_sql: {}", "is_yaml: {}", "number: 7",
    "sentences: {max: 3}", "words: {max: 9}", "levenshtein: {value: Welcome dear friend}",
    "rouge_l: {value: Welcome dear friend}", "token_f1: {value: Welcome}", "refusal: {}",
    "readability: {min: 0}", "overlap: {value: Welcome}", "regex: '(?s)a.*b.*c'",
    "json_path: {path: $.a, value: 1}", "not: {regex: '(a+)+$'}", "rouge_n: {value: Welcome}",
)  # fmt: skip
SIZES = (3_000, 30_000, 300_000)
PROMPTS = {
    "form": "Answer with <response> tags.",
    "json": "Answer with JSON.",
    "both": "Answer with JSON within <response> tags.",
}
"""An answer that has not the form that is asked for is read no further: so there is each form."""


def _reading(scene: Scene) -> None:
    """Have answers read by everything that reads answers, in a base with few cases."""
    rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
    scene.write("datasets/names.jsonl", "".join(rows[:2]))
    checks = "".join(f"  - {check}\n" for check in READERS)
    scene.edit("experiments/hello.yaml", "  - contains: Welcome\n", checks)
    scene.add("experiments/hello.yaml", "safety: {pii: flag, jailbreak: flag, secrets: flag}\n")
    listed = ", ".join(f"prompts/{name}.md" for name in ("hello", *PROMPTS))
    scene.edit("experiments/hello.yaml", "[prompts/hello.md]", f"[{listed}]")
    for name, text in PROMPTS.items():
        prompt = PROMPT.replace("id: hello", f"id: {name}").format(text=text)
        scene.write(f"prompts/{name}.md", prompt)
    scene.edit("models.yaml", "price:", "params: {max_tokens: 100000}, price:")


def _change(scene: Scene) -> None:
    for name in ("hello", *PROMPTS):
        scene.add(f"prompts/{name}.md", "Be quick.\n")


def _variant(name: str, text: str) -> Variant:
    return Variant(name, _change, _reading, script=(rule(text=text),), may_pass=True)


def _repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


ONCE = (
    ("```", "\n"), ("```json", "\n "), ("```\n", "\n "), ("<response>", "```\n"), ("<", "a "),
    ("{", '"a":{'), ('"', "\\"), ("a", "\n\n"), ("- ", "\t"), ("|", "-|"), ("0.", "0"),
)  # fmt: skip
"""What stands once, and what follows it again and again."""
HALVES = (
    ("<response>", "</response"), ("<thinking>", "</"), ("[", "]"), ('{"a":', "}"), ("(", ")"),
    ("<a>", "</a>"), ("```\n", "` "), ("0", "."), ("a", "a "),
)  # fmt: skip
AGAIN = (
    "```json\n", "<response>", "<thinking>", "[", "{", '"', " ", "\n", "9", "a@a.", "- a\n",
    "::error::PWNED\n", "\x1b[2J", "\u202e", "(select ", "<!--", "sk-", "+49 ", "a.b",
)  # fmt: skip


def _fixed() -> Iterator[Variant]:
    size = SIZES[-1]
    for once, filler in ONCE:
        yield _variant(f"{once!r} and {filler!r} again and again", once + _repeated(filler, size))
    for left, right in HALVES:
        text = _repeated(left, size // 2) + _repeated(right, size // 2)
        yield _variant(f"{left!r}, then {right!r}", text)
    for piece in AGAIN:
        yield _variant(f"{piece!r} again and again", _repeated(piece, size))


def _made(random: Random) -> Variant:
    size = random.choice(SIZES)
    pieces = [random.choice(MARKS) for _ in range(random.randrange(1, 4))]
    body = _repeated("".join(pieces), size)
    ends = [random.choice(["", random.choice(MARKS)]) for _ in range(2)]
    if random.random() < 0.3:
        body = "<response>" + body + random.choice(["</response>", ""])
    return _variant(f"{size} of {pieces} between {ends}", ends[0] + body + ends[1])


ATTACKS = (
    Attack("replies", "every answer is read in bounded time, and none is obeyed", _fixed, _made),
)
