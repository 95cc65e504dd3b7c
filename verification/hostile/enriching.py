"""Runs with claims in which devices draw on counters of their pool, or have to get ready before pods are bound.

Devices of a part of the nodes take from one counter, as slices of one GPU do. Of another part they have to get ready: a
driver reports that late, that some failed, and of some nothing. After all faults it reports of each that it is ready.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from verification.hostile.actions import Action
from verification.hostile.claim_actions import COUNTED, Offered, PublishDevices, RunDriver
from verification.hostile.scenario import Scenario, scenario_of

#: Parts of the publications that draw on counters, and of the devices that have to get ready.
_DRAWING: Final = 0.6
_GETTING_READY: Final = (0.0, 0.5, 1.0)
_DRAWS: Final = (1, 2, 3, 4, COUNTED)


def scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    made = scenario_of(seed, kinds, with_claims=True)
    rng = random.Random(f"{seed}/enriched")
    actions = [*_enriched(rng, made.actions), _driver(rng, made)]
    return msgspec.structs.replace(made, actions=tuple(sorted(actions, key=lambda action: action.at_s)))


def _driver(rng: random.Random, made: Scenario) -> RunDriver:
    return RunDriver(
        at_s=0.0,
        until_s=made.calm_s,
        takes_s=rng.choice((0.0, 2.0, 20.0)),
        fails_per_mille=rng.choice((0, 100, 400)),
        silent_per_mille=rng.choice((0, 0, 100)),
        seed=rng.randrange(1_000_000),
    )


def _enriched(rng: random.Random, actions: Collection[Action]) -> Iterator[Action]:
    part = rng.choice(_GETTING_READY)
    for action in actions:
        if not isinstance(action, PublishDevices):
            yield action
            continue
        draws = rng.random() < _DRAWING
        devices = tuple(_device(rng, each, draws=draws, part=part) for each in action.devices)
        yield msgspec.structs.replace(action, devices=devices)


def _device(rng: random.Random, device: Offered, *, draws: bool, part: float) -> Offered:
    return msgspec.structs.replace(
        device,
        draws=rng.choice(_DRAWS) if draws and not device.shared_gib else 0,
        has_to_get_ready=rng.random() < part,
    )
