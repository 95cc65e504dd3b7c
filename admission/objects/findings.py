"""What the webhooks find in Queues and PodGroups: data; texts.py renders it."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec


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
