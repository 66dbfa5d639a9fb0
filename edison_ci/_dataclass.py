"""Frozen records that cost little to define: the decorator that every module uses.

`dataclasses` compiles seven methods of its own for each frozen class with slots, which takes a
millisecond; the two hundred that a command loads would cost a fifth of a second. Here only
`__init__` is compiled, when the first record is created, and the others are shared. Everything
else, `fields`, `replace` and type checkers included, sees an ordinary dataclass.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

    Values = Callable[[object], tuple[Any, ...]]

__all__ = ["dataclass"]

_set = object.__setattr__
_FACTORY = object()
"""Marks a field whose default factory has to be called."""


def _fast(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, **other: Any
) -> Any:
    """Return a dataclass; a frozen one with slots is created in a fifth of the time."""

    def decorate(cls: type) -> type:
        if not (frozen and slots) or other:
            return dataclasses.dataclass(frozen=frozen, slots=slots, **other)(cls)
        return _fast_class(cls)

    return decorate if cls is None else decorate(cls)


if not TYPE_CHECKING:
    dataclass = _fast


def _fast_class(cls: type) -> type:
    own = frozenset(cls.__dict__)
    # Python sets `__hash__` to None if a class defines only `__eq__`.
    own_hash = "__hash__" in own and not ("__eq__" in own and cls.__hash__ is None)
    plain: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(plain)
    names = [field.name for field in fields]
    members = dict(plain.__dict__)
    for name in (*names, "__dict__", "__weakref__"):
        members.pop(name, None)
    inherited = {slot for base in cls.__mro__[1:] for slot in getattr(base, "__slots__", ())}
    members["__slots__"] = tuple(name for name in names if name not in inherited)
    compared = _values([f.name for f in fields if f.compare])
    hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
    shared: dict[str, Any] = {
        "__repr__": _repr([f.name for f in fields if f.repr]),
        "__eq__": _equality(compared),
        "__setattr__": _refuse_assignment,
        "__delattr__": _refuse_deletion,
        "__getstate__": _state(_values(names)),
        "__setstate__": _restorer(names),
    }
    members.update({name: method for name, method in shared.items() if name not in own})
    if not own_hash:
        members["__hash__"] = _hash(hashed)
    made: Any = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    if "__init__" not in own:
        made.__init__ = _lazy_init(made, fields)
    return cast("type", made)


def _lazy_init(cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Return an `__init__` that compiles the real one when the first record is created.

    Most commands create records of few classes.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _initialiser(cls, fields)
        cls.__init__(self, *args, **kwargs)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _initialiser(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Return the compiled `__init__` of a class, which runs too often to be shared."""
    known: dict[str, Any] = {"_set": _set, "_FACTORY": _FACTORY}
    taken, lines = [], []
    for field in (*(f for f in fields if not f.kw_only), None, *(f for f in fields if f.kw_only)):
        if field is None:
            if any(f.kw_only and f.init for f in fields):
                taken.append("*")
            continue
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_new_{name}"] = field.default_factory
            value = (
                f"_new_{name}() if {name} is _FACTORY else {name}"
                if field.init
                else f"_new_{name}()"
            )
            taken += [f"{name}=_FACTORY"] if field.init else []
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            taken += [f"{name}=_default_{name}"] if field.init else []
        elif field.init:
            taken.append(name)
        else:
            continue
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__(self, {', '.join(taken)}):\n" + "\n".join(lines or [" pass"])
    exec(text, known)
    method = known["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method


def _values(names: list[str]) -> Values:
    """Return a function that reads attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _repr(names: list[str]) -> Callable[[object], str]:
    def represent(self: object) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inner})"

    return represent


def _equality(compared: Values) -> Callable[[object, object], Any]:
    def equal(self: object, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return compared(self) == compared(other)

    return equal


def _hash(hashed: Values) -> Callable[[object], int]:
    return lambda self: hash(hashed(self))


def _state(values: Values) -> Callable[[object], tuple[Any, ...]]:
    return lambda self: values(self)


def _restorer(names: list[str]) -> Callable[[object, tuple[Any, ...]], None]:
    def restore(self: object, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            _set(self, name, value)

    return restore


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
