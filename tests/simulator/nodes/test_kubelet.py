from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from kube.client.resources import CONFIG_MAPS, NODES, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.types import ResourceType
from simulator.nodes import node_object
from simulator.nodes.containers import EXIT_CODE, RUN_S
from simulator.nodes.device_manager import Checkpoints
from simulator.nodes.ground_truth import Freed, Started, Stopped
from simulator.nodes.node_set import NodeSet, NotSimulated
from simulator.nodes.shape import KubeletSettings, NodeShape, ReservationFault
from tests.simulator.machines import NAMESPACE, Machines, bound, machines, reservation
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod

VIRTUAL_TIME = True

FIELD = "moorage.dev/visible-devices.c0"
RESERVED = names.RESERVATION_NAMESPACE


def state_of(pod: Pod, container: str = "main") -> str:
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    (state,) = [status.state for status in statuses if status.name == container]
    assert state is not None
    if state.waiting:
        return str(state.waiting["reason"])
    return "Running" if state.running else "Terminated"


SLICE = "nvidia.com/mig-1g.10gb"


async def test_slices_are_handed_out_by_their_own_name() -> None:
    async with machines(["1x1x1GiB+2x1g.10gb"]) as m:
        both = await m.create(bound("both", gpus=1, limits={SLICE: "1"}))
        await anyio.sleep(5)
        late = await m.create(bound("late", limits={SLICE: "2"}))
        unknown = await m.create(bound("unknown", limits={"nvidia.com/mig-7g.80gb": "1"}))
        await anyio.sleep(5)
        node = await m.api.get(NODES, "node-0")
        assert node.status.allocatable is not None
        assert (node.status.allocatable[names.GPU_RESOURCE], node.status.allocatable[SLICE]) == ("1", "2")
        assert m.seen(both) == {"main": (0, 1)}
        assert m.seen(unknown) == {"main": ()}
        assert m.starts(late) == []
        assert (await m.pod("late")).status.message.endswith(
            f"unavailable for {SLICE}. Requested: 2, Available: 1, which is unexpected"
        )


@pytest.mark.parametrize("is_single", [False, True], ids=["mixed", "single"])
async def test_a_reservation_of_a_slice_tells_the_slice(is_single: bool) -> None:
    shape = NodeShape(name="node-0", slices=("1g.10gb",), is_single=is_single)
    resource = names.GPU_RESOURCE if is_single else SLICE
    async with machines(shapes=[shape]) as m:
        await m.create(reservation("r", resource=resource))
        await anyio.sleep(5)
        told = await m.pod("r", names.RESERVATION_NAMESPACE)
        (device,) = m.nodes.devices["node-0"]
        annotations = told.metadata.annotations or {}
        assert annotations[names.RESERVE_FOR_GPU_INDEX] == device.uuid
        assert annotations[names.DEVICE_MEMORY] == "10240"
        assert names.DEVICE_INDEX not in annotations
        given = [each for s in told.status.container_statuses or () for each in s.allocated_resources_status or ()]
        assert [(each.name, [d.resource_id for d in each.resources or ()]) for each in given] == [
            (resource, [device.uuid])
        ]


async def test_discovery_labels_say_how_slices_are_called() -> None:
    shapes = [
        NodeShape(name="mixed", slices=("1g.10gb",)),
        NodeShape(
            name="single", slices=("1g.10gb",) * 2, is_single=True, labels={names.NODE_GPU_PRODUCT: "NVIDIA-A100"}
        ),
    ]
    async with machines(shapes=shapes) as m:
        mixed, single = [(await m.api.get(NODES, name)).metadata.labels or {} for name in ("mixed", "single")]
        assert (mixed[names.NODE_MIG_STRATEGY], names.NODE_GPU_COUNT in mixed) == ("mixed", False)
        assert single[names.NODE_MIG_STRATEGY] == "single"
        assert single[names.NODE_GPU_PRODUCT] == "NVIDIA-A100-MIG-1g.10gb"
        assert (single[names.NODE_GPU_COUNT], single[names.NODE_GPU_MEMORY]) == ("2", "10240")


