"""Raw objects as structs, or the first field whose type is wrong.

The API server checks types by the CRD's schema before it asks a webhook, so these refusals are seen only in a cluster
that has another schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from admission.objects.findings import Finding, Rule

T = TypeVar("T", bound=msgspec.Struct)

#: What msgspec says of a value that it can't convert, and where that is.
_PLACE: Final = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `(?P<type>\w+)")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>\w+)`")
_STEP: Final = re.compile(r"[^.\[\]]+|\[\d+\]")
#: Types as people call them.
_CALLED: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a map",
    "array": "a list",
}
#: Parts of an object that rules read. What is left was written by controllers, or is the API server's.
_READ: Final = ("metadata", "spec")


def read(raw: Mapping[str, Any], kind: type[T]) -> T | Finding:
    """Return metadata and spec of an object as a struct; of a map that is absent the default."""
    parts = {name: raw[name] for name in _READ if raw.get(name) is not None}
    try:
        return msgspec.convert(parts, kind)
    except msgspec.ValidationError as error:
        return _finding(parts, str(error))


def _finding(parts: Mapping[str, Any], said: str) -> Finding:
    place = _PLACE.fullmatch(said)
    what, path = (place["what"], place["path"]) if place else (said, "")
    if missing := _MISSING.match(what):
        return _wrong(f"{path}.{missing['name']}", "", "a value")
    expected = _EXPECTED.match(what)
    allowed = _CALLED.get(expected["type"], expected["type"]) if expected else "a number of at most 64 bits"
    return _wrong(path, _value(parts, path), allowed)


def _wrong(field: str, value: str, allowed: str) -> Finding:
    return Finding(rule=Rule.TYPE, field=field, value=value, words={"allowed": allowed})


def _value(parts: Any, path: str) -> str:
    """The value at a path as JSON; "" where the path does not name one, as within a map of labels."""
    at = parts
    try:
        for step in _STEP.findall(path):
            at = at[int(step[1:-1])] if step[0] == "[" else at[step]
        return msgspec.json.encode(at).decode()
    except (LookupError, TypeError, ValueError, msgspec.EncodeError):
        return ""
