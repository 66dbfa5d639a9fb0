"""Records that cost little to define: the decorator that every module uses.

`dataclasses` compiles up to seven methods of its own for each class, which takes a millisecond; the
two hundred that a command loads would cost a fifth of a second. Here only `__init__` is compiled,
for a class of which several records are created, and the others are shared. Everything else,
`fields`, `replace` and type checkers included, sees an ordinary dataclass.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

    Values = Callable[[object], tuple[Any, ...]]

__all__ = ["dataclass"]

_set = object.__setattr__
_FEW = 5
"""Records that are filled field by field; to compile takes as long as to fill thirty."""
_FACTORY = object()
"""Marks a field whose default factory has to be called."""


def _fast(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, **other: Any
) -> Any:
    """Return a dataclass, which is created in a fifth of the time unless there are more options."""

    def decorate(cls: type) -> type:
        if other:
            return dataclasses.dataclass(frozen=frozen, slots=slots, **other)(cls)
        return _fast_class(cls, frozen=frozen, slots=slots)

    return decorate if cls is None else decorate(cls)


if not TYPE_CHECKING:
    dataclass = _fast


def _fast_class(cls: type, *, frozen: bool, slots: bool) -> type:
    own = frozenset(cls.__dict__)
    # Python sets `__hash__` to None if a class defines only `__eq__`.
    own_hash = "__hash__" in own and not ("__eq__" in own and cls.__hash__ is None)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(made)
    shared = _shared_methods(fields, frozen=frozen, slots=slots)
    members = {name: method for name, method in shared.items() if name not in own}
    if not own_hash:
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        members["__hash__"] = _hash(_values(hashed)) if frozen else None
    if slots:
        made = _with_slots(made, [field.name for field in fields], members)
    else:
        for name, member in members.items():
            setattr(made, name, member)
    if "__init__" not in own:
        made.__init__ = _lazy_init(made, fields, frozen=frozen)
    return cast("type", made)


def _shared_methods(
    fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool, slots: bool
) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "__repr__": _repr([f.name for f in fields if f.repr]),
        "__eq__": _equality(_values([f.name for f in fields if f.compare])),
    }
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    if frozen and slots:
        names = [field.name for field in fields]
        methods |= {"__getstate__": _state(_values(names)), "__setstate__": _restorer(names)}
    return methods


def _with_slots(cls: type, names: list[str], more: dict[str, Any]) -> type:
    """Return a class again, with slots for the fields that no base has, and more members."""
    members = {**cls.__dict__, **more}
    for name in (*names, "__dict__", "__weakref__"):
        members.pop(name, None)
    inherited = {slot for base in cls.__mro__[1:] for slot in getattr(base, "__slots__", ())}
    members["__slots__"] = tuple(name for name in names if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    return made


def _lazy_init(cls: Any, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Any:
    """Return an `__init__` that compiles the real one when a class has more than a few records.

    Of most classes a command creates none, one or two.
    """
    created = 0

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal created
        created += 1
        if created > _FEW or not _filled(self, fields, args, kwargs):
            cls.__init__ = _initialiser(cls, fields, frozen=frozen)
            cls.__init__(self, *args, **kwargs)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _filled(
    record: Any,
    fields: tuple[dataclasses.Field[Any], ...],
    args: tuple[Any, ...],
    values: dict[str, Any],
) -> bool:
    """Set the fields of a record, and return whether the arguments were right."""
    in_order = [field.name for field in fields if field.init and not field.kw_only]
    arguments = dict(zip(in_order, args, strict=False))
    if len(arguments) < len(args) or arguments.keys() & values.keys():
        return False
    arguments |= values
    for field in fields:
        if field.init and field.name in arguments:
            value = arguments.pop(field.name)
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.init:
            return False
        else:
            continue
        _set(record, field.name, value)
    if arguments:
        return False
    if hasattr(record, "__post_init__"):
        record.__post_init__()
    return True


def _initialiser(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Any:
    """Return the compiled `__init__` of a class, which runs too often to be shared."""
    names: dict[str, Any] = {"_set": _set, "_FACTORY": _FACTORY}
    taken, lines = [], []
    for field in (*(f for f in fields if not f.kw_only), None, *(f for f in fields if f.kw_only)):
        if field is None:
            if any(f.kw_only and f.init for f in fields):
                taken.append("*")
            continue
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"] = field.default_factory
            value = (
                f"_new_{name}() if {name} is _FACTORY else {name}"
                if field.init
                else f"_new_{name}()"
            )
            taken += [f"{name}=_FACTORY"] if field.init else []
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            taken += [f"{name}=_default_{name}"] if field.init else []
        elif field.init:
            taken.append(name)
        else:
            continue
        slot = getattr(cls, name, None)
        if not frozen:
            lines.append(f" self.{name} = {value}")
        elif isinstance(slot, MemberDescriptorType):  # faster than by its name
            names[f"_set_{name}"] = slot.__set__
            lines.append(f" _set_{name}(self, {value})")
        else:
            lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__(self, {', '.join(taken)}):\n" + "\n".join(lines or [" pass"])
    exec(text, names)
    method = names["__init__"]
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