async def test_a_container_waits_for_the_key_of_its_config_map() -> None:
    ref = {"configMapKeyRef": {"name": "shared", "key": "NVIDIA_VISIBLE_DEVICES"}}
    async with machines() as m:
        pod = await m.create(bound("p", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": ref}]))
        await anyio.sleep(5)
        assert state_of(await m.pod("p")) == "CreateContainerConfigError"
        await m.api.create(CONFIG_MAPS, {"metadata": {"name": "shared"}, "data": {}}, namespace=NAMESPACE)
        await anyio.sleep(5)
        waiting = await m.pod("p")
        assert (waiting.status.phase, m.starts(pod)) == ("Pending", [])
        await m.api.patch(CONFIG_MAPS, "shared", {"data": {"NVIDIA_VISIBLE_DEVICES": "1"}}, namespace=NAMESPACE)
        await anyio.sleep(5)
        assert (await m.pod("p")).status.phase == "Running"
        assert m.seen(pod) == {"main": (1,)}


async def test_the_pods_own_environment_wins_over_the_device_plugin() -> None:
    async with machines() as m:
        pod = await m.create(bound("p", gpus=1, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]))
        await anyio.sleep(5)
        assert m.seen(pod) == {"main": (0, 1)}


async def test_an_annotation_is_read_at_each_start_of_the_container() -> None:
    env = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{FIELD}']"}}}
    ]
    async with machines() as m:
        manifest = bound("p", env=env, annotations={RUN_S: "10", EXIT_CODE: "1", FIELD: "0"})
        pod = await m.create(manifest)
        await anyio.sleep(5)
        assert m.seen(pod) == {"main": (0,)}
        await m.api.patch(PODS, "p", {"metadata": {"annotations": {FIELD: "1"}}}, namespace=NAMESPACE)
        await anyio.sleep(30)
        assert m.seen(pod) == {"main": (1,)}


async def test_a_container_can_be_killed_as_soon_as_it_is_seen_to_run() -> None:
    async with machines() as m:
        pod = await m.create(bound("p"))
        killed: list[str] = []

        def kill(kind: ResourceType, written: bytes, _is_there: bool) -> None:
            if kind.plural == "pods" and b'"running"' in written and not killed:
                killed.append(pod.metadata.uid)
                m.nodes["node-0"].kill(pod.metadata.uid)

        m.server.listen(kill)
        await anyio.sleep(5)
        counts = [each.restart_count for each in (await m.pod("p")).status.container_statuses or ()]
        assert (killed, counts) == ([pod.metadata.uid], [1])
        assert state_of(await m.pod("p")) == "Running"


async def test_an_unknown_device_keeps_the_container_from_starting() -> None:
    async with machines() as m:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-of-another-node"}]
        pod = await m.create(bound("p", env=env, restartPolicy="Never"))
        await anyio.sleep(5)
        assert (await m.pod("p")).status.phase == "Failed"
        assert m.starts(pod) == []


async def test_a_failed_init_container_fails_a_pod_that_is_never_restarted() -> None:
    broken = {"name": "first", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "9"}]}
    async with machines() as m:
        pod = await m.create(bound("p", initContainers=[broken], restartPolicy="Never"))
        await anyio.sleep(5)
        assert (await m.pod("p")).status.phase == "Failed"
        assert m.starts(pod) == []


async def test_a_sidecar_runs_beside_the_work_and_does_not_keep_the_pod_from_ending() -> None:
    sidecar = {"name": "aside", "image": "i", "restartPolicy": "Always"}
    async with machines() as m:
        pod = await m.create(bound("p", initContainers=[sidecar], restartPolicy="Never", annotations={RUN_S: "3"}))
        await anyio.sleep(2)
        assert {record.container for record in m.nodes.ground_truth.running} == {"aside", "main"}
        await anyio.sleep(5)
        assert (await m.pod("p")).status.phase == "Succeeded"
        assert m.nodes.ground_truth.running == ()
        assert m.starts(pod) == ["aside", "main"]


async def test_deletion_stops_the_containers_first_and_frees_the_devices_before_the_name() -> None:
    settings = KubeletSettings(shuffle_devices=False, image_visible_devices="", stop_s=20)
    async with machines(settings=settings) as m:
        pod = await m.create(bound("p", gpus=1, terminationGracePeriodSeconds=30))
        await anyio.sleep(5)
        await m.api.delete(PODS, "p", namespace=NAMESPACE)
        await anyio.sleep(10)
        assert await m.exists("p")
        assert [record.pod_uid for record in m.nodes.ground_truth.running] == [pod.metadata.uid]
        await anyio.sleep(15)
        assert not await m.exists("p")
        (stopped,) = [record for record in m.nodes.ground_truth.history if isinstance(record, Stopped)]
        (freed,) = [record for record in m.nodes.ground_truth.history if isinstance(record, Freed)]
        assert stopped.at_s <= freed.at_s == pytest.approx(25, abs=1)


