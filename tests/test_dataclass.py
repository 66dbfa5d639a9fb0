"""A frozen record behaves like the standard library's, whatever is asked of it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from edison_ci import _dataclass


def both(cls: type) -> list[Any]:
    """Return a class as the standard library makes it, and as we do."""
    own = {name: value for name, value in cls.__dict__.items() if name != "__dict__"}
    makers: tuple[Any, ...] = (dataclasses.dataclass, _dataclass.dataclass)
    return [maker(frozen=True, slots=True)(type(cls.__name__, (), dict(own))) for maker in makers]


class Plain:
    """One."""

    name: str
    size: int = 3
    shown: tuple[str, ...] = ()
    kind: ClassVar[str] = "plain"

    def twice(self) -> int:
        """Return more."""
        return 2 * self.size


class Fields:
    """Another."""

    key: str = dataclasses.field(repr=False)
    parts: list[int] = dataclasses.field(default_factory=list, compare=False)
    made: str = dataclasses.field(init=False, default="made")
    last: int = dataclasses.field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Set what is worked out."""
        object.__setattr__(self, "made", self.key.upper())


class Empty:
    """Nothing."""


class Equal:
    """Has its own idea of equality."""

    name: str

    def __eq__(self, other: object) -> bool:
        """Say yes."""
        return isinstance(other, Equal)


MADE = [
    (Plain, ("a",), {}),
    (Plain, ("a", 4), {"shown": ("x",)}),
    (Fields, ("k",), {}),
    (Fields, ("k", [1]), {"last": 7}),
    (Empty, (), {}),
    (Equal, ("n",), {}),
]


@pytest.fixture(params=[0, 1, 5], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill none, the first or all records without the compiled `__init__`."""
    monkeypatch.setattr(_dataclass, "_FEW", request.param)


@pytest.mark.parametrize(("cls", "args", "kwargs"), MADE)
def test_it_is_like_the_standard_librarys(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    said: list[Any] = []
    for made in both(cls):
        one, other = made(*args, **kwargs), made(*args, **kwargs)
        same = dataclasses.replace(one)
        said.append(
            (
                repr(one).rpartition("both.")[2],
                one == other,
                one == 3,
                one != other,
                hash(one) == hash(other),
                same == one,
                dataclasses.asdict(one),
                [f.name for f in dataclasses.fields(made)],
                made.__slots__,
                made.__match_args__,
                hasattr(one, "__dict__"),
                copy.deepcopy(one) == one,
            )
        )
    assert said[0] == said[1]


WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    (("a", 1, (), "more"), {}),
    (("a",), {"name": "b"}),
    (("a",), {"other": 1}),
]


@pytest.mark.parametrize(("args", "kwargs"), WRONG)
def test_wrong_arguments_are_refused_alike(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    told = []
    for made in both(Plain):
        with pytest.raises(TypeError) as error:
            made(*args, **kwargs)
        told.append(str(error.value))
    assert told[0] == told[1]


def test_nothing_can_be_changed() -> None:
    one = both(Plain)[1]("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del one.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.other = 1


@_dataclass.dataclass(frozen=True, slots=True)
class Base:
    """A record."""

    name: str


@_dataclass.dataclass(frozen=True, slots=True)
class Derived(Base):
    """A record with more."""

    size: int = 0


def test_records_derive_from_records() -> None:
    one = Derived("a", 2)
    assert (one.name, one.size, one == Derived("a", 2), one == Base("a")) == ("a", 2, True, False)
    assert vars(Derived)["__slots__"] == ("size",)
    assert repr(one) == "Derived(name='a', size=2)"


def test_records_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(Derived("a", 2))) == Derived("a", 2)


def test_whatever_is_not_frozen_with_slots_is_made_by_the_standard_library() -> None:
    @_dataclass.dataclass(slots=True)
    class Open:
        size: int = 1

    one = Open()
    one.size = 2
    assert one == Open(2)
