"""Allocates devices of one node to the claims of a pod: the first way that satisfies all of them.

A search in depth, as kube-scheduler's (dynamic-resource-allocation/structured): claims and requests in order, devices
in the order of pools. Devices of one request are tried in rising order, and of devices that nothing tells apart one: if
it leads nowhere, its like don't either. The search ends after ``MOST_STEPS`` devices were tried, or ``MOST_LOOKS`` and
twice all devices of the node looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.core.claims.attribute_rules import RulesOfClaim, attribute
from scheduler.core.claims.counters import CountersLeft
from scheduler.core.claims.device_taints import keep_off
from scheduler.core.claims.inventory import InventoryView, NodePool
from scheduler.core.claims.parts import part_of
from scheduler.core.claims.placing import terms_of
from scheduler.core.claims.selectors import Cut, SelectorFailed, named_by_all
from scheduler.core.claims.taken import Amounts, PoolInUse, Taken
from scheduler.core.model.device_allocation import ClaimAllocation, DeviceRefusal, DeviceResult, RefusalCode
from scheduler.core.model.device_need import DeviceAsk, DeviceNeed
from scheduler.core.model.device_record import DeviceId, DevicePlace, DeviceRecord
from scheduler.core.model.records import NodeRecord

#: Kubernetes' own limit of devices of a claim (resource/v1).
MOST_RESULTS: Final = 32
#: Devices that are tried on a node before the search ends, and those that are looked at.
MOST_STEPS: Final = 10_000
MOST_LOOKS: Final = 20_000
#: Needs for which the answer of a node is kept.
_MOST_ANSWERS: Final = 64


def allocate(
    needs: Sequence[DeviceNeed], node: NodeRecord, view: InventoryView, taken: Taken
) -> tuple[ClaimAllocation, ...] | DeviceRefusal:
    """Devices for each of these needs in order, or why the node has none. ``taken``: what others have.

    The answer is kept by the view until the node's devices, or what of their pools is in use, have changed.
    """
    pools, asked = view.pools_on(node), tuple(needs)
    stamps = taken.stamps(pool.pool.id for pool in pools)
    answers = view.answers(node)
    known = answers.get(asked)
    if known is not None and known[0] is pools and known[1] == stamps:
        kept: tuple[ClaimAllocation, ...] | DeviceRefusal = known[2]
        return kept
    answer = _answer(asked, view, pools, taken)
    if len(answers) >= _MOST_ANSWERS:
        answers.clear()
    answers[asked] = pools, stamps, answer
    return answer


def _answer(
    needs: Sequence[DeviceNeed], view: InventoryView, pools: Sequence[NodePool], taken: Taken
) -> tuple[ClaimAllocation, ...] | DeviceRefusal:
    try:
        asks = _Asks(needs, view, pools, taken)
        return _Search(needs, asks, pools, taken).run()
    except _Refused as refused:
        return refused.refusal
    except SelectorFailed as failed:
        return DeviceRefusal(RefusalCode.SELECTOR_FAILED, str(failed))


class _Refused(Exception):
    """Raised where nothing else has to be tried."""

    def __init__(self, code: RefusalCode, detail: str = "") -> None:
        self.refusal = DeviceRefusal(code, detail)


class _Candidate(NamedTuple):
    """A device of a pool that the node reaches, and what of the pool is in use."""

    pool: NodePool
    number: int
    device: DeviceRecord
    use: PoolInUse

    @property
    def place(self) -> DevicePlace:
        return self.pool.places[self.number]

    @property
    def id(self) -> DeviceId:
        return (*self.pool.pool.id, self.device.name)


class _Asks:
    """What each way of each request looks for: its expressions with those of its class, and all devices for ``All``."""

    def __init__(
        self, needs: Sequence[DeviceNeed], view: InventoryView, pools: Sequence[NodePool], taken: Taken
    ) -> None:
        self._view = view
        self._pools = pools
        self._taken = taken
        self._expressions: dict[DeviceAsk, tuple[str, ...]] = {}
        self._all: dict[DeviceAsk, list[_Candidate]] = {}
        for need in needs:
            for ask in need.asks():
                self._read(ask)
            fewest = sum(min(self.count(way) for way in request.ways) for request in need.requests)
            if fewest > MOST_RESULTS:
                raise _Refused(RefusalCode.TOO_MANY_RESULTS, f"{fewest} devices")

    def _read(self, ask: DeviceAsk) -> None:
        record = self._view.device_class(ask.device_class)
        if record is None:
            raise _Refused(RefusalCode.NO_CLASS, ask.device_class)
        if record.wrong:
            raise _Refused(RefusalCode.UNSUPPORTED, f"DeviceClass {record.name}: {record.wrong}")
        self._expressions[ask] = (*record.selectors, *ask.selectors)
        if ask.count is not None:
            return
        for pool in self._pools:
            if pool.wrong:
                code = RefusalCode.INCOMPLETE_POOL if pool.pool.is_incomplete else RefusalCode.INVALID_POOL
                raise _Refused(code, f"{'/'.join(pool.pool.id)}: {pool.wrong}")
        # As upstream: devices that have too little of what is asked are none of "all".
        listed = (each for each in _devices(self._pools, self._taken) if self.takes(ask, each))
        self._all[ask] = [each for each in listed if _part(ask, each) is not None]

    def takes(self, ask: DeviceAsk, candidate: _Candidate) -> bool:
        """Whether the selectors of an ask take a device."""
        return candidate.pool.takes(self._expressions[ask], candidate.number)

    def all_of(self, ask: DeviceAsk) -> list[_Candidate]:
        """Every device for an ask for all."""
        return self._all[ask]

    def count(self, ask: DeviceAsk) -> int:
        """How many devices it needs."""
        return len(self._all[ask]) if ask.count is None else ask.count

    def cut(self) -> Cut:
        """Cuts devices to what any of the expressions names."""
        return Cut(named_by_all({each for listed in self._expressions.values() for each in listed}))


def _devices(pools: Sequence[NodePool], taken: Taken) -> Iterator[_Candidate]:
    for pool in pools:
        use = taken.pool(pool.pool.id)
        for number, device in enumerate(pool.devices):
            yield _Candidate(pool, number, device, use)


class _Step(NamedTuple):
    """Where the search is: at a request of a claim and in its way (-1: none yet), with ``chosen`` of its devices."""

    claim: int = 0
    request: int = 0
    way: int = -1
    chosen: int = 0
    #: The first device that may be tried next, by its place in the order.
    first: int = 0


class _Search:
    """One search. What is chosen is charged here and taken back where it leads nowhere; ``taken`` stays as it is."""

    def __init__(self, needs: Sequence[DeviceNeed], asks: _Asks, pools: Sequence[NodePool], taken: Taken) -> None:
        self._needs = needs
        self._asks = asks
        whole = [pool for pool in pools if not pool.wrong]
        #: Devices that nobody has, and where somebody asks for admin access all of them.
        self._free = [each for each in _devices(whole, taken) if each.device.name not in each.use]
        is_admin = any(ask.is_admin for need in needs for ask in need.asks())
        self._devices = list(_devices(whole, taken)) if is_admin else self._free
        self._looks_left = MOST_LOOKS + 2 * len(self._devices)
        self._is_broken = next((pool for pool in pools if pool.wrong and not pool.pool.is_incomplete), None)
        self._counters = CountersLeft(taken)
        self._rules = [RulesOfClaim(need.rules) for need in needs]
        self._results: list[list[tuple[DeviceResult, _Candidate]]] = [[] for _ in needs]
        self._ways: list[list[int]] = [[] for _ in needs]
        #: Which claims of the pod have a whole device, and what they have of shared ones.
        self._whole: dict[DeviceId, Counter[int]] = {}
        self._parts: dict[DeviceId, list[Amounts]] = {}
        self._cut: Cut | None = None
        self._steps = 0

    def run(self) -> tuple[ClaimAllocation, ...] | DeviceRefusal:
        """Search; the first solution counts."""
        stack = [self._next(_Step())]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
            elif step.claim == len(self._needs):
                return self._solution()
            else:
                stack.append(self._next(step))
        if self._is_broken is not None:
            return DeviceRefusal(
                RefusalCode.INVALID_POOL, f"{'/'.join(self._is_broken.pool.id)}: {self._is_broken.wrong}"
            )
        return DeviceRefusal(RefusalCode.NO_DEVICES)

    def _solution(self) -> tuple[ClaimAllocation, ...]:
        return tuple(
            ClaimAllocation(
                results=tuple(result for result, _ in results),
                terms=terms_of(candidate.place for _, candidate in results),
                ways=tuple(ways),
            )
            for results, ways in zip(self._results, self._ways, strict=True)
        )

    # --- steps: each charges a choice, yields where to go on, and takes it back --------------------------------------
    def _next(self, step: _Step) -> Iterator[_Step]:
        need = self._needs[step.claim] if step.claim < len(self._needs) else None
        if need is None or step.request == len(need.requests):
            return iter((_Step(step.claim + 1),) if need is not None else (step,))
        if step.way < 0:
            return self._choose_way(step)
        ask = need.requests[step.request].ways[step.way]
        if ask.count is None:
            return self._take_all(step, ask)
        if step.chosen == ask.count:
            return iter((_Step(step.claim, step.request + 1),))
        return self._take_one(step, ask, ask.count - step.chosen)

    def _choose_way(self, step: _Step) -> Iterator[_Step]:
        for way, ask in enumerate(self._needs[step.claim].requests[step.request].ways):
            count = self._asks.count(ask)
            if (ask.count is None and not count) or len(self._results[step.claim]) + count > MOST_RESULTS:
                continue
            self._ways[step.claim].append(way)
            yield step._replace(way=way)
            self._ways[step.claim].pop()

    def _take_all(self, step: _Step, ask: DeviceAsk) -> Iterator[_Step]:
        charged = 0
        for candidate in self._asks.all_of(ask):
            if not self._charge(step.claim, ask, candidate):
                break
            charged += 1
        else:
            yield _Step(step.claim, step.request + 1)
        for _ in range(charged):
            self._take_back(step.claim, ask)

    def _take_one(self, step: _Step, ask: DeviceAsk, missing: int) -> Iterator[_Step]:
        hopeless: set[Hashable] = set()
        devices = self._devices if ask.is_admin else self._free
        for at in range(step.first, len(devices) - missing + 1):
            self._looks_left -= 1
            if self._looks_left < 0:
                raise _Refused(RefusalCode.SEARCH_CUT)
            candidate = devices[at]
            if self._is_in_use(step.claim, ask, candidate) or not self._asks.takes(ask, candidate):
                continue
            look = self._look(candidate) if hopeless else None
            if look in hopeless or not self._charge(step.claim, ask, candidate):
                continue
            yield step._replace(chosen=step.chosen + 1, first=at + 1)
            self._take_back(step.claim, ask)
            hopeless.add(self._look(candidate))

    # --- one device --------------------------------------------------------------------------------------------------
    def _is_in_use(self, claim: int, ask: DeviceAsk, candidate: _Candidate) -> bool:
        """Whether somebody has the whole device. Admin access asks only whether this claim has it already."""
        if not ask.is_admin and candidate.device.name in candidate.use:
            return True
        own = self._whole.get(candidate.id) if self._whole else None
        return bool(own and (not ask.is_admin or own[claim]))

    def _charge(self, claim: int, ask: DeviceAsk, candidate: _Candidate) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _Refused(RefusalCode.SEARCH_CUT)
        device = candidate.device
        if device.unsupported or self._is_in_use(claim, ask, candidate) or keep_off(device.taints, ask.tolerations):
            return False
        part = _part(ask, candidate, self._parts.get(candidate.id, ()))
        if part is None:
            return False
        if self._draws(candidate) and not self._counters.draw(candidate.pool.pool, device.draws):
            return False
        if not self._rules[claim].add(ask.name, device.kind):
            if self._draws(candidate):
                self._counters.give_back(candidate.pool.pool, device.draws)
            return False
        if device.kind.is_shared:
            self._parts.setdefault(candidate.id, []).append(part)
        else:
            self._whole.setdefault(candidate.id, Counter())[claim] += 1
        self._results[claim].append((_result(ask, candidate, part), candidate))
        return True

    def _take_back(self, claim: int, ask: DeviceAsk) -> None:
        _, candidate = self._results[claim].pop()
        device = candidate.device
        if device.kind.is_shared:
            parts = self._parts[candidate.id]
            parts.pop()
            if not parts:
                del self._parts[candidate.id]
        else:
            self._whole[candidate.id][claim] -= 1
            self._whole[candidate.id] = +self._whole[candidate.id]
        self._rules[claim].take_back(ask.name)
        if self._draws(candidate):
            self._counters.give_back(candidate.pool.pool, device.draws)

    def _draws(self, candidate: _Candidate) -> bool:
        """Whether it draws from counters: of a shared device, the first part does for all."""
        device = candidate.device
        if not device.draws or not device.kind.is_shared:
            return bool(device.draws)
        return candidate.id not in self._parts and not candidate.use.has_parts(device.name)

    def _look(self, candidate: _Candidate) -> Hashable:
        """What tells a device from others: those with the same look lead to the same ends."""
        device = candidate.device
        if device.kind.is_shared or device.draws:
            return candidate.id
        if self._cut is None:
            self._cut = self._asks.cut()
        rules = tuple(each for need in self._needs for each in need.rules)
        capacity = device.kind.capacity if any(ask.capacity for need in self._needs for ask in need.asks()) else ()
        return (
            self._cut(device.kind),
            tuple(attribute(device.kind, each.attribute) for each in rules),
            capacity,
            device.taints,
            device.unsupported,
            candidate.device.name in candidate.use,
        )


def _part(ask: DeviceAsk, candidate: _Candidate, chosen: Sequence[Amounts] = ()) -> Amounts | None:
    """What an ask takes of a device beside those who have parts of it, and beside parts that were chosen; or None."""
    kind = candidate.device.kind
    part = part_of(kind, dict(ask.capacity))
    if part is None or not kind.is_shared:
        return part
    sums = candidate.use.sums(candidate.device.name)
    used = {name: sums.get(name, 0) + sum(each[name] for each in chosen) for name in part}
    return part if all(used[name] + part[name] <= capacity.nano for name, capacity in kind.capacity) else None


def _result(ask: DeviceAsk, candidate: _Candidate, part: Mapping[str, int]) -> DeviceResult:
    driver, pool, device = candidate.id
    return DeviceResult(
        request=ask.name,
        driver=driver,
        pool=pool,
        device=device,
        is_admin=ask.is_admin,
        tolerations=ask.tolerations,
        consumed=tuple(sorted(part.items())) if candidate.device.kind.is_shared else None,
    )