async def test_a_grace_period_shorter_than_the_stop_cuts_it() -> None:
    settings = KubeletSettings(shuffle_devices=False, stop_s=60)
    async with machines(settings=settings) as m:
        await m.create(bound("p", terminationGracePeriodSeconds=3))
        await anyio.sleep(5)
        await m.api.delete(PODS, "p", namespace=NAMESPACE)
        await anyio.sleep(4)
        assert not await m.exists("p")


async def test_images_that_set_all_show_all_unless_the_pod_says_otherwise() -> None:
    async with machines(settings=KubeletSettings(image_visible_devices="all")) as m:
        careless = await m.create(bound("p"))
        guarded = await m.create(bound("q", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]))
        await anyio.sleep(5)
        assert (m.seen(careless), m.seen(guarded)) == ({"main": (0, 1)}, {"main": ()})


async def test_conditions_of_others_survive_what_kubelet_writes() -> None:
    async with machines() as m:
        await m.create(bound("p", annotations={RUN_S: "5"}, restartPolicy="Never"))
        await anyio.sleep(2)
        known = (await m.pod("p")).status.conditions or []
        bound_condition = {"type": "PodBound", "status": "True", "reason": "Bound"}
        conditions = [{"type": c.type, "status": c.status} for c in known] + [bound_condition]
        await m.api.patch(PODS, "p", {"status": {"conditions": conditions}}, namespace=NAMESPACE, subresource="status")
        await anyio.sleep(10)
        status = (await m.pod("p")).status
        assert status.phase == "Succeeded"
        assert "PodBound" in {condition.type for condition in status.conditions or ()}


# --- reservation pods -------------------------------------------------------------------------------------------------


async def test_the_real_reservation_process_tells_the_device_that_its_pod_got() -> None:
    async with machines() as m:
        await m.create(reservation("r"))
        await anyio.sleep(5)
        annotations = (await m.pod("r", RESERVED)).metadata.annotations or {}
        device = m.nodes["node-0"].devices[0]
        assert annotations[names.RESERVE_FOR_GPU_INDEX] == device.uuid
        assert annotations[names.DEVICE_MEMORY] == "1024"


@pytest.mark.parametrize(
    ("fault", "after_s", "told"),
    [
        (ReservationFault(delay_s=20), 10, None),
        (ReservationFault(delay_s=20), 30, "the truth"),
        (ReservationFault(silent=True), 3600, None),
        (ReservationFault(lie="GPU-lie"), 5, "GPU-lie"),
        (ReservationFault(broken="unable to initialize NVML: Unknown Error"), 60, None),
    ],
)
async def test_a_reservation_process_answers_late_never_or_wrong(
    fault: ReservationFault, after_s: float, told: str | None
) -> None:
    async with machines() as m:
        node = m.nodes["node-0"]
        node.faults.reservation = fault
        await m.create(reservation("r"))
        await anyio.sleep(after_s)
        annotations = (await m.pod("r", RESERVED)).metadata.annotations or {}
        expected = node.devices[0].uuid if told == "the truth" else told
        assert annotations.get(names.RESERVE_FOR_GPU_INDEX) == expected


async def test_a_broken_reservation_process_is_restarted_until_it_is_well() -> None:
    async with machines() as m:
        node = m.nodes["node-0"]
        node.faults.reservation = ReservationFault(broken="unable to initialize NVML: Unknown Error")
        await m.create(reservation("r"))
        await anyio.sleep(2)
        assert state_of(await m.pod("r", RESERVED), "resource-reservation") == "CrashLoopBackOff"
        node.faults.reservation = ReservationFault()
        await anyio.sleep(15)
        assert names.RESERVE_FOR_GPU_INDEX in ((await m.pod("r", RESERVED)).metadata.annotations or {})


