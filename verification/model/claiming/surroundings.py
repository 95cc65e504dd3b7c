"""Who else acts: the claim controller, another scheduler, users, and what ends processes."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.claiming.state import (
    FOREIGN,
    GONE,
    NONE,
    Claim,
    Config,
    Pod,
    Report,
    Scheduler,
    Step,
    World,
    changed,
)


def controllers(world: World) -> Iterator[Step]:
    """Pods that are gone leave ``reservedFor``; with the last of them the allocation goes. Devices get ready."""
    for number, claim in enumerate(world.claims):
        if claim.report is Report.PENDING:
            after = claim._replace(report=Report.READY, rv=claim.rv + 1)
            yield ("driver has ready the device of", number), _put(world, number, after)
        left = tuple(pod for pod in claim.reserved if pod == FOREIGN or world.pods[pod].node != GONE)
        if left != claim.reserved:
            after = claim._replace(reserved=left) if left else Claim()
            yield ("controller cleans", number), _put(world, number, after._replace(rv=claim.rv + 1))


def faults(config: Config, world: World) -> Iterator[Step]:
    """What may go wrong, as often as is left."""
    yield from _another(config, world)
    left = world.left
    for number, claim in enumerate(world.claims):
        if left.failures and claim.report is Report.PENDING:
            after = world._replace(left=left._replace(failures=left.failures - 1))
            failed = claim._replace(report=Report.FAILED, rv=claim.rv + 1)
            yield ("!driver fails with the device of", number), _put(after, number, failed)
    for number, pod in enumerate(world.pods):
        if left.deletions and pod.node != GONE:
            after = world._replace(left=left._replace(deletions=left.deletions - 1))
            gone = Pod(GONE, pod.rv + 1)
            yield ("!user deletes", number), after._replace(pods=changed(world.pods, number, gone))
        if left.edits and pod.node == NONE:
            after = world._replace(left=left._replace(edits=left.edits - 1))
            edited = pod._replace(rv=pod.rv + 1)
            yield ("!user edits", number), after._replace(pods=changed(world.pods, number, edited))
    for number, scheduler in enumerate(world.schedulers):
        if left.crashes and scheduler != Scheduler():
            after = world._replace(left=left._replace(crashes=left.crashes - 1))
            yield ("!crash of", f"s{number}"), after._replace(schedulers=changed(world.schedulers, number, Scheduler()))


def _another(config: Config, world: World) -> Iterator[Step]:
    """Another scheduler gives any device to a claim of its own, or allocates one of ours for a pod of its own."""
    if not world.left.foreigners:
        return
    after = world._replace(left=world.left._replace(foreigners=world.left.foreigners - 1))
    newest = 1 + max(claim.at for claim in world.claims)
    for number, claim in enumerate(world.claims):
        for device in range(len(config.devices)) if claim.device == NONE else ():
            taken = Claim(device, (FOREIGN,), newest, claim.rv + 1, config.fresh)
            yield ("!another allocates", number, device), _put(after, number, taken)


def _put(world: World, number: int, claim: Claim) -> World:
    return world._replace(claims=changed(world.claims, number, claim))
