"""Records as JSON documents."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import pytest

from edison_ci._dataclass import dataclass
from edison_ci.documents.record_json import as_document, fields_of


class Color(StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: float
    y: float | None


@dataclass(frozen=True, slots=True)
class Shape:
    color: Color
    in_: tuple[Point, ...]
    path: PurePosixPath


@dataclass(frozen=True, slots=True)
class Own:
    value: int

    def as_json(self) -> dict[str, object]:
        return {"twice": 2 * self.value, "points": (Point(1, 2),)}


SHAPE = Shape(Color.RED, (Point(1.5, None),), PurePosixPath("a/b"))


def test_a_record_has_a_value_for_each_field() -> None:
    assert as_document(SHAPE) == {"color": "red", "in": [{"x": 1.5, "y": None}], "path": "a/b"}


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (None, None),
        (True, True),
        (Color.RED, "red"),
        (MappingProxyType({Color.RED: {1}}), {"red": [1]}),
        (Own(3), {"twice": 6, "points": [{"x": 1, "y": 2}]}),
    ],
)
def test_values_that_json_does_not_have_are_translated(value: object, document: object) -> None:
    assert as_document(value) == document


def test_some_fields_are_picked_and_renamed() -> None:
    assert fields_of(SHAPE, "color", file="path") == {"color": "red", "file": "a/b"}
