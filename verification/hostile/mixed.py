"""A crowd: the pods of all systems on twenty nodes with cards of three sizes, 500 of them, under many kinds of faults.

The small runs (scenario.py) look for mistakes in few pods; this one shows that what holds there holds in a crowd, with
shares in fractions, in MiB and in units of other systems beside each other on cards of several sizes.
"""

from __future__ import annotations

import random
from typing import Final

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from simulator.nodes import shape
from verification.hostile import dialects, workload
from verification.hostile.dialects import Words
from verification.hostile.faults import drawing
from verification.hostile.faults.kinds import KINDS, OF_AGENTS
from verification.hostile.scenario import Scenario, Switches

SHAPES: Final = ("7x4x24GiB", "7x4x40GiB", "6x8x80GiB")
PODS: Final = 500
_DURATION_S: Final = 600.0
#: Of the pods that ask for a part of a device, this part is in the words of another system than KAI.
_SHARE: Final = 0.85
#: The plugin's notation: a device is four replicas of ``nvidia.com/sharedgpu`` (I1).
_REPLICAS: Final = "gpu:sharedgpu:4"
#: Faults under which every invariant is promised, but for a restored etcd, which takes half of the crowd away. No node
#: has an agent here, and without one an image that can't be pulled is as a reservation that says nothing.
_LEFT_OUT: Final = OF_AGENTS | {"etcd-restored", "reservation-unpullable"}
PROMISED: Final = tuple(sorted(name for name, k in KINDS.items() if not k.unpromised and name not in _LEFT_OUT))


def mixed(seed: int, *, pods: int = PODS) -> Scenario:
    """Make such a scenario from a seed: at least one fault of each kind that excuses nothing."""
    nodes = shape.parse(SHAPES)
    actions = workload.draw(_rng(seed, "actions"), shapes=nodes, duration_s=_DURATION_S, size=pods)
    forms = (*dialects.FORMS, _replicas)
    actions = dialects.said_otherwise(_rng(seed, "dialects"), actions, shapes=nodes, share=_SHARE, forms=forms)
    rng = _rng(seed, "faults")
    each = (drawing.draw(rng, nodes, kinds=(kind,), duration_s=_DURATION_S) for kind in PROMISED)
    faults = tuple(sorted((fault for drawn in each for fault in drawn), key=lambda fault: fault.at_s))
    return Scenario(
        seed=seed,
        shapes=SHAPES,
        settings=Switches(dialects=DialectSettings(replicas=ReplicasSettings(entries=(_REPLICAS,)))),
        actions=actions,
        faults=faults,
        calm_s=max((*(action.at_s for action in actions), *(fault.end_s for fault in faults))),
    )


def _replicas(rng: random.Random, _card_mib: int) -> Words:
    return {"nvidia.com/sharedgpu": rng.choice(("1", "1", "2"))}, {}, {}


def _rng(seed: int, purpose: str) -> random.Random:
    return random.Random(f"mixed/{seed}/{purpose}")
