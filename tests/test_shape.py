"""What all configuration models have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pytest
from jsonschema import Draft7Validator
from pydantic import Field, TypeAdapter, ValidationError

from edison_ci.config.gates import Margin, MarginText
from edison_ci.config.problems import problems_of
from edison_ci.config.project import Version
from edison_ci.config.project_files import ProjectFiles
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Severity
from edison_ci.shape import (
    ONE_OR_MANY,
    PATH_PATTERN,
    UNIQUE,
    Email,
    EnvName,
    FilePath,
    Name,
    Or,
    Percent,
    Shape,
    Share,
    Shorthand,
    TextPattern,
    VariableName,
    items,
    need_one_of,
    one_of_keys,
    report,
    short,
    some_of_keys,
    wrong,
)

if TYPE_CHECKING:
    from tests.conftest import Folder


class Fruit(Shape):
    """A shape of our own, so that the tests do not depend on any file's."""

    tombstones: ClassVar[dict[str, str]] = {"weight": "write grams"}

    name: Name
    grams: int = Field(ge=1, le=10_000)
    ripe: bool = True
    price: float = 1.0


class Basket(Shape):
    fruits: Annotated[tuple[Annotated[Fruit, Shorthand("name")], ...], items(0, 3)] = ()
    tags: Annotated[tuple[Name, ...], items(0, 3), UNIQUE] = ()
    lid: str | None = None
    cloth: str | None = None

    def broken_rules(self) -> tuple[()]:
        need_one_of(self, "lid", "cloth", of="a basket", add="lid: wood")
        return ()


def said(shape: type[Shape], text: str) -> list[str]:
    """Return what is wrong with a YAML text, as a user would read it."""
    document = read_yaml(text, "f.yaml")
    try:
        shape.model_validate(document.value)
    except ValidationError as error:
        return sorted(str(p).removeprefix("f.yaml:") for p in problems_of(error, document))
    return []


def test_unknown_keys_are_reported_together_with_everything_else() -> None:
    assert said(Fruit, "nam: apple\ngrams: 0\nripe: 1\ncolour: red\nname: a b\n") == [
        "1:1: unknown key 'nam' (did you mean 'name'?)",
        "2:8: grams is 0; at least 1",
        "3:7: ripe is 1, not true or false",
        "4:1: unknown key 'colour' (allowed: grams, name, price, ripe)",
        "5:7: 'a b' is not a name (use letters, digits, '-', '_' and '.', "
        "starting with a letter or digit)",
    ]


def test_unknown_keys_inside_a_list_have_their_own_line() -> None:
    text = "lid: wood\nfruits:\n  - {name: apple, grams: 3, gram: 4}\n  - {name: pear, weight: 5}\n"
    assert said(Basket, text) == [
        "3:29: unknown key 'gram' (did you mean 'grams'?)",
        "4:18: unknown key 'weight' (write grams)",
        "4:5: key 'grams' is missing (add grams: ...)",
    ]


def test_a_removed_key_keeps_a_tombstone_with_advice() -> None:
    assert said(Fruit, "name: apple\ngrams: 3\nweight: 3\n") == [
        "3:1: unknown key 'weight' (write grams)"
    ]


class Bottle(Shape):
    size: int | None = None
    colour: Literal["green", "brown"] = "green"


def test_a_key_without_a_value_is_told_and_hides_nothing_else() -> None:
    assert said(Bottle, "size:\ncolour: null\nlabel: x\n") == [
        "1:6: size has no value (set a value, or remove the key)",
        "2:9: colour has no value (allowed: green, brown)",
        "3:1: unknown key 'label' (allowed: colour, size)",
    ]


def test_an_endless_key_is_cut_short_in_the_message() -> None:
    (message,) = said(Fruit, f"name: apple\ngrams: 3\n{'k' * 500}: 1\n")
    assert len(message) < 200


WRONG_VALUES = [
    ("grams", '"3"', "grams is '3', not a whole number (write it without quotes)"),
    ("grams", "3.0", "grams is 3.0, not a whole number"),
    ("grams", "true", "grams is True, not a whole number"),
    ("grams", "010", "grams is '010', not a whole number (write it without quotes)"),
    ("grams", "1_000", "grams is '1_000', not a whole number (write it without quotes)"),
    ("price", '"1.5"', "price is '1.5', not a number (write it without quotes)"),
    ("price", "true", "price is True, not a number"),
    ("price", ".nan", "price is '.nan', not a number"),
    ("ripe", '"true"', "ripe is 'true', not true or false"),
    ("ripe", "yes", "ripe is 'yes', not true or false"),
    ("ripe", "0", "ripe is 0, not true or false"),
    ("name", "3", "name is 3, not a text (quote it)"),
    ("name", "", "name has no value (it needs a text)"),
    ("name", "null", "name has no value (it needs a text)"),
]


