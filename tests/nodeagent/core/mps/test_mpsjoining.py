from __future__ import annotations

from nodeagent.core.mps import control
from nodeagent.core.mps.control import MOST_ASKED, Client, Namespace, Said
from tests.nodeagent.core.mps.test_mpsnames import GPU, POD

OTHER = "00000000-1111-4222-8333-444444444444"
G, T, OF_OTHER = control.server(GPU), control.namespace(POD), control.namespace(OTHER)
HERE = (G, T)


def said(*clients: Client, names: tuple[str, ...] = (T, OF_OTHER, control.DEFAULT_NAMESPACE)) -> Said:
    return Said((), tuple(Namespace(name, G, None, None, "") for name in names), frozenset(clients))


def test_a_namespace_is_joined_by_a_process_of_its_pod_until_it_is_deleted() -> None:
    now = said(Client(7, G, T), Client(8, G, OF_OTHER))
    assert control.joined((), now, {7: POD, 8: POD}) == {HERE}
    assert control.joined((), now, {7: "", 8: ""}) == control.joined((), now, {}) == set()
    assert control.joined([HERE], said(), {}) == {HERE}
    assert control.joined([HERE], said(names=()), {}) == set()


def test_processes_of_pods_that_are_not_known_to_have_joined_are_in_question() -> None:
    now = said(Client(9, G, T), Client(8, G, OF_OTHER), Client(7, G, "default"), Client(6, "other", T))
    assert control.in_question((), now) == (Client(8, G, OF_OTHER), Client(9, G, T))
    assert control.in_question([HERE], now) == (Client(8, G, OF_OTHER),)


def test_however_many_lines_a_tenant_makes_a_look_asks_about_few() -> None:
    many = [Client(pid, G, T) for pid in range(1, 1_000)]
    asked = control.in_question((), said(*many, Client(5_000, G, OF_OTHER)))
    assert len(asked) == MOST_ASKED + 1
    assert Client(5_000, G, OF_OTHER) in asked
