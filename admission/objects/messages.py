"""What users read about Queues and PodGroups: every text of the webhooks, in one table.

Messages of KAI's rules are KAI's own, since people and tools look for them (kai-contract 2.1, 2.2 and erratum 5).
Field, value and what is allowed follow in parentheses, as in refusals of pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from admission.objects.findings import Finding, Rule, Word
from gpu.translation import shown

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