def test_values_are_strict(subtests: pytest.Subtests) -> None:
    for key, value, message in WRONG_VALUES:
        with subtests.test(key=key, value=value):
            lines = {"name": "apple", "grams": "3", key: value}
            text = "".join(f"{k}: {v}\n" for k, v in lines.items())
            (found,) = said(Fruit, text)
            assert found.partition(": ")[2] == message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_is_finite(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Fruit.model_validate({"name": "apple", "grams": 3, "price": value})


def test_a_whole_number_may_stand_for_any_number() -> None:
    assert said(Fruit, "name: apple\ngrams: 3\nprice: 2\n") == []


def test_a_shape_cannot_be_changed() -> None:
    fruit = Fruit(name="apple", grams=3)
    with pytest.raises(ValidationError, match="frozen"):
        fruit.grams = 4  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "1:1: the file is ['a'], not a map (write key: value)"),
        ("apple\n", "1:1: the file is 'apple', not a map (write key: value)"),
    ],
)
def test_a_file_that_is_no_map_says_so(text: str, message: str) -> None:
    assert said(Fruit, text) == [message]


# --- renamed keys ---------------------------------------------------------------------------------


class Renaming(Shape):
    """A shape whose key had another name in the version before."""

    renamed: ClassVar[dict[str, str]] = {"mass": "grams"}

    version: Version = 1
    grams: int = Field(ge=1)


def test_a_renamed_key_works_with_a_warning(folder: Folder) -> None:
    folder.write("f.yaml", "version: 1\nmass: 5\n")
    files = ProjectFiles(WorkingTree(folder.path))
    assert files._shape("f.yaml", Renaming) == Renaming(grams=5)
    (problem,) = files.problems
    assert problem.severity is Severity.WARNING
    assert str(problem) == "f.yaml:2:7: warning: key 'mass' is now called 'grams' (write grams)"


def test_the_old_name_beside_the_new_one_is_an_unknown_key(folder: Folder) -> None:
    folder.write("f.yaml", "grams: 5\nmass: 5\n")
    files = ProjectFiles(WorkingTree(folder.path))
    assert files._shape("f.yaml", Renaming) is None
    assert [str(p) for p in files.problems] == [
        "f.yaml:2:1: unknown key 'mass' (allowed: grams, version)"
    ]


def test_a_wrong_value_under_an_old_name_is_refused(folder: Folder) -> None:
    folder.write("f.yaml", "mass: 0\n")
    files = ProjectFiles(WorkingTree(folder.path))
    assert files._shape("f.yaml", Renaming) is None
    assert {p.severity for p in files.problems} == {Severity.WARNING, Severity.ERROR}


# --- ways to write a value ------------------------------------------------------------------------


def agree(kind: Any, good: list[Any], bad: list[Any]) -> None:
    """Assert that model and schema accept and refuse the same."""

    class Holder(Shape):
        held: kind

    schema = Draft7Validator(Holder.model_json_schema())
    for value in good:
        Holder.model_validate({"held": value})
        assert schema.is_valid({"held": value}), value
    for value in bad:
        with pytest.raises(ValidationError):
            Holder.model_validate({"held": value})
        assert not schema.is_valid({"held": value}), value


LONG = "a" * 101


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Name, ["a", "A-1_b.c", "0"], ["", "a b", "-a", "ä", "a/b", "a\u200b", LONG]),
        (EnvName, ["KEY", "_k1"], ["", "1K", "A B", "sk-123", LONG]),
        (VariableName, ["name", "_x", "a1"], ["", "a-b", "1a", "a.b", LONG]),
        (Email, ["a@b", "x.y@z.example"], ["", "a", "@b", "a@", "a b@c", "a@b@c"]),
        (
            FilePath,
            ["a", "a/b.md", ".edison/x", "a/../b", "..a"],
            ["", "/a", "~/a", "../a", "..", "C:/a", "a\\b", "https://a/b", "a" * 501],
        ),
        (
            Share,
            [0, 1, 0.5, "0%", "100%", "80%", "80 %", "99.5%", "080%"],
            [-0.1, 1.1, "80", "101%", "-1%", "100.1%", "eighty", True, None],
        ),
        (
            MarginText,
            ["5pp", "0pp", "100pp", "10%", "2.5pp", "7.5 %"],
            ["5", 5, 0.05, "5 points", "101pp", "-5pp", "200%", "pp", None],
        ),
        (
            Annotated[str, TextPattern("a+", "a word of a", "write aaa")],
            ["a", "aaa"],
            ["", "b", "ab"],
        ),
        (
            Annotated[tuple[int, ...], items(1, 3), UNIQUE],
            [[1], [1, 2, 3]],
            [[], [1, 2, 3, 4], [1, 1]],
        ),
        (
            Annotated[tuple[int, ...], items(1, 3), ONE_OR_MANY],
            [1, [1], [1, 1]],
            [[], [1, 2, 3, 4]],
        ),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, list) else "",
)
def test_model_and_schema_read_a_value_alike(kind: Any, good: list[Any], bad: list[Any]) -> None:
    agree(kind, good, bad)


