"""What may come of an action that a binder carries out (actions.py, join_batches.py): answered, lost, late, or it dies.

A book is changed by compare-and-set until it is answered. A try of a write that nobody waits for any more may still
land (``Late``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpu import book as device_book
from gpu.attempts import Cause
from gpu.book import Book
from gpu.grant import Grant
from sharing import outcome
from sharing import state as actions
from sharing.failure import Failure
from sharing.outcome import Outcome
from sharing.pods import PodView
from sharing.state import Action
from verification.model import attempts, server
from verification.model.config import Config
from verification.model.rules import Rules
from verification.model.state import FINISHED, GROUP, Binder, Late, Resv, Unit, World, slot_of
from verification.model.translating import NANO, Translator, entries, name, tenant, text
from verification.model.verifying import Verifying

Result = tuple[str, World, Outcome | Unit | None]
"""A mark, the world, and what the attempt hears: an outcome, nothing yet (the unit as it is now), or it died (None)."""


class Carrying:
    """The shell of every binder."""

    def __init__(self, config: Config, rules: Rules, views: Translator, verifying: Verifying) -> None:
        self._config = config
        self._rules = rules
        self._views = views
        self._verifying = verifying
        self._change = partial(server.change_book, views=views, rules=rules)

    def results(self, world: World, number: int, one: Unit, action: Action) -> Iterator[Result]:  # noqa: C901 - one case per action
        """What may come of an action."""
        match action:
            case actions.Join(group=group):
                yield from self._join(world, number, one, name(group))
            case actions.Verify(group=group):
                yield from self._verify(world, number, one, name(group))
            case actions.ReadPod():
                pod = server.pod(world, one.request.pod)
                yield "", world, outcome.PodRead(self._views.pod(pod) if pod is not None else None)
            case actions.PostBinding(rv=rv, grant=grant):
                yield from self._post(world, one, name(rv), grant)
            case actions.TellBound():
                yield "", world, outcome.BoundTold()
            case actions.Renew(group=group, old_rv=old, rv=rv):
                yield from self._renew(world, number, one, group=name(group), old=name(old), rv=rv)
            case actions.DropRequest():
                yield from self._drop(world, number, one)
            case actions.Fence(rv=rv):
                yield from self._fence(world, number, one, name(rv))
            case actions.Leave(group=group, rv=rv):
                yield from self._leave(world, number, one, group=name(group), rv=name(rv))
            case actions.WriteConfigMaps():
                raise AssertionError("no pod of the model reads ConfigMaps")

    # --- books -------------------------------------------------------------------------------------------------------
    def _join(self, world: World, number: int, one: Unit, group: int) -> Iterator[Result]:
        """The reservation that is there, or a new one with the bound pods and this tenant."""
        if world.resvs[group - GROUP] is None:
            yield from self._create(world, one, group)
            return
        entry = attempts.entry(one, group, one.rv)
        change = self._rules.joining([tenant(entry)])
        after, answer = self._change(world, group, change=change)
        if not isinstance(answer, Book):
            cause = Cause.NOT_JOINABLE if type(answer).__name__ == "NotJoinable" else Cause.DEVICE_TAKEN
            yield "", after, outcome.Failed(Failure(cause=cause))
            return
        held = after.resvs[group - GROUP]
        if held is None:
            return
        mine = next((found for found in held.book if found.uid == entry.uid), entry)
        joined = outcome.JoinedAs(text(group), text(held.uid), text(mine.rv))
        yield from self._written(world, after, number, one=one, group=group, answer=joined)

    def _create(self, world: World, one: Unit, group: int) -> Iterator[Result]:
        views = [self._bound_in(world, group)]
        if self._config.lag and views[0]:
            views.append([])
        for bound in views:
            book = self._rules.rebuild(text(group), bound)
            if not isinstance(book, Book):
                yield "", world, outcome.Failed(Failure(cause=Cause.DEVICE_CLAIMED))
                continue
            joined = device_book.join(book, [tenant(attempts.entry(one, group, one.rv))])
            after = server.create_resv(world, group, entries(joined if isinstance(joined, Book) else book))
            held = after.resvs[group - GROUP]
            if held is not None and isinstance(joined, Book):
                yield "", after, outcome.JoinedAs(text(group), text(held.uid), text(one.rv))
            else:
                yield "", after, outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN))

    def _bound_in(self, world: World, group: int) -> list[PodView]:
        return [
            self._views.pod(pod)
            for pod in world.pods
            if pod is not None and pod.life != FINISHED and any(holding[0] == group for holding in pod.holdings)
        ]

    def _renew(self, world: World, number: int, one: Unit, *, group: int, old: int, rv: str) -> Iterator[Result]:
        if attempts.has_lost(world, one, group):
            yield "", world, outcome.EntryGone(text(group))
            return
        change = self._rules.renewing(tenant(attempts.entry(one, group, old)), rv)
        after, answer = self._change(world, group, change=change)
        if isinstance(answer, Book):
            renewed = outcome.Renewed(text(group), rv)
            yield from self._written(world, after, number, one=one, group=group, answer=renewed)
        else:
            yield "", world, outcome.EntryGone(text(group))

    def _leave(self, world: World, number: int, one: Unit, *, group: int, rv: int) -> Iterator[Result]:
        left = outcome.Left(text(group))
        if attempts.has_lost(world, one, group):
            yield "", world, left
            return
        change = self._rules.leaving([tenant(attempts.entry(one, group, rv))])
        after, _ = self._change(world, group, change=change)
        yield from self._written(world, after, number, one=one, group=group, answer=left)

    def _verify(self, world: World, number: int, one: Unit, group: int) -> Iterator[Result]:
        """The first LIST; what the second needs is kept.

        One verification of a device in one process serves all who want it (binder/bind/actions.py Verifier).
        """
        if any(other.listed and other.listed[0] == group for other in world.binders[number].units):
            return
        found = self._verifying.first(world, group)
        yield "", world, one._replace(listed=(group, found)) if isinstance(found, Resv) else found

    # --- objects of one pod ------------------------------------------------------------------------------------------
    def _post(self, world: World, one: Unit, rv: int, grant: Grant) -> Iterator[Result]:
        holdings = tuple((name(d.group), name(d.reservation), name(d.uuid), d.nano // NANO) for d in grant.devices)
        pod = server.pod(world, one.request.pod)
        if not self._rules.binding_at_entry and pod is not None:
            rv = pod.rv
        binding = Late("bind", (one.request.pod, rv, one.request.attempt, holdings))
        bound = server.bind(world, binding, self._rules)
        if bound is None:
            yield "refused", world, outcome.BindingNotAccepted("refused")
        else:
            yield "", bound, outcome.BindingAccepted()
        if world.left.refusals:
            left = world.left._replace(refusals=world.left.refusals - 1)
            yield "!refused for another reason", world._replace(left=left), outcome.BindingNotAccepted("refused")
        if world.left.lates and server.may_land(world, binding, self._rules):
            left = world.left._replace(lates=world.left.lates - 1)
            late = world._replace(late=(*world.late, binding), left=left)
            yield "!no answer", late, outcome.BindingNotAccepted("no answer")

    def _drop(self, world: World, number: int, one: Unit) -> Iterator[Result]:
        slot = slot_of(one.request.pod)
        after = server.delete_request(world, slot, one.request.attempt, self._rules)
        yield "", after, outcome.RequestDropped()
        if after is not world:
            late = Late("drop", (slot, one.request.attempt))
            yield from self._late(world, after, number, late=late, answer=outcome.RequestDropped())

    def _fence(self, world: World, number: int, one: Unit, rv: int) -> Iterator[Result]:
        late = Late("fence", (one.request.pod, rv, one.request.attempt))
        fenced = server.fence(world, late, self._rules)
        if fenced is None:
            yield "missed", world, outcome.FenceMissed()
        else:
            yield "", fenced, outcome.Fenced()
            yield from self._late(world, fenced, number, late=late, answer=outcome.Fenced())

    # --- what becomes of a write -------------------------------------------------------------------------------------
    def _written(
        self, world: World, after: World, number: int, *, one: Unit, group: int, answer: Outcome
    ) -> Iterator[Result]:
        """A change of a book: it is answered; or its first try lands later; or the process dies before it lands."""
        yield "", after, answer
        if world.left.lates and after is not world:
            # Repeated until it is answered: the second time the first one's work is found done, or undone again.
            yield "!answer lost", after._replace(left=world.left._replace(lates=world.left.lates - 1)), one
        before, held = world.resvs[group - GROUP], after.resvs[group - GROUP]
        if before is None or held is None or before.book == held.book:
            return
        late = Late("book", (group, before.uid, before.rv, held.book))
        yield from self._late(world, after, number, late=late, answer=answer)

    def _late(self, world: World, after: World, number: int, *, late: Late, answer: Outcome) -> Iterator[Result]:
        """A write that is repeated until it is answered: a try of it may be on its way still."""
        left = world.left
        if left.lates and server.may_land(after, late, self._rules):
            left_ = left._replace(lates=left.lates - 1)
            yield "!and again later", after._replace(late=(*after.late, late), left=left_), answer
        if left.binder_crashes and left.lates:
            left_ = left._replace(lates=left.lates - 1, binder_crashes=left.binder_crashes - 1)
            dead = attempts.put_binder(world, number, Binder())
            yield "!not yet, and dies", dead._replace(late=(*world.late, late), left=left_), None
