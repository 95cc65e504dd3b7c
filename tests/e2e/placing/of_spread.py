"""Stories of pods that are spread over nodes and zones."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.bare import Object, node
from tests.e2e.placing.story import ZONE, Story, matching, nodes, on_nodes, pod, pods, spread
from wire import names

_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
_LABEL: Final = f"{_SPREAD} (missing required label)"
_HOST: Final = names.HOSTNAME_LABEL
_A: Final = {"app": "a"}
_FOUR: Final = nodes("k l m n", zone="z0 z0 z1 z1")


def _spreading(*constraints: Object, **parts: Any) -> Object:
    return pod(labels=_A, topologySpreadConstraints=list(constraints), **parts)


def _running(places: str) -> list[Object]:
    return pods(places, labels=_A)


SPREAD: Final = (
    Story(
        "the one host without a pod is next", _FOUR, _spreading(spread(_HOST, 1)), running=_running("k l n"), goes="m"
    ),
    Story(
        "a skew of two leaves three hosts",
        _FOUR,
        _spreading(spread(_HOST, 2)),
        running=_running("k k n"),
        goes=["l", "m", "n"],
    ),
    Story(
        "affinity to a zone and spread over hosts leave one",
        _FOUR,
        _spreading(spread(_HOST, 1), affinity=on_nodes(matching(ZONE, "In", "z0"))),
        running=_running("k"),
        goes="l",
    ),
    Story(
        "two constraints leave one host",
        _FOUR,
        _spreading(spread(ZONE, 1), spread(_HOST, 1)),
        running=_running("k l m"),
        goes="n",
    ),
    Story(
        "two constraints leave no host",
        _FOUR,
        _spreading(spread(ZONE, 1), spread(_HOST, 1, matching("app", "Exists"))),
        running=[*_running("k l"), *(pod(f"other-{n}", on=at, labels={"app": "b"}) for n, at in enumerate("mmnn"))],
        says=f"4 {_SPREAD}",
    ),
    Story(
        "too few hosts count as one that is empty",
        nodes("k l m", zone="z0 z1 z1"),
        _spreading(spread(_HOST, 2, minDomains=4)),
        running=_running("k k l l m"),
        goes="m",
    ),
    Story(
        "enough hosts count as they are",
        nodes("k l m", zone="z0 z1 z1"),
        _spreading(spread(_HOST, 2, minDomains=2)),
        running=_running("k k l l m"),
        goes=["k", "l", "m"],
    ),
    Story(
        "too few zones leave the emptier one",
        _FOUR,
        _spreading(spread(ZONE, 2, minDomains=3)),
        running=_running("k l m"),
        goes=["m", "n"],
    ),
    Story(
        "enough zones leave all hosts",
        _FOUR,
        _spreading(spread(ZONE, 2, minDomains=2)),
        running=_running("k l m"),
        goes=list("klmn"),
    ),
    Story(
        "zones that the pod can't reach don't count",
        nodes("k l m n", zone="z0 z0 z1 z2", disk="ssd ssd ssd hdd"),
        _spreading(spread(ZONE, 1, nodeAffinityPolicy="Honor"), nodeSelector={"disk": "ssd"}),
        running=_running("k l m"),
        goes="m",
    ),
    Story(
        "zones that the pod can't reach count where the policy ignores them",
        nodes("k l m n", zone="z0 z0 z1 z2", disk="ssd ssd ssd hdd"),
        _spreading(spread(ZONE, 1, nodeAffinityPolicy="Ignore"), nodeSelector={"disk": "ssd"}),
        running=_running("k l m"),
        says=f"3 {_SPREAD}",
    ),
    Story(
        "zones behind a taint don't count where the policy honors it",
        [
            *nodes("k l m", zone="z0 z0 z1"),
            node("n", labels={ZONE: "z2"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
        ],
        _spreading(spread(ZONE, 1, nodeTaintsPolicy="Honor")),
        running=_running("k l m"),
        goes="m",
    ),
    Story(
        "zones behind a taint count otherwise",
        [
            *nodes("k l m", zone="z0 z0 z1"),
            node("n", labels={ZONE: "z2"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
        ],
        _spreading(spread(ZONE, 1)),
        running=_running("k l m"),
        says=f"3 {_SPREAD}",
    ),
    Story(
        "only pods of the same version are spread",
        nodes("k m", zone="z0 z1"),
        pod(labels={**_A, "version": "2"}, topologySpreadConstraints=[spread(ZONE, 1, matchLabelKeys=["version"])]),
        running=[
            *(pod(f"old-{number}", on="m", labels={**_A, "version": "1"}) for number in range(2)),
            pod("same", on="k", labels={**_A, "version": "2"}),
        ],
        goes="m",
    ),
    Story("a host without the label is out", nodes("k m", zone="-"), _spreading(spread(ZONE, 1)), says=f"2 {_LABEL}"),
    Story(
        "a pod that its own constraint does not take is spread as well",
        _FOUR,
        pod(topologySpreadConstraints=[spread(_HOST, 1)]),
        running=_running("k k"),
        goes=list("lmn"),
    ),
)
