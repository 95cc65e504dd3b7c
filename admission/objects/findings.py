"""What the webhooks find in Queues and PodGroups, and every text of theirs that users read.

Messages of KAI's rules are KAI's own, since people and tools look for them (kai-contract 2.1, 2.2 and erratum 5).
Field, value and what is allowed follow in parentheses, as in refusals of pods.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from gpu.translation import shown
from wire import go, names
from wire.crds import definition
from wire.crds.definition import Definition


class Rule(enum.Enum):
    """A rule that was broken. The value is its stable name."""

    #: A field has the wrong JSON type.
    TYPE = "type"
    #: A field has a value that the CRD's schema does not take.
    VALUE = "value"
    #: A field that the CRD's schema does not have: kubectl refuses it, and the API server drops it.
    UNKNOWN_FIELD = "unknown-field"

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
    """Yield each that can't be read, by the name of its field below ``spec``; None: it is absent.

    KAI's webhooks can't decode durations that Go can't read.
    """
    for field, value in said.items():
        if value is not None and not go.is_duration(value):
            yield Finding(rule=Rule.DURATION, field=f"spec.{field}", value=value)


def broken_patience(annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the patience of a Queue, if it is there and can't be read: the scheduler would go by its own."""
    value = annotations.get(names.PATIENCE)
    if value is not None and not go.is_duration(value):
        yield Finding(rule=Rule.DURATION, field=f"metadata.annotations[{names.PATIENCE}]", value=value)


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
#: Misfits of one object that are named.
_MOST: Final = 16
#: Parts of an object that rules read. What is left was written by controllers, or is the API server's.
_READ: Final = ("metadata", "spec")


def read(raw: Mapping[str, Any], kind: type[T]) -> T | Finding:
    """Return metadata and spec of an object as a struct; of a map that is absent the default.

    The first field of a wrong type is named. The API server checks types by the CRD's schema before it asks a webhook,
    so such a refusal is seen only in a cluster that has another schema.
    """
    parts = {name: raw[name] for name in _READ if raw.get(name) is not None}
    try:
        return msgspec.convert(parts, kind)
    except msgspec.ValidationError as error:
        return _finding(parts, str(error))


@cache
def _spec_schema(kind: Definition) -> definition.Schema:
    schema: definition.Schema = definition.of_object(kind.type)["properties"]["spec"]
    return schema


def misfits(raw: Mapping[str, Any], kind: Definition) -> Iterator[Finding]:
    """Yield what the schema of a kind refuses or drops of the spec of an object that ``read`` has read."""
    for each in islice(definition.misfits(_spec_schema(kind), raw.get("spec"), "spec"), _MOST):
        if each.allowed:
            value, words = str(each.value), {"allowed": each.allowed}
            yield Finding(rule=Rule.VALUE, field=each.field, value=value, words=words)
        else:
            near = get_close_matches(each.field.rpartition(".")[2], each.known, 1)
            yield Finding(
                rule=Rule.UNKNOWN_FIELD, field=each.field, value="", words={"known": tuple(near or each.known)}
            )


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


#: Characters that a name of an object has at most.
_LONGEST_NAME: Final = 253
#: Names that one text lists.
_MOST_NAMES: Final = 8
#: Characters of one warning that the API server passes on.
_LONGEST_WARNING: Final = 256


class Text(msgspec.Struct, frozen=True):
    """The message of a rule, and what it allows; "": the message says it."""

    message: str
    allowed: str = ""