async def test_a_refused_pod_is_told_as_refused_when_history_was_set_back_before_its_status_was_written() -> None:
    async with machines() as m:
        is_down = [True]

        def down(call: Call) -> Fault:
            is_status = call.verb == "patch" and call.subresource == "status" and call.kind.plural == "pods"
            return Fault(refuse_with=500) if is_status and is_down[0] else NOTHING

        m.server.faults.on_request.append(down)
        node = m.nodes["node-0"]
        node.reject_next(1)
        await m.create(bound("p"))
        await anyio.sleep(1)
        node.history_set_back()
        is_down[0] = False
        await anyio.sleep(10)
        told = (await m.pod("p")).status
        assert (told.phase, told.reason, told.container_statuses) == ("Failed", "UnexpectedAdmissionError", None)


async def test_a_pod_that_is_bound_again_while_its_containers_still_end_is_started_again() -> None:
    """Kubelet's pod workers note a restart for a pod of the same UID (restartRequested)."""
    async with machines(settings=KubeletSettings(stop_s=20.0)) as m:
        plain = bound("p", gpus=1)
        del plain["spec"]["nodeName"]
        pod = await m.create(plain)
        before, target = m.server.resource_version, ObjectReference(kind="Node", name="node-0")
        binding = Binding(metadata=ObjectMeta(name="p"), target=target)
        await m.api.bind(NAMESPACE, "p", binding)
        await anyio.sleep(5)
        m.nodes["node-0"].history_set_back()
        m.server.restore(before)
        await anyio.sleep(5)
        await m.api.bind(NAMESPACE, "p", binding)
        await anyio.sleep(60)
        assert m.starts(pod) == ["main", "main"]
        assert (await m.pod("p")).status.phase == "Running"
        await m.api.delete(PODS, "p", namespace=NAMESPACE)
        await anyio.sleep(60)
        assert not await m.exists("p")


# --- faults of nodes --------------------------------------------------------------------------------------------------


async def test_a_node_rejects_as_many_pods_as_it_is_told_to() -> None:
    async with machines() as m:
        m.nodes["node-0"].reject_next(1)
        await m.create(reservation("r"))
        await m.create(bound("q"))
        await anyio.sleep(5)
        assert (await m.pod("r", RESERVED)).status.reason == "UnexpectedAdmissionError"
        assert (await m.pod("q")).status.phase == "Running"


async def test_a_dead_node_runs_nothing_and_says_nothing() -> None:
    async with machines() as m:
        await m.create(bound("p", gpus=1))
        await anyio.sleep(5)
        m.nodes["node-0"].die()
        await anyio.sleep(1)
        before = m.server.resource_version
        await m.create(bound("q"))
        await anyio.sleep(600)
        assert m.nodes.ground_truth.running == ()
        assert m.server.resource_version == before + 1
        assert (await m.pod("p")).status.phase == "Running"


async def test_a_node_that_lost_its_disk_gives_devices_out_anew() -> None:
    settings = KubeletSettings(shuffle_devices=True)
    async with machines(["1x8x1GiB"], settings=settings) as m:
        pod = await m.create(bound("p", gpus=1))
        await anyio.sleep(5)
        before = m.seen(pod)
        m.nodes["node-0"].die()
        m.nodes["node-0"].boot(forget_devices=True)
        await anyio.sleep(5)
        runs = [record for record in m.nodes.ground_truth.history if isinstance(record, Started)]
        assert len(runs) == 2
        assert m.seen(pod) != before


async def test_a_pod_deleted_while_the_node_was_dead_is_cleaned_up_when_it_is_back() -> None:
    async with machines(["1x1x1GiB"]) as m:
        await m.create(bound("p", gpus=1))
        await anyio.sleep(5)
        m.nodes["node-0"].die()
        await m.api.delete(PODS, "p", namespace=NAMESPACE, grace_s=0)
        await anyio.sleep(5)
        m.nodes["node-0"].boot()
        pod = await m.create(bound("q", gpus=1))
        await anyio.sleep(5)
        assert m.seen(pod) == {"main": (0,)}


