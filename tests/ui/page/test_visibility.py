"""What may not be seen has no name anywhere, and the map stays true."""

from __future__ import annotations

import msgspec
import pytest

from tests.scheduler.core.objects import NANO, bound, node, pod, reservation
from tests.ui.page.test_frames import frames_of
from ui.page.values import EVERYTHING, EventLine, GroupLine, QueueLine, Sight, Tenant, UnusableLine, seen, seen_path

HALF = NANO // 2
MINE = bound(pod("mine", namespace="team-a", fraction="0.5"), "n1", ("g", HALF))
SECRET = bound(pod("secret", namespace="secret-b", fraction="0.5", group="secret-gang"), "n1", ("g", HALF))
HELD = reservation("g", book={"uid-mine": HALF, "uid-secret": HALF})
EVENTS = [
    EventLine(key=f"{namespace}/e", namespace=namespace, pod=name, note=name)
    for namespace, name in (("team-a", "mine"), ("secret-b", "secret"))
]
WHOLE = msgspec.structs.replace(
    frames_of(node(gpus=1, mem_mib=1024), MINE, SECRET, HELD, *EVENTS).whole(),
    groups=(GroupLine(namespace="secret-b", name="secret-gang"), GroupLine(namespace="team-a", name="gang")),
    gone_events=("secret-b/gone", "team-a/gone"),
    gone_groups=("secret-b/gone", "team-a/gone"),
    queues=(QueueLine(name="secret-queue"),),
    gone_queues=("gone",),
    unusable=(UnusableLine(cause="cpu", nano=NANO),),
    gone_unusable=("memory",),
)
ANN = Sight(namespaces=frozenset({"team-a"}), events=frozenset({"team-a"}), queues=False)


def test_who_sees_everything_is_told_everything() -> None:
    assert seen(WHOLE, EVERYTHING) is WHOLE
    assert b"secret" in msgspec.json.encode(WHOLE)


def test_nothing_of_others_is_named() -> None:
    assert b"secret" not in msgspec.json.encode(seen(WHOLE, ANN))


def test_who_may_list_all_events_is_told_those_of_pods_that_he_may_list() -> None:
    told = seen(WHOLE, Sight(namespaces=frozenset({"team-a"}), events=None, queues=False))
    assert [line.pod for line in told.events] == ["mine"]
    assert b"secret" not in msgspec.json.encode(told)


def test_a_share_of_others_stays_where_it_is_and_as_large() -> None:
    ((device,),) = [card.devices for card in seen(WHOLE, ANN).nodes]
    # One's own come first: the order of names is not told, either.
    assert device.tenants == (
        Tenant(namespace="team-a", name="mine", uid="uid-mine", nano=HALF, mem_mib=512),
        Tenant(nano=HALF, mem_mib=512, is_hidden=True),
    )
    assert (device.used_nano, device.free_nano) == (NANO, 0)


def test_what_others_use_is_not_told() -> None:
    def using(tenant: Tenant) -> Tenant:
        return msgspec.structs.replace(tenant, memory_percent=7, sm_percent=9, idle_since="x", enforced="kill")

    (card,) = WHOLE.nodes
    devices = tuple(msgspec.structs.replace(d, tenants=tuple(map(using, d.tenants))) for d in card.devices)
    used = msgspec.structs.replace(WHOLE, nodes=(msgspec.structs.replace(card, devices=devices),))
    ((device,),) = [card.devices for card in seen(used, ANN).nodes]
    assert [(t.memory_percent, t.enforced) for t in device.tenants] == [(7, "kill"), (None, "")]


def test_what_is_ones_own_is_told() -> None:
    told = seen(WHOLE, ANN)
    assert [line.name for line in told.pods] == ["mine"]
    assert [line.pod for line in told.events] == ["mine"]
    assert [line.name for line in told.groups] == ["gang"]
    assert (told.gone_events, told.gone_groups) == (("team-a/gone",), ("team-a/gone",))


def test_what_is_written_in_queues_is_told_to_who_may_list_them() -> None:
    assert (seen(WHOLE, ANN).queues, seen(WHOLE, ANN).gone_queues) == ((), ())
    told = seen(WHOLE, Sight(namespaces=frozenset({"team-a"})))
    assert ([line.name for line in told.queues], told.gone_queues) == (["secret-queue"], ("gone",))


def test_who_may_not_list_nodes_sees_no_map() -> None:
    told = seen(
        msgspec.structs.replace(WHOLE, gone_nodes=("n9",)), Sight(nodes=False, namespaces=frozenset({"team-a"}))
    )
    assert (told.nodes, told.gone_nodes) == ((), ())
    assert [line.name for line in told.pods] == ["mine"]


@pytest.mark.parametrize(
    ("namespace", "sight", "is_told", "events"),
    [
        ("team-a", ANN, True, 1),
        ("secret-b", ANN, False, 0),
        ("team-a", Sight(namespaces=frozenset({"team-a"}), events=frozenset()), True, 0),
        ("secret-b", EVERYTHING, True, 1),
    ],
)
def test_a_path_is_told_to_who_may_see_the_pod(namespace: str, sight: Sight, is_told: bool, events: int) -> None:
    frames = frames_of(node(gpus=1, mem_mib=1024), MINE, SECRET, HELD, *EVENTS)
    path = frames.path(namespace, "mine" if namespace == "team-a" else "secret")
    assert path is not None
    told = seen_path(path, sight)
    assert (told is not None) == is_told
    assert (len(told.events) if told else 0) == events


def test_who_sees_the_map_is_told_how_much_of_it_fits_no_pod() -> None:
    assert seen(WHOLE, ANN).unusable == WHOLE.unusable
    blind = seen(WHOLE, msgspec.structs.replace(ANN, nodes=False))
    assert (blind.unusable, blind.gone_unusable) == ((), ())
