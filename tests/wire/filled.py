"""Objects of a wire type in which each field is written, or one of them is as large as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect

#: Names of fields from the object to the place; "[]" is an item of a list, "{}" a value of a map, "{key}" its key.
Path: TypeAlias = tuple[str, ...]
#: Makes the text of a place.
Text: TypeAlias = Callable[[Path], str]

ITEM: Final = "[]"
VALUE: Final = "{}"
KEY: Final = "{key}"
#: Fields that take few words, with one that makes what reads it go on.
WORDS: Final = {
    "operator": "In",
    "whenUnsatisfiable": "DoNotSchedule",
    "effect": "NoSchedule",
    "volumeBindingMode": "WaitForFirstConsumer",
}
#: No type is written inside of itself more often than this.
_MOST_DEPTH: Final = 14


def places(cls: type[msgspec.Struct]) -> Iterator[tuple[Path, str]]:
    """Every text, list and map of a type: where it is, and "text", "list" or "map"."""
    yield from _places(_info(cls), ())


def _places(kind: inspect.Type, at: Path) -> Iterator[tuple[Path, str]]:
    if len(at) > _MOST_DEPTH:
        return
    match _present(kind):
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _places(field.type, (*at, field.encode_name))
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield at, "list"
            yield from _places(item, (*at, ITEM))
        case inspect.DictType(value_type=value):
            yield at, "map"
            yield from _places(value, (*at, VALUE))
        case inspect.StrType() | inspect.AnyType() | inspect.RawType():
            yield at, "text"
        case _:
            return


def _present(kind: inspect.Type) -> inspect.Type:
    """Of a field that may be left out or of several types, what takes most."""
    if isinstance(kind, inspect.Metadata):
        return _present(kind.type)
    if isinstance(kind, inspect.UnionType):
        there = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        plain = (each for each in map(_present, there) if not isinstance(each, inspect.IntType | inspect.FloatType))
        return next(plain, _present(there[0]))
    return kind


def filled(cls: type[msgspec.Struct], text: Text) -> dict[str, Any]:
    """An object of a type as plain data, with every field written."""
    made: dict[str, Any] = _filled(_info(cls), (), text)
    return made


def _filled(kind: inspect.Type, at: Path, text: Text) -> Any:  # noqa: PLR0911 - one case per type
    match _present(kind):
        case inspect.StructType(fields=fields):
            if len(at) > _MOST_DEPTH:
                fields = tuple(field for field in fields if field.required)
            return {field.encode_name: _filled(field.type, (*at, field.encode_name), text) for field in fields}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [] if len(at) > _MOST_DEPTH else [_filled(item, (*at, ITEM), text)]
        case inspect.DictType(value_type=value):
            return {} if len(at) > _MOST_DEPTH else {text((*at, KEY)): _filled(value, (*at, VALUE), text)}
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
        case inspect.EnumType(cls=enum):
            return next(iter(enum)).value
        case inspect.LiteralType(values=values):
            return values[0]
        case _:
            return text(at)


def fat(cls: type[msgspec.Struct], at: Path, size: int, text: Text) -> dict[str, Any]:
    """An object of a type in which one text, list or map takes ``size`` bytes or more, and nothing else is written."""
    made: dict[str, Any] = _fat(_info(cls), (), at, size, text)
    return made


def _fat(kind: inspect.Type, done: Path, at: Path, size: int, text: Text) -> Any:
    kind = _present(kind)
    if not at:
        return _large(kind, done, size, text)
    match kind:
        case inspect.StructType(fields=fields):
            made = {}
            for field in fields:
                if field.encode_name == at[0]:
                    made[field.encode_name] = _fat(field.type, (*done, at[0]), at[1:], size, text)
                elif field.required:
                    made[field.encode_name] = _filled(field.type, (*done, field.encode_name), text)
            return made
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [_fat(item, (*done, ITEM), at[1:], size, text)]
        case inspect.DictType(value_type=value):
            return {text((*done, KEY)): _fat(value, (*done, VALUE), at[1:], size, text)}
        case _:
            return _filled(kind, done, text)


def _large(kind: inspect.Type, at: Path, size: int, text: Text) -> Any:
    match kind:
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return list(_up_to(size, lambda: _filled(item, (*at, ITEM), text)))
        case inspect.DictType(value_type=value):
            return dict(_up_to(size, lambda: (text((*at, KEY)), _filled(value, (*at, VALUE), text))))
        case _:
            part = text(at)
            return (part * (1 + size // len(part)))[:size]


@cache
def _info(cls: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(cls)


def _up_to(size: int, make: Callable[[], Any]) -> Iterator[Any]:
    each = max(1, len(msgspec.json.encode(make())))
    for _ in range(1 + size // each):
        yield make()