async def test_a_frozen_node_goes_on_working_and_catches_up_later() -> None:
    async with machines() as m:
        await m.create(bound("p", annotations={RUN_S: "10"}, restartPolicy="Never"))
        await anyio.sleep(5)
        m.nodes["node-0"].freeze()
        late = await m.create(bound("q"))
        await anyio.sleep(60)
        assert ((await m.pod("p")).status.phase, m.starts(late)) == ("Running", [])
        assert m.nodes.ground_truth.running == ()
        m.nodes["node-0"].thaw()
        await anyio.sleep(5)
        assert [(await m.pod(name)).status.phase for name in ("p", "q")] == ["Succeeded", "Running"]


# --- nodes ------------------------------------------------------------------------------------------------------------


async def test_nodes_register_with_their_cards() -> None:
    async with machines(["1x2x24GiB+1x80GiB", "1x0"]) as m:
        mixed, without = (await m.api.list(NODES)).items
        assert (mixed.metadata.labels or {})["nvidia.com/gpu.memory"] == "24576"
        assert (mixed.metadata.annotations or {})["moorage.dev/gpu-memory-mib"] == "24576,24576,81920"
        assert (mixed.status.allocatable or {})["nvidia.com/gpu"] == "3"
        assert "nvidia.com/gpu" not in (without.status.allocatable or {})
        assert [c.status for c in mixed.status.conditions or () if c.type == "Ready"] == ["True"]


async def test_a_node_tells_that_it_is_simulated_and_takes_pods_by_every_label_that_it_shows() -> None:
    async with machines(["1x0"]) as m:
        (node,) = (await m.api.list(NODES)).items
        labels = node.metadata.labels or {}
        assert labels["simulator.moorage.dev/simulated"] == "true"
        await m.create(bound("picky", nodeSelector=dict(labels)))
        await anyio.sleep(5)
        assert (await m.pod("picky")).status.phase == "Running"


async def test_a_label_that_an_administrator_adds_to_a_node_counts_for_its_pods() -> None:
    async with machines(["1x0"]) as m:
        await m.api.patch(NODES, "node-0", {"metadata": {"labels": {"example.com/flavor": "a"}}})
        await m.create(bound("picky", nodeSelector={"example.com/flavor": "a"}))
        await m.create(bound("other", nodeSelector={"example.com/flavor": "b"}))
        await anyio.sleep(5)
        assert (await m.pod("picky")).status.phase == "Running"
        assert (await m.pod("other")).status.reason == "NodeAffinity"


async def test_a_tainted_node_keeps_its_taint_when_it_comes_again_and_loses_it_when_told() -> None:
    shape = NodeShape(name="aside", tainted=True)
    async with machines(shapes=[shape]) as m:
        (node,) = (await m.api.list(NODES)).items
        assert [(t.key, t.effect) for t in node.spec.taints or ()] == [(node_object.SIMULATED, "NoSchedule")]
        for tainted in (True, False):
            again = [NodeShape(name="aside", tainted=tainted)]
            async with anyio.create_task_group() as group:
                await group.start(NodeSet(m.server.transport("again"), again, clock=m.clock, seed=1).run)
                group.cancel_scope.cancel()
            (node,) = (await m.api.list(NODES)).items
            assert len(node.spec.taints or ()) == tainted


async def test_a_node_that_nobody_simulates_is_left_alone() -> None:
    async with machines(["1x0"]) as m:
        real = {"metadata": {"name": "gpu-7", "labels": {"rack": "r1"}}}
        await m.api.create(NODES, real)
        nodes = NodeSet(m.server.transport("again"), [NodeShape(name="gpu-7")], clock=m.clock, seed=1)
        with pytest.raises(ExceptionGroup) as refused:
            await nodes.run()
        assert refused.group_contains(NotSimulated, match="gpu-7")
        assert (await m.api.get(NODES, "gpu-7")).metadata.labels == {"rack": "r1"}


async def test_nodes_that_are_removed_are_gone_and_others_stay() -> None:
    async with machines(["1x0"]) as m:
        nodes = NodeSet(m.server.transport("more"), [NodeShape(name="b"), NodeShape(name="c")], clock=m.clock, seed=1)
        async with anyio.create_task_group() as group:
            await group.start(nodes.run)
            group.cancel_scope.cancel()
        await m.api.delete(NODES, "c")
        await m.api.create(NODES, {"metadata": {"name": "c"}})
        await nodes.remove()
        assert sorted(node.metadata.name for node in (await m.api.list(NODES)).items) == ["c", "node-0"]


