"""A binder's verification of a device: two LISTs, each a step. binder/bind/actions.py makes one of both."""

from __future__ import annotations

from gpu.attempts import Cause
from gpu.reservation import Reservation
from sharing import outcome
from sharing.failure import Failure
from verification.model.rules import Rules
from verification.model.state import GROUP, Resv, World
from verification.model.translating import Translator, text


class Verifying:
    """The two LISTs of any binder. Reservations come first, unless that rule is left out."""

    def __init__(self, rules: Rules, views: Translator) -> None:
        self._rules = rules
        self._views = views

    def first(self, world: World, group: int) -> outcome.Outcome | Resv:
        """The first LIST, judged at once: what it showed of the reservation, for the second; or why it fails."""
        held = world.resvs[group - GROUP]
        if held is None or not held.uuid:
            return outcome.Failed(Failure(cause=Cause.RESERVATION_LOST))
        if self._rules.reservations_first:
            found = self._held_alone(world, group, held)
            if not isinstance(found, Reservation):
                return found
        else:
            pods = self._used_by_tenants(world, group, held)
            if not isinstance(pods, outcome.Verified):
                return pods
        return held._replace(rv=0)

    def second(self, world: World, group: int, held: Resv) -> outcome.Outcome:
        """The second LIST: the pods, against the book that the first one showed."""
        if self._rules.reservations_first:
            return self._used_by_tenants(world, group, held)
        answer = self._held_alone(world, group, held)
        return outcome.Verified(text(group)) if isinstance(answer, Reservation) else answer

    def _held_alone(self, world: World, group: int, held: Resv) -> Reservation | outcome.Disputed | outcome.Failed:
        there = [self._views.resv(GROUP + at, resv) for at, resv in enumerate(world.resvs) if resv is not None]
        return self._rules.held_alone(self._views.resv(group, held), there)

    def _used_by_tenants(self, world: World, group: int, held: Resv) -> outcome.Verified | outcome.Failed:
        pods = [self._views.pod(pod) for pod in world.pods if pod is not None and pod.grant]
        return self._rules.used_by_tenants(self._views.resv(group, held), pods)
