"""Placement as it is told (scheduler-core.md, ranking.py), in plain Python over small lists, with exact fractions.

Slow and simple on purpose, and it shares no code with the product but the ids of new groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice

from gpu.reservation import group_id

NANO = 10**9


@dataclass
class Card:
    """A shared device. ``mem_mib`` 0: unknown."""

    group: str
    mem_mib: int
    used: Fraction
    is_open: bool = True

    @property
    def free(self) -> Fraction:
        return 1 - self.used


@dataclass
class Machine:
    name: str
    gpus: int
    cpu_milli: int
    pods: int
    smallest_mib: int = 0
    largest_mib: int = 0
    cards: list[Card] = field(default_factory=list)
    used_gpus: int = 0
    used_cpu_milli: int = 0
    used_pods: int = 0

    @property
    def free_gpus(self) -> int:
        return self.gpus - self.used_gpus - len(self.cards)

    @property
    def left_milli(self) -> int:
        return math.floor(1000 * (max(0, self.free_gpus) + sum((card.free for card in self.cards), Fraction(0))))


@dataclass
class Want:
    """One pod. ``fraction`` or ``mem_mib`` of ``devices`` devices, or ``gpus`` whole ones, or CPU only."""

    name: str
    cpu_milli: int = 0
    gpus: int = 0
    fraction: Fraction = Fraction(0)
    mem_mib: int = 0
    devices: int = 0

    def cost(self, card_mib: int, machine: Machine) -> Fraction | None:
        if not self.mem_mib:
            return self.fraction
        card = card_mib or machine.smallest_mib
        if card and self.mem_mib <= card:
            return Fraction(math.floor(Fraction(self.mem_mib, card) * NANO), NANO)
        if not card_mib and self.mem_mib <= machine.largest_mib:
            return Fraction(1)
        return None


Choice = tuple[str, tuple[tuple[str, Fraction], ...]]


def place(machines: list[Machine], want: Want, *, spread: bool) -> Choice | None:
    """Place and charge one pod: its machine, and group and share of each device."""
    ranks = {machine.name: _rank(machine, want, spread=spread) for machine in machines}
    options = [(rank, name) for name, rank in ranks.items() if rank is not None]
    if not options:
        return None
    name = min(options)[1]
    machine = next(m for m in machines if m.name == name)
    chosen = _choose(machine, want, spread=spread)
    assert chosen is not None
    machine.used_gpus += want.gpus
    machine.used_cpu_milli += want.cpu_milli
    machine.used_pods += 1
    given: list[tuple[str, Fraction]] = []
    for card, cost in chosen:
        if card not in machine.cards:
            machine.cards.append(card)
            machine.used_pods += 1
        card.used += cost
        assert card.used <= 1
        given.append((card.group, cost))
    return name, tuple(given)


def _rank(machine: Machine, want: Want, *, spread: bool) -> tuple[object, ...] | None:
    if machine.used_cpu_milli + want.cpu_milli > machine.cpu_milli or machine.used_pods + 1 > machine.pods:
        return None
    if want.gpus > machine.free_gpus:
        return None
    left, total = machine.left_milli, max(1, machine.gpus)
    emptiest = (-math.floor(Fraction(left * 2**20, total * 1000)),)
    if want.devices:
        chosen = _choose(machine, want, spread=False)
        if chosen is None:
            return None
        fresh = [card for card, _ in chosen if card not in machine.cards]
        tight = sum((card.free for card, _ in chosen if card in machine.cards), Fraction(0))
        return emptiest if spread else (len(fresh), tight, left)
    if want.gpus:
        return emptiest if spread else (machine.free_gpus, left)
    free = machine.cpu_milli - machine.used_cpu_milli
    by_cpu = -math.floor(Fraction(free * 2**20, max(1, machine.cpu_milli))) if spread else free
    return (machine.gpus > 0, by_cpu)


def _choose(machine: Machine, want: Want, *, spread: bool) -> list[tuple[Card, Fraction]] | None:
    """Distinct devices: the tightest that fit, then fresh ones; spread takes the emptiest, idle before fresh."""
    options: list[tuple[tuple[object, ...], Card, Fraction]] = []
    for card in machine.cards:
        cost = want.cost(card.mem_mib, machine)
        if card.is_open and cost is not None and cost <= card.free:
            rank = (-card.free, 0, card.group) if spread else (0, card.free, card.group)
            options.append((rank, card, cost))
    fresh_cost = want.cost(0, machine)
    room = min(machine.free_gpus - want.gpus, machine.pods - machine.used_pods - 1)
    if fresh_cost is not None:
        taken = {card.group for card in machine.cards}
        groups = (group_id(f"uid-{machine.name}", f"uid-{want.name}", number) for number in range(64))
        fresh_groups = (group for group in groups if group not in taken)
        for number, group in enumerate(islice(fresh_groups, max(0, min(room, want.devices)))):
            order = f"{number:03}"
            rank = (Fraction(-1), 1, order) if spread else (1, Fraction(0), order)
            options.append((rank, Card(group, 0, Fraction(0)), fresh_cost))
    options.sort(key=lambda option: option[0])
    if len(options) < want.devices:
        return None
    return [(card, cost) for _, card, cost in options[: want.devices]]
