"""What the webhooks find in Queues and PodGroups: data, which messages.py puts into words.

Durations in specs of Queues and PodGroups: what Go can't read, KAI's webhooks can't decode.

Raw objects as structs, or the first field whose type is wrong.

The API server checks types by the CRD's schema before it asks a webhook, so these refusals are seen only in a cluster
that has another schema.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from wire import go, names


class Rule(enum.Enum):
    """A rule that was broken. The value is its stable name."""

    #: A field has the wrong JSON type.
    TYPE = "type"

    # KAI's rules of Queues (kai-contract 2.1, erratum 5).
    RESOURCES_MISSING = "resources-missing"
    PARENT_NOT_FOUND = "parent-not-found"
    PARENT_WITHOUT_RESOURCES = "parent-without-resources"
    QUOTA_ABOVE_PARENT = "quota-above-parent"
    SIBLINGS_ABOVE_PARENT = "siblings-above-parent"
    CHILD_ABOVE_QUOTA = "child-above-quota"
    CHILDREN_ABOVE_QUOTA = "children-above-quota"
    HAS_CHILDREN = "has-children"

    # KAI's rules of PodGroups (kai-contract 2.2), in its order.
    BOTH_MINIMUMS = "both-minimums"
    NAME_TWICE = "name-twice"
    SUB_GROUP_PARENT = "sub-group-parent"
    SUB_GROUP_CYCLE = "sub-group-cycle"
    BOTH_MINIMUMS_OF_SUB_GROUP = "both-minimums-of-sub-group"
    MIN_SUB_GROUP_OF_LEAF = "min-sub-group-of-leaf"
    MIN_MEMBER_MISSING = "min-member-missing"
    MIN_MEMBER_OF_PARENT = "min-member-of-parent"
    MIN_SUB_GROUP_TOO_LARGE = "min-sub-group-too-large"
    CHILDREN_TOO_FEW = "children-too-few"

    # Rules of our own.
    AMOUNT = "amount"
    WEIGHT = "weight"
    PRIORITY = "priority"
    DURATION = "duration"
    PARENT_CYCLE = "parent-cycle"
    QUOTA_ABOVE_LIMIT = "quota-above-limit"
    #: More subgroups than a review reads: a large PodGroup must not hold up reviews of pods.
    TOO_MANY_SUB_GROUPS = "too-many-sub-groups"
    #: The other queues could not be read, so nothing that concerns them was checked.
    OTHERS_UNKNOWN = "others-unknown"


Word = str | int | tuple[str, ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule. ``value`` as the object has it; ``words`` fill the text of the rule, names in tuples."""

    rule: Rule
    field: str
    value: str
    words: Mapping[str, Word] = {}


class Allowed(msgspec.Struct, frozen=True):
    """The object may be stored; ``warnings`` are shown to the user."""

    warnings: tuple[Finding, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The object may not be stored: at least one finding, in the order in which they are told."""

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()


Judgement = Allowed | Refused


def broken_durations(**said: str | None) -> Iterator[Finding]:
    """Yield each that can't be read, by the name of its field below ``spec``; None: it is absent."""
    for field, value in said.items():
        if value is not None and not _is_duration(value):
            yield Finding(rule=Rule.DURATION, field=f"spec.{field}", value=value)


def broken_patience(annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the patience of a Queue, if it is there and can't be read: the scheduler would go by its own."""
    value = annotations.get(names.PATIENCE)
    if value is not None and not _is_duration(value):
        yield Finding(rule=Rule.DURATION, field=f"metadata.annotations[{names.PATIENCE}]", value=value)


def _is_duration(text: str) -> bool:
    try:
        go.parse_ns(text)
    except go.MalformedDuration:
        return False
    return True


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
