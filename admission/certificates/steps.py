"""What a replica does next about the webhooks' certificates: ``decide(view)``. Pure; docs/certificates.md tells why.

No replica leads. Each decides by what it sees, every write names the version that it rests on, and the first
write is done for all. What keeps reviews from failing:

- A CA of ours leaves a configuration only when it has ended. So no write of a replica that sees old things can take
  away what another one serves.
- A good pair is left only for one that all configurations have had, unchanged, for as long as API servers take.
- What was trusted is not forgotten with the Secret: who serves it writes it back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from admission.certificates.pair import Authority, Pair
from admission.certificates.view import (
    Standing,
    View,
    followed_in_ns,
    good,
    is_followed,
    is_trusted,
    renewed_at_s,
    stands,
    trusts,
)

_S: Final = 1_000_000_000
#: The longest wait until the next step is computed.
MOST_PATIENT_S: Final = 3600


class Serve(msgspec.Struct, frozen=True):
    """Show this pair to new connections."""

    pair: Pair


class Keep(msgspec.Struct, frozen=True):
    """Write these pairs into the Secret, if it is still at ``version``."""

    version: str
    current: Pair | None
    next: Pair | None


class Make(msgspec.Struct, frozen=True):
    """Make a new pair and write it into the Secret: beside ``current``, or as the current one if ``is_first``."""

    version: str
    current: Pair | None
    is_first: bool
    names: frozenset[str]


class Publish(msgspec.Struct, frozen=True):
    """Write bundles into a configuration, one for each of its webhooks, if it is still at ``version``."""

    name: str
    version: str
    bundles: tuple[tuple[Authority, ...], ...]


Step = Serve | Keep | Make | Publish


class Decision(msgspec.Struct, frozen=True):
    """What to do now, each step for itself, and when at the latest to look again if nothing changes."""

    steps: tuple[Step, ...]
    again_in_s: int


def decide(view: View) -> Decision:
    """Return what is to be done."""
    serve = _to_serve(view)
    shown = [] if serve is None or serve == view.served else [Serve(serve)]
    store = _to_store(view)
    steps = (*shown, *_to_publish(view), *(() if store is None else (store,)))
    return Decision(steps, 0 if shown else _again_in_s(view))


def _to_serve(view: View) -> Pair | None:
    """Stay with what is good, until the Secret's first good pair is trusted for sure."""
    stored = _stored(view)
    served = good(view, view.served)
    if not stored:
        return view.served
    if served is None:
        return next((pair for pair in stored if stands(view, pair)), stored[0])
    first = stored[0]
    is_better = stands(view, first) and not stands(view, served)
    return first if is_better or is_followed(view, first) else served


def _stored(view: View) -> list[Pair]:
    held = view.held
    return [] if held is None else [pair for pair in (held.current, held.next) if pair is not None and good(view, pair)]


def _to_store(view: View) -> Keep | Make | None:
    held = view.held
    if held is None:
        return None
    current, following = good(view, held.current), good(view, held.next)
    if current is None:
        return _to_begin(view, held.version, following)
    if following is not None and is_followed(view, following):
        return Keep(held.version, following, None)
    if following is None and view.now_s >= renewed_at_s(current):
        return Make(held.version, current, is_first=False, names=view.names)
    if following is None and not view.names <= current.names:
        # Replicas of before and after a change of names serve side by side: one pair is for both.
        return Make(held.version, current, is_first=False, names=view.names | current.names)
    return Keep(held.version, current, following) if held.unreadable else None


def _to_begin(view: View, version: str, following: Pair | None) -> Keep | Make | None:
    """There is no current pair. What this replica serves is written back; only without anything is a pair made."""
    candidate = good(view, view.served) or following
    if candidate is None:
        somebody_is_trusted = any(
            each.lives(view.now_s) for one in view.standing for bundle in one.bundles for each in bundle.ours
        )
        return Make(version, None, is_first=not somebody_is_trusted, names=view.names)
    if is_trusted(view, candidate):
        return Keep(version, candidate, None if candidate == following else following)
    return None if following is not None else Keep(version, None, candidate)


def _to_publish(view: View) -> list[Publish]:
    wanted = {pair.authority.id: pair.authority for pair in (*_stored(view), good(view, view.served)) if pair}
    if not wanted:
        return []
    steps = (_published(one, tuple(wanted.values()), view.now_s) for one in view.standing if not one.injected_by)
    return [step for step in steps if step is not None]


def _published(one: Standing, wanted: tuple[Authority, ...], now_s: int) -> Publish | None:
    bundles = []
    for bundle in one.bundles:
        alive = tuple(each for each in bundle.ours if each.lives(now_s))
        bundles.append((*alive, *(each for each in wanted if not trusts(bundle, each))))
    is_right = all(new == bundle.ours and bundle.is_clean for new, bundle in zip(bundles, one.bundles, strict=True))
    return None if is_right else Publish(one.name, one.version, tuple(bundles))


def _again_in_s(view: View) -> int:
    """When time alone changes something: a renewal, an end, or that API servers follow."""
    pairs = [*_stored(view), *((view.served,) if view.served else ())]
    times = [time for pair in pairs for time in (pair.not_before_s, renewed_at_s(pair), pair.not_after_s)]
    ends = [each.not_after_s for one in view.standing for bundle in one.bundles for each in bundle.ours]
    waits = [time - view.now_s for time in (*times, *ends)]
    waits += [-(-followed_in_ns(view, pair) // _S) for pair in pairs]
    return min((wait for wait in waits if wait > 0), default=MOST_PATIENT_S) if waits else MOST_PATIENT_S
