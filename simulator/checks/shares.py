"""Who uses each device, what pods are promised of it by what they asked (S1 to S3), and slices destroyed (S18).

What a pod asks is read from its record, which is documented, and is read here by that page and nothing else
(docs/reference/record.md).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator.checks.facts import Ask, Json, PodFacts
from simulator.checks.violations import Findings
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Freed, Held, Record, Started, Stopped
from wire import names

_NANO: Final = 10**9
#: Above this card, 512 GiB, memory is charged in full (docs/reference/dialects.md, T4).
_LARGEST_SHORT_MIB: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Share:
    """This part of a device, asked as a part; or an amount of MiB, of which ``part`` is exactly the part."""

    part: Fraction = Fraction(0)
    is_memory: bool = False

    def mib(self, card_mib: int) -> int:
        """Return what it is on a card of ``card_mib``: all whole MiB that are in it."""
        return int(self.part * card_mib)

    def least_nano(self, card_mib: int) -> int:
        """Return what has to be charged for it at least: parts in full, memory up to less than a nano short."""
        nano = self.part * _NANO
        return int(nano) if self.is_memory and card_mib <= _LARGEST_SHORT_MIB else -int(-nano // 1)


def asked(ask: Ask, card_mib: int) -> Share:
    """What an ask is of each of its devices."""
    return Share(ask.charge(card_mib), ask.mem_mib is not None)


def excess(shares: Iterable[Share], card_mib: int) -> str:
    """Say what of a card of ``card_mib`` these shares pass together; "" if they don't.

    Judged twice, since memory and parts of a device don't measure alike: MiB are whole, and a ledger in nano-GPU may
    hold a part of memory less than one nano short. So all parts together are one device, but for that, and all MiB are
    those of the card and not one more.
    """
    there = list(shares)
    mib = sum(share.mib(card_mib) for share in there)
    if mib > card_mib:
        return f"{mib} MiB of {card_mib}"
    parts = sum((share.part for share in there), Fraction(0))
    short = sum(share.is_memory for share in there)
    is_over = parts >= 1 + Fraction(short, _NANO) if short else parts > 1
    return f"{float(parts):.10g} of a device" if is_over else ""


#: CDI devices that are mounts and variables, and no GPU.
_BESIDE_GPUS: Final = (names.VIEW_DEVICE_PREFIX, names.LIMITS_DEVICE_PREFIX)
_LISTS: Final = {"c": "containers", "i": "initContainers"}


@dataclass(frozen=True, slots=True)
class Part:
    """What one container asks of one device. Parts of one ``seat`` are of the same device, all others of another.

    ``profile``: of a MIG slice of this profile, "" for a card. ``percent``: asked of its compute.
    """

    key: str
    container: str
    seat: str
    fraction: Fraction
    mem_mib: int
    is_sidecar: bool
    profile: str = ""
    percent: int = 0

    def charge(self, card_mib: int) -> Fraction:
        """Return the part of a card of ``card_mib``."""
        return Fraction(self.mem_mib, card_mib) if self.mem_mib else self.fraction


Way = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """One way on real devices. ``parts``: device -> its parts."""

    parts: Mapping[str, Way]
    cards: Mapping[str, Device]

    def of(self, container: str) -> dict[str, Share]:
        """Return what a container may have of each of its devices."""
        found: dict[str, Share] = {}
        for uuid, parts in self.parts.items():
            mine = [part.charge(self.cards[uuid].mem_mib) for part in parts if part.container == container]
            if mine:
                found[uuid] = Share(sum(mine, Fraction(0)), self._is_memory(uuid))
        return found

    def share(self, uuid: str) -> Share:
        """Return what the pod may have of a device at one time."""
        return Share(self.charge(uuid), self._is_memory(uuid))

    def _is_memory(self, uuid: str) -> bool:
        """Whether MiB of it are asked: parts of one seat are asked in one way."""
        return any(part.mem_mib for part in self.parts.get(uuid, ()))

    def charge(self, uuid: str) -> Fraction:
        """Return what a device has to hold at one time."""
        card_mib = self.cards[uuid].mem_mib if uuid in self.parts else 0
        return self._at_one_time(uuid, lambda part: part.charge(card_mib))

    def percent(self, uuid: str) -> int:
        """Return how much of the compute of a device is asked at one time."""
        return int(self._at_one_time(uuid, lambda part: Fraction(part.percent)))

    def _at_one_time(self, uuid: str, amount: Callable[[Part], Fraction]) -> Fraction:
        """Init containers end before the next start, but for sidecars."""
        parts = self.parts.get(uuid, ())
        beside = most = Fraction(0)
        for part in sorted((p for p in parts if p.key.startswith("i")), key=lambda p: int(p.key[1:])):
            now = beside + amount(part)
            most = max(most, now)
            beside = now if part.is_sidecar else beside
        regular = sum((amount(part) for part in parts if part.key.startswith("c")), Fraction(0))
        return max(most, beside + regular)


def ways(pod: PodFacts) -> tuple[Way, ...]:
    """All that will do, best first; nothing for a pod without a record, or one that asks for no part of a device."""
    text = pod.annotations.get(names.GPU_RECORD)
    if not text:
        return ()
    try:
        said = json.loads(text)
        listed = [said.get("asks") or [], *(said.get("alternatives") or ())]
        found = tuple(tuple(_parts(asks, pod.raw["spec"])) for asks in listed)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return ()
    return found if any(found) else ()


def placement_of(pod: PodFacts, cards: Mapping[str, Device]) -> Placed | None:
    """Find the way that its Binding took; None where its devices are those of none, or none was asked.

    A record may leave a choice (``alternatives``): which was taken shows in the devices that the Binding hands to each
    container, and where that leaves several, in the charges of its grant.
    """
    shown = {
        key.removeprefix(names.VISIBLE_DEVICES_PREFIX): [
            each.removeprefix(names.CDI_DEVICE_PREFIX) for each in value.split(",") if not each.startswith(_BESIDE_GPUS)
        ]
        for key, value in pod.annotations.items()
        if key.startswith(names.VISIBLE_DEVICES_PREFIX)
    }
    nanos = {grant.uuid: grant.nano for grant in pod.grants}
    on_devices = [on for way in ways(pod) if (on := _on_devices(way, shown)) is not None and _are_of_kind(on, cards)]
    candidates = [Placed(parts, cards) for parts in on_devices]
    charged = (each for each in candidates if all(_is_charged(each, uuid, nanos) for uuid in each.parts))
    return next(charged, candidates[0] if candidates else None)


def _are_of_kind(on: Mapping[str, Way], cards: Mapping[str, Device]) -> bool:
    """Whether each device is there, and a card or a slice of the profile that was asked."""
    return on.keys() <= cards.keys() and all(
        part.profile == cards[uuid].profile for uuid, parts in on.items() for part in parts
    )


def _is_charged(placement_of: Placed, uuid: str, nanos: Mapping[str, int]) -> bool:
    """Whether a device is charged with just that, but for less than the nano that can't be said."""
    nano = nanos.get(uuid)
    return nano is not None and abs(placement_of.charge(uuid) * _NANO - nano) < 1


