"""The next step of a replica about the webhooks' certificates: ``decide(view)``. Pure; docs/certificates.md says why.

No replica leads. Each decides by what it sees, every write names the version that it rests on, and the first write
counts for all. Three rules keep reviews from failing:

- A CA of ours leaves a configuration only when it has ended. So a replica that sees old objects can't remove a CA that
  another replica serves.
- A good pair is left only for one that all configurations have had, unchanged, for as long as API servers take.
- A trusted pair is not lost with the Secret: the replica that serves it writes it back.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.certificates.pair import Authority, Bundle, Pair, read_bundle, read_pair, write_bundle
from wire import names
from wire.api_groups import WebhookConfiguration
from wire.core import Secret
from wire.units import SECOND_NS

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


class WebhookState(msgspec.Struct, frozen=True, kw_only=True):
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

    ``now_s`` is the API server's clock (kube/client/clock.py), which decides whether a certificate is valid. Times in
    ``_ns`` are counted by this process, so no clock that jumps changes how long something has stood.
    """

    held: Held | None
    webhooks: tuple[WebhookState, ...]
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
    return all(trusts(bundle, pair.authority) for one in view.webhooks for bundle in one.bundles)


def trusts(bundle: Bundle, authority: Authority) -> bool:
    """Whether a bundle has a CA."""
    return any(each.id == authority.id for each in bundle.ours)


def followed_in_ns(view: View, pair: Pair) -> int:
    """How long until all API servers surely trust a pair that stands everywhere; 0: they do."""
    wait_ns = followed_s(pair) * SECOND_NS
    return max((one.since_ns + wait_ns - view.at_ns for one in view.webhooks), default=0)


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
        each for one in view.webhooks for bundle in one.bundles for each in bundle.ours if each.id != pair.authority.id
    )
    return not any(each.lives(view.now_s) for each in others)


#: Of the current pair as in any TLS Secret, and of the next one.
#: The keys of the Secret. Its type is Opaque: ``kubernetes.io/tls`` requires ``tls.crt`` and ``tls.key`` in each
#: manifest, if only empty ones, and each ``kubectl apply`` or ``helm upgrade`` would write those over the pair. An
#: empty Opaque manifest names no data, so applying it again changes nothing.
_CURRENT: Final = ("ca.crt", "tls.crt", "tls.key")
_NEXT: Final = ("next-ca.crt", "next-tls.crt", "next-tls.key")
#: cert-manager's, which has several: inject-ca-from, inject-ca-from-secret, inject-apiserver-ca.
_INJECTED: Final = "cert-manager.io/inject-"


def held(secret: Secret) -> Held:
    """Read the Secret. A missing Secret is no pair; one that can't be read is reported."""
    found = [_pair(secret.data or {}, keys) for keys in (_CURRENT, _NEXT)]
    current, following = (each if isinstance(each, Pair) else None for each in found)
    unreadable = "; ".join(each for each in found if isinstance(each, str) and each)
    return Held(secret.metadata.resource_version, current, following, unreadable)


def _pair(data: Mapping[str, str], keys: tuple[str, str, str]) -> Pair | str:
    texts = [_decoded(data.get(key) or "") for key in keys]
    if not any(texts):
        return ""
    made = read_pair(*texts)
    return f"{keys[1]} {made}" if isinstance(made, str) else made


def pairs_patch(current: Pair | None, following: Pair | None) -> dict[str, Any]:
    """Return the merge patch that has the Secret hold these pairs; other keys of it are not ours."""
    return {"data": {**_data(_CURRENT, current), **_data(_NEXT, following)}}


def _data(keys: tuple[str, str, str], pair: Pair | None) -> dict[str, str | None]:
    if pair is None:
        return dict.fromkeys(keys)
    texts = (pair.authority.pem, pair.certificate, pair.key)
    return {key: base64.b64encode(text).decode() for key, text in zip(keys, texts, strict=True)}


def webhook_state(configuration: WebhookConfiguration, *, name: str, since_ns: int) -> WebhookState:
    """Read a configuration that stands unchanged since this time."""
    annotations = configuration.metadata.annotations or {}
    return WebhookState(
        name=name,
        version=configuration.metadata.resource_version,
        bundles=tuple(_bundle(each.client_config.ca_bundle) for each in configuration.webhooks or ()),
        since_ns=since_ns,
        injected_by=next((key for key in annotations if key.startswith(_INJECTED)), ""),
    )


