"""What a replica knows when it decides about certificates, and what follows from that alone.

Two kinds of time are in it. Whether a certificate is valid is judged by the API server, so ``now_s`` is its clock
(kube/client/serverclock.py). How long something has stood is counted by this process (``_ns``): no clock that jumps
counts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from admission.certificates.pair import Authority, Bundle, Pair

_S: Final = 1_000_000_000
#: All API servers know a changed configuration after this time, or after a twelfth of a certificate's life if that is
#: less. They follow configurations by a watch, which takes milliseconds.
#: One that lost its watch lists again within 30 s.
FOLLOWED_MOST_S: Final = 60


class Held(msgspec.Struct, frozen=True):
    """The Secret at one ``version``. ``current`` was trusted everywhere when it was put there, ``next`` need not be.

    ``unreadable`` says what is wrong with what stands there and is no pair; "" if nothing.
    """

    version: str
    current: Pair | None = None
    next: Pair | None = None
    unreadable: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration at one ``version``: what each of its webhooks trusts, unchanged since ``since_ns``.

    ``injected_by`` names the annotation by which somebody else writes its bundles; we keep out then.
    """

    name: str
    version: str
    bundles: tuple[Bundle, ...]
    since_ns: int
    injected_by: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """``held`` is None where there is no Secret; configurations that do not exist are left out.

    ``served`` is what new connections are shown, ``proven`` whether all API servers once were sure to trust it.
    """

    held: Held | None
    standing: tuple[Standing, ...]
    served: Pair | None
    proven: bool
    names: frozenset[str]
    now_s: int
    at_ns: int


def followed_s(pair: Pair) -> int:
    """How long it takes until all API servers follow a change that this pair brings."""
    return min(FOLLOWED_MOST_S, pair.life_s // 12)


def renewed_at_s(pair: Pair) -> int:
    """When a successor is made: after two thirds of its life."""
    return pair.not_before_s + pair.life_s * 2 // 3


def good(view: View, pair: Pair | None) -> Pair | None:
    """Return the pair if it is valid now."""
    return pair if pair is not None and pair.is_valid(view.now_s) else None


def stands(view: View, pair: Pair) -> bool:
    """Whether every webhook of ours trusts it."""
    return all(trusts(bundle, pair.authority) for one in view.standing for bundle in one.bundles)


def trusts(bundle: Bundle, authority: Authority) -> bool:
    """Whether a bundle has a CA."""
    return any(each.id == authority.id for each in bundle.ours)


def followed_in_ns(view: View, pair: Pair) -> int:
    """How long until all API servers surely trust a pair that stands everywhere; 0: they do."""
    wait_ns = followed_s(pair) * _S
    return max((one.since_ns + wait_ns - view.at_ns for one in view.standing), default=0)


def is_followed(view: View, pair: Pair) -> bool:
    """Whether all API servers surely trust it by now."""
    return stands(view, pair) and followed_in_ns(view, pair) <= 0


def is_trusted(view: View, pair: Pair) -> bool:
    """Whether replicas may switch to it: all API servers trust it, or they can trust none but it.

    Where no other CA of ours stands anywhere, nobody serves anything that is trusted: there is nothing to wait for.
    """
    if is_followed(view, pair) or (view.proven and pair == view.served):
        return True
    others = (
        each for one in view.standing for bundle in one.bundles for each in bundle.ours if each.id != pair.authority.id
    )
    return not any(each.lives(view.now_s) for each in others)
