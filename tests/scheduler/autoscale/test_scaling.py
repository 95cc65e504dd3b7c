"""Autoscaling: shares that fit nowhere bring nodes, and nothing of it stays (docs/design/autoscaling.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import PODS
from kube.lead.lease import LeaseSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.nodes.containers import RUN_S
from simulator.world import World
from tests.quick import few
from tests.scheduler.autoscaler import SETTINGS, Autoscaled, autoscaled
from tests.scheduler.stage import TEAM, api_of, bound, create, create_gang, find, phases, settle, share
from wire import names

SCALING = names.SCALE_ADJUST_NAMESPACE


def halves(count: int) -> list[dict[str, Any]]:
    return [share(f"p{number}") for number in range(count)]


def on_its_own(it: Autoscaled, name: str) -> dict[str, Any]:
    [found] = [raw for raw in it.scaling_pods if raw["metadata"]["name"] == name]
    return found


def writes(world: World) -> int:
    """Writes of ours so far that were carried out, events and leases aside."""
    return sum(
        entry.user.startswith(("scheduler", "binder"))
        and entry.verb not in {"get", "list", "watch"}
        and entry.resource not in {"events", "leases"}
        for entry in world.server.audit
    )


async def test_a_share_that_fits_nowhere_brings_a_node_and_runs_there_and_the_scaling_pod_goes() -> None:
    async with autoscaled("2x1x80GiB", spare=1) as it:
        await create(it.world, share("a", "0.7"))
        await settle(1)
        await create(it.world, share("b", "0.7"))
        await settle(8)
        assert it.scaling_names == ["team-a-b"]
        await settle(60)
        assert phases(it.world) == {"a": "Running", "b": "Running"}
        assert find(it.world, "b")["spec"]["nodeName"] == "node-1"
        assert it.scaling_pods == []
        assert it.made() == 1


async def test_the_scaling_pod_goes_before_its_place_is_taken_so_that_nobody_sees_both_and_adds_a_node() -> None:
    async with autoscaled("2x1x80GiB", spare=1) as it:
        await create(it.world, share("a", "0.7"), share("b", "0.7"))
        await settle(60)
        done = [
            (entry.verb, entry.namespace)
            for entry in it.world.server.audit
            if entry.resource == "pods" and not entry.subresource and entry.verb in {"create", "delete"}
        ]
        assert done[-2:] == [("delete", SCALING), ("create", names.RESERVATION_NAMESPACE)]


async def test_the_scaling_pod_is_kais() -> None:
    async with autoscaled("1x1x80GiB", spare=1, scales=False) as it:
        toleration = {"key": "pool", "operator": "Exists"}
        wanted = share("a", "0.7")
        wanted["spec"] |= {"nodeSelector": {"pool": "gpu"}, "tolerations": [toleration]}
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
        preferred = [{"weight": 1, "preference": term}]
        required = {"nodeSelectorTerms": [term]}
        wanted["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }
        }
        wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m", "memory": "2Gi"}}
        wanted["spec"]["containers"].append({"name": "side", "image": "i", "resources": {"requests": {"cpu": "1"}}})
        await create(it.world, wanted)
        await settle(8)
        [made] = it.scaling_pods
        source = find(it.world, "a")
        assert (made["metadata"]["namespace"], made["metadata"]["name"]) == (SCALING, "team-a-a")
        assert made["metadata"]["labels"] == {
            "app": "scaling-pod",
            "shared-gpu-pod-name": "a",
            "shared-gpu-pod-namespace": "team-a",
        }
        assert made["metadata"]["annotations"] == {names.SCALES_FOR: source["metadata"]["uid"]}
        spec = made["spec"]
        assert spec["schedulerName"] == "moorage-nobody"
        assert spec["restartPolicy"] == "Never"
        [container] = spec["containers"]
        assert container["image"] == "localhost/moorage/scalingpod:latest"
        amounts = {"cpu": "2500m", "memory": "2048Mi", "nvidia.com/gpu": "1"}
        assert container["resources"] == {"requests": amounts, "limits": amounts}
        assert {key: spec[key] for key in ("affinity", "nodeSelector")} == {
            key: source["spec"][key] for key in ("affinity", "nodeSelector")
        }
        assert toleration in spec["tolerations"]
        [condition] = made["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
        assert condition["reason"] == "Unschedulable"


@pytest.mark.parametrize(("count", "devices"), [(1, 1), (4, 2), (5, 3)])
async def test_as_many_gpus_as_the_shares_need_when_they_are_packed(count: int, devices: int) -> None:
    async with autoscaled("1x0", "4x1x80GiB", spare=4) as it:
        await create(it.world, *halves(count))
        await settle(8)
        assert len(it.scaling_pods) == devices
        await settle(120)
        assert set(phases(it.world).values()) == {"Running"}
        assert len(it.added) == devices
        assert it.scaling_pods == []


async def test_a_gang_brings_the_nodes_of_all_its_members_and_starts_whole() -> None:
    async with autoscaled("1x1x80GiB", "4x1x80GiB", spare=4) as it:
        await create_gang(it.world, "gang", 5, *(share(f"m{number}", "0.6") for number in range(5)))
        await settle(8)
        # One of them for the device that is there: an autoscaler counts on that one, too.
        assert len(it.scaling_pods) == 5
        assert bound(it.world) == set()
        await it.until_all_run(within_s=60)
        assert len(it.added) == 4


# --- nothing is held up ------------------------------------------------------------------------------------------


async def test_while_a_scaling_pod_waits_for_ever_others_get_their_devices() -> None:
    """KAI makes no reservation while any scaling pod is not scheduled (kai-contract 1.6)."""
    async with autoscaled("2x1x80GiB", spare=0) as it:
        blocked = share("blocked", "0.5")
        blocked["spec"]["nodeSelector"] = {"pool": "none-there"}
        await create(it.world, blocked)
        await settle(30)
        assert it.scaling_names == ["team-a-blocked"]
        await create(it.world, share("a", "0.7"), share("b", "0.7"))
        await settle(5)
        assert bound(it.world) == {"a", "b"}
        assert it.scaling_names == ["team-a-blocked"]


async def test_when_the_autoscaler_has_no_more_machines_all_is_quiet() -> None:
    async with autoscaled("1x0", "1x1x80GiB", spare=1) as it:
        await create(it.world, *halves(6))
        await settle(200)
        assert len(bound(it.world)) == 2
        before = writes(it.world)
        await settle(3600)
        assert writes(it.world) == before
        assert len(it.scaling_pods) == 2


# --- when scaling pods go ----------------------------------------------------------------------------------------


async def test_a_share_that_gets_room_elsewhere_needs_its_scaling_pod_no_more() -> None:
    async with autoscaled("1x1x80GiB", spare=0) as it:
        await create(it.world, share("a", "0.7"))
        await settle(5)
        await create(it.world, share("b", "0.7"))
        await settle(10)
        assert it.scaling_names == ["team-a-b"]
        await it.world.api.delete(PODS, "a", namespace=TEAM)
        await settle(45)
        assert phases(it.world) == {"b": "Running"}
        assert it.scaling_pods == []


async def test_a_share_that_is_deleted_leaves_no_scaling_pod_and_its_namesake_gets_a_new_one() -> None:
    async with autoscaled("1x0", spare=0) as it:
        await create(it.world, share("a"))
        await settle(10)
        before = on_its_own(it, "team-a-a")
        await it.world.api.delete(PODS, "a", namespace=TEAM, grace_s=0)
        await create(it.world, share("a"))
        await settle(10)
        assert it.scaling_names == ["team-a-a"]
        assert on_its_own(it, "team-a-a") != before
        await it.world.clear()
        assert it.scaling_pods == []


# --- whose they are ----------------------------------------------------------------------------------------------


def look_alike(namespace: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "team-a-a", "namespace": namespace, "labels": {"app": "scaling-pod", **labels}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
    }


OF_A = {"shared-gpu-pod-name": "a", "shared-gpu-pod-namespace": TEAM}


async def test_a_pod_in_our_namespace_that_names_no_source_is_left_alone_and_keeps_nobody_waiting_but_its_name() -> (
    None
):
    async with autoscaled("1x0", spare=0) as it:
        await api_of(it.world, "admin").create(PODS, look_alike(SCALING), namespace=SCALING)
        await create(it.world, share("a", "0.7"), share("b", "0.7"))
        await settle(20)
        assert it.scaling_names == ["team-a-a", "team-a-b"]
        assert names.SCALES_FOR not in (on_its_own(it, "team-a-a")["metadata"].get("annotations") or {})
        before = writes(it.world)
        await settle(50)
        assert writes(it.world) - before <= 1  # one more try a minute
        await it.world.api.delete(PODS, "team-a-a", namespace=SCALING, grace_s=0)


@pytest.mark.parametrize("run_s", ["0.1", ""], ids=["it exits at once", "it never does"])
async def test_one_of_kais_that_was_bound_goes_though_its_source_waits(run_s: str) -> None:
    """KAI deletes it when its image has run: one that can't be pulled keeps the GPU from the pod it stands for."""
    async with autoscaled("1x1x80GiB", spare=0) as it:
        left = look_alike(SCALING, **OF_A)
        left["metadata"]["annotations"] = {RUN_S: run_s} if run_s else {}
        left["spec"] |= {"nodeName": "node-0", "restartPolicy": "Never"}
        left["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await api_of(it.world, "admin").create(PODS, left, namespace=SCALING)
        await create(it.world, share("a"))
        await settle(30)
        assert phases(it.world) == {"a": "Running"}
        assert it.scaling_pods == []


@pytest.mark.parametrize("still_waits", [True, False])
async def test_kais_own_scaling_pods_are_taken_over(still_waits: bool) -> None:
    async with autoscaled("1x0", spare=0) as it:
        if still_waits:
            await create(it.world, share("a"))
        left = look_alike(SCALING, **OF_A)
        left["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await api_of(it.world, "admin").create(PODS, left, namespace=SCALING)
        await settle(10)
        assert it.scaling_names == (["team-a-a"] if still_waits else [])
        assert it.made() == 1  # KAI's
        await it.world.clear()


# --- faults ------------------------------------------------------------------------------------------------------


def struck(verb: str, subresource: str, number: int, fault: Fault) -> Callable[[Call], Fault | None]:
    """Strike the n-th write of a kind that is about scaling pods."""
    seen = 0

    def rule(call: Call) -> Fault | None:
        nonlocal seen
        if (call.verb, call.subresource, call.namespace) != (verb, subresource, SCALING):
            return None
        if not call.user.startswith("scheduler"):
            return None
        seen += 1
        return fault if seen == number else None

    return rule


_WRITES = [("create", ""), ("patch", "status"), ("delete", "")]
_FAULTS = {
    "refused": Fault(refuse_with=500),
    "answered wrongly": Fault(refuse_with=500, carried_out=True),
    "lost": Fault(lost="request"),
    "unheard": Fault(lost="answer"),
    "late": Fault(lost="request", lands_after_s=20.0),
    "answered late": Fault(answer_delay_s=8.0),
    "turned away": Fault(refuse_with=429),
}


@pytest.mark.parametrize("fault", few(_FAULTS.values(), 4), ids=_FAULTS.keys())
@pytest.mark.parametrize(("verb", "subresource"), _WRITES)
async def test_each_write_may_go_wrong(verb: str, subresource: str, fault: Fault) -> None:
    async with autoscaled("1x0", "2x1x80GiB", spare=2) as it:
        it.world.server.faults.on_request.append(struck(verb, subresource, 1, fault))
        await create(it.world, *halves(4))
        await it.until_all_run(within_s=400)


@pytest.mark.parametrize("number", few([1, 2], 2))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("verb", "subresource"), _WRITES)
async def test_a_crash_before_or_after_each_write(verb: str, subresource: str, when: str, number: int) -> None:
    """What it had told nobody it forgets; what is there says the rest."""
    async with autoscaled("1x0", "2x1x80GiB", spare=2) as it:
        crashes = 0
        scheduler = it.world.components["scheduler"]

        def is_it(call: Call) -> bool:
            nonlocal crashes
            found = (call.verb, call.subresource, call.namespace, call.user) == (
                verb,
                subresource,
                SCALING,
                "scheduler",
            )
            crashes += found
            return found and crashes == number

        def before(call: Call) -> Fault | None:
            if is_it(call):
                scheduler.crash()
                return Fault(lost="request")
            return None

        def after(call: Call, _: int) -> None:
            if is_it(call):
                scheduler.crash()

        if when == "before":
            it.world.server.faults.on_request.append(before)
        else:
            it.world.server.faults.on_answer.append(after)
        await create(it.world, *halves(4))
        with anyio.fail_after(200):
            while scheduler.is_running:  # noqa: ASYNC110 - nothing signals it
                await anyio.sleep(0.5)
        await it.world.restart(scheduler, pause_s=2.0)
        await it.until_all_run(within_s=400)


async def test_only_the_leader_makes_scaling_pods_and_the_next_one_goes_on_with_them() -> None:
    two = msgspec.structs.replace(SETTINGS, schedulers=2, election=LeaseSettings())
    async with autoscaled("1x0", "1x1x80GiB", spare=1, scales=False, settings=two) as it:
        await create(it.world, share("a"))
        await settle(30)
        makers = {
            entry.user for entry in it.world.server.audit if entry.namespace == SCALING and entry.verb == "create"
        }
        assert len(makers) == 1
        it.world.components[makers.pop()].crash()
        await settle(60)
        assert it.made() == 1
        await it.add()
        await settle(30)
        assert phases(it.world) == {"a": "Running"}
        assert it.scaling_pods == []


async def test_a_scaling_pod_that_was_made_and_not_told_is_told_by_whoever_comes() -> None:
    async with autoscaled("1x0", spare=0) as it:
        it.world.server.faults.on_request.append(struck("patch", "status", 1, Fault(refuse_with=500)))
        await create(it.world, share("a"))
        await settle(20)
        [made] = it.scaling_pods
        assert [c["reason"] for c in made["status"]["conditions"]] == ["Unschedulable"]


async def test_one_that_changed_before_it_was_told_is_told_at_its_next_version() -> None:
    async with autoscaled("1x0", spare=0) as it:
        it.world.server.faults.on_request.append(struck("patch", "status", 1, Fault(delay_s=3.0)))
        await create(it.world, share("a"))
        await settle(8)
        await api_of(it.world, "admin").patch(PODS, "team-a-a", {"metadata": {"labels": {"x": "y"}}}, namespace=SCALING)
        await settle(30)
        told = [
            entry for entry in it.world.server.audit if entry.namespace == SCALING and entry.subresource == "status"
        ]
        assert [entry.code for entry in told] == [409, 200]


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [63, 100, 253])
async def test_long_names_are_cut_where_kubernetes_demands_it(length: int) -> None:
    name = "a" * 62 + "-" + "b" * (length - 63) if length > 63 else "a" * length
    async with autoscaled("1x0", spare=0) as it:
        await create(it.world, share(name))
        await settle(10)
        [made] = it.scaling_pods
        labels = made["metadata"]["labels"]
        assert len(made["metadata"]["name"]) <= 253
        assert labels["shared-gpu-pod-name"] == name[:63].rstrip("-")
        await it.world.api.delete(PODS, name, namespace=TEAM, grace_s=0)
        await settle(10)
        assert it.scaling_pods == []
