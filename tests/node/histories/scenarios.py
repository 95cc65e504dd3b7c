"""The scenarios of which nodes have to tell the histories that are written down (test_histories.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from tests.node.histories.stage import Stage, on_node, placed, program, sees, until, until_offered

NODE = "node-a"
#: What a node takes in all.
MOST_PODS = 8
_REFUSED = "^Failed UnexpectedAdmissionError"


async def _start(stage: Stage, *names: str, gpus: int = 1, policy: str = "Never") -> None:
    for name in names:
        await stage.create(on_node(NODE, name, gpus=gpus, restartPolicy=policy))
        await until(stage, name, "runs")
        # A program that gets its signal before it listens is killed when its time is over.
        await stage.seen(name)


async def whole_gpus(stage: Stage) -> None:
    """Two fill the node, a third is refused; a device goes on to the next pod."""
    stage.telling.step("two pods fill the node")
    await _start(stage, "first", "second")
    await sees(stage, "first")
    await sees(stage, "second")
    stage.telling.step("a third comes")
    await stage.create(on_node(NODE, "third", gpus=1))
    await until(stage, "third", _REFUSED)
    stage.telling.step("the first goes")
    await stage.delete("first")
    await until(stage, "first", "gone")
    stage.telling.step("a fourth comes")
    await _start(stage, "fourth")
    await sees(stage, "fourth")


async def pods_that_end(stage: Stage) -> None:
    """A pod that is done, one that has failed; their devices are free."""
    stage.telling.step("two pods end by themselves")
    # One after the other: of two pods that come together kubelet may admit either first.
    # And they run until they are told to end: kubelet does not tell of a pod that has ended meanwhile that it ran.
    for name, code in (("done", 0), ("failed", 3)):
        await stage.create(program(on_node(NODE, name, gpus=1), run_s=100, code=code))
        await until(stage, name, "^Running")
        await stage.seen(name)
    await stage.end("done")
    await stage.end("failed")
    await until(stage, "done", "^Succeeded")
    await until(stage, "failed", "^Failed")
    stage.telling.step("one wants both devices")
    await _start(stage, "both", gpus=2)


async def a_container_restarts(stage: Stage) -> None:
    """Killed for the first time a container starts at once, on its device; then a back-off begins."""
    await _begin(stage, "a pod runs", "pod", policy="Always")
    stage.telling.step("its process is killed")
    await stage.kill("pod")
    await until(stage, "pod", "runs in life 2")
    stage.telling.step("and again")
    await stage.kill("pod")
    await until(stage, "pod", "runs in life 3")
    await sees(stage, "pod")


async def kubelet_restarts(stage: Stage) -> None:
    """What runs goes on untouched; what came and went meanwhile is seen to."""
    await _begin(stage, "two pods run", "stays", "goes")
    stage.telling.step("kubelet ends; a pod is to go, another comes")
    await stage.stop_kubelet()
    await stage.delete("goes")
    await until(stage, "goes", "is to go")
    await stage.create(on_node(NODE, "comes"))
    await until(stage, "comes", "^Pending")
    stage.telling.step("kubelet is back")
    await stage.start_kubelet()
    await until(stage, "goes", "gone")
    await until(stage, "comes", "runs")
    await until_offered(stage, 2)
    stage.telling.step("a pod takes the device that is free")
    await _start(stage, "next")


async def the_device_plugin_restarts(stage: Stage) -> None:
    """What runs goes on; meanwhile no device is offered, and who wants one is refused."""
    await _begin(stage, "a pod runs", "stays")
    stage.telling.step("the device plug-in ends")
    await stage.stop_plugin()
    await until_offered(stage, 0)
    await stage.create(on_node(NODE, "refused", gpus=1))
    await until(stage, "refused", _REFUSED)
    stage.telling.step("it is back")
    await stage.start_plugin()
    await until_offered(stage, 2)
    await _start(stage, "next")


async def a_reboot(stage: Stage) -> None:
    """Containers are lost; those that are to be restarted are, on their devices."""
    stage.telling.step("two pods run")
    await _start(stage, "always", policy="Always")
    await _start(stage, "never")
    stage.telling.step("the machine reboots")
    await stage.reboot(plugin=True)
    await until(stage, "always", "runs in life 2")
    await until(stage, "never", "^Failed")
    await sees(stage, "always")
    stage.telling.step("a pod takes the device that is free")
    await _start(stage, "next")


async def a_reboot_with_a_late_device_plugin(stage: Stage) -> None:
    """Who has a device is refused for good; others start again."""
    stage.telling.step("two pods run")
    await _start(stage, "with-device", policy="Always")
    await _start(stage, "without", gpus=0, policy="Always")
    stage.telling.step("the machine reboots, the device plug-in is late")
    await stage.reboot(plugin=False)
    await until(stage, "without", "runs in life 2")
    await until(stage, "with-device", _REFUSED)
    stage.telling.step("it is there")
    await stage.start_plugin()
    await until_offered(stage, 2)
    await _start(stage, "next", gpus=2)


async def a_forced_deletion(stage: Stage) -> None:
    """The device is given out at once, before the containers have ended."""
    await _begin(stage, "two pods fill the node", "stays", "goes")
    stage.telling.step("one is deleted by force, and the next one comes at once")
    await stage.delete("goes", grace_s=0)
    await until(stage, "goes", "gone")
    await _start(stage, "next")


async def a_device_falls_ill(stage: Stage) -> None:
    """Its pod goes on and is told; the node offers one less, and gives out the other one only."""
    await _begin(stage, "a pod runs", "pod")
    stage.telling.step("its device falls ill")
    await stage.fall_ill("pod")
    await until(stage, "pod", "Unhealthy")
    await until_offered(stage, 1)
    stage.telling.step("two more come")
    await _start(stage, "other")
    await stage.create(on_node(NODE, "refused", gpus=1))
    await until(stage, "refused", _REFUSED)
    stage.telling.step("it is well again")
    await stage.fall_ill("")
    await until(stage, "pod", "on a$")
    await until_offered(stage, 2)


async def no_room(stage: Stage) -> None:
    """One pod more than the node takes is refused; when one has gone there is room."""
    names = [f"pod-{number}" for number in range(MOST_PODS)]
    stage.telling.step("as many pods as the node takes")
    await stage.create(*(on_node(NODE, name) for name in names))
    for name in names:
        await until(stage, name, "runs")
    await stage.seen("pod-0")
    stage.telling.step("one too many")
    await stage.create(on_node(NODE, "refused"))
    await until(stage, "refused", "^Failed OutOfpods")
    stage.telling.step("one goes, another comes")
    await stage.delete("pod-0")
    await until(stage, "pod-0", "gone")
    await _start(stage, "next", gpus=0)


async def an_init_container(stage: Stage) -> None:
    """What an init container had, the container after it has."""
    wanted = on_node(NODE, "pod", gpus=1)
    wanted["spec"]["initContainers"] = [{**wanted["spec"]["containers"][0], "name": "before"}]
    program(wanted)["spec"]["initContainers"][0]["command"][2] = "import time; time.sleep(0.2)"
    stage.telling.step("a pod whose init container has a device, too")
    await stage.create(wanted)
    await until(stage, "pod", "runs")
    await sees(stage, "pod")
    stage.telling.step("the other device is free")
    await _start(stage, "other")


async def shares(stage: Stage) -> None:
    """With Moorage: the first share waits for its reservation, the second does not; a whole device is another one."""
    stage.telling.step("a first share")
    await stage.create(placed("one", fraction="0.5"))
    await until(stage, "one", "runs")
    await sees(stage, "one")
    stage.telling.step("a second one")
    await stage.create(placed("other", fraction="0.5"))
    await until(stage, "other", "runs")
    await sees(stage, "other")
    stage.telling.step("a whole device")
    await stage.create(placed("whole", gpus=1))
    await until(stage, "whole", "runs")
    await sees(stage, "whole")
    stage.telling.order()
    stage.telling.step("all go")
    await stage.delete("one", "other", "whole")
    for name in ("one", "other", "whole", "reservation-1"):
        await until(stage, name, "gone")


async def shares_and_a_reboot(stage: Stage) -> None:
    """With Moorage: shares come up on the device that their reservation holds."""
    stage.telling.step("two shares")
    for name in ("one", "other"):
        wanted = placed(name, fraction="0.5")
        wanted["spec"]["restartPolicy"] = "Always"
        await stage.create(wanted)
        await until(stage, name, "runs")
    stage.telling.step("the machine reboots")
    await stage.reboot(plugin=True)
    for name in ("one", "other", "reservation-1"):
        await until(stage, name, "runs in life 2")
    await sees(stage, "one")
    await sees(stage, "other")


async def _begin(stage: Stage, what: str, *names: str, policy: str = "Never") -> None:
    stage.telling.step(what)
    await _start(stage, *names, policy=policy)


Scenario = Callable[[Stage], Awaitable[None]]
#: With pods that are bound by hand.
BY_HAND: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        whole_gpus,
        pods_that_end,
        a_container_restarts,
        kubelet_restarts,
        the_device_plugin_restarts,
        a_reboot,
        a_reboot_with_a_late_device_plugin,
        a_forced_deletion,
        a_device_falls_ill,
        no_room,
        an_init_container,
    )
}
#: With all of Moorage.
WITH_MOORAGE: Mapping[str, Scenario] = {scenario.__name__: scenario for scenario in (shares, shares_and_a_reboot)}