def _bundle(text: str | None) -> Bundle:
    return read_bundle(_decoded(text or ""))


def bundles_patch(version: str, bundles: tuple[tuple[Authority, ...], ...]) -> list[dict[str, Any]]:
    """Return the JSON patch that writes the bundles; it fails when the configuration is not at ``version`` any more."""
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        *(
            {
                "op": "add",
                "path": f"/webhooks/{number}/clientConfig/caBundle",
                "value": base64.b64encode(write_bundle(bundle)).decode(),
            }
            for number, bundle in enumerate(bundles)
        ),
    ]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b"?"


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
            each.lives(view.now_s) for one in view.webhooks for bundle in one.bundles for each in bundle.ours
        )
        return Make(version, None, is_first=not somebody_is_trusted, names=view.names)
    if is_trusted(view, candidate):
        return Keep(version, candidate, None if candidate == following else following)
    return None if following is not None else Keep(version, None, candidate)


def _to_publish(view: View) -> list[Publish]:
    wanted = {pair.authority.id: pair.authority for pair in (*_stored(view), good(view, view.served)) if pair}
    if not wanted:
        return []
    steps = (_published(one, tuple(wanted.values()), view.now_s) for one in view.webhooks if not one.injected_by)
    return [step for step in steps if step is not None]


def _published(one: WebhookState, wanted: tuple[Authority, ...], now_s: int) -> Publish | None:
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
    ends = [each.not_after_s for one in view.webhooks for bundle in one.bundles for each in bundle.ours]
    waits = [time - view.now_s for time in (*times, *ends)]
    waits += [-(-followed_in_ns(view, pair) // SECOND_NS) for pair in pairs]
    return min((wait for wait in waits if wait > 0), default=MOST_PATIENT_S) if waits else MOST_PATIENT_S


_SECRET: Final = f"the Secret {names.SYSTEM_NAMESPACE}/{names.CERTIFICATES_SECRET}"


class Health(msgspec.Struct, frozen=True):
    """``unready``: why reviews can't be answered, "" if they can. ``warnings``: what will have to be seen to."""

    unready: str
    warnings: tuple[str, ...] = ()


def health(view: View) -> Health:
    """Judge a view. A configuration that does not exist asks nobody, so there is nothing to wait for."""
    return Health(_unready(view), tuple(_warnings(view)))


def _unready(view: View) -> str:
    served = view.served
    if served is None:
        return (
            f"there is no certificate: {_SECRET} does not exist" if view.held is None else "there is no certificate yet"
        )
    if missing := sorted(view.names - served.names):
        return f"the certificate is not for {', '.join(missing)}"
    if not served.is_valid(view.now_s):
        return _not_valid(view, served)
    if not stands(view, served):
        lacking = [one.name for one in view.webhooks if not all(trusts(each, served.authority) for each in one.bundles)]
        return f"the CA of the certificate is not in {' and '.join(lacking)} yet"
    is_current = view.held is not None and view.held.current == served
    if not is_current and not is_trusted(view, served):
        wait_s = -(-followed_in_ns(view, served) // SECOND_NS)
        return f"the API servers are given {wait_s} more seconds to trust the new certificate"
    return ""


def _not_valid(view: View, pair: Pair) -> str:
    if view.now_s < pair.not_before_s:
        begins, now = _date(pair.not_before_s), _date(view.now_s)
        return f"the certificate is valid from {begins}, and for the API server it is {now}"
    return f"the certificate ended on {_date(pair.not_after_s)}"


def _warnings(view: View) -> list[str]:
    said = []
    if view.held is None:
        said.append(f"{_SECRET} does not exist, so nothing can be kept: apply admission/rbac.yaml, which brings it")
    elif view.held.unreadable:
        said.append(f"{_SECRET} holds what is no certificate of ours, and it is replaced: {view.held.unreadable}")
    said += [
        f"{one.name} has the annotation {one.injected_by}, so its caBundle is left to whom that names: take the "
        "annotation away, or give --certificate and --key"
        for one in view.webhooks
        if one.injected_by
    ]
    served = good(view, view.served)
    if served is not None and view.now_s >= served.not_after_s - served.life_s // 12:
        said.append(f"the certificate ends on {_date(served.not_after_s)}, and its successor is not in use yet")
    return said


def _date(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
