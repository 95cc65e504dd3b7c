"""Steps against a daemon in memory that does what the documentation says of each command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.mps import control
from nodeagent.core.mps.control import Client, Namespace, Said, Server, Wanted, memory_bytes, millis
from nodeagent.core.mps.limits import MOST_COMMANDS, Held, commands, gone, held
from tests.nodeagent.core.mps.test_mpsnames import GPU, OTHER, PIPES, POD, TWIN

SECOND = "00000000-1111-4222-8333-444444444444"
MINE = Wanted(POD, GPU, 5_120, 30)
BESIDE = Wanted(SECOND, GPU, 1_024, 100)
G, T = control.server(GPU), control.namespace(POD)


@dataclass
class Daemon:
    """``limits``: by server and namespace, memory limit and percentage as they were given."""

    servers: dict[str, str] = field(default_factory=dict)
    limits: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    clients: set[tuple[str, str]] = field(default_factory=set)
    ready: bool = True

    def said(self) -> Said:
        return Said(
            tuple(Server(name, self.ready, f"{PIPES}/{name}", device) for name, device in self.servers.items()),
            tuple(
                Namespace(name, server, memory_bytes(its["memory"]), millis(its["percent"]), f"{PIPES}/{server}/{name}")
                for (server, name), its in self.limits.items()
            ),
            frozenset(Client(pid, *place) for pid, place in enumerate(sorted(self.clients), 1)),
        )

    def do(self, words: tuple[str, ...]) -> None:
        """Carry a command out. Fails the test where the daemon would refuse it, but for clients that are there."""
        module, verb, name, *rest = words
        given = dict(word.removeprefix("--").split("=", 1) for word in rest)
        server = given.get("server", name)
        where = (server, control.DEFAULT_NAMESPACE if module == "server" else name)
        if (module, verb) == ("server", "create"):
            assert name not in self.servers
            self.servers[name] = given["allowed-devices"]
            self.limits[where] = {"memory": "-", "percent": "-"}
        elif verb == "create":
            assert server in self.servers
            assert where not in self.limits
            self.limits[where] = {"memory": "-", "percent": "-"}
        elif verb == "set":
            self.limits[where]["percent"] = given["active-thread-percentage"]
            self.limits[where]["memory"] = given.get("pinned-memory-limit", self.limits[where]["memory"])
        elif module == "namespace":
            if where not in self.clients:
                del self.limits[where]
        elif not any(client[0] == name for client in self.clients):
            del self.servers[name]
            self.limits = {each: its for each, its in self.limits.items() if each[0] != name}

    def follow(self, wanted: Iterable[Wanted]) -> int:
        """Carry out what one look asks for; how many commands that were."""
        asked = commands(wanted, self.said(), pipes=PIPES)
        for command in asked:
            self.do(command.words)
        return len(asked)

    def held(self, wanted: Iterable[Wanted]) -> tuple[Held, ...]:
        return held(wanted, self.said(), pipes=PIPES, joined=())


def test_a_first_tenant_gets_a_server_and_a_namespace_with_both_limits() -> None:
    said = [command.words for command in commands([MINE], Said(), pipes=PIPES)]
    assert said == [
        ("server", "create", G, "--uid=0", f"--allowed-devices={GPU}"),
        ("server", "set", G, "--pinned-memory-limit=1024M", "--active-thread-percentage=10"),
        ("namespace", "create", T, f"--server={G}"),
        ("namespace", "set", T, f"--server={G}", "--pinned-memory-limit=5120M", "--active-thread-percentage=30"),
    ]


def test_a_further_look_has_nothing_to_do_and_sees_the_tenants_held() -> None:
    daemon = Daemon()
    assert daemon.follow([MINE, BESIDE]) == 6
    assert daemon.follow([MINE, BESIDE]) == 0
    assert daemon.held([MINE, BESIDE]) == (Held(MINE), Held(BESIDE))
    assert gone([MINE], daemon.said(), pipes=PIPES) == ()


def test_a_tenant_is_joined_where_its_namespace_was_and_not_by_the_list_of_clients_alone() -> None:
    daemon = Daemon()
    daemon.follow([MINE])
    daemon.clients = {(G, T)}
    assert daemon.held([MINE]) == (Held(MINE),)
    assert held([MINE], daemon.said(), pipes=PIPES, joined=[(G, control.DEFAULT_NAMESPACE)]) == (Held(MINE),)
    assert held([MINE], daemon.said(), pipes=PIPES, joined=[(G, T)]) == (Held(MINE, was_joined=True),)


@pytest.mark.parametrize(
    ("what", "limits"),
    [
        ("no memory limit", {(G, T): {"memory": "-", "percent": "30"}}),
        ("more memory", {(G, T): {"memory": "5121M", "percent": "30"}}),
        ("no percentage", {(G, T): {"memory": "5120M", "percent": "-"}}),
        ("more compute", {(G, T): {"memory": "5120M", "percent": "30.5"}}),
        ("a default namespace without limits", {(G, "default"): {"memory": "-", "percent": "-"}}),
        ("a default namespace with much", {(G, "default"): {"memory": "1G", "percent": "11"}}),
    ],
)
def test_a_tenant_whose_limits_are_not_as_wanted_is_not_held_until_they_are_set_again(
    what: str, limits: dict[tuple[str, str], dict[str, str]]
) -> None:
    daemon = Daemon()
    daemon.follow([MINE])
    daemon.limits |= limits
    assert daemon.held([MINE]) == (), what
    assert daemon.follow([MINE]) == 1
    assert daemon.held([MINE]) == (Held(MINE),)


def test_lower_limits_hold_as_well() -> None:
    daemon = Daemon()
    daemon.follow([MINE])
    daemon.limits[G, T] = {"memory": "4G", "percent": "29.99"}
    assert daemon.held([MINE]) == (Held(MINE),)


def test_a_server_that_is_not_ready_or_has_another_gpu_or_folder_holds_nobody() -> None:
    daemon = Daemon()
    daemon.follow([MINE])
    daemon.ready = False
    assert daemon.held([MINE]) == ()
    assert gone([MINE], daemon.said(), pipes=PIPES) == (GPU,)
    daemon.ready = True
    daemon.servers[G] = OTHER
    assert daemon.held([MINE]) == ()
    daemon.servers[G] = GPU
    assert held([MINE], daemon.said(), pipes=PIPES / "other", joined=()) == ()


def test_a_server_that_died_is_created_again_with_all_its_tenants() -> None:
    daemon = Daemon()
    daemon.follow([MINE, BESIDE])
    daemon.servers.clear()
    assert gone([MINE, Wanted(SECOND, OTHER, 1_024, 100)], daemon.said(), pipes=PIPES) == (GPU, OTHER)
    assert gone([], daemon.said(), pipes=PIPES) == ()
    assert daemon.held([MINE, BESIDE]) == ()
    daemon.limits.clear()
    assert daemon.follow([MINE, BESIDE]) == 6
    assert len(daemon.held([MINE, BESIDE])) == 2


def test_what_nobody_wants_is_deleted_by_no_force_so_clients_keep_theirs() -> None:
    daemon = Daemon()
    daemon.follow([MINE, BESIDE])
    daemon.clients = {(G, T)}
    (command, *others) = commands([BESIDE], daemon.said(), pipes=PIPES)
    assert (command.words, others) == (("namespace", "delete", T, f"--server={G}"), [])
    daemon.follow([BESIDE])
    assert (G, T) in daemon.limits
    daemon.follow([])
    assert set(daemon.servers) == {G}
    daemon.clients = set()
    daemon.follow([])
    daemon.follow([])
    assert (daemon.servers, daemon.limits) == ({}, {})


def test_twins_are_served_for_nobody() -> None:
    twins = [MINE, Wanted(SECOND, TWIN, 1_024, 100)]
    assert commands(twins, Said(), pipes=PIPES) == ()


def test_a_look_has_a_bound_and_the_rest_comes_later() -> None:
    many = [Wanted(f"{number:08x}-1111-4222-8333-444444444444", GPU, 1_024, 50) for number in range(100)]
    daemon, looks = Daemon(), 0
    while asked := daemon.follow(many):
        assert asked <= MOST_COMMANDS
        looks += 1
    assert looks == 4
    assert len(daemon.held(many)) == 100


def test_a_gpu_on_which_nothing_succeeds_holds_up_no_other_one() -> None:
    ill = [Wanted(f"{number:08x}-1111-4222-8333-444444444444", GPU, 1_024, 50) for number in range(100)]
    asked = commands([*ill, Wanted(POD, OTHER, 5_120, 30)], Said(), pipes=PIPES)
    assert sum(command.device == OTHER for command in asked) == 4


_TENANTS = st.lists(
    st.builds(
        Wanted,
        st.sampled_from([POD, SECOND]),
        st.sampled_from([GPU, OTHER]),
        st.sampled_from([0, 1_024, 5_120]),
        st.sampled_from([10, 100]),
    ),
    max_size=2,
    unique_by=lambda one: one.pod_uid,
)


@given(st.lists(_TENANTS, min_size=1, max_size=5), st.booleans())
def test_from_wherever_it_was_the_daemon_gets_to_what_is_wanted_and_rests(
    history: list[list[Wanted]], has_clients: bool
) -> None:
    daemon = Daemon()
    for wanted in history:
        daemon.follow(wanted)
        daemon.clients = set(daemon.limits) if has_clients else set()
    daemon.clients = set()
    wanted = history[-1]
    for _ in range(4):
        daemon.follow(wanted)
    assert daemon.follow(wanted) == 0
    assert {one.wanted for one in daemon.held(wanted)} == set(wanted)
    assert len(daemon.limits) == len(daemon.servers) + len(wanted)
