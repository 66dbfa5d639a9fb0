"""Which check is an assertion that needs no model?"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.importing.drafts import Told, Wanted
from edison_ci.importing.parts import (
    Given,
    check,
    hole,
    nearly,
    python_pattern,
    wanted_list,
    wanted_of,
    with_threshold,
)
from edison_ci.importing.prompts import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.documents.marks import Json

_NAMES = {
    "equals": "equals",
    "contains": "contains",
    "icontains": "icontains",
    "starts-with": "starts_with",
    "regex": "regex",
    "contains-any": "contains_any",
    "icontains-any": "contains_any",
    "contains-all": "contains_all",
    "icontains-all": "contains_all",
    "is-xml": "is_xml",
    "is-html": "is_html",
    "is-sql": "is_sql",
    "is-refusal": "refusal",
}


class _Measure(NamedTuple):
    name: str
    threshold: float
    """What passes there if nothing is said."""
    note: str


_MEASURES = {
    "similar": _Measure(
        "similar", 0.75, "compared with local embeddings (extra embeddings): scores differ"
    ),
    "rouge-n": _Measure("rouge_n", 0.75, "words are cut differently: scores differ a little"),
    "bleu": _Measure("bleu", 0.5, "computed by sacrebleu (extra metrics): scores differ a little"),
}


def _text(given: Given) -> Told:
    value = given.value()
    if isinstance(value, dict | list):
        if given.kind != "equals":
            raise Refusal("its value is not a text")
        wanted = Wanted(json.dumps(value, ensure_ascii=False))
        return check("json_path", {"path": "$", "value": hole()}, wanted)
    wanted, note = wanted_of(value), ""
    if given.kind == "regex" and wanted.template is None:
        pattern, note = python_pattern(str(wanted.value))
        wanted = Wanted(pattern)
    told = check(_NAMES[given.kind], {"value": hole()}, wanted)
    return nearly(told, note) if note else told


def _list(given: Given) -> Told:
    options: dict[str, Json] = {"value": hole()}
    if given.kind.startswith("i"):
        options["ignore_case"] = True
    return check(_NAMES[given.kind], options, wanted_list(given.value(), given.kind))


def _whole(given: Given) -> Told:
    told = check(_NAMES[given.kind], {})
    if not given.has("value"):
        return told
    return nearly(told, "its value (required elements, tables, dialect) is not checked")


def _is_json(given: Given) -> Told:
    if not given.has("value"):
        return check("is_json", {})
    schema = given.value()
    if isinstance(schema, str):  # a schema may be written as a text of JSON
        schema = _parsed(schema)
    if not isinstance(schema, dict):
        raise Refusal("its schema is not a map")
    for fault in schema_faults(schema, "the schema"):
        raise Refusal(fault.message)
    return check("json_schema", {"value": schema})


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


def _contains_json(given: Given) -> Told:
    if given.has("value"):
        note = "json_schema wants the whole answer, or one code fence, to be JSON"
        return nearly(_is_json(given), note)
    told = check("regex", {"value": r"\{[\s\S]*\}|\[[\s\S]*\]"})
    return nearly(told, "it looks for brackets, not for JSON that parses")


def _contains_markup(_: Given) -> Told:
    pattern = r"<([A-Za-z][A-Za-z0-9:-]*)[^<>]*>[\s\S]*</\1\s*>|<[A-Za-z][^<>]*/>"
    return nearly(
        check("regex", {"value": pattern}), "it looks for tags, not for markup that parses"
    )


def _limit(given: Given) -> Told:
    threshold = given.number()
    if threshold is None:
        raise Refusal("without a threshold it only measures; every run does that anyway")
    if given.kind == "latency":
        return check("latency", {"max_ms": min(max(1, math.floor(threshold)), 3_600_000)})
    return check("cost", {"max_usd": threshold})


def _words(given: Given) -> Told:
    value = given.value()
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return check("words", {"min": value, "max": value})
    limits = (
        {k: v for k, v in value.items() if k in ("min", "max")} if isinstance(value, dict) else {}
    )
    if not limits or not all(type(each) is int for each in limits.values()):
        raise Refusal("its value is neither a number nor {min, max}")
    return check("words", dict(limits))


def _finish_reason(given: Given) -> Told:
    value = given.value()
    if value not in ("stop", "length", "content_filter", "tool_calls"):
        raise Refusal("the reasons are stop, length, content_filter and tool_calls")
    return check("finish_reason", {"value": value})


def _measure(given: Given) -> Told:
    measure = _MEASURES[given.kind.partition(":")[0]]
    value = given.value()
    if isinstance(value, list):
        if len(value) != 1:
            raise Refusal("several references: write any_of with one check for each")
        value = value[0]
    told = check(measure.name, {"value": hole()}, wanted_of(value))
    return nearly(with_threshold(told, measure.threshold), measure.note)


def _levenshtein(given: Given) -> Told:
    """Return a distance in edits as a share of the characters of the reference."""
    wanted, most = wanted_of(given.value()), given.number()
    most = 5.0 if most is None else most
    length = max(len(str(wanted.value)), 1)
    share = max(0.0, round(1 - most / length, 2)) if wanted.template is None else 0.8
    told = with_threshold(check("levenshtein", {"value": hole()}, wanted), share)
    return nearly(told, f"at most {most:g} edits became {share:g} of the characters unchanged")


def _tools_f1(given: Given) -> Told:
    value = given.value()
    names = value if isinstance(value, list) else [v.strip() for v in str(value).split(",")]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Refusal("its value is not a list of tools")
    tools: list[Json] = [{"tool": name} for name in names]
    return with_threshold(check("tool_call_f1", {"value": tools}), 1.0)


def _tools_valid(_: Given) -> Told:
    note = "that a tool was called is checked, not whether its arguments fit the schema"
    return nearly(check("finish_reason", {"value": "tool_calls"}), note)


CHECKS: dict[str, Callable[[Given], Told]] = {
    **dict.fromkeys(("equals", "contains", "icontains", "starts-with", "regex"), _text),
    **dict.fromkeys(("contains-any", "contains-all", "icontains-any", "icontains-all"), _list),
    **dict.fromkeys(("is-xml", "is-html", "is-sql", "is-refusal"), _whole),
    "is-json": _is_json,
    "contains-json": _contains_json,
    "contains-xml": _contains_markup,
    "contains-html": _contains_markup,
    "latency": _limit,
    "cost": _limit,
    "word-count": _words,
    "finish-reason": _finish_reason,
    **dict.fromkeys(
        ("similar", "similar:cosine", "similar:dot", "similar:euclidean", "rouge-n", "bleu"),
        _measure,
    ),
    "levenshtein": _levenshtein,
    "tool-call-f1": _tools_f1,
    **dict.fromkeys(
        (
            "is-valid-openai-tools-call",
            "is-valid-openai-function-call",
            "is-valid-function-call",
        ),
        _tools_valid,
    ),
}
"""How each type of assertion becomes a check."""

NONE_LIKE_IT = {
    "perplexity": "providers here return no token probabilities",
    "perplexity-score": "providers here return no token probabilities",
    "classifier": "there is no check by a classifier; a grader can ask a model",
    "contains-sql": "is_sql reads a whole answer, or one in a code fence, only",
    "webhook": "no check calls a service; command runs a program with settings.allow_code",
    "pi": "there is no scorer of Pi Labs; a grader can ask a model",
    "max-score": "outputs are not chosen from; edison recommend compares models",
    "meteor": "there is no METEOR; chrf or token_f1 are near to it",
    "gleu": "there is no GLEU; bleu or chrf are near to it",
    "guardrails": "what guardrails say is not kept; safety screens answers here",
    "conversation-relevance": "a case is one exchange here",
    "search-rubric": "graders have no search",
}
"""What to say of types that nothing here is like."""