def _on_devices(way: Way, shown: Mapping[str, Sequence[str]]) -> dict[str, Way] | None:
    """Each part on its device, in the order in which a container is shown them; None if that can't be."""
    asked: dict[str, list[Part]] = {}
    for part in way:
        asked.setdefault(part.key, []).append(part)
    if {key: len(parts) for key, parts in asked.items()} != {key: len(uuids) for key, uuids in shown.items()}:
        return None
    seats: dict[str, str] = {}
    found: dict[str, Way] = {}
    for key, parts in asked.items():
        for part, uuid in zip(parts, shown[key], strict=True):
            if seats.setdefault(part.seat, uuid) != uuid:
                return None
            found[uuid] = (*found.get(uuid, ()), part)
    return found if len(found) == len(seats) else None


def _parts(asks: Sequence[Json], spec: Json) -> Iterator[Part]:
    number = 0
    for ask in asks:
        key = str(ask["container"])
        container = spec[_LISTS[key[0]]][int(key[1:])]
        nano, mem_mib = int(ask.get("nano", 0)), int(ask.get("memMib", 0))
        if not (nano or mem_mib):
            continue
        for _ in range(int(ask.get("count", 1))):
            number += 1
            seat = str(ask.get("seat") or f"/{number}")
            is_sidecar = key.startswith("i") and container.get("restartPolicy") == "Always"
            profile, percent = str(ask.get("mig", "")), int(ask.get("computePercent", 0))
            yield Part(key, container["name"], seat, Fraction(nano, _NANO), mem_mib, is_sidecar, profile, percent)


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
    """S1, S2 and S3, by what the machines themselves say of each physical device at the moment.

    A device has *holders* (the pod to which the device manager gave it: a whole-GPU pod or a reservation pod) and
    *tenants* (containers with a share that see it). Shares add up as exact fractions.

    Takes the machines' records, each with the facts of its pod. ``loss_window_s``: for so long after the loss of a
    reservation with tenants another pod may be found on their device (docs/design/protocol.md, A lost or foreign
    reservation).
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
        if ways(pod):
            placed = placement_of(pod, self.devices)
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
        elif ways(pod) and not pod.is_placed_by_hand:
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
        placed = placement_of(pod, self.devices)
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


_ALL_COMPUTE: Final = 100


@dataclass(slots=True)
class Promises:
    """S1 and S2 from the API objects, whether pods run or not.

    What bound pods are promised of a device is one device at most, and so is what they ask of its compute; those that
    run in a mode run in the same. Devices are ``cards`` by UUID. ``pods``: the newest version of each pod that was ever
    seen, by UID.
    """

    findings: Findings
    cards: Mapping[str, Device]
    pods: Mapping[str, PodFacts]
    _promised: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def to(self, uuid: str) -> list[PodFacts]:
        """Pods on the API server that a device is promised to."""
        return [self.pods[uid] for uid in sorted(self._promised.get(uuid, ()))]

    def take(self, pod: PodFacts, *, is_gone: bool, before: frozenset[str], at_s: float) -> None:
        """Take a version of a pod that is among ``pods`` now; ``before``: what the version before it was promised."""
        for uuid in self._note(pod, is_gone=is_gone, before=before):
            self._judge(uuid, at_s)
            self._judge_compute(uuid, at_s)
            self._judge_modes(uuid, at_s)

    def _note(self, pod: PodFacts, *, is_gone: bool, before: frozenset[str]) -> Iterator[str]:
        """Note the devices that a pod is promised now; yield those to which it is new."""
        now: frozenset[str] = frozenset() if is_gone or pod.has_ended or not pod.node else pod.promised
        for uuid in before - now:
            self._promised[uuid].discard(pod.uid)
        new = sorted(uuid for uuid in now if pod.uid not in self._promised[uuid])
        for uuid in new:
            self._promised[uuid].add(pod.uid)
        yield from new

    def _judge(self, uuid: str, at_s: float) -> None:
        card = self.cards.get(uuid)
        if card is None:
            return
        shares = {pod.key: self._share(pod, uuid, card) for pod in self.to(uuid)}
        found = excess(shares.values(), card.mem_mib)
        if found:
            told = ", ".join(f"{key} {float(share.part):.6g}" for key, share in sorted(shares.items()))
            self.findings.add("S1", at_s, f"{uuid} is promised to {told}, {found}")

    def _share(self, pod: PodFacts, uuid: str, card: Device) -> Share:
        if ways(pod):
            placed = placement_of(pod, self.cards)
            return placed.share(uuid) if placed is not None else Share()
        shares = [asked(ask, card.mem_mib) for ask in pod.asks.values()]
        return Share(sum((share.part for share in shares), Fraction(0)), any(share.is_memory for share in shares))

    def _judge_compute(self, uuid: str, at_s: float) -> None:
        found = {pod.key: placement_of(pod, self.cards) for pod in self.to(uuid) if ways(pod)}
        percents = {key: placed.percent(uuid) for key, placed in found.items() if placed is not None}
        if sum(percents.values()) > _ALL_COMPUTE:
            told = ", ".join(f"{key} {percent}%" for key, percent in sorted(percents.items()))
            self.findings.add("S1", at_s, f"{uuid}: of its compute {told} are promised")

    def _judge_modes(self, uuid: str, at_s: float) -> None:
        modes = {pod.key: pod.mode for pod in self.to(uuid) if pod.mode}
        if len({*modes.values()}) > 1:
            told = ", ".join(f"{key} in mode {mode}" for key, mode in sorted(modes.items()))
            self.findings.add("S2", at_s, f"{uuid} is promised to {told}")


@dataclass(slots=True)
class SliceUse:
    """S18: a MIG slice is destroyed only while no pod and no book has it.

    The machine itself says which pods have a slice: the device manager gave it to them and has not taken it back, or a
    process uses it. Containers that kubelet forgot, and tenants whose reservation was lost, are known to the driver
    alone; they are not judged where programs never use their slices (docs/mig.md, Limits). ``live``: pods as the API
    server has them, by UID.
    """

    findings: Findings
    live: Mapping[str, PodFacts]
    #: Pod (UID) -> devices that its device manager gave it.
    _held: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Pod (UID), container -> the pod's name and what its process sees.
    _seen: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        match record:
            case Held():
                self._held[record.pod_uid] = frozenset(record.devices)
            case Freed():
                self._held.pop(record.pod_uid, None)
            case Started():
                self._seen[record.pod_uid, record.container] = record.pod, record.devices
            case Stopped():
                self._seen.pop((record.pod_uid, record.container), None)
            case _:
                pass

    def destroyed(self, node: str, uuid: str, at_s: float, *, shows_processes: bool) -> None:
        """Judge the end of a slice."""
        for user in self._users(uuid, shows_processes=shows_processes):
            self.findings.add("S18", at_s, f"slice {uuid} on {node} is destroyed, and {user}")

    def _users(self, uuid: str, *, shows_processes: bool) -> Iterator[str]:
        for uid, devices in self._held.items():
            if uuid in devices:
                pod = self.live.get(uid)
                yield f"kubelet gave it to pod {pod.key if pod is not None else uid}"
        for pod in self.live.values():
            is_there = pod.is_reservation and not pod.has_ended
            if is_there and pod.annotations.get(names.RESERVE_FOR_GPU_INDEX) == uuid and pod.book:
                yield f"the book of {pod.key} has it, with {len(pod.book)} tenants"
        if shows_processes:
            for (_, container), (key, seen) in self._seen.items():
                if uuid in seen:
                    yield f"container {container} of {key} uses it"
