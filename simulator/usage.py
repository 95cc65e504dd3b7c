"""Who uses which physical device at the moment, by what the machines themselves say: S1, S2 and S3.

A device has *holders* (the pod to which the device manager gave it: a whole-GPU pod or a reservation pod) and *tenants*
(containers with a share that see it). Shares add up as exact fractions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator import recorded
from simulator.devices import Device
from simulator.facts import PodFacts
from simulator.sharing import Share, asked, excess
from simulator.violations import Findings
from simulator.witness import Freed, Held, Started, Stopped
from wire import names

#: Where admission is not asked, so that nobody takes the GPUs from an image that shows all (kai-contract 1.3).
_UNGUARDED: Final = frozenset({"kube-system", names.SYSTEM_NAMESPACE})
#: Beyond its grace period: so long the share of a pod is kept that was not seen to end.
VANISHED_MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A running container with a share."""

    pod: PodFacts
    container: str
    share: Share


@dataclass(slots=True)
class Use:
    """How one device is used now."""

    holders: dict[str, PodFacts] = field(default_factory=dict)
    tenants: dict[tuple[str, str], Tenant] = field(default_factory=dict)
    #: When the reservation that held it for its users was lost; None: it was not, or is re-created.
    lost_at_s: float | None = None


@dataclass(slots=True)
class Usage:
    """Takes the machines' records, each with the facts of its pod, and judges the devices that it touches.

    ``loss_window_s``: for so long after the loss of a reservation with tenants another pod may be found on their device
    (docs/design/protocol.md, A lost or foreign reservation).
    """

    devices: Mapping[str, Device]
    findings: Findings
    loss_window_s: float
    #: Device -> pods that are bound to it, whether their containers run already or not.
    promised: Callable[[str], Iterable[PodFacts]]
    _uses: defaultdict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    #: (node, group) -> devices that its reservation pods ever held.
    _group_devices: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Group -> devices that its reservation pods hold now.
    _held_by_group: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Pod UID -> devices that it holds or sees, so that its end costs no search.
    _touched: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _lost: set[str] = field(default_factory=set)
    #: Pod UID -> until when its share is kept though it vanished.
    _kept_until_s: dict[str, float] = field(default_factory=dict)

    def vanished(self, pod: PodFacts, at_s: float) -> None:
        """A pod was deleted without its machine having said that it ended.

        Its share is kept for its grace period and a margin (docs/design/protocol.md, step 5). Who runs on after that
        does so on a machine that nobody reaches; against that nothing is promised to a user who forces a deletion.
        """
        grace_s = pod.raw["spec"].get("terminationGracePeriodSeconds", 30)
        self._kept_until_s[pod.uid] = at_s + grace_s + VANISHED_MARGIN_S

    def held(self, record: Held, pod: PodFacts) -> None:
        """A pod got devices from the device manager."""
        for uuid in record.devices:
            use = self._uses[uuid]
            use.holders[pod.uid] = pod
            self._touched[pod.uid].add(uuid)
            if pod.is_reservation:
                self._hold_for_groups(record.node, uuid, pod)
            self._judge(uuid, record.at_s)

    def freed(self, record: Freed) -> None:
        """A pod's devices are free again."""
        for uuid in sorted(self._touched[record.pod_uid]):
            use = self._uses[uuid]
            holder = use.holders.pop(record.pod_uid, None)
            if holder is None or not holder.is_reservation:
                continue
            for group in holder.groups:
                self._held_by_group[group].discard(uuid)
            if self._users(uuid):
                use.lost_at_s = record.at_s
                self._lost.add(uuid)

    def started(self, record: Started, pod: PodFacts) -> None:
        """A container runs, and sees devices."""
        self._judge_view(record, pod)
        for uuid, share in self._shares(record, pod).items():
            self._uses[uuid].tenants[pod.uid, record.container] = Tenant(pod, record.container, share)
            self._touched[pod.uid].add(uuid)
            self._judge(uuid, record.at_s)

    def _shares(self, record: Started, pod: PodFacts) -> dict[str, Share]:
        """What a container may have of each device that it sees."""
        if pod.is_reservation or pod.is_placed_by_hand:
            return {}
        if recorded.ways(pod):
            placed = recorded.placed(pod, self.devices)
            shares = placed.of(record.container) if placed is not None else {}
            return {uuid: shares.get(uuid, Share()) for uuid in record.devices}
        ask = pod.asks.get(record.container)
        if ask is None or ask.is_whole:
            return {}
        return {uuid: asked(ask, self.devices[uuid].mem_mib) for uuid in record.devices}

    def stopped(self, record: Stopped) -> None:
        """A container is gone."""
        for uuid in self._touched[record.pod_uid]:
            use = self._uses[uuid]
            use.tenants.pop((record.pod_uid, record.container), None)

    def judge_lost(self, at_s: float) -> None:
        """Judge the devices whose reservation was lost again: the window in which that is allowed may be over."""
        if not self._lost:
            return
        for uuid in sorted(self._lost):
            if self._users(uuid):
                self._judge(uuid, at_s)
            else:
                self._find_again(uuid)

    def is_contended(self, pod: PodFacts) -> bool:
        """Whether somebody else has a device that a pod was given: its whole GPU, or used by a pod of other groups."""
        return any(self._is_contended(grant.uuid, pod) for grant in pod.grants)

    def _is_contended(self, uuid: str, pod: PodFacts) -> bool:
        others = [user for user in self._users(uuid) if user.uid != pod.uid and not user.groups & pod.groups]
        return bool(others) or any(not holder.is_reservation for holder in self._uses[uuid].holders.values())

    def _hold_for_groups(self, node: str, uuid: str, reservation: PodFacts) -> None:
        for group in reservation.groups:
            self._group_devices[node, group].add(uuid)
            self._held_by_group[group].add(uuid)
        if all(pod.groups & reservation.groups for pod in self._users(uuid)):
            self._find_again(uuid)

    def _users(self, uuid: str) -> list[PodFacts]:
        """Pods with a share of a device: those that run there, and those that will."""
        return [*(tenant.pod for tenant in self._uses[uuid].tenants.values()), *self.promised(uuid)]

    def _find_again(self, uuid: str) -> None:
        self._uses[uuid].lost_at_s = None
        self._lost.discard(uuid)

    # --- S1 and S2 ---------------------------------------------------------------------------------------------------

    def _judge(self, uuid: str, at_s: float) -> None:
        use = self._uses[uuid]
        if use.lost_at_s is not None and at_s - use.lost_at_s < self.loss_window_s:
            return
        tenants = {key: t for key, t in use.tenants.items() if at_s < self._kept_until_s.get(t.pod.uid, math.inf)}
        counted = Use(holders=use.holders, tenants=tenants)
        self._judge_sum(uuid, counted, at_s)
        self._judge_groups(uuid, counted, at_s)
        self._judge_holders(uuid, counted, at_s)

    def _judge_sum(self, uuid: str, use: Use, at_s: float) -> None:
        found = excess((tenant.share for tenant in use.tenants.values()), self.devices[uuid].mem_mib)
        if found:
            shares = ", ".join(f"{t.pod.key} {_decimal(t.share.part)}" for t in use.tenants.values())
            self.findings.add("S1", at_s, f"{uuid} carries {found}: {shares}")

    def _judge_groups(self, uuid: str, use: Use, at_s: float) -> None:
        """All who use a device together must have one group in common."""
        sharers = [tenant.pod for tenant in use.tenants.values()]
        sharers += [holder for holder in use.holders.values() if holder.is_reservation]
        if sharers and not frozenset.intersection(*(pod.groups for pod in sharers)):
            told = ", ".join(f"{pod.key} in {'+'.join(sorted(pod.groups)) or 'no group'}" for pod in sharers)
            self.findings.add("S2", at_s, f"{uuid} belongs to several groups: {told}")

    def _judge_holders(self, uuid: str, use: Use, at_s: float) -> None:
        whole = [holder.key for holder in use.holders.values() if not holder.is_reservation]
        if whole and use.tenants:
            sharers = ", ".join(tenant.pod.key for tenant in use.tenants.values())
            self.findings.add("S2", at_s, f"{uuid} is the whole GPU of {whole[0]} and shared by {sharers}")
        for holder in use.holders.values():
            if holder.is_reservation:
                self._judge_spread(holder, uuid, at_s)

    def _judge_spread(self, holder: PodFacts, uuid: str, at_s: float) -> None:
        """No group has two devices at a time."""
        for group in sorted(holder.groups):
            devices = self._held_by_group[group]
            if devices - {uuid}:
                self.findings.add("S2", at_s, f"group {group} has several devices: {_listed(devices)}")

    # --- S3 ----------------------------------------------------------------------------------------------------------

    def _judge_view(self, record: Started, pod: PodFacts) -> None:
        """Compare what a container sees with what its pod was given."""
        ask = pod.asks.get(record.container)
        if pod.is_reservation or (ask is not None and ask.is_whole):
            if set(record.devices) != set(record.assigned):
                self._wrong_view(record, f"the device manager gave it {_listed(record.assigned)}")
        elif pod.has_claimed_share:
            if record.devices:
                self._wrong_view(record, "a claim gives it its share")
        elif recorded.ways(pod) and not pod.is_placed_by_hand:
            self._judge_recorded_view(record, pod)
        elif ask is None or pod.is_placed_by_hand:
            # A share is ours to give: a pod that went past us has none, even if it asks for one.
            is_ours = pod.scheduler == names.SCHEDULER_NAME and not pod.has_other_gpus
            if record.devices and is_ours and not (ask is None and pod.namespace in _UNGUARDED):
                self._wrong_view(record, "it asked for none" if ask is None else "nobody gave it any")
        else:
            self._judge_share_view(record, pod, ask.devices)

    def _judge_share_view(self, record: Started, pod: PodFacts, count: int) -> None:
        if len(record.devices) != count:
            self._wrong_view(record, f"it asked for shares of {count}")
            return
        self._judge_held(record, pod.groups)

    def _judge_recorded_view(self, record: Started, pod: PodFacts) -> None:
        """Containers of one seat see one device, and each as many as it asks."""
        placed = recorded.placed(pod, self.devices)
        if placed is None:
            self._wrong_view(record, "its pod's devices are those of nothing that its record asks")
            return
        asked = placed.of(record.container)
        if set(record.devices) != asked.keys():
            self._wrong_view(record, f"it was given {_listed(set(asked))}")
        elif asked:
            self._judge_held(record, {grant.group for grant in pod.grants if grant.uuid in asked})

    def _judge_held(self, record: Started, groups: Iterable[str]) -> None:
        """What it sees is what the reservations of these groups hold, and something of each."""
        by_group = {group: self._group_devices[record.node, group] for group in groups}
        given = set().union(*by_group.values())
        seen = set(record.devices)
        if not seen <= given or not all(seen & devices for devices in by_group.values()):
            self._wrong_view(record, f"the reservations of its groups hold {_listed(given)}")

    def _wrong_view(self, record: Started, why: str) -> None:
        text = f"container {record.container} of {record.pod} sees {_listed(record.devices)}, but {why}"
        self.findings.add("S3", record.at_s, text)


def _listed(uuids: set[str] | tuple[str, ...]) -> str:
    return ", ".join(sorted(uuids)) or "no device"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6g}"
