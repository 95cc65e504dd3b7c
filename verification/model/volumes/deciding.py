"""What schedulers do: decide, write for claims, wait until they are bound, bind pods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from verification.model.volumes.state import NONE, Attempt, Choice, Config, Rules, Stage, Step, World, changed, node_of


class Deciding:
    """Schedulers in one configuration, by one set of rules."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """What a scheduler may do next."""
        attempt = world.attempts[number]
        if attempt is None:
            for choices in self.decisions(world):
                binds = all(self._is_bound(world, choice) for choice in choices)
                yield self._with(
                    world, number, Attempt(choices, binds), f"s{number} decides", *(tuple(one[:3]) for one in choices)
                )
        elif attempt.binds:
            yield from self._bind(world, number, attempt)
        else:
            yield from self._prepare(world, number, attempt)

    # --- deciding ----------------------------------------------------------------------------------------------------
    def decisions(self, world: World) -> Iterator[tuple[Choice, ...]]:
        """All ways to place the pods of a group that have no node, where there is one for each."""
        for group in self._config.groups:
            waiting = [pod for pod in group if world.pods[pod] == NONE]
            for nodes in product(range(len(self._config.places)), repeat=len(waiting)) if waiting else ():
                free = [most - world.pods.count(node) for node, most in enumerate(self._config.places)]
                if any(nodes.count(node) > free[node] for node in set(nodes)):
                    continue
                choices = self._choices(world, dict(zip(waiting, nodes, strict=True)))
                if choices is not None:
                    yield choices

    def _choices(self, world: World, nodes: dict[int, int]) -> tuple[Choice, ...] | None:
        taken: set[int] = set()
        found = []
        for pod, node in nodes.items():
            choice = self._choice(world, pod, node, taken)
            if choice is None:
                return None
            taken.add(choice.volume)
            found.append(choice)
        return tuple(found)

    def _choice(self, world: World, pod: int, node: int, taken: set[int]) -> Choice | None:
        claim = world.claims[pod]
        if claim.volume != NONE:
            return Choice(pod, node) if node_of(world, claim.volume) == node else None
        named = [number for number, volume in enumerate(world.volumes) if volume.claim == pod]
        if named:
            return Choice(pod, node, named[0]) if world.volumes[named[0]].node == node else None
        if claim.selected != NONE:
            return Choice(pod, node) if claim.selected == node else None
        free = [
            number
            for number, volume in enumerate(world.volumes)
            if volume.node == node and volume.claim == NONE and number not in taken
        ]
        if free:
            return Choice(pod, node, free[0])
        return Choice(pod, node) if self._config.provisions else None

    # --- claims ------------------------------------------------------------------------------------------------------
    def _prepare(self, world: World, number: int, attempt: Attempt) -> Iterator[Step]:
        if all(self._is_bound(world, choice) or world.pods[choice.pod] != NONE for choice in attempt.choices):
            then = None if self._rules.decides_again else attempt._replace(binds=True)
            yield self._with(world, number, then, f"s{number} has all claims bound")
            return
        for at, choice in enumerate(attempt.choices):
            if not self._rules.whole and self._is_bound(world, choice) and world.pods[choice.pod] == NONE:
                bound = world._replace(pods=changed(world.pods, choice.pod, choice.node))
                yield self._with(bound, number, attempt, f"s{number} binds", choice.pod)
            if world.claims[choice.pod].volume == NONE and world.pods[choice.pod] == NONE:
                yield from self._write(world, number, attempt, at)
        if world.left.timeouts:
            left = world.left._replace(timeouts=world.left.timeouts - 1)
            yield self._with(world._replace(left=left), number, None, "!time is over for", f"s{number}")

    def _write(self, world: World, number: int, attempt: Attempt, at: int) -> Iterator[Step]:
        choice = attempt.choices[at]
        wanted, has = _said(world, choice)
        match choice.stage:
            case Stage.CHOSEN if has == wanted:
                yield self._to(world, number, at, (choice._replace(stage=Stage.WRITTEN), "finds written"))
            case Stage.CHOSEN if has != NONE:
                yield self._with(world, number, None, f"s{number} is overtaken", choice.pod)
            case Stage.CHOSEN:
                read = choice._replace(stage=Stage.READ, seen=_version(world, choice))
                yield self._to(world, number, at, (read, "reads"))
            case Stage.READ:
                yield from self._written(world, number, at, choice)
            case Stage.WRITTEN if has != wanted and self._rules.gives_up:
                yield self._with(world, number, None, f"s{number} sees taken back", choice.pod)

    def _written(self, world: World, number: int, at: int, choice: Choice) -> Iterator[Step]:
        again = choice._replace(stage=Stage.CHOSEN, seen=0)
        if self._rules.at_rv and _version(world, choice) != choice.seen:
            yield self._to(world, number, at, (again, "conflicts"))
            return
        after = apply(world, choice)
        yield self._to(after, number, at, (choice._replace(stage=Stage.WRITTEN, seen=0), "writes"))
        left = world.left
        if left.lost_answers:
            spent = after._replace(left=left._replace(lost_answers=left.lost_answers - 1))
            yield self._to(spent, number, at, (again, "!writes, no answer to"))
        if left.lates:
            spent = world._replace(left=left._replace(lates=left.lates - 1), late=(*world.late, choice))
            yield self._to(spent, number, at, (again, "!writes late for"))

    def land(self, world: World) -> Iterator[Step]:
        """Writes that nobody waits for any more land, or are refused."""
        for at, choice in enumerate(world.late):
            rest = world._replace(late=(*world.late[:at], *world.late[at + 1 :]))
            is_current = _version(world, choice) == choice.seen or not self._rules.at_rv
            yield ("late write lands", tuple(choice[:3])), apply(rest, choice) if is_current else rest

    def _is_bound(self, world: World, choice: Choice) -> bool:
        is_written = not self._rules.waits and choice.stage is Stage.WRITTEN
        return is_written or world.claims[choice.pod].volume != NONE

    # --- pods --------------------------------------------------------------------------------------------------------
    def _bind(self, world: World, number: int, attempt: Attempt) -> Iterator[Step]:
        left = [choice for choice in attempt.choices if world.pods[choice.pod] == NONE]
        if not left:
            yield self._with(world, number, None, f"s{number} is done")
        for choice in left:
            pods = changed(world.pods, choice.pod, choice.node)
            yield self._with(world._replace(pods=pods), number, attempt, f"s{number} binds", choice.pod, choice.node)

    def _to(self, world: World, number: int, at: int, step: tuple[Choice, str]) -> Step:
        """The attempt with a choice one stage further; a fault's name begins with "!"."""
        choice, what = step
        attempt = world.attempts[number]
        choices = changed(attempt.choices if attempt is not None else (), at, choice)
        fault = "!" if what.startswith("!") else ""
        return self._with(world, number, Attempt(choices), f"{fault}s{number} {what.removeprefix('!')}", choice.pod)

    @staticmethod
    def _with(world: World, number: int, attempt: Attempt | None, *label: object) -> Step:
        return label, world._replace(attempts=changed(world.attempts, number, attempt))


def _said(world: World, choice: Choice) -> tuple[int, int]:
    """What the claim or the volume is to name, and what it names."""
    if choice.volume != NONE:
        return choice.pod, world.volumes[choice.volume].claim
    return choice.node, world.claims[choice.pod].selected


def _version(world: World, choice: Choice) -> int:
    return world.claims[choice.pod].rv if choice.volume == NONE else world.volumes[choice.volume].rv


def apply(world: World, choice: Choice) -> World:
    """The write for a claim, carried out. What another has written must not be lost."""
    wanted, has = _said(world, choice)
    if has not in {NONE, wanted}:
        world = world._replace(broken="P4: what another scheduler has written is overwritten")
    if choice.volume != NONE:
        volume = world.volumes[choice.volume]
        volume = volume._replace(claim=choice.pod, rv=volume.rv + 1)
        return world._replace(volumes=changed(world.volumes, choice.volume, volume))
    claim = world.claims[choice.pod]
    return world._replace(
        claims=changed(world.claims, choice.pod, claim._replace(selected=choice.node, rv=claim.rv + 1))
    )
