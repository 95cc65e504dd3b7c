"""Made-up pairs and views: the rules look at times and ids only, so no certificate is really made."""

from __future__ import annotations

from admission.certificates.pair import Authority, Bundle, Pair
from admission.certificates.steps import Held, View, WebhookState

NAMES = frozenset({"moorage-admission.kai-scheduler.svc"})
S = 1_000_000_000
#: Of the made-up certificates: as short as in the tests of a real control plane.
LIFE_S = 60
#: 20 s after the certificates below began; they are renewed after 40 s and followed within 5 s.
NOW_S = 1_000_020


def authority(name: str, *, begins_s: int = 1_000_000, life_s: int = LIFE_S) -> Authority:
    return Authority(id=name, pem=f"<{name}>".encode(), not_before_s=begins_s, not_after_s=begins_s + life_s)


def pair(name: str, *, begins_s: int = 1_000_000, life_s: int = LIFE_S, names: frozenset[str] = NAMES) -> Pair:
    return Pair(
        authority=authority(name, begins_s=begins_s, life_s=life_s),
        certificate=f"<certificate of {name}>".encode(),
        key=f"<key of {name}>".encode(),
        not_before_s=begins_s,
        not_after_s=begins_s + life_s,
        names=names,
    )


def webhook_state(
    *authorities: Authority, name: str = "pods", since_s: int = 0, is_clean: bool = True, injected_by: str = ""
) -> WebhookState:
    """``since_s``: seconds since the process began."""
    return WebhookState(
        name=name,
        version="7",
        bundles=(Bundle(authorities, is_clean=is_clean),),
        since_ns=since_s * S,
        injected_by=injected_by,
    )


def view(
    held: Held | None,
    *configurations: WebhookState,
    served: Pair | None = None,
    proven: bool = False,
    now_s: int = NOW_S,
    at_s: int = 100,
    names: frozenset[str] = NAMES,
) -> View:
    return View(
        held=held, webhooks=configurations, served=served, proven=proven, names=names, now_s=now_s, at_ns=at_s * S
    )
