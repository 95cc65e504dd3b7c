"""What a scenario does to a node, the same for a real and a simulated one."""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from simulator.nodes.containers import EXIT_CODE, RUN_S
from tests.node.histories.telling import Telling, is_there
from tests.node.pods import PATIENCE_S, pod
from wire import names

Pod = dict[str, Any]
_POLL_S = 0.05
#: Prints what it sees, and runs until SIGTERM or SIGUSR1 or for a time; then it ends with a code.
_PROGRAM = """
import signal, sys
import pynvml
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
try:
    pynvml.nvmlInit()
    devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
except pynvml.NVMLError:
    devices = []
print("sees", *map(pynvml.nvmlDeviceGetUUID, devices), flush=True)
told = signal.sigtimedwait([signal.SIGTERM, signal.SIGUSR1], {run_s})
sys.exit(143 if told and told.si_signo == signal.SIGTERM else {code})
"""
_LONG_S = 100_000


class Stage(Protocol):
    """A node with two devices, and a history that it writes."""

    telling: Telling

    async def create(self, *pods: Pod) -> None:
        """Create pods."""
        ...

    async def delete(self, *names: str, grace_s: int | None = None) -> None:
        """Delete pods."""
        ...

    async def kill(self, name: str) -> None:
        """Kill the process of a pod's container."""
        ...

    async def end(self, name: str) -> None:
        """Have a program that runs for a time end by itself, with its code; on a simulated node its time passes."""
        ...

    async def stop_kubelet(self) -> None:
        """End kubelet; containers go on."""
        ...

    async def start_kubelet(self) -> None:
        """Start it again."""
        ...

    async def stop_plugin(self) -> None:
        """End the device plug-in."""
        ...

    async def start_plugin(self) -> None:
        """Start it again."""
        ...

    async def reboot(self, *, plugin: bool) -> None:
        """Let the machine boot; without the ``plugin`` that is still away when pods start again."""
        ...

    async def fall_ill(self, name: str) -> None:
        """Have the device of a pod called unhealthy; "": all are well."""
        ...

    async def seen(self, name: str) -> set[str]:
        """Wait until a program has said what it sees."""
        ...

    async def offers(self) -> int:
        """How many devices the node has for pods, as its object says."""
        ...


async def until(stage: Stage, name: str, wanted: str, *, within_s: float = PATIENCE_S) -> None:
    """Wait until a pod is in a state; raises AssertionError with the history when it isn't in time."""
    with anyio.move_on_after(within_s):
        while not is_there(stage.telling.latest(name), wanted):  # noqa: ASYNC110 - real nodes tell by no event
            await anyio.sleep(_POLL_S)
        return
    raise AssertionError(f"waited {within_s} s for {name} to be {wanted!r}; so far:\n{stage.telling.text}")


async def until_offered(stage: Stage, count: int) -> None:
    """Wait until the node offers so many devices, and say so."""
    with anyio.move_on_after(PATIENCE_S):
        while await stage.offers() != count:  # noqa: ASYNC110 - real nodes tell by no event
            await anyio.sleep(_POLL_S)
    stage.telling.say("node", f"offers {await stage.offers()}")


async def sees(stage: Stage, name: str) -> None:
    """Say what a pod's program sees."""
    stage.telling.sees(name, await stage.seen(name))


def on_node(node: str, name: str, *, gpus: int = 0, **spec: Any) -> Pod:
    """Return a pod that is bound by hand."""
    return program(pod(name, gpus=gpus, nodeName=node, **({} if gpus else {"runtimeClassName": None}) | spec))


def placed(name: str, *, fraction: str = "", gpus: int = 0) -> Pod:
    """Return a pod for Moorage."""
    wanted = pod(name, gpus=gpus, schedulerName=names.SCHEDULER_NAME)
    if fraction:
        wanted["metadata"]["annotations"] = {names.GPU_FRACTION: fraction}
    return program(wanted)


def program(wanted: Pod, *, run_s: int | None = None, code: int = 0) -> Pod:
    """Give a pod its program, in the form of both nodes."""
    for container in wanted["spec"]["containers"] + wanted["spec"].get("initContainers", []):
        text = _PROGRAM.format(run_s=_LONG_S if run_s is None else run_s, code=code)
        container["command"] = ["/usr/bin/python3", "-c", text]
    if run_s is not None:
        told = {RUN_S: str(run_s), EXIT_CODE: str(code)}
        wanted["metadata"]["annotations"] = wanted["metadata"].get("annotations", {}) | told
    return wanted
