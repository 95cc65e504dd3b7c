"""What is done next, in a table: each row is a state of the world and what follows from it."""

from __future__ import annotations

import pytest

from admission.certificates.steps import Held, Keep, Make, Publish, Serve, Step, View, decide, health
from tests.admission.certificates.worlds import NAMES, NOW_S, pair, standing, view

A = pair("a")
#: Made when A was to be renewed.
B = pair("b", begins_s=1_000_040)
OLD = pair("old", begins_s=999_000)
LATER = NOW_S + 25
FOREVER = 100
OTHER_NAME = frozenset({"gpu-admission.kai-scheduler.svc"})


def held(current: object = None, following: object = None, *, unreadable: str = "") -> Held:
    return Held("3", current, following, unreadable)  # type: ignore[arg-type]


def keep(current: object, following: object = None) -> Keep:
    return Keep("3", current, following)  # type: ignore[arg-type]


def make(current: object = None, *, first: bool = False, names: frozenset[str] = NAMES) -> Make:
    return Make("3", current, is_first=first, names=names)  # type: ignore[arg-type]


def publish(*pairs: object, name: str = "pods") -> Publish:
    return Publish(name, "7", (tuple(each.authority for each in pairs),))  # type: ignore[attr-defined]


BOTH = (A.authority, B.authority)
TABLE: dict[str, tuple[View, list[Step]]] = {
    # --- the first certificate
    "an empty Secret: a first pair": (view(held(), standing()), [make(first=True)]),
    "no configurations yet (helm makes them last): a pair all the same": (view(held()), [make(first=True)]),
    "a pair, and nobody trusts it: it is served and published": (
        view(held(A), standing(name="pods"), standing(name="adoption")),
        [Serve(A), publish(A), publish(A, name="adoption")],
    ),
    "all is well": (view(held(A), standing(A.authority), served=A), []),
    "a replica that starts serves what stands": (view(held(A), standing(A.authority)), [Serve(A)]),
    # --- renewal
    "two thirds of its life are over: a successor beside it": (
        view(held(A), standing(A.authority), served=A, now_s=LATER),
        [make(A)],
    ),
    "a successor is published before it is served": (
        view(held(A, B), standing(A.authority), served=A, now_s=LATER),
        [publish(A, B)],
    ),
    "API servers may not follow yet: nothing": (
        view(held(A, B), standing(*BOTH, since_s=97), served=A, now_s=LATER),
        [],
    ),
    "one configuration was changed just now: nothing": (
        view(held(A, B), standing(*BOTH), standing(*BOTH, since_s=98, name="adoption"), served=A, now_s=LATER),
        [],
    ),
    "all follow: it is the current one": (
        view(held(A, B), standing(*BOTH, since_s=95), served=A, now_s=LATER),
        [keep(B)],
    ),
    "the current one is another: it is served": (
        view(held(B), standing(*BOTH), served=A, now_s=LATER),
        [Serve(B)],
    ),
    "the current one is another, and does not stand long enough in our eyes: not yet": (
        view(held(B), standing(*BOTH, since_s=98), served=A, now_s=LATER),
        [],
    ),
    "what we serve is trusted no more, and the current one is: it is served at once": (
        view(held(B), standing(B.authority, since_s=99), served=A, now_s=LATER),
        [Serve(B), publish(B, A)],
    ),
    "a replica that starts between the two serves the older one": (
        view(held(A, B), standing(*BOTH, since_s=100), now_s=LATER),
        [Serve(A)],
    ),
    "the old CA has ended: it leaves the configuration": (
        view(held(B), standing(OLD.authority, B.authority), served=B, now_s=LATER),
        [publish(B)],
    ),
    "the old CA has not ended: it stays": (view(held(B), standing(*BOTH), served=B, now_s=LATER), []),
    # --- what others do
    "the bundle was emptied": (view(held(A), standing(since_s=99), served=A, proven=True), [publish(A)]),
    "a foreign CA stands beside ours": (
        view(held(A), standing(A.authority, is_clean=False), served=A),
        [publish(A)],
    ),
    "cert-manager writes the bundles: we keep out": (
        view(held(A), standing(injected_by="cert-manager.io/inject-ca-from"), served=A),
        [],
    ),
    "the Secret was deleted: what is served goes on": (view(None, standing(A.authority), served=A), []),
    "the Secret was deleted and the bundle emptied: what is served is published": (
        view(None, standing(), served=A),
        [publish(A)],
    ),
    "the Secret came back empty: what is served is written back": (
        view(held(), standing(A.authority), served=A),
        [keep(A)],
    ),
    "the Secret is garbage: the same": (
        view(held(unreadable="tls.crt"), standing(A.authority), served=A),
        [keep(A)],
    ),
    "the Secret is garbage, and this replica serves nothing: others may": (
        view(held(unreadable="tls.crt"), standing(A.authority)),
        [make()],
    ),
    "the pair that it made then has to be followed first": (
        view(held(None, B), standing(*BOTH, since_s=98), served=B, now_s=LATER),
        [],
    ),
    "and when it is, it is the current one": (
        view(held(None, B), standing(*BOTH), served=B, now_s=LATER),
        [keep(B)],
    ),
    "one that is served and not trusted for sure is written back as the next": (
        view(held(), standing(*BOTH, since_s=98), served=B, now_s=LATER),
        [keep(None, B)],
    ),
    "but as the current one if it was proven once": (
        view(held(), standing(*BOTH, since_s=98), served=B, now_s=LATER, proven=True),
        [keep(B)],
    ),
    "beside a good pair stands garbage: it is tidied": (
        view(held(A, unreadable="next-tls.crt"), standing(A.authority), served=A),
        [keep(A)],
    ),
    # --- time
    "the Secret's pair has ended: a first one again": (
        view(held(OLD), standing(OLD.authority), served=OLD),
        [make(first=True)],
    ),
    "it ended while its successor waited: at once": (
        view(held(OLD, A), standing(OLD.authority, A.authority, since_s=99), served=OLD),
        [Serve(A), publish(A), keep(A)],
    ),
    "the API server's clock was put back before it began": (
        view(held(A), standing(A.authority), served=A, now_s=900_000),
        [make()],
    ),
    "the API server's clock was put on past its end": (
        view(held(A), standing(A.authority), served=A, now_s=2_000_000),
        [make(first=True)],
    ),
    # --- names
    "the Service has another name: a pair for both names": (
        view(held(A), standing(A.authority), served=A, names=OTHER_NAME),
        [make(A, names=NAMES | OTHER_NAME)],
    ),
}


