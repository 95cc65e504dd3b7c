"""Queues and PodGroups at the door of a real API server that asks a Moorage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.admission.objects.queues import Raw, gpus, raw, raw_group
from tests.cluster.doors import Door, opened
from tests.e2e.cluster import PATIENCE_S, eventually
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster

QUEUES = "/apis/scheduling.run.ai/v2/queues"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/team-a/podgroups"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def door(control_plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Door]:
    """An administrator, once the API server is seen to ask about both kinds."""
    moorage.check()
    async with opened(control_plane, {"team-a": {}}) as made:

        async def is_asked() -> bool | None:
            queue, _, _ = await made.call("POST", f"{QUEUES}?dryRun=All", raw("probe", resources=gpus(-2)))
            group, _, _ = await made.call("POST", f"{GROUPS}?dryRun=All", raw_group({"name": "a"}))
            return (queue, group) == (403, 403) or None

        await eventually(is_asked, "the API server to ask about Queues and PodGroups", within_s=PATIENCE_S)
        yield made
        await _clear(made)


async def test_a_tree_of_queues_is_made_changed_and_taken_down_with_the_texts_that_kubectl_shows(door: Door) -> None:
    status, answer, _ = await door.call("POST", QUEUES, raw("check-top", resources=gpus(-2)))
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'admission webhook "queues.admission.moorage.dev" denied the request: the gpu quota is not a valid amount '
        '(spec.resources.gpu.quota is "-2.0"; allowed: -1 for unlimited, or a number from 0 to 1152921504)'
    )
    status, answer, _ = await door.call("POST", QUEUES, {**raw("check-top"), "spec": {}})
    assert status == 403
    assert "denied the request: resources must be specified (" in answer["message"]

    # A child may come before its parent, as with KAI; once the parent is there it is known at once.
    child = raw("check-child", "check-top", resources=gpus(4))
    status, _, warnings = await door.call("POST", QUEUES, child)
    assert (status, _texts(warnings)) == (
        201,
        ['failed to get parent queue check-top: queues.scheduling.run.ai "check-top" not found'],
    )
    assert (await door.call("POST", QUEUES, raw("check-top", resources=gpus(8))))[::2] == (201, [])
    status, _, warnings = await door.call("POST", QUEUES, raw("check-other", "check-top", resources=gpus(5)))
    assert (status, _texts(warnings)) == (
        201,
        ["total children GPU quota (9) exceeds parent queue check-top GPU quota (8)"],
    )

    ring = {"spec": {"parentQueue": "check-child"}}
    status, answer, _ = await door.call("PATCH", f"{QUEUES}/check-top", ring, content_type=MERGE)
    assert status == 403
    assert "queue check-top would be below itself: [check-top check-child check-top]" in answer["message"]

    status, answer, _ = await door.call("DELETE", f"{QUEUES}/check-top")
    assert status == 403
    assert "cannot delete queue check-top: it has child queues [check-child check-other]" in answer["message"]
    for name in ("check-child", "check-other", "check-top"):
        assert (await door.call("DELETE", f"{QUEUES}/{name}"))[0] == 200


async def test_a_group_is_refused_and_taken_in_kais_words(door: Door) -> None:
    status, answer, _ = await door.call("POST", GROUPS, raw_group({"name": "a", "parent": "gone", "minMember": 1}))
    assert status == 403
    assert "denied the request: parent gone of a was not found (spec.subGroups[0].parent" in answer["message"]
    status, _, warnings = await door.call("POST", GROUPS, raw_group({"name": "a", "minMember": 1}, minSubGroup=2))
    assert (status, _texts(warnings)) == (201, ["minSubGroup (2) exceeds the number of direct child SubGroups (1)"])


async def test_while_admission_is_down_queues_and_groups_are_stored_and_their_metadata_never_asks(
    door: Door, moorage: Deployment
) -> None:
    moorage.kill("admission")
    try:
        broken = raw_group({"name": "a"})
        assert (await door.call("POST", GROUPS, broken))[0] == 201
        assert (await door.call("POST", QUEUES, raw("check-broken", resources=gpus(-2))))[0] == 201
    finally:
        moorage.start("admission")
        moorage.wait_for_webhooks()
    noted = {"metadata": {"annotations": {"note": "x"}}}
    assert (await door.call("PATCH", f"{GROUPS}/g", noted, content_type=MERGE))[0] == 200
    status, answer, _ = await door.call("PATCH", f"{GROUPS}/g", {"spec": {"queue": "q"}}, content_type=MERGE)
    assert status == 403
    assert "subgroup a: minMember is required" in answer["message"]
    # What was stored before is a warning, so a queue can be mended field by field.
    named = {"spec": {"displayName": "Broken"}}
    status, _, warnings = await door.call("PATCH", f"{QUEUES}/check-broken", named, content_type=MERGE)
    assert status == 200
    assert _texts(warnings)[0].startswith("the gpu quota is not a valid amount")


def _texts(warnings: object) -> list[str]:
    """The texts of ``299 - "text"`` headers."""
    assert isinstance(warnings, list)
    return [str(each).partition(' "')[2].removesuffix('"').replace('\\"', '"') for each in warnings]


async def _clear(door: Door) -> None:
    """Take away what a test left, children first."""
    _, found, _ = await door.call("GET", QUEUES)
    mine: list[Raw] = [each for each in found["items"] if each["metadata"]["name"].startswith("check-")]
    for each in sorted(mine, key=lambda one: not one["spec"].get("parentQueue")):
        await door.call("DELETE", f"{QUEUES}/{each['metadata']['name']}")
    await door.call("DELETE", f"{GROUPS}/g")
