"""The role has what the table of kinds needs: a kind that is added without its right would never be grouped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from podgrouper.core.foreign.gangs import FORMS
from podgrouper.core.kinds import KINDS
from tests.e2e.workloads import PLURALS

ROOT = Path(__file__).parents[2]
#: Kinds of pods themselves, and what rules read by name or pass through on the way up.
BESIDE = {
    ("serving.knative.dev", "configurations"),
    ("serving.knative.dev", "revisions"),
    ("grove.io", "podcliques"),
    ("grove.io", "podcliquescalinggroups"),
    ("scheduler.grove.io", "podgangs"),
}
WRITES = {"create", "patch", "update", "delete", "deletecollection"}


def rules() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((ROOT / "podgrouper" / "rbac.yaml").read_text())
    found: list[dict[str, Any]] = next(one for one in documents if one["kind"] == "ClusterRole")["rules"]
    return found


def granted() -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_owners_of_every_kind_of_the_table_may_be_read_and_of_no_other() -> None:
    ours = {("", "pods"), ("scheduling.run.ai", "podgroups"), ("scheduling.k8s.io", "priorityclasses")}
    ours |= {("events.k8s.io", "events")}
    of_table = {(row.api_group, PLURALS[row.api_group, row.kind]) for row in KINDS if row.kind != "Pod"}
    of_others = {(form.api_group, "podgroups") for form in FORMS}
    assert granted().keys() - ours == of_table | of_others | BESIDE


def test_of_owners_nothing_but_reading_one_is_allowed() -> None:
    for (group, resource), verbs in granted().items():
        if (group, resource) not in {("", "pods"), ("scheduling.run.ai", "podgroups"), ("events.k8s.io", "events")}:
            assert not verbs & WRITES
    assert granted()["", "pods"] & WRITES == {"patch"}
    assert granted()["scheduling.run.ai", "podgroups"] & WRITES == {"create", "patch", "delete"}
