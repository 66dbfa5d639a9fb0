"""The registry of checks."""

from __future__ import annotations

from edison_ci.plugins import Registry

_FAMILIES = {
    "text": (
        "equals contains contains_any contains_all icontains starts_with ends_with regex one_of"
    ),
    "limits": "words chars sentences tokens latency cost finish_reason",
    "structure": (
        "is_json json_schema json_path is_xml is_html is_sql is_yaml number tool_call tool_call_f1"
    ),
    "similarity": "levenshtein rouge_l rouge_n bleu chrf token_f1 similar overlap",
    "language": "refusal language readability",
    "code": "python command",
    "combined": "not any_of all_of",
}


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


REGISTRY = Registry(
    "edison_ci.checks",
    {
        name: f"edison_ci.checks.{family}:{_class(name)}"
        for family, names in _FAMILIES.items()
        for name in names.split()
    },
)
