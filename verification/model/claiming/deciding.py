"""What schedulers decide: devices for the claims of a group, Bindings, withdrawals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from verification.model.claiming.state import (
    NONE,
    Attempt,
    Choice,
    Config,
    Kind,
    Report,
    Rules,
    Scheduler,
    World,
    is_later_double,
)


def decisions(config: Config, rules: Rules, world: World, scheduler: Scheduler) -> Iterator[Attempt]:
    """Everything that a scheduler may decide on what it sees now."""
    for group in config.groups:
        waiting = [pod for pod in group if world.pods[pod].node == NONE]
        if not waiting:
            continue
        held = [pod for pod in waiting if pod in world.claims[config.uses[pod]].reserved]
        unusable = [
            pod
            for pod in held
            if (rules.own_only and (pod, world.pods[pod].rv) not in scheduler.own)
            or (rules.gives_back and is_later_double(world, config.uses[pod]))
            or (rules.waits and world.claims[config.uses[pod]].report is not Report.READY)
        ]
        if unusable:
            yield _withdrawal(config, world, unusable)
            continue
        found = list(_placements(config, world, waiting))
        for devices in found:
            yield _attempt(config, rules, world, dict(zip(waiting, devices, strict=True)))
        if not found and held and rules.withdraws:
            yield _withdrawal(config, world, held)


def _placements(config: Config, world: World, waiting: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to give the claims of these pods devices, on nodes that have a place for each."""
    held = {claim.device for claim in world.claims}
    options = []
    for pod in waiting:
        number = config.uses[pod]
        claim = world.claims[number]
        if claim.device != NONE:
            is_out = is_later_double(world, number) or (claim.report is Report.FAILED and claim.reserved)
            is_taken = is_out and pod not in claim.reserved
            options.append([] if is_taken else [claim.device])
        else:
            options.append([device for device in range(len(config.devices)) if device not in held])
    for devices in product(*options):
        by_claim = {config.uses[pod]: device for pod, device in zip(waiting, devices, strict=True)}
        is_one_each = all(by_claim[config.uses[p]] == d for p, d in zip(waiting, devices, strict=True))
        new = [device for number, device in by_claim.items() if world.claims[number].device == NONE]
        if is_one_each and len(set(new)) == len(new) and _have_places(config, world, devices):
            yield devices


def _have_places(config: Config, world: World, devices: tuple[int, ...]) -> bool:
    nodes = [config.devices[device] for device in devices]
    bound = [pod.node for pod in world.pods]
    return all(nodes.count(node) + bound.count(node) <= config.places[node] for node in set(nodes))


def _attempt(config: Config, rules: Rules, world: World, devices: dict[int, int]) -> Attempt:
    def is_ready(pod: int) -> bool:
        claim = world.claims[config.uses[pod]]
        return pod in claim.reserved or (not rules.reserves and claim.device != NONE)

    kind = Kind.BIND if all(map(is_ready, devices)) else Kind.PREPARE
    return Attempt(kind, tuple(Choice(kind, pod, device, world.pods[pod].rv) for pod, device in devices.items()))


def _withdrawal(config: Config, world: World, pods: list[int]) -> Attempt:
    return Attempt(
        Kind.WITHDRAW,
        tuple(Choice(Kind.WITHDRAW, pod, world.claims[config.uses[pod]].device, world.pods[pod].rv) for pod in pods),
    )
