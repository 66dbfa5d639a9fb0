"""Whatever a model writes, reading it takes time in proportion to its length.

Each reader gets texts that repeat one mark over and over, so that a search that starts again at
each mark, or that tries every way to cut a run, takes seconds or hours. What is allowed is many
times what is expected, and it is processor time; a reader that takes longer is stopped.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.checks.evaluation import EvaluationError, shorten, single_line, strip_fence
from edison_ci.checks.options import REGISTRY
from edison_ci.checks.output import parse_output
from edison_ci.config.rubric import Criterion, Scale
from edison_ci.documents import secrets
from edison_ci.documents.decoding import place
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import redacted, secrets_in
from edison_ci.documents.text_diff import PatchRefused, matcher, parse_patch
from edison_ci.judges import instructions
from edison_ci.judges.moderation import _read as read_moderation
from edison_ci.judges.pairwise import read_place
from edison_ci.judges.panel import read_grade
from edison_ci.judges.replies import read_verdict, reply_object
from edison_ci.proposals.guardrails import copied_run
from edison_ci.proposals.proposal_text import truncate
from edison_ci.records import Completion
from edison_ci.report import markdown
from edison_ci.report.annotations import stop_commands
from edison_ci.report.components import diff_view
from edison_ci.report.junit import legal
from edison_ci.report.markup import escape
from edison_ci.report.spreadsheet import disarm_cell
from edison_ci.safety.jailbreaks import find_jailbreaks
from edison_ci.safety.pii import redact_pii
from edison_ci.sanitize import clean, json_text, line, lines, without_commands, without_pieces
from edison_ci.templating.templates import MissingValueError, RenderError
from edison_ci.web.pages.answers import word_diff
from tests.checks.answers import answered
from tests.checks.entries import check
from tests.timing import slowness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

pytestmark = pytest.mark.daily

LENGTH = 20_000
ALLOWED_S = 0.5
"""Readers take some hundredths of a second; one that starts again at each mark, seconds."""

MARKS = [
    *("<thinking>", "</thinking>", "<thinking></thinking>", "<response>", "</response>", "</"),
    *(
        "```",
        "```\n",
        "```json\n",
        "`",
        "`` ",
        "~~~\n",
        "\n",
        " ",
        "\t\n",
        "\n\n ",
        "\r",
        "\\",
        "\\\\",
    ),
    *(
        "{",
        "}",
        "[",
        "[1,",
        '{"a":',
        '"',
        '\\"',
        '"\\',
        '"a',
        '"a" ',
        "'",
        "-",
        "- ",
        "- a\n",
        "a: ",
    ),
    *(
        "a:\n ",
        "&a ",
        "*a ",
        "? ",
        "| ",
        "#",
        "##[",
        "::",
        " ::",
        "\n::",
        "a",
        "aB",
        "a ",
        "a,",
        ".",
    ),
    *(
        "a.",
        ". ",
        "...",
        "A.",
        "Mr. ",
        "!",
        "?! ",
        "'a",
        "1",
        "1 ",
        "1,",
        "1.",
        "1-",
        "1:",
        "0 ",
        "-1",
    ),
    *(
        "1e",
        "1/",
        "+1 ",
        "(0",
        "00",
        "12 ",
        "DE89 ",
        "a@",
        "@",
        "a@b.",
        "a-",
        "ssn ",
        "://",
        "a://",
    ),
    *("a://a:", "sk-", "sk-ant-", "ghp_", "eyJ", "eyJa.", "AKIA", "-----BEGIN ", "-----BEGIN A "),
    *("xox", "hf_", "hooks.slack.com/services/", "+a", "=", "\x1b", "\x1b[", "\x00", "\u202e", "é"),
    *(
        "e\u0301",
        "\ufdfa",
        "字",
        "。",
        "\ud800",
        "<",
        "<a ",
        "<a>",
        "</a>",
        "<!--",
        "<a b='",
        "&",
        "&a;",
    ),
    *(
        "&#",
        "<?",
        "<![CDATA[",
        "<script>",
        "--",
        "/*",
        ";",
        "select ",
        "(",
        "ignore ",
        "ignore all ",
    ),
    *(
        "you are ",
        "system prompt ",
        "I cannot ",
        "without any ",
        "not ",
        "@@ -1 +1 @@\n",
        "--- a/p.md\n",
    ),
    *(
        "+++ b/p.md\n",
        "+a\n",
        "-a\n",
        " a\n",
        "diff --git a b\n",
        "*",
        "**",
        "_",
        "[a](",
        "![",
        "|",
        "%41",
    ),
]
AROUND = [
    ("", ""),
    ("", "x"),
    ("```json\n", "\nx"),
    ('{"scores": ', "}"),
    ("--- a/p.md\n+++ b/p.md\n", "\n"),
]

SCALE = Scale(min=0, max=5)
CRITERIA = [Criterion(name="Warmth", description="It is warm.", weight=1, scale=SCALE)]
READERS: dict[str, Callable[[str], object]] = {
    "output": lambda text: parse_output(text, "none"),
    "output response": lambda text: parse_output(text, "response"),
    "output json": lambda text: parse_output(text, "json"),
    "output both": lambda text: parse_output(f"<response>{text}</response>", "response+json"),
    "fence": strip_fence,
    "json": parse_json,
    "place": lambda text: place(text, len(text) - 1),
    "verdict": lambda text: read_verdict(Completion(text), CRITERIA),
    "grade": lambda text: read_grade(Completion(text), SCALE),
    "grade in a fence": lambda text: read_grade(Completion(f"```\n{text}\n```"), SCALE),
    "moderation": lambda text: read_moderation(Completion(text)),
    "preference": lambda text: read_place(Completion(text)),
    "reply": lambda text: reply_object(Completion(text), "diff"),
    "patch": lambda text: parse_patch(text + "\n", "p.md"),
    "copies": lambda text: copied_run([text], text[:500], [text[:2_000]], longest=10),
    "personal data": redact_pii,
    "jailbreaks": lambda text: list(find_jailbreaks(text)),
    "secrets": lambda text: list(secrets_in(text)),
    "redaction": redacted,
    "known secrets": secrets.hidden,
    "shortened secrets": without_pieces,
    "clean": clean,
    "line": line,
    "lines": lines,
    "commands": without_commands,
    "unheard": lambda text: stop_commands(text, "0123456789abcdef" * 2),
    "json text": lambda text: json_text({"a": [text]}),
    "reason": lambda text: (shorten(text), single_line(text)),
    "block": lambda text: instructions.sanitize(instructions.escape_invisible(text)),
    "markdown code": lambda text: markdown.code(text, most=LENGTH),
    "markdown prose": lambda text: markdown.prose(text, most=LENGTH),
    "markdown fence": lambda text: markdown.fenced(text, most=LENGTH),
    "comment": truncate,
    "html": escape,
    "xml": legal,
    "csv": disarm_cell,
    "lines that differ": lambda text: diff_view(text[:5_000], _other(text[:5_000])),
    "words that differ": lambda text: word_diff(text, _other(text)),
    "matcher": lambda text: matcher(text.split(), _other(text).split()).get_opcodes(),
}
EXTRA = frozenset({"python", "command", "similar", "language"})
"""Checks that run code, or need what is not installed everywhere."""

SLOW = frozenset({"check bleu", "check chrf"})
"""In proportion too, with a large factor."""


def _other(text: str) -> str:
    words = text[: LENGTH // 2].split(" ")
    return " ".join(f"{word} x{number}" for number, word in enumerate(words))


def _checks() -> Iterator[tuple[str, Callable[[str], object]]]:
    for name in sorted(REGISTRY.names()):
        if name in EXTRA:
            continue
        entry = check(REGISTRY.load(name).example)

        def evaluate(text: str, entry: Any = entry) -> object:
            given = {"expected": text[: LENGTH // 2], "must_include": [text[:50]]}
            return entry.evaluate(answered(text, **given))

        yield name, evaluate


ALL = {**READERS, **{f"check {name}": reader for name, reader in _checks()}}
REFUSED = (Fault, EvaluationError, PatchRefused, MissingValueError, RenderError)


class _Stopped(BaseException):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def took_s(reader: Callable[[str], object], text: str, most_s: float) -> float:
    """Return the processor time that a reader takes for a text; it is stopped after the most."""
    before = signal.signal(signal.SIGPROF, _stop)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, most_s)
    try:
        with suppress(*REFUSED, _Stopped):
            reader(text)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return time.process_time() - start


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL)
def test_reading_takes_time_in_proportion_to_the_text(name: str) -> None:
    secrets.remember(["a-secret-value", "aaaaaaaaaaaaaaaaaaaaaaaa"])
    allowed = ALLOWED_S * slowness()
    for number, mark in enumerate(MARKS[:: 10 if name in SLOW else 1]):
        start, end = AROUND[number % len(AROUND)]
        text = start + mark * (LENGTH // len(mark)) + end
        # Measured again if it took long: a machine that is busy may have been slow just then.
        in_time = any(took_s(ALL[name], text, allowed) < allowed for _ in range(3))
        assert in_time, (mark, start, end)
