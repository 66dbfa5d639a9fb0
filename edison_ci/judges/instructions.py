"""Messages to judges: instructions, fenced material, and the hashes that make grades comparable.

The instructions are a text of the package, or `judges/KIND.md` of the project in its place,
followed by two parts that no project replaces: how the material is marked as data, and the form of
the reply. They are the same for every case, so that providers can cache them.

Each piece of material is in a block whose first and last line contain a key. The key is a hash of
everything that is sent to the judge, including the piece: equal calls have equal keys, and a text
that knows its own key would have to contain a part of its own hash. Text that looks like the edge
of a block is broken by a visible backslash, and invisible characters are escaped.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents import files
from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, Location, Problem
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.prompt import Prompt
    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.documents.files import Tree
    from edison_ci.judges.judge import Judge
    from edison_ci.records import Case, Json

Kind = Literal["pointwise", "pairwise", "moderation", "toxicity", "question"]

FOLDER = "judges"
"""Folder of the instructions of a project."""
MAX_BYTES = 50_000
_TEXTS = Path(__file__).parent / "instructions"
_REPLY: dict[Kind, str] = {
    "pointwise": "pointwise-reply",
    "pairwise": "pairwise-reply",
    "moderation": "screen-reply",
    "toxicity": "screen-reply",
    "question": "question-reply",
}


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions of one kind of judge."""

    kind: Kind
    text: str
    """How to judge: the text of the package or of the project."""
    path: str = ""
    """The file of the project; empty for the text of the package."""

    def message(self, criteria: str = "", *, objective: str = "") -> str:
        """Return the system message with the criteria, and what an objective is if there is one."""
        goal = _shipped("objective") if objective else ""
        parts = [self.text, _shipped("material"), goal, criteria, _shipped(_REPLY[self.kind])]
        return "\n\n".join(part for part in parts if part)

    @property
    def version(self) -> str:
        """sha256 of the system message without criteria."""
        return hashlib.sha256(self.message().encode()).hexdigest()


@cache
def _shipped(name: str) -> str:
    return (_TEXTS / f"{name}.md").read_text(encoding="utf-8").strip()


def override_path(kind: Kind) -> str:
    """Return the path of the instructions of a project for a kind of judge."""
    return f"{FOLDER}/{kind}.md"


def load_instructions(kind: Kind, tree: Tree | None = None) -> Instructions:
    """Return the instructions of a kind of judge, those of the project if it has any."""
    path = override_path(kind)
    text = "" if tree is None else text_of_project(tree, path)
    return Instructions(kind, text, path) if text else Instructions(kind, _shipped(kind))


def text_of_project(tree: Tree, path: str) -> str:
    """Return instructions that a project has in a file; empty if there is no such file."""
    if not tree.exists(path):
        return ""
    try:
        text = decode(files.read(tree, path, max_bytes=MAX_BYTES)).strip()
    except Fault as fault:
        raise ConfigError(
            [Problem(Location(path), fault.code, fault.message, fault.hint)]
        ) from None
    if not text:
        hint = "write instructions, or remove the file to use the default ones"
        raise ConfigError([Problem(Location(path), "empty", f"{path} is empty", hint)])
    return text.replace("\r\n", "\n")