@pytest.mark.parametrize(("seen", "steps"), TABLE.values(), ids=TABLE)
def test_what_is_done_next(seen: View, steps: list[Step]) -> None:
    assert list(decide(seen).steps) == steps


@pytest.mark.parametrize(
    ("seen", "again_in_s"),
    [
        (view(held(A), standing(A.authority), served=A), 20),
        (view(held(A, B), standing(*BOTH, since_s=97), served=A, now_s=LATER), 2),
        (view(held(A), standing(OLD.authority, A.authority), served=A, now_s=999_059), 1),
        (view(None), 3600),
    ],
    ids=["a renewal", "followed", "an end", "nothing"],
)
def test_when_time_alone_changes_something(seen: View, again_in_s: int) -> None:
    assert decide(seen).again_in_s == again_in_s


READY: dict[str, tuple[View, str]] = {
    "all is well": (view(held(A), standing(A.authority), served=A), ""),
    "no configurations: nobody is asked": (view(held(A), served=A), ""),
    "the first pair does not wait for API servers": (view(held(A), standing(A.authority, since_s=100), served=A), ""),
    "a proven pair does not either": (
        view(None, standing(*BOTH, since_s=100), served=A, now_s=LATER, proven=True),
        "",
    ),
    "the Secret was deleted": (view(None, standing(A.authority), served=A), ""),
    "no Secret, no certificate": (view(None), "does not exist"),
    "no certificate yet": (view(held()), "no certificate yet"),
    "not published": (view(held(A), standing(), standing(name="adoption"), served=A), "in pods and adoption yet"),
    "ended": (view(held(OLD), standing(OLD.authority), served=OLD), "ended on 1970-01-12 13:31:00 UTC"),
    "not begun": (view(held(A), standing(A.authority), served=A, now_s=999_999), "valid from 1970-01-12 13:46:40 UTC"),
    "for another name": (view(held(A), standing(A.authority), served=A, names=OTHER_NAME), "not for gpu-admission"),
    "others may be trusted, and this one is not yet": (
        view(held(None, B), standing(*BOTH, since_s=98), served=B, now_s=LATER),
        "given 3 more seconds",
    ),
}


@pytest.mark.parametrize(("seen", "said"), READY.values(), ids=READY)
def test_who_is_ready_and_why_not(seen: View, said: str) -> None:
    unready = health(seen).unready
    assert said in unready
    assert bool(unready) == bool(said)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (view(None, standing(A.authority), served=A), "apply admission/rbac.yaml"),
        (view(held(A, unreadable="next-tls.crt: no"), standing(A.authority), served=A), "next-tls.crt: no"),
        (view(held(A), standing(injected_by="x/inject-ca-from"), served=A), "take the annotation away, or give --cert"),
        (view(held(A), standing(A.authority), served=A, now_s=NOW_S + 36), "its successor is not in use yet"),
    ],
)
def test_what_an_administrator_has_to_see_to_is_a_sentence(seen: View, said: str) -> None:
    (warning,) = health(seen).warnings
    assert said in warning


def test_no_warning_where_all_is_well() -> None:
    assert health(view(held(A), standing(A.authority), served=A)).warnings == ()


def test_nobody_who_shows_a_pair_shows_its_key() -> None:
    assert "key" not in f"{held(A)!r} {view(held(A), served=A)!r} {keep(A)!r} {make(A)!r}"
