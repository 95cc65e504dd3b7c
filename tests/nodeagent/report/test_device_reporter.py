from __future__ import annotations

from typing import Any

import anyio
import pytest

from kube.client.resources import PODS
from nodeagent.core.devices import Machine
from nodeagent.core.report.devices import SETTLES_S, Outcome
from reservation.device import Device, Unreadable
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from tests.nodeagent.node import AGENT, Scene, scene
from wire import names

TOLD = {
    names.RESERVE_FOR_GPU_INDEX: "GPU-a",
    names.DEVICE_INDEX: "3",
    names.DEVICE_MEMORY: "81559",
    names.DEVICE_REPORTER: names.REPORTER_KUBELET,
}

RUNS = [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]


async def test_a_device_is_told_as_soon_as_kubelet_has_admitted_the_pod() -> None:
    async with scene() as it:
        await it.start()
        await it.reserve(started=False)
        it.kubelet.given = {"r": ("GPU-a",)}
        await anyio.sleep(5.0)
        assert (it.kubelet.asked, await it.annotations()) == ([], {})
        await it.admit()
        await anyio.sleep(0.1)
        assert await it.annotations() == TOLD
        assert it.counted.outcomes == [Outcome.TOLD]
        assert it.counted.took_s[0] < 0.05
        assert it.writes().count("patch pods") == 1


async def test_kubelet_is_asked_until_it_names_a_device() -> None:
    async with scene() as it:
        await it.start()
        await it.reserve()
        await anyio.sleep(1.0)
        assert 15 <= len(it.kubelet.asked) <= 21
        it.kubelet.given = {"r": ("GPU-a",)}
        await anyio.sleep(0.1)
        assert await it.annotations() == TOLD
        asked = len(it.kubelet.asked)
        await anyio.sleep(3600.0)
        assert len(it.kubelet.asked) == asked


async def test_of_many_pods_kubelet_is_asked_at_once_and_seldomer_than_it_answers() -> None:
    async with scene() as it:
        await it.start()
        for number in range(20):
            await it.reserve(f"r{number}")
        await anyio.sleep(1.0)
        assert len(it.kubelet.asked) < 100
        assert "list" in it.kubelet.asked
        it.kubelet.given = {f"r{number}": ("GPU-a",) for number in range(20)}
        await anyio.sleep(0.2)
        for number in range(20):
            assert await it.annotations(f"r{number}") == TOLD


async def test_pods_of_other_nodes_and_other_pods_are_not_read() -> None:
    async with scene() as it:
        await it.start()
        await it.reserve(node="node-b")
        it.kubelet.given = {"r": ("GPU-a",)}
        await anyio.sleep(10.0)
        assert (it.kubelet.asked, await it.annotations()) == ([], {})


async def test_an_answer_about_the_successor_of_a_pod_is_not_written() -> None:
    """The pod is deleted by force and made again while kubelet answers; the answer has no UID."""
    async with scene() as it:
        await it.start()
        await it.reserve()

        async def replaced() -> None:
            it.kubelet.meanwhile = None
            await it.api.delete(PODS, "r", namespace=names.RESERVATION_NAMESPACE, grace_s=0)
            await it.reserve(started=False)
            it.kubelet.given = {"r": ("GPU-a",)}

        it.kubelet.meanwhile = replaced
        await anyio.sleep(30.0)
        assert await it.annotations() == {}
        assert it.writes().count("patch pods") <= 1
        await it.admit()
        await anyio.sleep(0.1)
        assert await it.annotations() == TOLD


async def process_tells(it: Scene, device: str) -> None:
    told = {"metadata": {"annotations": {names.RESERVE_FOR_GPU_INDEX: device}}}
    await it.api.patch(PODS, "r", told, namespace=names.RESERVATION_NAMESPACE)


async def test_what_the_process_says_is_never_overwritten_and_the_device_reporter_is_withdrawn() -> None:
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        await it.admit(phase="Running", containerStatuses=RUNS)
        await process_tells(it, "GPU-b")
        await anyio.sleep(1.0)
        said = await it.annotations()
        assert (said[names.RESERVE_FOR_GPU_INDEX], names.DEVICE_REPORTER in said) == ("GPU-b", False)
        writes = len(it.writes())
        await anyio.sleep(3600.0)
        assert len(it.writes()) == writes
        assert it.counted.outcomes == [Outcome.TOLD, Outcome.WITHDRAWN, Outcome.CONTRADICTED]


