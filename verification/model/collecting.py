"""The collector: dead entries, idle, ended and departing reservations, lost ones created again.

The judgements are the product's (sharing.entries, sharing.rebuilding); the order of reads and writes is transcribed
from binder/collect/book_repair.py. Judging an entry and removing it are one step: dead stays dead, and what is removed
is exactly what was judged. With ``split_collector`` they are two, which shows that. All binders' collectors do the same
from quorum reads, so one is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from gpu.book import Book
from sharing import rebuilding
from sharing.entries import Evidence, Judgement
from sharing.node_liveness import Heard, Registration
from verification.model import machines
from verification.model.config import Config, Rules
from verification.model.state import (
    AWAY,
    BACK,
    ENDED,
    FINISHED,
    GROUP,
    PRESENT,
    Entry,
    Late,
    Pod,
    Resv,
    Step,
    Translator,
    World,
    entries,
    tenant,
    text,
)

#: Longer than any grace period, and shorter than a machine may be silent (sharing/entries.py).
_OLD_S = 1800
#: What the Node says of its machine, in each of its states.
_REGISTERED = {PRESENT: Registration("first", ""), AWAY: None, BACK: Registration("second", "")}
#: How the binder's view knew the machine at first.
_SEEN_FIRST = Heard(Registration("first", ""), 0.0)


class Collecting:
    """The collector of a world."""

    def __init__(self, config: Config, rules: Rules, views: Translator) -> None:
        self._config = config
        self._rules = rules
        self._views = views
        self._change = partial(machines.change_book, views=views, rules=rules)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that the collector may do next."""
        if world.collector:
            yield from self._finish(world)
        for at, resv in enumerate(world.resvs):
            group = GROUP + at
            if resv is None:
                yield from self._restore(world, group)
                continue
            yield from self._clear(world, group, resv)
            yield from self._charge_strays(world, group, resv)
            yield from self._retire(world, group, resv)
            yield from self._let_go(world, group, resv)

    # --- entries -----------------------------------------------------------------------------------------------------
    def _clear(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        if not self._rules.reservation_before_pod:
            yield from self._read_pods_first(world, group, resv)
            return
        for entry in resv.book:
            if self._config.patient and self._is_at_work(world, entry):
                continue
            pod = machines.pod_of(world, entry.uid)
            yield from self._judged(world, group, resv, entry=entry, pod=pod)

    def _judged(self, world: World, group: int, resv: Resv, *, entry: Entry, pod: Pod | None) -> Iterator[Step]:
        label: tuple[Any, ...] = ("collector", "finds dead", entry.uid, group, entry.rv)
        verdict = self._judge(world, group, entry, pod)
        if verdict is Judgement.DEAD:
            if self._config.split_collector and not world.collector:
                yield label, world._replace(collector=("remove", group, resv.uid, entry))
            elif not self._config.split_collector:
                yield label, self._remove(world, group, resv.uid, entry)
        elif verdict is Judgement.FENCE_FIRST:
            is_at_work = self._is_at_work(world, entry)
            if is_at_work and not self._config.impatient:
                return
            late = Late("fence", (entry.uid, entry.rv, entry.attempt))
            fenced = machines.fence(world, late, self._rules)
            if fenced is not None:
                sign = "!" if is_at_work else ""
                yield (f"{sign}collector", "fences", entry.uid, entry.rv), fenced

    def _judge(self, world: World, group: int, entry: Entry, pod: Pod | None) -> Judgement:
        ghost = next((one for one in world.ghosts if one.uid == entry.uid), None)
        last = None
        if pod is None:
            last = self._last(world, entry, is_ghost=ghost is not None)
        request = machines.request(world, entry.attempt)
        gone_for_s, heard_for_s = self._absence(world, is_ghost=ghost is not None)
        evidence = Evidence(
            group=text(group),
            pod=self._views.pod(pod) if pod is not None else None,
            last=last,
            gone_for_s=gone_for_s,
            heard_for_s=heard_for_s,
            has_request=request is not None and pod is not None and not pod.grant,
            seen_for_s=_OLD_S,
        )
        return self._rules.judge(tenant(entry).entry, evidence)

    def _absence(self, world: World, *, is_ghost: bool) -> tuple[float, float]:
        """For how long a pod has been missing, and its machine been heard of since: as long as either can be.

        While a kubelet is heard of without a break, it ends what is left of a pod within its grace. So a ghost is
        younger than that, unless the Node was away: then it may be of any age, and the binder's view may have missed
        that the Node went.
        """
        node, old_s = world.left.node, float(_OLD_S)
        if is_ghost and node == PRESENT:
            return 0.0, 0.0
        heard = self._rules.heard(_SEEN_FIRST, _REGISTERED[node], old_s)
        if heard is None:
            return old_s, 0.0
        return old_s, old_s - heard.since_s if is_ghost else old_s

    def _last(self, world: World, entry: Entry, *, is_ghost: bool) -> Any:
        """What is known of a vanished pod: nothing for sure, as long as it may have been bound meanwhile."""
        if self._rules.last_state_is_last or not is_ghost:
            return None
        return self._views.pod(Pod(entry.uid, entry.rv))

    def _is_at_work(self, world: World, entry: Entry) -> bool:
        """Whether a process works on the attempt: the time-out of ``since`` is for those that nobody works on."""
        if any(one.attempt == entry.attempt for scheduler in world.schedulers for one in scheduler):
            return True
        return any(one.request.attempt == entry.attempt for binder in world.binders for one in binder.units)

    def _remove(self, world: World, group: int, reservation: int, entry: Entry) -> World:
        held = world.resvs[group - GROUP]
        if held is None or held.uid != reservation:
            return world
        change = self._rules.leaving([tenant(entry)])
        after, _ = self._change(world, group, change=change)
        return after

    def _read_pods_first(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """The order turned round: the pods are read, later the book, and judged by the pods that were read."""
        if world.collector:
            return
        for slot, pod in enumerate(world.pods):
            if pod is not None:
                yield ("collector", "reads the pod", pod.uid), world._replace(collector=("judge", group, slot, pod))

    def _finish(self, world: World) -> Iterator[Step]:
        done = world._replace(collector=())
        match world.collector[0]:
            case "remove":
                group, reservation, entry = cast("tuple[int, int, Entry]", world.collector[1:])
                label = ("collector", "removes", entry.uid, group, entry.rv)
                yield label, self._remove(done, group, reservation, entry)
            case "judge":
                group, _, pod = cast("tuple[int, int, Pod]", world.collector[1:])
                yield ("collector", "gives up"), done
                held = world.resvs[group - GROUP]
                for entry in held.book if held is not None else ():
                    if entry.uid == pod.uid and held is not None:
                        yield from self._judged(done, group, held, entry=entry, pod=pod)
            case _:
                group, uid = cast("tuple[int, int]", world.collector[1:])
                held = world.resvs[group - GROUP]
                is_it = held is not None and (held.uid == uid or world.collector[0] == "delete by name")
                label2 = ("collector", "deletes reservation", group)
                yield label2, _delete(done, group) if is_it else done

    # --- reservations ------------------------------------------------------------------------------------------------
    def _retire(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        if resv.deleting or (resv.book and self._rules.retire_empty and resv.phase != ENDED):
            return
        label = ("collector", "retires", group)
        if not resv.book and not self._rules.retire_at_rv:
            if not world.collector:
                yield (*label, "soon"), world._replace(collector=("delete", group, resv.uid))
        elif resv.phase == ENDED and not self._rules.delete_ended_by_uid:
            if not world.collector:
                yield (*label, "soon"), world._replace(collector=("delete by name", group, resv.uid))
        else:
            yield label, _delete(world, group)

    def _let_go(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        if not resv.deleting or not resv.finalized:
            return
        if self._rules.finalizer_waits and not all(_is_bound(world, group, entry) for entry in resv.book):
            return
        yield (
            ("collector", "takes the finalizer off", group),
            machines.put_resv(world, group, resv._replace(finalized=False)),
        )

    def _bound_in(self, world: World, group: int) -> list[Pod]:
        return [
            pod
            for pod in world.pods
            if pod is not None and pod.life != FINISHED and any(holding[0] == group for holding in pod.holdings)
        ]

    def _restore(self, world: World, group: int) -> Iterator[Step]:
        bound = self._bound_in(world, group)
        if not bound:
            return
        book = self._rules.rebuild(text(group), [self._views.pod(pod) for pod in bound])
        if isinstance(book, Book):
            yield ("collector", "makes again", group), machines.create_resv(world, group, entries(book))

    def _charge_strays(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        view = self._rules.see(self._views.resv(group, resv))
        known = {entry.uid for entry in resv.book}
        strays = [pod for pod in self._bound_in(world, group) if pod.uid not in known]
        if not strays or not view.is_joinable:
            return
        tenants = [rebuilding.tenant(text(group), self._views.pod(pod)) for pod in strays]
        change = self._rules.joining(tenants)
        after, answer = self._change(world, group, change=change)
        if isinstance(answer, Book):
            yield ("collector", "charges strays", group), after


def _delete(world: World, group: int) -> World:
    held = world.resvs[group - GROUP]
    if held is None or held.deleting:
        return world
    return machines.put_resv(world, group, held._replace(deleting=True))


def _is_bound(world: World, group: int, entry: Entry) -> bool:
    """Bound to this group, as far as was seen."""
    pod = machines.pod_of(world, entry.uid)
    return pod is not None and any(holding[0] == group for holding in pod.holdings)