async def test_nodes_that_come_again_give_pods_the_devices_that_they_had(tmp_path: Path) -> None:
    def nodes(m: Machines, seed: int) -> NodeSet:
        shape = NodeShape(name="one", cards_mib=(1024,) * 8)
        checkpoints = Checkpoints(tmp_path)
        return NodeSet(m.server.transport("one"), [shape], clock=m.clock, seed=seed, checkpoints=checkpoints)

    async with machines(["1x0"]) as m:
        held: list[dict[str, list[int]]] = []
        gone: set[str] = set()
        for life in range(2):
            async with anyio.create_task_group() as group:
                await group.start((there := nodes(m, life)).run)
                if life == 0:
                    for name in ("goes", "fails", "stays", "stays-too"):
                        await m.create(bound(name, node="one", gpus=2))
                await anyio.sleep(10)
                manager = there["one"].intake.manager
                held.append({uid: [device.index for device in manager.held_by_pod(uid)] for uid in manager.pods})
                group.cancel_scope.cancel()
            if life == 0:
                gone = {(await m.pod(name)).metadata.uid for name in ("goes", "fails")}
                await m.api.delete(PODS, "goes", namespace=NAMESPACE, grace_s=0)
                failed = {"status": {"phase": "Failed"}}
                await m.api.patch(PODS, "fails", failed, namespace=NAMESPACE, subresource="status")
        assert len(held[0]) == 4
        assert held[1] == {uid: devices for uid, devices in held[0].items() if uid not in gone}


async def test_leases_are_renewed_by_nodes_that_live() -> None:
    settings = KubeletSettings(lease_period_s=10)
    async with machines(["2x0"], settings=settings) as m:
        await anyio.sleep(25)
        m.nodes["node-1"].die()
        await anyio.sleep(100)
        renewals = [entry.name for entry in m.server.audit if entry.resource == "leases" and entry.verb == "patch"]
        assert renewals.count("node-0") >= 11
        assert renewals.count("node-1") <= 4


@pytest.mark.parametrize("finalizers", [[], ["example.com/kept"]])
async def test_a_pod_is_deleted_once_however_late_the_events(finalizers: list[str]) -> None:
    def is_late(call: Call, _: bytes) -> float:
        return 0.5 if call.user == "nodes" else 0.0

    async with machines(prepare=lambda server: server.faults.on_watch_line.append(is_late)) as m:
        manifest = bound("p")
        manifest["metadata"]["finalizers"] = finalizers
        await m.create(manifest)
        await anyio.sleep(5)
        await m.api.delete(PODS, "p", namespace=NAMESPACE)
        await anyio.sleep(60)
        deletes = [entry for entry in m.server.audit if entry.verb == "delete" and entry.user == "nodes"]
        assert [entry.code for entry in deletes] == [200]


async def test_a_machine_that_fails_twice_comes_back_all_the_same() -> None:
    async with machines() as here:
        node = here.nodes["node-0"]
        for fail, mend in ((node.die, node.boot), (node.freeze, node.thaw)):
            fail()
            pod = await here.create(bound(f"p-{fail.__name__}"))
            await anyio.sleep(5)
            fail()
            await anyio.sleep(5)
            mend()
            await anyio.sleep(5)
            assert (await here.pod(pod.metadata.name)).status.phase == "Running"


@pytest.mark.parametrize(("again", "ended_after_s"), [(None, 30), (60, 30), (20, 20), (5, 12), (1, 12), (0, 12)])
async def test_an_end_is_cut_short_by_less_grace(again: int | None, ended_after_s: int) -> None:
    """It is deleted with 60 s, of which it takes 30, and again after 12 s."""
    async with machines(settings=KubeletSettings(stop_s=30.0)) as m:
        body = bound("p", gpus=1)
        body["spec"]["terminationGracePeriodSeconds"] = 60
        await m.create(body)
        await anyio.sleep(5)
        began = anyio.current_time()
        await m.api.delete(PODS, "p", namespace=NAMESPACE)
        await anyio.sleep(12)
        if again is not None:
            await m.api.delete(PODS, "p", namespace=NAMESPACE, grace_s=again)
        await anyio.sleep(60)
        (stopped,) = [record for record in m.nodes.ground_truth.history if isinstance(record, Stopped)]
        assert round(stopped.at_s - began, 3) == ended_after_s
