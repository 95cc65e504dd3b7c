"""What happens to workloads of most kinds: they wait and start whole, are suspended, restart, and are deleted."""

from __future__ import annotations

from collections.abc import Collection

from tests.controllers.workloads import Json, Workloads, busy, uids
from tests.e2e.cluster import PATIENCE_S, Pod, eventually

#: Where a kind is suspended: in its spec, or in its run policy.
Suspend = tuple[str, ...]
IN_SPEC: Suspend = ("suspend",)
IN_RUN_POLICY: Suspend = ("runPolicy", "suspend")


async def starts_whole(
    at: Workloads, name: str, count: int, *, waiting: int = 0, without: Collection[str] = ()
) -> dict[str, Pod]:
    """A workload waits whole until somebody else's pod goes. ``waiting``: how many pods, if fewer than then run."""
    await at.wait_whole(name, waiting or count)
    await at.on.delete("other")
    return await at.run_whole(name, count, without=without)


async def frees(at: Workloads, gpus: int) -> None:
    """Another pod gets this number of GPUs, though the workload may still exist."""
    await busy(at, gpus)
    await at.on.delete("other")


async def suspends(at: Workloads, name: str, where: Suspend = IN_SPEC) -> None:
    """A workload is suspended, and its pods go."""
    await at.patch(name, suspended(where))
    await at.until(name, lambda pods: not pods, f"the pods of {name} to go, which is suspended")


async def gives_its_place_back(
    at: Workloads, name: str, count: int, *, to: int, where: Suspend = IN_SPEC, waiting: int = 0
) -> None:
    """Suspended, a running workload gives its place back, and waits whole when it is resumed beside ``to`` GPUs."""
    before = await at.run_whole(name, count)
    await suspends(at, name, where)
    await busy(at, to)
    await at.patch(name, suspended(where, is_suspended=False))
    await starts_whole(at, name, count, waiting=waiting, without=uids(before))


async def takes_nothing(at: Workloads, name: str, where: Suspend = IN_SPEC) -> None:
    """One that is made suspended has neither pods nor groups; then it is resumed."""
    await at.condition(name, "Suspended")
    assert (await at.on.pods(), await at.groups()) == ({}, {})
    await at.patch(name, suspended(where, is_suspended=False))


async def restarts_in_its_pod(at: Workloads, name: str, victim: str, before: dict[str, Pod]) -> None:
    """A container that died is started again in its pod."""
    at.kill(before[victim])

    async def again() -> bool | None:
        found = (await at.on.pod(victim))["status"]["containerStatuses"][0]
        return (found["restartCount"] == 1 and "running" in found["state"]) or None

    await eventually(again, "the container to run again", within_s=PATIENCE_S)
    assert uids(await at.run_whole(name, len(before))) == uids(before)


async def leaves_nothing(at: Workloads, name: str) -> None:
    """A workload is deleted, and nothing of it is left."""
    await at.delete(name)
    await at.nothing_left()


async def shares_devices(at: Workloads, name: str, pods: dict[str, Pod], sharers: list[int]) -> None:
    """Each device is shared by the number of pods in ``sharers``; they give it back when their workload is deleted."""
    assert sorted(len(each) for each in at.on.sharers(pods).values()) == sharers
    await leaves_nothing(at, name)


async def ends_deleted(at: Workloads, name: str, count: int, state: str, where: Suspend = IN_SPEC) -> None:
    """A workload is deleted while it runs, waits or is suspended, and nothing of it is left."""
    await (at.run_whole(name, count) if state == "runs" else at.wait_whole(name, count))
    if state == "suspended":
        await suspends(at, name, where)
    await leaves_nothing(at, name)


def suspended(where: Suspend, *, is_suspended: bool = True) -> Json:
    """The change of a spec that suspends or resumes it."""
    changed: Json = {where[-1]: is_suspended}
    return {where[0]: changed} if len(where) > 1 else changed
