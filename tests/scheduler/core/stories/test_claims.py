"""In small worlds, devices are allocated if and only if there is a way: compared with all assignments there are."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from scheduler.core.claims.allocation import allocate, attribute
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.claims.pools import Pool
from scheduler.core.model.device_requests import DeviceAsk, DeviceNeed
from scheduler.core.model.devices import ClaimAllocation, DeviceRecord, DeviceRefusal, DeviceResult, RefusalCode
from tests.scheduler.core.claims.expressions import Compiler, attribute_is, model
from tests.scheduler.core.claims.world import N1, has, inventory
from tests.scheduler.core.device_objects import DRIVER, ask, device, device_class, devices, need, ways
from tests.whole import seeds

_PLAIN_CODES = {RefusalCode.NO_DEVICES, RefusalCode.TOO_MANY_RESULTS}


class _Choice(NamedTuple):
    """One device for one request of a claim."""

    claim: int
    ask: DeviceAsk
    pool: Pool
    device: DeviceRecord


# --- the reference: every assignment, judged as a whole ---------------------------------------------------------------
def _exists(needs: Sequence[DeviceNeed], made: Inventory, used: Taken) -> bool:
    return any(_holds(choices, needs, used) for choices in _assignments(needs, made, used))


def _assignments(needs: Sequence[DeviceNeed], made: Inventory, used: Taken) -> Iterator[list[_Choice]]:
    pools = [(each.pool, each.devices) for each in made.view().pools_on(N1)]
    listed = [(pool, each) for pool, on_node in pools for each in on_node]

    def of(at: int, requests: list[tuple[int, tuple[DeviceAsk, ...]]]) -> Iterator[list[_Choice]]:
        if at == len(requests):
            yield []
            return
        claim, asks = requests[at]
        for way in asks:
            matching = [(pool, each) for pool, each in listed if _matches(way, each)]
            if way.count is None:
                having = tuple(each for each in matching if _have_capacity([_Choice(claim, way, *each)], used))
                picks: Iterator[Any] = iter([having] if having else [])
            else:
                picks = combinations(matching, way.count)
            for pick in picks:
                for rest in of(at + 1, requests):
                    yield [*(_Choice(claim, way, *each) for each in pick), *rest]

    return of(0, [(number, request.ways) for number, each in enumerate(needs) for request in each.requests])


def _matches(way: DeviceAsk, each: DeviceRecord) -> bool:
    return all(Compiler()(expression).matches(each.kind) for expression in way.selectors)


def _holds(choices: list[_Choice], needs: Sequence[DeviceNeed], used: Taken) -> bool:
    return (
        all(_is_allowed(each, used) for each in choices)
        and _are_apart(choices)
        and _have_capacity(choices, used)
        and _have_counters(choices, used)
        and all(_agree([each for each in choices if each.claim == number], n) for number, n in enumerate(needs))
    )


def _is_allowed(choice: _Choice, used: Taken) -> bool:
    tolerated = {each.key for each in choice.ask.tolerations}
    if choice.device.unsupported or any(taint.key not in tolerated for taint in choice.device.taints):
        return False
    return choice.ask.is_admin or choice.device.name not in used.pool(choice.pool.id)


def _are_apart(choices: list[_Choice]) -> bool:
    """Nobody after somebody else in the pod, but for admin access: that looks at its own claim only."""
    having: dict[int, set[int]] = defaultdict(set)
    for choice in choices:
        if choice.device.kind.is_shared:
            continue
        claims = having[id(choice.device)]
        if choice.claim in claims or (claims and not choice.ask.is_admin):
            return False
        claims.add(choice.claim)
    return True


def _have_capacity(choices: list[_Choice], used: Taken) -> bool:
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for choice in choices:
        asked = dict(choice.ask.capacity)
        had = dict(choice.device.kind.capacity)
        for name, capacity in had.items():
            sums[id(choice.device), name] += asked.get(name, capacity.nano)
        if not asked.keys() <= had.keys() or any(asked[name] > had[name].nano for name in asked):
            return False
    return all(
        used.pool(choice.pool.id).sums(choice.device.name).get(name, 0) + sums[id(choice.device), name] <= capacity.nano
        for choice in choices
        if choice.device.kind.is_shared
        for name, capacity in choice.device.kind.capacity
    )


def _have_counters(choices: list[_Choice], used: Taken) -> bool:
    """Of pools from which something new is drawn, no counter is overdrawn. A shared device draws once for all."""
    whole = [choice for choice in choices if not choice.device.kind.is_shared]
    shared = {(choice.pool.id, choice.device.name): choice for choice in choices if choice.device.kind.is_shared}
    new = [each for (pool, name), each in shared.items() if name not in used.pool(pool).devices()]
    drawing = [choice for choice in (*whole, *new) if choice.device.draws]
    return all(_is_enough(pool, drawing, used) for pool in {choice.pool.id: choice.pool for choice in drawing}.values())


def _is_enough(pool: Pool, drawing: list[_Choice], used: Taken) -> bool:
    drawn: Counter[tuple[str, str]] = Counter()
    nominees = [choice.device.draws for choice in drawing if choice.pool is pool]
    nominees += [pool.draws[name] for name in used.pool(pool.id).devices() if name in pool.draws]
    for draws in nominees:
        for name, amounts in draws:
            drawn.update({(name, counter): nano for counter, nano in amounts})
    return all(
        drawn[name, counter] <= nano for name, amounts in pool.counters.items() for counter, nano in amounts.items()
    )


def _agree(choices: list[_Choice], asked: DeviceNeed) -> bool:
    for rule in asked.rules:
        of_rule = [c for c in choices if not rule.requests or {c.ask.name, c.ask.name.split("/")[0]} & {*rule.requests}]
        values = [attribute(each.device.kind, rule.attribute) for each in of_rule]
        if None in values:
            return False
        if values and len(set(values)) != (len(values) if rule.is_distinct else 1):
            return False
    return True


# --- worlds ----------------------------------------------------------------------------------------------------------
class _World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kind = self.random.choice(["plain", "tainted", "counters", "shared", "all"])
        pools = [self._pool(name) for name in ("p0", "p1")[: self.random.choice([1, 1, 2])]]
        self.made = inventory(*(each for pool in pools for each in pool))
        self.used = Taken()
        for pool in self.made.view().pools_on(N1):
            for each in pool.devices:
                self._use(pool.pool, each)
        self.needs = [self._need() for _ in range(self.random.choice([1, 1, 2]))]

    def _pick(self, *of: str) -> bool:
        return self.kind in of or (self.kind == "all" and self.random.random() < 0.5)

    def _pool(self, name: str) -> list[Any]:
        listed = []
        for number in range(self.random.randint(1, 4)):
            more: dict[str, Any] = {}
            if self._pick("counters"):
                drawn = {"slices": {"value": str(self.random.randint(1, 3))}}
                more["consumesCounters"] = [{"counterSet": "card", "counters": drawn}]
            if self._pick("tainted") and self.random.random() < 0.4:
                more["taints"] = [{"key": self.random.choice("xy"), "effect": "NoSchedule"}]
            if self._pick("shared"):
                more["allowMultipleAllocations"] = self.random.random() < 0.7
                more["capacity"] = {"memory": {"value": str(self.random.randint(1, 4))}}
            attributes = {"model": self.random.choice("ab"), "numa": self.random.randint(0, 1)}
            if self.random.random() < 0.2:
                attributes["rare"] = self.random.randint(0, 1)
            listed.append(device(f"{name}-{number}", attributes=attributes, **more))
        counters = [{"name": "card", "counters": {"slices": {"value": str(self.random.randint(2, 5))}}}]
        place = {"nodeName": "n1"} if self.random.random() < 0.7 else {"allNodes": True}
        return [
            devices(f"{name}-counters", pool=name, count=2, sharedCounters=counters),
            devices(name, *listed, pool=name, count=2, **place),
        ]

    def _use(self, pool: Pool, each: DeviceRecord) -> None:
        if self.random.random() < 0.75:
            return
        part = (
            tuple((name, capacity.nano // 2) for name, capacity in each.kind.capacity) if each.kind.is_shared else None
        )
        result = DeviceResult(request="r", driver=DRIVER, pool=pool.id[1], device=each.name, consumed=part)
        self.used.put(each.name, [result])

    def _ask(self, name: str) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self._pick("tainted") and self.random.random() < 0.5:
            more["tolerations"] = [{"key": "x", "operator": "Exists"}]
        if self._pick("shared") and self.random.random() < 0.6:
            more["capacity"] = {"requests": {"memory": str(self.random.randint(1, 2))}}
        if self.random.random() < 0.1:
            more["adminAccess"] = True
        count = None if self.random.random() < 0.15 else self.random.choice([1, 1, 2, 3])
        expressions = [model(self.random.choice("ab"))] if self.random.random() < 0.5 else []
        if self.random.random() < 0.2:
            expressions.append(attribute_is("numa", "1"))
        return ask(name, count=count, cel=expressions, **more)

    def _need(self) -> DeviceNeed:
        requests = []
        for number in range(self.random.randint(1, 2)):
            if self.random.random() < 0.3:
                listed = [self._ask(way) for way in ("w0", "w1")]
                for each in listed:
                    each["exactly"].pop("adminAccess", None)
                requests.append(ways(f"r{number}", *listed))
            else:
                requests.append(self._ask(f"r{number}"))
        rules = []
        for _ in range(self.random.choice([0, 0, 1, 2])):
            name = self.random.choice(["model", "numa", "rare"])
            kind = self.random.choice(["matchAttribute", "matchAttribute", "distinctAttribute"])
            of = self.random.choice([[], ["r0"], ["r1"], ["r0/w1"]])
            rules.append({kind: f"{DRIVER}/{name}", "requests": of})
        return need(*requests, rules=rules)


def _choices(found: tuple[ClaimAllocation, ...], world: _World) -> list[_Choice]:
    """What was found, as the reference judges it."""
    by_id = {
        (*pool.pool.id, each.name): (pool.pool, each)
        for pool in world.made.view().pools_on(N1)
        for each in pool.devices
    }
    listed = []
    for number, (allocation, asked) in enumerate(zip(found, world.needs, strict=True)):
        asks = {each.name: each for each in asked.asks()}
        listed += [_Choice(number, asks[each.request], *by_id[each.id]) for each in allocation.results]
    return listed


@pytest.mark.parametrize("seed", seeds(12))
def test_devices_are_allocated_exactly_where_there_is_a_way(seed: int) -> None:
    seen: Counter[bool] = Counter()
    for number in range(100):
        world = _World(seed * 100_000 + number)
        found = allocate(world.needs, N1, world.made.view(), world.used)
        assert not isinstance(found, DeviceRefusal) or found.code in _PLAIN_CODES, found
        is_found = not isinstance(found, DeviceRefusal)
        assert is_found == _exists(world.needs, world.made, world.used), (seed, number, world.needs)
        if not isinstance(found, DeviceRefusal):
            assert _holds(_choices(found, world), world.needs, world.used)
        seen[is_found] += 1
    assert min(seen[True], seen[False]) >= 5, seen


@pytest.mark.parametrize("seed", seeds(10))
def test_an_answer_that_is_kept_is_the_one_that_would_be_given(seed: int) -> None:
    chance = random.Random(seed)
    worlds = [_World(seed * 1_000 + number) for number in range(6)]
    slices = [each for world in worlds for each in world.made.slices.all()]
    made, used, asked = worlds[0].made, Taken(), [world.needs for world in worlds]
    seen: Counter[bool] = Counter()
    for turn in range(150):
        match chance.randrange(5):
            case 0:
                made.slices.put(chance.choice(slices))
            case 1 if turn % 10 == 0:
                made.classes.put(device_class("gpu", *chance.choice([(), (model("a"),)])))
            case 2:
                used = used.fork()
            case _:
                names = [f"p{chance.randrange(2)}" for _ in range(chance.randrange(3))]
                used.put(f"c{chance.randrange(3)}", [*has(*(f"{n}-{chance.randrange(4)}" for n in names), pool="p0")])
        fresh = inventory(*made.slices.all(), *made.classes.all())
        for needs in asked:
            found = allocate(needs, N1, made.view(), used)
            assert found == allocate(needs, N1, fresh.view(), used)
            assert found is allocate(needs, N1, made.view(), used)
            seen[isinstance(found, DeviceRefusal)] += 1
    assert min(seen[True], seen[False]) > 20, seen
