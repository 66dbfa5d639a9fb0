"""The published schemas: generated, complete, and of one mind with the loader."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import pytest
from jsonschema import Draft7Validator
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from edison_ci.config.model_entry import LOCAL_MODEL, PROVIDERS
from edison_ci.config.project_files import ProjectFiles
from edison_ci.config.prompt import Input
from edison_ci.config.provider_options import OPTIONS
from edison_ci.config.rows import RESERVED
from edison_ci.config.schema import file_name, schema_of, text_of, write_schemas
from edison_ci.config.sections import Occasion
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.resources import KINDS, MESSAGES
from tests.bad_files import BAD, PLACES, bad_files, minimal, problems_in
from tests.config.shapes import all_shapes, property_entry, property_schema, validator_for
from tests.conftest import EXAMPLES, MINIMAL, ROOT
from tests.full_files import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUBLISHED = ROOT / "schemas"


@cache
def validator(kind: str) -> Draft7Validator:
    return Draft7Validator(json.loads((PUBLISHED / file_name(kind)).read_text(encoding="utf-8")))


# --- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *MESSAGES])
def test_the_published_schema_is_the_generated_one(kind: str) -> None:
    published = (PUBLISHED / file_name(kind)).read_text(encoding="utf-8")
    assert published == text_of(kind), "run: python -m edison_ci.config.schema schemas"


def test_the_schemas_that_are_written_by_hand_name_what_the_code_knows() -> None:
    assert set(schema_of("dataset")["definitions"]["Case"]["properties"]) == set(RESERVED)
    occasions = list(get_args(Occasion))
    notification = schema_of("notification")
    assert notification["properties"]["occasion"]["enum"] == [*occasions, "digest", "test"]
    notice = notification["definitions"]["Notice"]
    assert notice["properties"]["occasion"]["enum"] == occasions
    assert notification["required"] == list(notification["properties"])
    assert notice["required"] == list(notice["properties"])


def test_there_is_a_schema_for_each_kind_and_no_other(tmp_path: Path) -> None:
    assert len(KINDS) == 12
    write_schemas(tmp_path / "new")
    written = {path.name for path in (tmp_path / "new").iterdir()}
    published = {path.name for path in PUBLISHED.iterdir()}
    published.remove("openapi.json")  # of the HTTP interface, which is no file of a project
    assert written == published == {file_name(kind) for kind in (*KINDS, *MESSAGES)}


@pytest.mark.parametrize("kind", [*KINDS, *MESSAGES])
def test_a_schema_is_draft_07_and_says_what_it_is_for(kind: str) -> None:
    schema = schema_of(kind)
    Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["$id"] == file_name(kind)
    assert schema["description"].endswith(".")


def maps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every map inside a schema."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from maps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from maps(inner)


def properties(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each property an editor offers; conditions only speak of those."""
    if isinstance(value, dict):
        for name, inner in value.get("properties", {}).items():
            yield f"{path}/{name}", inner
        for key, inner in value.items():
            if key not in ("if", "then", "else", "dependencies", "allOf", "not"):
                yield from properties(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from properties(inner, f"{path}/{index}")


@pytest.mark.parametrize("kind", [*KINDS, *MESSAGES])
def test_every_property_has_a_description(kind: str) -> None:
    whole = schema_of(kind)
    listed = list(properties(whole))
    assert listed
    for name, schema in listed:
        target = schema.get("$ref", "").rpartition("/")[2]
        said = schema.get("description") or whole["definitions"][target]["description"]
        assert len(said) > 3, name


@pytest.mark.parametrize("kind", [*KINDS, *MESSAGES])
def test_every_reference_leads_somewhere_and_every_definition_is_used(kind: str) -> None:
    schema = schema_of(kind)
    used = {item["$ref"] for item in maps(schema) if isinstance(item.get("$ref"), str)}
    defined = {f"#/definitions/{name}" for name in schema.get("definitions", {})}
    assert used == defined


def test_every_plain_default_of_a_model_is_in_its_schema() -> None:
    found = 0
    for shape in all_shapes():
        for name, field in shape.model_fields.items():
            schema = property_schema(shape, field.alias or name)
            if schema is None or field.default in (PydanticUndefined, None):
                continue
            default = field.default
            plain = list(default) if isinstance(default, tuple) else default
            assert property_entry(schema).get("default") == plain, f"{shape.__name__}.{name}"
            found += 1
    assert found > 80


def test_defaults_that_are_not_plain_are_shown_as_a_user_would_write_them() -> None:
    definitions = schema_of("experiment")["definitions"]
    assert definitions["Gate"]["properties"]["margin"]["default"] == "5pp"
    assert definitions["Contains"]["properties"]["value"]["default"] == "{{ expected }}"
    criterion = schema_of("rubric")["definitions"]["Criterion"]
    assert criterion["properties"]["scale"]["default"] == "0-5"


# --- good files -----------------------------------------------------------------------------------


def kind_of(path: str) -> str | None:
    """Return the kind of a project's file."""
    folder, _, name = path.rpartition("/")
    by_folder = {"experiments": "experiment", "rubrics": "rubric", "prompts": "prompt"}
    by_name = {"edison.yaml": "edison", "models.yaml": "models", "quarantine.yaml": "quarantine"}
    if folder in by_folder and name.endswith((".yaml", ".md")):
        return by_folder[folder]
    if folder == "datasets":
        return "dataset"
    return "trust" if path == ".edison/trust.yaml" else by_name.get(path)


def value_of(path: Path, kind: str) -> Any:
    """Return what a file says, as its schema sees it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if kind == "prompt":
        text = text.split("---\n")[1]
    return read_yaml(text, path.name).value


EXAMPLE_FILES = [
    (path, kind)
    for path in sorted(EXAMPLES.rglob("*"))
    if path.is_file() and (kind := kind_of("/".join(path.relative_to(EXAMPLES).parts[1:])))
]


def test_every_example_is_accepted(subtests: pytest.Subtests) -> None:
    for path, kind in EXAMPLE_FILES:
        with subtests.test(str(path.relative_to(EXAMPLES))):
            value = value_of(path, kind)
            assert value
            assert [error.message for error in validator(kind).iter_errors(value)] == []


def test_the_examples_are_of_every_kind_a_template_has() -> None:
    kinds = [kind for _, kind in EXAMPLE_FILES]
    assert set(kinds) == set(KINDS) - {
        "about",
        "quarantine",
        "labels",
        "judge_approvals",
        "secrets",
    }
    assert all(kinds.count(kind) >= 4 for kind in set(kinds))


def test_a_file_with_every_key_is_accepted(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            value = read_yaml(FULL[kind], "full.yaml").value
            assert [error.message for error in validator(kind).iter_errors(value)] == []


def test_the_files_with_every_key_are_accepted_by_the_loader_too(tmp_path: Path) -> None:
    folder = minimal(tmp_path)
    for kind in ("about", "edison", "quarantine", "judge_approvals", "trust", "secrets"):
        folder.write(PLACES[kind], FULL[kind])
    folder.write(PLACES["labels"], FULL["labels"].lstrip())
    folder.write("models.yaml", FULL["models"])
    folder.write("experiments/full.yaml", FULL["experiment"])
    folder.write("rubrics/tone.yaml", FULL["rubric"])
    body = "---\nHow kind is this to {{ name }}, who is {{ age }} years old?\n"
    folder.write("prompts/x.md", "---\n" + FULL["prompt"].lstrip() + body)
    files = ProjectFiles(WorkingTree(folder.path))
    assert files.project() is not None
    assert set(files.models("models.yaml")) == {"small", "big", "bigger", "aws", "old"}
    assert files.trust().budget_usd_max == 20
    assert files.secrets().of("OPENAI_API_KEY") is not None
    assert files.quarantine()
    assert files.abouts("datasets", ())["datasets/names.jsonl"].owner == "ann@example.com"
    assert files.experiment("experiments/full.yaml") is not None
    assert files.rubric("rubrics/tone.yaml") is not None
    assert files.prompt("prompts/x.md") is not None
    approvals = files.approvals()
    assert approvals is not None
    assert approvals.of("tone", ("judge-b", "judge"), "median", None) is not None
    assert len(files.labels()["labels/tone.jsonl"].lines) == 1
    assert files.problems == []


# --- bad files ------------------------------------------------------------------------------------

BOTH, LOADER_ONLY = bad_files("both"), bad_files("loader_only")

RULES = {
    "addresses-hold-no-secrets": "what is inside an address",
    "approvals-can-be-given": "a count of entries by their role",
    "cases-are-known": "another file",
    "checks-nest-ten-levels": "depth of something that refers to itself",
    "columns-keep-apart": "two values of one map are equal",
    "configurations-at-most-ten": "the product of the lengths of several lists",
    "configurations-differ": "defaults and other files decide what is sent",
    "dates-exist": "the calendar",
    "experiments-are-known": "another file",
    "files-exist": "other files",
    "gates-name-what-is-graded": "another part of the file, and the rubric",
    "headers-of-the-connection-are-nobody-s": "the letter case of a text, and other files",
    "hosts-have-a-port-there-is": "the size of a number inside a text",
    "keys-go-to-trusted-hosts": "another file",
    "hashes-are-of-what-they-say": "the hash of another value",
    "labels-are-on-the-scale": "keys compared with values, or another file",
    "least-is-not-above-most": "one value compared with another",
    "models-are-known": "another file",
    "models-are-whole-after-inheriting": "another entry of the file",
    "models-inherit-without-a-circle": "other entries of the file",
    "names-are-given-once": "one key of several maps compared, defaults filled in",
    "names-are-the-files": "the name of the file",
    "paths-stay-inside": "steps up a path counted against steps down",
    "patterns-are-regular-expressions": "the language of a text",
    "prompts-are-of-the-right-type": "another file",
    "providers-are-known": "which plugins are installed",
    "providers-take-the-parameters": "which vendor takes what",
    "quarantine-ends": "today's date",
    "schedules-are-possible": "the language of a text",
    "schemas-are-schemas": "a schema of schemas, of any draft",
    "some-part-of-the-grade-counts": "a sum over several lists",
    "something-grades": "defaults in another file",
    "templates-keep-to-the-language": "the language of a text",
    "variables-are-declared-and-used": "the body of the prompt",
    "weights-sum-to-one": "a sum",
    "whole-numbers-have-no-point": "draft-07 takes 2.0 for an integer",
    "yaml-is-plain": "what the text was before it became a value",
}
"""Rules that only the loader can keep, and what a schema would have to know to do so."""


def test_there_are_many_bad_files_of_every_kind() -> None:
    assert len(BOTH) >= 180
    assert {file.group for file in BOTH} == set(KINDS)
    assert min([file.group for file in BOTH].count(kind) for kind in KINDS) >= 6


def test_the_rules_a_schema_cannot_keep_are_these() -> None:
    assert sorted(path.name for path in (BAD / "loader_only").iterdir()) == sorted(RULES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_is_refused_by_loader_and_schema(subtests: pytest.Subtests, kind: str) -> None:
    for file in BOTH:
        if file.group != kind:
            continue
        with subtests.test(str(file)):
            assert file.expected
            assert file.said() == file.expected
            assert not validator(file.kind).is_valid(file.value)


def test_a_file_that_breaks_a_rule_beyond_schemas_is_refused_by_the_loader(
    subtests: pytest.Subtests,
) -> None:
    for file in LOADER_ONLY:
        with subtests.test(str(file)):
            assert file.expected
            assert file.said() == file.expected
            assert validator(file.kind).is_valid(file.value), (
                "the schema can keep this rule: move the file"
            )


def test_what_is_broken_here_is_whole_at_first(tmp_path: Path) -> None:
    assert problems_in(minimal(tmp_path)) == ()
    for kind in ("edison", "models", "experiment", "rubric"):
        value = read_yaml(MINIMAL[PLACES[kind]], kind).value
        assert validator(kind).is_valid(value)


def test_a_key_without_a_value_is_refused_by_every_model_and_its_schema() -> None:
    found = 0
    for shape in all_shapes():
        for name, field in shape.model_fields.items():
            key = field.alias or name
            with pytest.raises(ValidationError) as raised:
                shape.model_validate({key: None})
            assert any(error["loc"][:1] == (key,) for error in raised.value.errors()), key
            schema = property_schema(shape, key)
            if schema is None or (shape is Input and key == "default"):
                continue  # its type is another key
            assert not validator_for(schema).is_valid(None), f"{shape.__name__}.{key}"
            found += 1
    assert found > 200


# --- what a schema says beyond single values ------------------------------------------------------

MODELS: list[dict[str, Any]] = [
    {},
    {"model": "m"},
    {"model": "small"},
    {"model": "m", "base_url": "https://h.example"},
    {"model": "m", "base_url_env": "BASE"},
    {"model": "m", "base_url": "https://h.example", "base_url_env": "BASE"},
    {"model": "m", "key_env": "KEY"},
    {"model": "m", "store": "datasets/names.jsonl"},
    {"store": "datasets/names.jsonl"},
    {"model": "m", "options": {"region": "eu-central-1"}},
    {"model": "m", "options": {"organization": "acme"}},
    {"model": "m", "options": {"project": "p", "location": "l"}},
    {"model": "m", "options": {"threads": 4}},
    {"model": "judge", "options": {"noise": 0.5}},
    {"options": {"run": ["a"], "files": ["a"]}},
    {"base_url": "https://h.example", "options": {"body": {"q": "{{ prompt }}"}}},
    {
        "base_url_env": "BASE",
        "options": {"deployment": "d", "api_version": "2024-10-21"},
    },
]


@pytest.mark.parametrize("provider", PROVIDERS.built_in)
def test_loader_and_schema_agree_on_what_goes_with_a_provider(
    provider: str, tmp_path: Path
) -> None:
    accepted = []
    for number, keys in enumerate(MODELS):
        entry = {"provider": provider, **keys}
        if provider == "litellm" and "model" in keys:
            entry["model"] = f"openai/{keys['model']}"
        elif provider == "local" and "model" in keys:
            entry["model"] = LOCAL_MODEL
        folder = minimal(tmp_path / str(number))
        folder.write("models.yaml", json.dumps({"m": entry}))
        files = ProjectFiles(WorkingTree(folder.path))
        by_loader = "m" in files.models("models.yaml")
        if provider == "bedrock" and "key_env" in keys:
            continue  # two fields of a key are needed, which only the loader says
        assert validator("models").is_valid({"m": entry}) is by_loader, entry
        accepted.append(by_loader)
    assert any(accepted)
    assert not all(accepted)


def test_options_of_every_provider_are_known_to_the_schema() -> None:
    definitions = schema_of("models")["definitions"]
    assert {shape.__name__ for shape in OPTIONS.values()} <= definitions.keys()
