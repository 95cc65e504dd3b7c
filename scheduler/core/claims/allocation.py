"""Allocates devices of one node to the claims of a pod: the first way that satisfies all of them.

A search in depth, as kube-scheduler's (dynamic-resource-allocation/structured): claims and requests in order, devices
in the order of pools. Devices of one request are tried in rising order, and of devices that nothing tells apart one: if
it leads nowhere, its like don't either. The search ends when too many were tried (``MOST_STEPS``) or looked at
(``looks_for``).

Constraints of a claim let its devices agree on an attribute, or all differ in it. Counters are what devices of a pool
share: parts of one card that can be cut in several ways (KEP-4815).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.core.claims.devices_in_use import Amounts, Taken
from scheduler.core.claims.inventory import InventoryView, NodePool, keep_off
from scheduler.core.claims.pools import Pool
from scheduler.core.claims.requests import MOST_RESULTS, Asks, Candidate, Refused, devices_of, looks_for, part_for
from scheduler.core.claims.selectors import Cut, NotEvaluated, SelectorFailed
from scheduler.core.model.device_requests import AttributeRule, DeviceAsk, DeviceNeed
from scheduler.core.model.devices import (
    ClaimAllocation,
    DeviceId,
    DeviceKind,
    DevicePlace,
    DeviceRefusal,
    DeviceResult,
    Draws,
    PoolId,
    RefusalCode,
    Value,
)
from scheduler.core.model.pod_class import Requirement, Term
from scheduler.core.model.records import NodeRecord


def attribute(kind: DeviceKind, name: str) -> Value | None:
    """An attribute by its full name, ``domain/name``; a driver may leave out its own domain. None: it has none."""
    own = name.removeprefix(f"{kind.driver}/")
    found = dict(kind.attributes)
    value = found.get(name)
    if value is None and own != name:
        value = found.get(own)
    return value


class RulesOfClaim:
    """The constraints of one claim, with the values of the devices that were chosen for it so far.

    A search asks for the same devices and requests many times: which constraints a request has, and which values a
    device has for them, is found once.
    """

    __slots__ = ("_attributes", "_known", "_numbers", "_rules", "_values")

    def __init__(self, rules: Sequence[AttributeRule]) -> None:
        self._rules = rules
        self._values: list[list[Value]] = [[] for _ in rules]
        self._attributes = dict.fromkeys(rule.attribute for rule in rules)
        #: Constraints by request, and what devices have, by attribute.
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._known: dict[DeviceKind, dict[str, Value | None]] = {}

    def add(self, request: str, kind: DeviceKind) -> bool:
        """Count a device for a request (``request`` or ``request/way``) if all constraints still hold."""
        numbers = self._of(request)
        if not numbers:
            return True
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = {name: attribute(kind, name) for name in self._attributes}
        for number in numbers:
            rule, values = self._rules[number], self._values[number]
            value = known[rule.attribute]
            # A device without the attribute, or with a value that can't be read, neither agrees nor differs.
            if value is None or not value.kind:
                return False
            if values and ((value in values) if rule.is_distinct else value != values[0]):
                return False
        for number in numbers:
            value = known[self._rules[number].attribute]
            if value is not None:
                self._values[number].append(value)
        return True

    def take_back(self, request: str) -> None:
        """Take back the last device, which was one of this request."""
        for number in self._of(request):
            self._values[number].pop()

    def _of(self, request: str) -> tuple[int, ...]:
        """The constraints of a request, by number."""
        numbers = self._numbers.get(request)
        if numbers is None:
            found = (number for number, rule in enumerate(self._rules) if _is_of(rule, request))
            numbers = self._numbers[request] = tuple(found)
        return numbers


def _is_of(rule: AttributeRule, request: str) -> bool:
    return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests


class CountersLeft:
    """What counters have left, in nano, less what devices in use and those chosen in this search draw."""

    __slots__ = ("_left", "_taken")

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._left: dict[PoolId, dict[tuple[str, str], int]] = {}

    def draw(self, pool: Pool, draws: Draws) -> bool:
        """Draw what a device needs; if a counter has too little, draw nothing."""
        left = self._of(pool)
        for name, amounts in draws:
            for counter, nano in amounts:
                left[name, counter] -= nano
        # All of the pool's counters, as kube-scheduler looks at them: one that is overdrawn closes the pool.
        if all(nano >= 0 for nano in left.values()):
            return True
        self.give_back(pool, draws)
        return False

    def give_back(self, pool: Pool, draws: Draws) -> None:
        """Take back what was drawn."""
        left = self._of(pool)
        for name, amounts in draws:
            for counter, nano in amounts:
                left[name, counter] += nano

    def _of(self, pool: Pool) -> dict[tuple[str, str], int]:
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = {
                (name, counter): nano for name, amounts in pool.counters.items() for counter, nano in amounts.items()
            }
            used = self._taken.pool(pool.id)
            for device in used.devices():
                for name, amounts in pool.draws.get(device, ()):
                    for counter, nano in amounts:
                        left[name, counter] -= nano
        return left


_NAME: Final = "metadata.name"


def terms_of(places: Iterable[DevicePlace]) -> tuple[Term, ...] | None:
    """Where all devices with these places can be used, as node terms; None: everywhere.

    A device of one node decides alone. Selectors of others are joined; each has one term (resource/v1).
    """
    labels: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for place in places:
        if place.node:
            return (Term((), (Requirement(_NAME, "In", (place.node,)),)),)
        for term in place.terms or ():
            labels.update(dict.fromkeys(term.labels))
            fields.update(dict.fromkeys(term.fields))
    return (Term(tuple(labels), tuple(fields)),) if labels or fields else None


#: Devices that are tried on a node before the search ends.
MOST_STEPS: Final = 10_000
#: Bytes of an answer that is kept, and of each device in it.
_OF_ANSWER: Final = 700
_OF_RESULT: Final = 250
#: Operations of about a microsecond: of a search, and of each device that it tries; it looks at this many in one.
_SEARCHING: Final = 20
_TRYING: Final = 10
_LOOKED_AT: Final = 2

Spend = Callable[[int], None]


def _spend_nothing(_: int) -> None:
    """Counts no operations."""


def allocate(
    needs: Sequence[DeviceNeed],
    node: NodeRecord,
    view: InventoryView,
    taken: Taken,
    *,
    held: tuple[DeviceId, ...] = (),
    spend: Spend = _spend_nothing,
    may_search: bool = True,
    may_evaluate: int | None = None,
) -> tuple[ClaimAllocation, ...] | DeviceRefusal:
    """Devices for each of these needs in order, or why the node has none. ``taken``: what others have.

    ``held``: devices of the node that are in use without a claim.
    The answer is kept by the view until the node's devices, or what of their pools is in use or held, have changed.
    ``spend`` is called with the operations that a search has taken. ``may_search`` False: only kept answers count.
    ``may_evaluate``: operations that selectors may take before the search is cut. What they said is kept, so the next
    search gets further.
    """
    pools, asked = view.pools_on(node), tuple(needs)
    stamps = taken.stamps(pool.pool.id for pool in pools)
    known = view.answers.get(node.name, asked)
    if known is not None and known[0] is pools and known[1] == stamps and known[2] == held:
        kept: tuple[ClaimAllocation, ...] | DeviceRefusal = known[3]
        return kept
    if not may_search:
        return DeviceRefusal(RefusalCode.SEARCH_CUT)
    view.spend_at_most(may_evaluate)
    try:
        with taken.with_whole(held):
            answer, effort = _answer(asked, view, pools, taken, node=node.name)
    finally:
        view.spend_at_most(None)
    spend(effort)
    if answer is None:
        return DeviceRefusal(RefusalCode.SEARCH_CUT)
    view.answers.put(node.name, asked, (pools, stamps, held, answer), _size_bytes(answer))
    return answer


def _size_bytes(answer: tuple[ClaimAllocation, ...] | DeviceRefusal) -> int:
    """About what a kept answer occupies."""
    if isinstance(answer, DeviceRefusal):
        return _OF_ANSWER + len(answer.detail)
    return _OF_ANSWER + _OF_RESULT * sum(len(each.results) for each in answer)


def _answer(
    needs: Sequence[DeviceNeed], view: InventoryView, pools: Sequence[NodePool], taken: Taken, *, node: str
) -> tuple[tuple[ClaimAllocation, ...] | DeviceRefusal | None, int]:
    """The answer, None where selectors may not be evaluated any more; and the operations that it took."""
    effort, search = _SEARCHING + sum(len(pool.devices) for pool in pools) // _LOOKED_AT, None
    before = view.effort_spent
    answer: tuple[ClaimAllocation, ...] | DeviceRefusal | None
    try:
        asks = Asks(needs, view, pools, taken)
        search = _Search(needs, asks, pools, taken, node=node)
        answer = search.run()
        if isinstance(answer, DeviceRefusal) and answer.code is RefusalCode.NO_DEVICES and asks.are_whole_only():
            answer = DeviceRefusal(RefusalCode.NOT_SHARED)
    except Refused as refused:
        answer = refused.refusal
    except SelectorFailed as failed:
        answer = DeviceRefusal(RefusalCode.SELECTOR_FAILED, str(failed))
    except NotEvaluated:
        answer = None
    return answer, effort + view.effort_spent - before + (0 if search is None else search.effort)


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

    def __init__(
        self, needs: Sequence[DeviceNeed], asks: Asks, pools: Sequence[NodePool], taken: Taken, *, node: str
    ) -> None:
        self._needs = needs
        self._node = node
        self._asks = asks
        whole = [pool for pool in pools if not pool.wrong]
        #: Devices that nobody has, and where somebody asks for admin access all of them.
        self._free = [each for each in devices_of(whole, taken) if not each.is_taken]
        is_admin = any(ask.is_admin for need in needs for ask in need.asks())
        self._devices = list(devices_of(whole, taken)) if is_admin else self._free
        self._looks_left = self._most_looks = looks_for(len(self._devices))
        self._is_broken = next((pool for pool in pools if pool.wrong and not pool.pool.is_incomplete), None)
        self._counters = CountersLeft(taken)
        self._rules = [RulesOfClaim(need.rules) for need in needs]
        self._results: list[list[tuple[DeviceResult, Candidate]]] = [[] for _ in needs]
        self._ways: list[list[int]] = [[] for _ in needs]
        #: Which claims of the pod have a whole device, and what they have of shared ones.
        self._whole: dict[DeviceId, Counter[int]] = {}
        self._parts: dict[DeviceId, list[Amounts]] = {}
        self._cut: Cut | None = None
        #: What tells devices from others, of those that were looked at.
        self._looks: dict[DeviceId, Hashable] = {}
        self._attributes = tuple(dict.fromkeys(rule.attribute for need in needs for rule in need.rules))
        self._asks_capacity = any(ask.capacity for need in needs for ask in need.asks())
        self._steps = 0

    @property
    def effort(self) -> int:
        """What the search has taken, in operations."""
        return self._steps * _TRYING + (self._most_looks - self._looks_left) // _LOOKED_AT

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
                terms=terms_of(self._place(candidate) for _, candidate in results),
                ways=tuple(ways),
            )
            for results, ways in zip(self._results, self._ways, strict=True)
        )

    def _place(self, candidate: Candidate) -> DevicePlace:
        return DevicePlace(node=self._node) if candidate.device.binds_to_node else candidate.place

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
                raise Refused(RefusalCode.SEARCH_CUT)
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
    def _is_in_use(self, claim: int, ask: DeviceAsk, candidate: Candidate) -> bool:
        """Whether somebody has the whole device. Admin access asks only whether this claim has it already."""
        if not ask.is_admin and candidate.is_taken:
            return True
        own = self._whole.get(candidate.id) if self._whole else None
        return bool(own and (not ask.is_admin or own[claim]))

    def _charge(self, claim: int, ask: DeviceAsk, candidate: Candidate) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Refused(RefusalCode.SEARCH_CUT)
        device = candidate.device
        if device.unsupported or self._is_in_use(claim, ask, candidate) or keep_off(device.taints, ask.tolerations):
            return False
        part = part_for(ask, candidate, self._parts.get(candidate.id, ()))
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

    def _draws(self, candidate: Candidate) -> bool:
        """Whether it draws from counters: of a shared device, the first part does for all."""
        device = candidate.device
        if not device.draws or not device.kind.is_shared:
            return bool(device.draws)
        return candidate.id not in self._parts and not candidate.use.has_parts(device.name)

    def _look(self, candidate: Candidate) -> Hashable:
        """What tells a device from others: those with the same look lead to the same ends."""
        look = self._looks.get(candidate.id)
        if look is None:
            look = self._looks[candidate.id] = self._looked_at(candidate)
        return look

    def _looked_at(self, candidate: Candidate) -> Hashable:
        device = candidate.device
        if device.kind.is_shared or device.draws:
            return candidate.id
        if self._cut is None:
            self._cut = self._asks.cut()
        return (
            self._cut(device.kind),
            tuple([attribute(device.kind, each) for each in self._attributes]),
            device.kind.capacity if self._asks_capacity else (),
            device.taints,
            device.unsupported,
            candidate.is_taken,
        )


def _result(ask: DeviceAsk, candidate: Candidate, part: Mapping[str, int]) -> DeviceResult:
    driver, pool, device = candidate.id
    return DeviceResult(
        request=ask.name,
        driver=driver,
        pool=pool,
        device=device,
        is_admin=ask.is_admin,
        tolerations=ask.tolerations,
        consumed=tuple(sorted(part.items())) if candidate.device.kind.is_shared else None,
        awaited=candidate.device.awaited,
    )
