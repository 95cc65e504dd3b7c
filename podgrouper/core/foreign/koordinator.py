"""Gangs of Koordinator: its PodGroup (scheduling.sigs.k8s.io/v1alpha1), or annotations and labels of the pods.

`mode`, `waiting-time` and `total-number` have no effect here: a gang is placed whole, and nothing is held for it while
it waits.
"""

from __future__ import annotations

import json
from typing import Any, Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.rule_input import Case
from wire.gangs import (
    KOORDINATOR_GROUPS,
    KOORDINATOR_MATCH_POLICY,
    KOORDINATOR_MATCH_POLICY_ALIAS,
    KOORDINATOR_TOPOLOGY,
)

_ONLY_WAITING: Final = "only-waiting"
_MUST_GATHER: Final = "MustGather"


def shape(group: Json, _: Case) -> Shape:
    """`spec.minMember`, else 1."""
    check(group, fields.text(group, "metadata.name"))
    return Shape(minimum=fields.count(group, "spec.minMember") or 1)


def check(obj: Json, name: str) -> None:
    """Refuse what annotations of a PodGroup, or of a pod of gang ``name``, ask beyond a minimum."""
    written = fields.annotations_of(obj)
    policy = written.get(KOORDINATOR_MATCH_POLICY) or written.get(KOORDINATOR_MATCH_POLICY_ALIAS)
    if policy == _ONLY_WAITING:
        field = f"metadata.annotations[{KOORDINATOR_MATCH_POLICY}]"
        raise fields.not_carried_out(obj, field, policy, "once-satisfied, waiting-and-running")
    own = f"{fields.text(obj, 'metadata.namespace')}/{name}"
    gangs = _json(obj, KOORDINATOR_GROUPS, [])
    if not isinstance(gangs, list) or any(each != own for each in gangs):
        field = f"metadata.annotations[{KOORDINATOR_GROUPS}]"
        raise fields.not_carried_out(obj, field, written[KOORDINATOR_GROUPS], f"no gang beside {own}")
    spec = _json(obj, KOORDINATOR_TOPOLOGY, {})
    layers = fields.at(spec, "gatherStrategy") or []
    if not isinstance(layers, list) or any(fields.at(each, "strategy") == _MUST_GATHER for each in layers):
        field = f"metadata.annotations[{KOORDINATOR_TOPOLOGY}]"
        text = written[KOORDINATOR_TOPOLOGY]
        raise fields.not_carried_out(obj, field, text, "strategies PreferGather, which are a preference")


def _json(obj: Json, name: str, default: Any) -> Any:
    text = fields.annotations_of(obj).get(name)
    if not text:
        return default
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise fields.malformed(obj, f"metadata.annotations[{name}]", text, "JSON") from error
