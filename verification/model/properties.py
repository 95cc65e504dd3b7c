"""What must hold in every state, and what a state at rest looks like. Shares no code with the product.

Safety is judged by what containers really use: pods that were bound and have not ended, and containers that outlive
their vanished pods.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations

from verification.model.config import Config
from verification.model.state import DEVICE, FINISHED, GROUP, LIVE, PENDING, RUNNING, Holding, Left, World

FULL = 10


def violation(world: World, config: Config) -> str:
    """Which safety property a state violates, "" if none."""
    return (
        _overcommitted(world)
        or _unheld(world, config)
        or _bound_in_part(world, config)
        or (_given_away(world) if config.keeps_room else "")
        or (_bound_though_withdrawn(world) if config.heeds_fences else "")
    )


def _overcommitted(world: World) -> str:
    used: defaultdict[int, int] = defaultdict(int)
    groups: defaultdict[int, set[int]] = defaultdict(set)
    for group, _, device, share in running(world):
        used[device] += share
        groups[device].add(group)
    for device, share in used.items():
        if share > FULL:
            return f"S1: {share} tenths of a device are used"
        if len(groups[device]) > 1:
            return f"S2: a device is used by {len(groups[device])} groups"
    return ""


def _unheld(world: World, config: Config) -> str:
    if _is_lost(world.left, config.left):
        return ""
    for group, _, device, _ in running(world):
        held = world.resvs[group - GROUP]
        if held is None or held.dev != device:
            return "S2: a device is used and nobody holds it: anybody may be given it"
    return ""


def _bound_in_part(world: World, config: Config) -> str:
    for slot, pod in enumerate(world.pods):
        if pod is not None and pod.grant and len(pod.holdings) != len(config.shares[slot]):
            return f"S3: a pod was bound with {len(pod.holdings)} of {len(config.shares[slot])} devices"
    return ""


def _bound_though_withdrawn(world: World) -> str:
    """The scheduler that withdrew an attempt has decided again, or will: the old decision does not come back."""
    for pod in world.pods:
        if pod is not None and pod.grant and pod.grant[0] in pod.fences:
            return "S5: a pod was bound by an attempt that was withdrawn"
    return ""


def _given_away(world: World) -> str:
    """A gang whose plan stands can be carried out: others left the room that it names."""
    if not world.plan:
        return ""
    planned = dict(world.plan[1])
    unbound = [pod.uid for pod in world.pods if pod is not None and pod.uid in planned and not pod.grant]
    for at, held in enumerate(world.resvs):
        wanted = sum(share for uid in unbound for group, share in planned[uid] if group == GROUP + at)
        others = sum(entry.share for entry in held.book if entry.uid not in unbound) if held is not None else 0
        if wanted and wanted + others > FULL:
            return "S4: the room that a gang's plan names was given to others"
    return ""


def running(world: World) -> list[Holding]:
    """What containers really use."""
    holdings = [holding for pod in world.pods if pod is not None and pod.life != FINISHED for holding in pod.holdings]
    return holdings + [holding for ghost in world.ghosts for holding in ghost.holdings]


def _is_lost(left: Left, first: Left) -> bool:
    """Whether a reservation lost its device to others: then it may be given away, for a while."""
    losses = ("unreserves", "evictions", "node_losses", "swaps")
    return any(getattr(left, loss) < getattr(first, loss) for loss in losses)


def is_at_rest(world: World, config: Config) -> bool:
    """Nothing is left over, and every pod that fits is bound."""
    if (
        world.late
        or world.ghosts
        or world.left_behind
        or world.collector
        or any(world.schedulers)
        or any(world.requests)
    ):
        return False
    if any(binder.units for binder in world.binders) or any(pod and pod.life != LIVE for pod in world.pods):
        return False
    if not all(_is_tidy(world, GROUP + at, config) for at in range(len(world.resvs))):
        return False
    return _is_lost(world.left, config.left) or not _is_missed(world, config)


def _is_tidy(world: World, group: int, config: Config) -> bool:
    """Whether the reservation of a group is there for its bound tenants, all of them and nobody else, and tells truly.

    Where its image can't be pulled, it stays Pending.
    """
    bound = {pod.uid for pod in world.pods if pod is not None and any(group == one[0] for one in pod.holdings)}
    held = world.resvs[group - GROUP]
    if held is None:
        return not bound
    has_come_to_rest = held.phase == (RUNNING if config.pulls else PENDING) and held.uuid == held.dev != 0
    return bool(bound) and not held.deleting and has_come_to_rest and {e.uid for e in held.book} == bound


def _is_missed(world: World, config: Config) -> bool:
    """Whether an unbound pod would fit on what is free, or a gang is there in part, or would fit as a whole.

    A pod that is only committed directly can't open a device, so it may have to wait for another.
    """
    free = [FULL] * config.devices
    for _, _, device, share in running(world):
        free[device - DEVICE] -= share
    gang = [pod for slot in config.gang if (pod := world.pods[slot]) is not None]
    waiting = [config.shares[slot] for slot in config.gang if (pod := world.pods[slot]) is not None and not pod.grant]
    opens = len(gang) == len(config.gang) and all(config.mode(slot) != "direct" for slot in config.gang)
    if waiting and (len(waiting) < len(gang) or (opens and _fit(waiting, free))):
        return True
    return any(
        pod is not None
        and not pod.grant
        and slot not in config.gang
        and config.mode(slot) != "direct"
        and _fit([config.shares[slot]], free)
        for slot, pod in enumerate(world.pods)
    )


def _fit(asked: list[tuple[int, ...]], free: list[int]) -> bool:
    """Whether all fit, each on distinct devices."""
    if not asked:
        return True
    first, *rest = asked
    for chosen in permutations(range(len(free)), len(first)):
        after = list(free)
        for at, share in zip(chosen, first, strict=True):
            after[at] -= share
        if min(after) >= 0 and _fit(rest, after):
            return True
    return False
