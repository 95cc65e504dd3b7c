"""Machines that are replaced under their name, and kubelets that forget which devices their containers have."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from typing_extensions import override

from simulator.nodes.kubelet import Kubelet
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.lifecycle import LifeCycle, Patience
from verification.hostile.faults.nodes import Away, OnNode
from verification.hostile.faults.timed import LOST_DEVICE


class NodeReplaced(Away, frozen=True, kw_only=True, tag="node-replaced"):
    """Another machine registers under the node's name, with cards of ``cards_mib``: a repair, or an autoscaler's.

    ``forget_s``: the old one's Node is deleted before, and its pods by force, and everything is promised. None: the
    Node stays, and the new machine finds the old one's pods bound to it. Their devices are nowhere: the devices of
    their reservations are lost, so S2 can't be held (see node-reinstalled), nor may they be used further.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    cards_mib: tuple[int, ...]
    forget_s: float | None = None

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        if self.node in ground.sliced:
            return  # its slices are not the shape's
        life, node = LifeCycle(ground, kubelet), self.node
        kubelet.die()
        await life.neglected(Patience(forget_s=self.forget_s), self.for_s)
        kubelet.refit(msgspec.structs.replace(kubelet.shape, cards_mib=self.cards_mib, slices=()))
        ground.world.checker.refitted(node, kubelet.devices)
        await ground.insist(lambda: ground.world.nodes.refitted(node))
        kubelet.boot()


class KubeletForgets(OnNode, frozen=True, kw_only=True, tag="kubelet-forgets"):
    """The kubelet's process restarts without the device manager's checkpoint, while its containers go on.

    It takes the devices of what runs for free and gives them out again: a whole GPU may be one that a share uses, and
    nobody but kubelet could know. So S2 can't be held, nor may the group of such a device be used further, and its
    tenants may be evicted though nobody has it in the end (S7). Two reservations that tell one device are still never
    both used: S1 is promised, and S3.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE | {"S7"}

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        kubelet.restart_without_checkpoint()