async def test_a_patch_that_lands_late_does_not_overwrite_what_the_process_told_since() -> None:
    """Kubelet has lost its notes between the answer and the patch, and given the pod another device."""
    async with scene() as it:

        def late(call: Call) -> Fault:
            is_meant = call.user == AGENT and call.verb == "patch" and call.name == "r"
            return Fault(delay_s=2.0) if is_meant else NOTHING

        it.server.faults.on_request.append(late)
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        it.kubelet.given = {"r": ("GPU-b",)}
        await it.admit(phase="Running", containerStatuses=RUNS)
        await process_tells(it, "GPU-b")
        await anyio.sleep(30.0)
        assert await it.annotations() == {names.RESERVE_FOR_GPU_INDEX: "GPU-b"}
        assert [entry.code for entry in it.requests("patch") if entry.resource == "pods"] == [409]


async def test_nothing_is_told_of_a_pod_whose_process_keeps_failing() -> None:
    """While its container runs for a moment, it would look as if the process had told its device."""
    async with scene() as it:
        await it.start()
        await it.reserve()
        await it.admit(phase="Running", containerStatuses=[{**RUNS[0], "restartCount": 3}])
        it.kubelet.given = {"r": ("GPU-a",)}
        await anyio.sleep(60.0)
        assert await it.annotations() == {}
        assert it.counted.outcomes[-1] is Outcome.LEFT_TO_PROCESS
        asked = len(it.kubelet.asked)
        await anyio.sleep(3600.0)
        assert len(it.kubelet.asked) == asked


async def test_after_a_reboot_that_lost_kubelets_notes_its_new_word_is_told() -> None:
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        it.kubelet.is_down = True
        await anyio.sleep(10.0)
        it.kubelet.is_down, it.kubelet.lives, it.kubelet.given = False, 2, {"r": ()}
        await anyio.sleep(1.5)
        assert names.DEVICE_REPORTER not in await it.annotations()
        it.kubelet.given = {"r": ("GPU-b",)}
        await anyio.sleep(SETTLES_S)
        said = await it.annotations()
        assert (said[names.RESERVE_FOR_GPU_INDEX], said[names.DEVICE_REPORTER]) == ("GPU-b", names.REPORTER_KUBELET)


async def test_a_device_that_a_kubelet_which_starts_took_back_is_not_told_while_it_settles() -> None:
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(SETTLES_S + 1.0)
        assert await it.annotations() == TOLD
        it.kubelet.lives, it.kubelet.given = 2, {"r": ("GPU-b",)}
        await anyio.sleep(2.0)
        said = await it.annotations()
        assert (said[names.RESERVE_FOR_GPU_INDEX], names.DEVICE_REPORTER in said) == ("GPU-a", False)
        await anyio.sleep(SETTLES_S)
        said = await it.annotations()
        assert (said[names.RESERVE_FOR_GPU_INDEX], said[names.DEVICE_REPORTER]) == ("GPU-b", names.REPORTER_KUBELET)


async def test_what_was_taken_back_is_told_again_once_kubelet_says_it_again() -> None:
    """A kubelet that starts without the API server knows no pod of it at first."""
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        it.kubelet.lives, it.kubelet.given = 2, {}
        await anyio.sleep(10.0)
        assert names.DEVICE_REPORTER not in await it.annotations()
        it.kubelet.given = {"r": ("GPU-a",)}
        await anyio.sleep(10.0)
        assert await it.annotations() == TOLD


async def test_a_kubelet_that_starts_again_with_its_notes_costs_a_question_and_no_write() -> None:
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        writes, asked = len(it.writes()), len(it.kubelet.asked)
        it.kubelet.lives = 2
        await anyio.sleep(5.0)
        assert (len(it.writes()), len(it.kubelet.asked)) == (writes, asked + 1)


async def test_an_agent_that_starts_again_writes_nothing_that_is_there() -> None:
    async with scene() as it:
        first = await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(10.0)
        first.cancel()
        writes = len(it.writes())
        await it.start()
        await anyio.sleep(600.0)
        assert len(it.writes()) == writes


async def test_a_kubelet_that_does_not_answer_is_asked_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as it:
        it.kubelet.is_down = True
        await it.start()
        await it.reserve()
        await anyio.sleep(3.0)
        assert it.counted.without_answer > 10
        assert len([line for line in caplog.messages if "does not say which devices" in line]) == 1
        it.kubelet.is_down, it.kubelet.given = False, {"r": ("GPU-a",)}
        await anyio.sleep(13.0)
        assert await it.annotations() == TOLD