def test_a_shorthand_stands_for_one_key_of_a_map() -> None:
    class Box(Shape):
        size: Literal["small", "large"]
        lid: bool = False

    kind = Annotated[Box, Shorthand("size")]
    agree(kind, ["small", {"size": "large", "lid": True}], ["huge", {}, {"lid": True}, 3])
    assert TypeAdapter(kind).validate_python("small") == Box(size="small")


def test_another_way_to_write_a_value_is_offered_by_the_schema_beside_the_first() -> None:
    schema = TypeAdapter(Annotated[int, Or({"const": "free"})]).json_schema()
    assert schema == {"anyOf": [{"const": "free"}, {"type": "integer"}]}


@pytest.mark.parametrize(
    ("text", "margin"),
    [
        ("5pp", Margin(value=0.05)),
        ("10%", Margin(value=0.1, relative=True)),
        ("2.5 pp", Margin(value=0.025)),
    ],
)
def test_a_margin_is_points_or_a_share_of_the_base(text: str, margin: Margin) -> None:
    assert TypeAdapter(MarginText).validate_python(text) == margin


def test_a_percentage_is_a_share() -> None:
    kind = TypeAdapter(Annotated[float, Percent()])
    assert kind.validate_python("62.5%") == 0.625
    assert kind.validate_python(0.625) == 0.625


def test_a_path_is_kept_in_its_one_form() -> None:
    assert TypeAdapter(FilePath).validate_python("./a/../b/c.md") == "b/c.md"
    assert PATH_PATTERN.startswith("^")


def test_a_key_in_place_of_its_name_is_not_repeated() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(EnvName).validate_python("abcd-efgh-ijkl-mnop")
    (item,) = caught.value.errors()
    assert item["ctx"]["text"] == "'abcd'... is not the name of an environment variable"


# --- rules over several keys ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("lid: wood\n", []),
        (
            "lid: wood\ncloth: red\n",
            [
                "2:8: a basket needs exactly one of lid or cloth; this has lid and cloth "
                "(write one entry for each)"
            ],
        ),
        (
            "tags: []\n",
            ["1:1: a basket needs exactly one of lid or cloth; this has none (add lid: wood)"],
        ),
        (
            "lid: wood\ntags: [a, b, a]\n",
            ["2:14: 'a' is listed twice (remove one)"],
        ),
    ],
)
def test_rules_point_at_the_key_that_breaks_them(text: str, messages: list[str]) -> None:
    assert said(Basket, text) == messages


def test_schemas_can_say_how_many_of_several_keys_are_given() -> None:
    one, some = Draft7Validator(one_of_keys("a", "b")), Draft7Validator(some_of_keys("a", "b"))
    given: list[dict[str, int]] = [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]
    assert [one.is_valid(value) for value in given] == [False, True, True, False]
    assert [some.is_valid(value) for value in given] == [False, True, True, True]


def test_several_rules_are_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        report([wrong("one", "first"), wrong("two", "second", "mend it", at=("a", 0))])
    assert [item["type"] for item in caught.value.errors()] == ["one", "two"]
    report([])  # nothing wrong, nothing raised


def test_a_value_in_a_message_is_quoted_and_short() -> None:
    assert short("a'b") == '"a\'b"'
    assert len(short("x" * 1_000)) == 60


def test_a_giant_that_aliases_repeat_is_shown_without_being_written_out() -> None:
    assert short(["x" * 1_000_000] * 10_000).startswith("['xxx")


def test_thousands_of_unknown_keys_are_refused_without_looking_for_a_name_for_each() -> None:
    text = "name: apple\ngrams: 3\n" + "".join(f"k{i}: 1\n" for i in range(8_000))
    found = said(Fruit, text)
    assert "3:1: unknown key 'k0' (allowed: grams, name, price, ripe)" in found
    assert len(found) <= 101