TEXTS: Final[Mapping[Rule, Text]] = {
    Rule.TYPE: Text("{field} has the wrong type", "{allowed}"),
    Rule.VALUE: Text("{field} has a value that the API server does not take", "{allowed}"),
    Rule.UNKNOWN_FIELD: Text("{field} is no field, and is dropped; there is: {known}"),
    Rule.RESOURCES_MISSING: Text(
        "resources must be specified", "a map of cpu, memory and gpu, each with quota, limit and overQuotaWeight"
    ),
    Rule.PARENT_NOT_FOUND: Text('failed to get parent queue {parent}: queues.scheduling.run.ai "{parent}" not found'),
    Rule.PARENT_WITHOUT_RESOURCES: Text("parent queue {parent} has no resources defined"),
    Rule.QUOTA_ABOVE_PARENT: Text(
        "child queue {resource} quota ({found}) exceeds parent queue {parent} {resource} quota ({most})"
    ),
    Rule.SIBLINGS_ABOVE_PARENT: Text(
        "total children {resource} quota ({found}) exceeds parent queue {parent} {resource} quota ({most})"
    ),
    Rule.CHILD_ABOVE_QUOTA: Text(
        "child queue {child} {resource} quota ({found}) exceeds parent {resource} quota ({most})"
    ),
    Rule.CHILDREN_ABOVE_QUOTA: Text(
        "total children {resource} quota ({found}) exceeds parent {resource} quota ({most})"
    ),
    Rule.HAS_CHILDREN: Text(
        "cannot delete queue {queue}: it has child queues [{children}]",
        "a queue without children: delete them first, or give them another parent",
    ),
    Rule.BOTH_MINIMUMS: Text(
        "minMember and minSubGroup are mutually exclusive: set minMember ({most}) to schedule a fixed number of pods, "
        "or set minSubGroup to require a minimum number of child SubGroups, but not both",
        "one of the two",
    ),
    Rule.NAME_TWICE: Text("duplicate subgroup name {group}", "a name of its own"),
    Rule.SUB_GROUP_PARENT: Text("parent {found} of {group} was not found", "the name of a subgroup of this PodGroup"),
    Rule.SUB_GROUP_CYCLE: Text("cycle detected in subgroups", "the name of a subgroup that is not below {group}"),
    Rule.BOTH_MINIMUMS_OF_SUB_GROUP: Text(
        'subgroup "{group}": minMember and minSubGroup are mutually exclusive', "one of the two"
    ),
    Rule.MIN_SUB_GROUP_OF_LEAF: Text(
        'subgroup "{group}": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)', "no value"
    ),
    Rule.MIN_MEMBER_MISSING: Text("subgroup {group}: minMember is required", "a whole number from 0"),
    Rule.MIN_MEMBER_OF_PARENT: Text(
        'subgroup "{group}": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup '
        "instead",
        "no value",
    ),
    Rule.MIN_SUB_GROUP_TOO_LARGE: Text(
        'subgroup "{group}": minSubGroup ({found}) exceeds the number of direct child SubGroups ({most})'
    ),
    Rule.CHILDREN_TOO_FEW: Text("minSubGroup ({found}) exceeds the number of direct child SubGroups ({most})"),
    Rule.AMOUNT: Text("the {name} is not a valid amount", "-1 for unlimited, or a number from 0 to {most}"),
    Rule.WEIGHT: Text("the {name} is not a valid weight", "a number from 0 to {most}"),
    Rule.PRIORITY: Text("the priority does not fit into 64 bits", f"a whole number from {-(2**63)} to {2**63 - 1}"),
    Rule.DURATION: Text("the duration cannot be read", "numbers with units of Go's durations, such as 90s or 1h30m"),
    Rule.PARENT_CYCLE: Text(
        "queue {queue} would be below itself: [{path}]", 'a queue that is not below {queue}, or "" for the top'
    ),
    Rule.QUOTA_ABOVE_LIMIT: Text("{resource} quota ({found}) exceeds the queue's {resource} limit ({most})"),
    Rule.TOO_MANY_SUB_GROUPS: Text("the PodGroup has too many subgroups", "{most} subgroups"),
    Rule.OTHERS_UNKNOWN: Text(
        "the other queues could not be read, so parent, cycles, children and sums of quotas were not checked"
    ),
}


def told(finding: Finding) -> str:
    """Return the text of a finding: message, then field, value and what is allowed."""
    text = TEXTS[finding.rule]
    words = {"field": finding.field, **{key: _written(word) for key, word in finding.words.items()}}
    message = text.message.format(**words)
    if not text.allowed:
        return message
    value = msgspec.json.encode(shown(finding.value)).decode()
    return f"{message} ({finding.field} is {value}; allowed: {text.allowed.format(**words)})"


def warned(finding: Finding) -> str:
    """Return the text of a finding as a warning, cut to what the API server passes on."""
    text = told(finding)
    return text if len(text) <= _LONGEST_WARNING else f"{text[: _LONGEST_WARNING - 3]}..."


def _written(word: Word) -> str:
    """As Go writes it: a list of names without commas."""
    if isinstance(word, tuple):
        return " ".join([*map(_written, word[:_MOST_NAMES]), *(["..."] if len(word) > _MOST_NAMES else ())])
    text = str(word)
    return text if len(text) <= _LONGEST_NAME else shown(text)