KEY_LINE = "Key of this message: "
TAGS = ("input", "reference", "answer", "first", "second", "text", "prompt", "example", "earlier")
_KEY_CHARS = 16
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls, marks of direction, tags, lone surrogates. Joiners stay, for scripts and emoji."""
_EDGE = re.compile(rf"<(?=\s{{0,9}}/?\s{{0,9}}data:(?:{'|'.join(TAGS)})\b)", re.I)
_ODD = re.compile(r"[^A-Za-z0-9_.\- ]")
_MAX_NAME = 60
"""The most characters of a name in a block: columns may have any name."""
_KEY = re.compile(re.escape(KEY_LINE.rstrip(": ")), re.I)


class FencedText(NamedTuple):
    """A piece of material: its tag, its name if it has one, and its text."""

    tag: str
    """One of TAGS, written as `<data:TAG KEY>`, as answers may contain plain tags."""
    text: str
    name: str = ""
    as_json: bool = False
    """Whether the text is JSON because the value is not a string."""


def escape_invisible(text: str) -> str:
    r"""Return the text with invisible characters written as \u{...}."""
    plain = text.replace("\r\n", "\n")
    if plain.isascii() and plain.isprintable():
        return plain
    return _INVISIBLE.sub(lambda match: f"\\u{{{ord(match.group()):x}}}", plain)


def sanitize(text: str) -> str:
    """Return the text without invisible characters and edges of blocks."""
    return _KEY.sub(
        lambda match: match.group().replace(" ", "\\ ", 1),
        _EDGE.sub(r"<\\", escape_invisible(text)),
    )


def objective_pieces(objective: str) -> Iterator[FencedText]:
    """Yield the objective, if there is one."""
    if objective:
        yield FencedText("text", objective, "objective")


def case_pieces(case: Case) -> Iterator[FencedText]:
    """Yield the inputs of a case and its expected answer."""
    for name, value in case.inputs.items():
        yield _piece("input", value, name)
    if case.expected is not None:
        yield _piece("reference", case.expected)


def _piece(tag: str, value: Json, name: str = "") -> FencedText:
    if isinstance(value, str):
        return FencedText(tag, value, name)
    return FencedText(tag, json.dumps(value, ensure_ascii=False), name, as_json=True)


def fence_message(
    instructions: str, pieces: Sequence[FencedText], closing: str, *, seed: Json = None
) -> str:
    """Return the user message with the pieces, for a judge with the system message `told`."""
    fenced = [
        piece._replace(text=sanitize(piece.text), name=_ODD.sub("?", piece.name)[:_MAX_NAME])
        for piece in pieces
    ]
    key = _key(instructions, fenced, seed)
    blocks = [_block(piece, key) for piece in fenced]
    return "\n\n".join([f"{KEY_LINE}{key}", *blocks, closing])


def _block(piece: FencedText, key: str) -> str:
    name = f" {json.dumps(piece.name, ensure_ascii=False)}" if piece.name else ""
    form = " json" if piece.as_json else ""
    return f"<data:{piece.tag}{name}{form} {key}>\n{piece.text}\n</data:{piece.tag} {key}>"


def _key(instructions: str, pieces: Sequence[FencedText], seed: Json) -> str:
    sent: list[object] = [instructions, [list(piece) for piece in pieces], seed]
    identity = canonical_json(sent).encode()
    key, round_number = "", 0
    # A second round is practically impossible: a text would contain 64 bits of its own hash.
    while not key or any(key in piece.text or key in piece.name for piece in pieces):
        key = hashlib.sha256(b"%d:" % round_number + identity).hexdigest()[:_KEY_CHARS]
        round_number += 1
    return key


def rubric_hash(rubric: RubricFile) -> str:
    """Return the sha256 of criteria, weights and pass mark of a rubric."""
    return _digest(_rubric(rubric))


def judge_hash(
    instructions: Instructions, rubric: RubricFile | None, judge: Judge, *, objective: str = ""
) -> str:
    """Return the sha256 over instructions, rubric, objective, the judge and its parameters."""
    criteria = _rubric(rubric) if rubric else ""
    text = instructions.message(objective=objective)
    goal = [objective] if objective else []
    return _digest([text, criteria, *_judge(judge), *goal])


def objective_hash(objective: str) -> str:
    """Return the sha256 of an objective and of what the prompt of a judge says about it."""
    return _digest([_shipped("objective"), objective])


def question_hash(
    instructions: Instructions, criteria: Sequence[Criterion], objective: str, judge: Judge
) -> str:
    """Return the sha256 over instructions, criteria, objective, the judge and its parameters."""
    asked = [criterion.model_dump(mode="json") for criterion in criteria]
    return _digest([instructions.message(), asked, objective, *_judge(judge)])


def grader_hash(prompt: Prompt, judge: Judge) -> str:
    """Return the sha256 over a grader prompt, its scale, the judge's identity and parameters."""
    scale = prompt.header.scale
    scaled = scale.model_dump(mode="json") if scale else None
    return _digest([prompt.version, scaled, *_judge(judge)])


def plugin_hash(name: str, package: str, rubric: RubricFile) -> str:
    """Return the sha256 over a judge of another package, its version and the rubric."""
    return _digest([name, package, _rubric(rubric)])


def panel_hash(hashes: list[str], combine: str) -> str:
    """Return the sha256 over all judges of a panel and how they are combined."""
    return _digest([sorted(hashes), combine])


def _rubric(rubric: RubricFile) -> object:
    return {
        "criteria": [criterion.model_dump(mode="json") for criterion in rubric.criteria],
        "weights": {name: round(weight, 9) for name, weight in rubric.weights().items()},
        "pass_at": rubric.pass_at,
    }


def _judge(judge: Judge) -> list[object]:
    return [judge.model.identity(), dict(judge.params)]


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