async def test_a_device_that_came_after_the_last_look_is_looked_for() -> None:
    async with scene() as it:
        it.machine[0] = Unreadable("the driver is not there yet")
        await it.start()
        it.kubelet.given = {"r": ("MIG-x",)}
        await it.reserve()
        await anyio.sleep(60.0)
        assert await it.annotations() == {}
        assert it.looks < 9
        it.machine[0] = Machine((), {"MIG-x": Device("MIG-x", None, 4864)})
        await anyio.sleep(30.0)
        said = await it.annotations()
        assert (said[names.RESERVE_FOR_GPU_INDEX], said[names.DEVICE_MEMORY]) == ("MIG-x", "4864")
        assert names.DEVICE_INDEX not in said


async def test_a_driver_that_hangs_keeps_no_other_pod_waiting() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(60.0)
        it.takes_s = 60.0
        it.kubelet.given = {"r": ("MIG-x",), "beside": ("GPU-b",)}
        await it.reserve()
        await anyio.sleep(5.0)
        await it.reserve("beside")
        await anyio.sleep(0.1)
        assert names.DEVICE_REPORTER in await it.annotations("beside")
        await anyio.sleep(600.0)
        assert it.looks < 12


async def test_an_agent_whose_driver_hangs_at_its_start_reads_reservations_and_kubelet_at_once() -> None:
    async with scene() as it:
        first = await it.start()
        await anyio.sleep(1.0)
        first.cancel()
        it.takes_s = 60.0
        it.kubelet.given = {"new": ("GPU-a",), "same": ("GPU-b",)}
        reported: dict[str, Any] = {names.RESERVE_FOR_GPU_INDEX: "GPU-b", names.DEVICE_REPORTER: names.REPORTER_KUBELET}
        await it.reserve("gone", **reported)
        await it.reserve("same", **reported)
        began_s = anyio.current_time()
        await it.start()
        assert anyio.current_time() - began_s < 1.0
        await it.reserve("new")
        await anyio.sleep(10.0)
        # kubelet knows no such pod any more: that needs no driver.
        assert names.DEVICE_REPORTER not in await it.annotations("gone")
        assert await it.annotations("same") == reported
        assert await it.annotations("new") == {}
        assert Outcome.UNKNOWN_DEVICE not in it.counted.outcomes
        # What the agent before it saw stays.
        assert (await it.gpu_node()).status.gpus == 2
        await anyio.sleep(53.0)
        assert await it.annotations("new") == TOLD


@pytest.mark.parametrize("status", [403, 409, 422, 500])
async def test_a_write_that_is_refused_is_tried_again_and_keeps_nobody_else_waiting(status: int) -> None:
    async with scene() as it:
        refused = True

        def refuse(call: Call) -> Fault:
            is_meant = refused and call.user == AGENT and call.verb == "patch" and call.name == "r"
            return Fault(refuse_with=status) if is_meant else NOTHING

        it.server.faults.on_request.append(refuse)
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",), "beside": ("GPU-b",)}
        await it.reserve()
        await anyio.sleep(8.0)
        await it.reserve("beside")
        await anyio.sleep(30.0)
        assert names.DEVICE_REPORTER in await it.annotations("beside")
        assert await it.annotations() == {}
        refused = False
        await anyio.sleep(60.0)
        assert await it.annotations() == TOLD


async def writes_in_an_hour(it: Scene) -> list[str]:
    before = len(it.writes())
    await anyio.sleep(3600.0)
    return it.writes()[before:]


async def test_an_hour_of_rest_costs_no_write() -> None:
    async with scene() as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",), "r2": ("GPU-b",)}
        await it.reserve()
        await it.reserve("r2")
        await it.admit("r2", phase="Running")
        await anyio.sleep(60.0)
        assert await writes_in_an_hour(it) == []
        assert len(it.requests("watch")) < 3 * 16 * 2


async def test_a_device_that_a_starting_kubelet_gave_a_pod_which_it_then_refuses_is_not_told() -> None:
    """It gives devices before it looks at the rest, and the pod was admitted once, by the kubelet before it."""
    async with scene() as it:
        await it.reserve()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.start()
        await anyio.sleep(5.0)
        await it.admit(phase="Failed")
        await anyio.sleep(60.0)
        assert await it.annotations() == {}
