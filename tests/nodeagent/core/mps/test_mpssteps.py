"""Steps against a control daemon in memory that does what the documentation says of each command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.mps import control
from nodeagent.core.mps.control import MOST_ASKED, Client, Namespace, Said, Server, Wanted, memory_bytes, millis
from nodeagent.core.mps.limits import MOST_COMMANDS, Held, Pauses, commands, gone, held

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
GPU = "GPU-5f2c1a90-0000-4000-8000-000000000001"
TWIN = "GPU-5f2c1a90-0000-4000-8000-000000000002"
OTHER = "GPU-77aa1a90-0000-4000-8000-000000000001"
PIPES = PurePosixPath("/run/moorage/mps")


def test_names_are_such_as_the_daemon_allows_and_paths_such_as_sockets_have() -> None:
    names = (control.server(GPU), control.namespace(POD))
    assert names == ("g5f2c1a9000004000", "t3f1c2a526d0c4d559a303d5c7e0b6f3e")
    socket = control.folder(PIPES, Wanted(POD, GPU, 1, 100)) / control.SOCKET
    assert len(str(socket)) < 90 < control.LONGEST_PATH


def test_a_namespace_names_its_pod_and_any_other_name_none() -> None:
    assert control.pod_of(control.namespace(POD)) == POD
    for name in (
        "",
        "t",
        "default",
        control.namespace(POD)[1:],
        control.namespace(POD) + "0",
        "t" + "g" * 32,
        f"t{POD}",
    ):
        assert control.pod_of(name) == ""


def test_gpus_whose_servers_would_have_one_name_are_served_for_nobody() -> None:
    mine, twin, other = (Wanted(POD, device, 1, 100) for device in (GPU, TWIN, OTHER))
    assert control.server(GPU) == control.server(TWIN)
    assert control.alone([mine, other]) == (mine, other)
    assert control.alone([mine, twin, other]) == (other,)


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
        """Carry a command out.

        Fails the test where the control daemon would refuse it, but for clients that are there.
        """
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


S = 10**9


def test_a_pause_begins_with_ten_seconds_and_doubles_up_to_a_minute() -> None:
    pauses, now_ns, lengths = Pauses(), 0, []
    for _ in range(5):
        pauses.begin("g", now_ns, "no answer")
        lengths.append(next(s for s in range(100) if not pauses.why("g", now_ns + s * S)))
        now_ns += lengths[-1] * S
    assert lengths == [10, 20, 40, 60, 60]
    assert not pauses.why("other", now_ns)


def test_an_answer_ends_it_and_what_is_not_asked_is_forgotten() -> None:
    pauses = Pauses()
    for server in "gh":
        pauses.begin(server, 0, f"{server} hangs")
        pauses.begin(server, 0, f"{server} hangs")
    pauses.end("g")
    pauses.keep({"g"})
    assert not pauses.why("h", 0)
    for server in "gh":
        pauses.begin(server, 0, f"{server} hangs")
        assert (pauses.why(server, 10 * S - 1), pauses.why(server, 10 * S)) == (f"{server} hangs", "")


MPSJOINING_OTHER = "00000000-1111-4222-8333-444444444444"
MPSJOINING_G, MPSJOINING_T, OF_OTHER = control.server(GPU), control.namespace(POD), control.namespace(MPSJOINING_OTHER)
HERE = (MPSJOINING_G, MPSJOINING_T)


def said(*clients: Client, names: tuple[str, ...] = (MPSJOINING_T, OF_OTHER, control.DEFAULT_NAMESPACE)) -> Said:
    return Said((), tuple(Namespace(name, MPSJOINING_G, None, None, "") for name in names), frozenset(clients))


def test_a_namespace_is_joined_by_a_process_of_its_pod_until_it_is_deleted() -> None:
    now = said(Client(7, MPSJOINING_G, MPSJOINING_T), Client(8, MPSJOINING_G, OF_OTHER))
    assert control.joined((), now, {7: POD, 8: POD}) == {HERE}
    assert control.joined((), now, {7: "", 8: ""}) == control.joined((), now, {}) == set()
    assert control.joined([HERE], said(), {}) == {HERE}
    assert control.joined([HERE], said(names=()), {}) == set()


def test_processes_of_pods_that_are_not_known_to_have_joined_are_in_question() -> None:
    now = said(
        Client(9, MPSJOINING_G, MPSJOINING_T),
        Client(8, MPSJOINING_G, OF_OTHER),
        Client(7, MPSJOINING_G, "default"),
        Client(6, "other", MPSJOINING_T),
    )
    assert control.in_question((), now) == (Client(8, MPSJOINING_G, OF_OTHER), Client(9, MPSJOINING_G, MPSJOINING_T))
    assert control.in_question([HERE], now) == (Client(8, MPSJOINING_G, OF_OTHER),)


def test_however_many_lines_a_tenant_makes_a_look_asks_about_few() -> None:
    many = [Client(pid, MPSJOINING_G, MPSJOINING_T) for pid in range(1, 1_000)]
    asked = control.in_question((), said(*many, Client(5_000, MPSJOINING_G, OF_OTHER)))
    assert len(asked) == MOST_ASKED + 1
    assert Client(5_000, MPSJOINING_G, OF_OTHER) in asked


GIB = 1 << 30


def test_servers_are_read_as_the_daemon_documents_them() -> None:
    answer = (
        "training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
        "wide,0,48202,Ready,/run/nvidia-mps/wide,GPU-abcd-1234,GPU-efgh-5678,-\n"
        "late,0,-,Starting,/run/nvidia-mps/late,GPU-abcd-1234,-\n"
    )
    assert control.servers(answer) == (
        Server("training", True, "/run/nvidia-mps/training", "GPU-abcd-1234"),
        Server("wide", True, "/run/nvidia-mps/wide", "GPU-abcd-1234,GPU-efgh-5678"),
        Server("late", False, "/run/nvidia-mps/late", "GPU-abcd-1234"),
    )


def test_namespaces_are_read_with_their_limits_and_without() -> None:
    answer = (
        "default,training,Ready,10G,50.00,0,/run/nvidia-mps/training/default\n"
        "small,training,Ready,-,-,0,/run/nvidia-mps/training/small\n"
    )
    assert control.namespaces(answer) == (
        Namespace("default", "training", 10 * GIB, 50_000, "/run/nvidia-mps/training/default"),
        Namespace("small", "training", None, None, "/run/nvidia-mps/training/small"),
    )


def test_clients_are_read_whatever_their_programs_are_called() -> None:
    answer = (
        "51023,training,0,default,python train.py\n51087,training,0,high_priority,x,y\x0b51088,training,0,other,z\n"
    )
    assert control.clients(answer) == {Client(51023, "training", "default"), Client(51087, "training", "high_priority")}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("7,g,0,t,x\n7,g,0,t,x\n7,g,1,t,x", {Client(7, "g", "t")}),
        ("7,g,0,t,x\n8,g,0,t,x\n7,g,0,u,x", {Client(8, "g", "t")}),
        ("7,g,0,t,x\n7,h,0,t,x", set()),
        ("07,g,0,t,x\n0,g,0,t,x\n-7,g,0,t,x\n\u0667,g,0,t,x\n12345678,g,0,t,x\n7,g,t,x\n7,g,t", set()),
    ],
)
def test_a_process_is_a_client_of_one_namespace_or_of_none(answer: str, found: set[Client]) -> None:
    assert control.clients(answer) == found


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\n\n",
        "error: no control daemon",
        "training,1000,48201,Ready,/run",
        "TRAINING,0,1,Ready,/run,GPU-a,-",
        "../x,0,1,Ready,/run,GPU-a,-",
        ",,,,,,",
    ],
)
def test_what_is_not_of_the_form_names_no_server(answer: str) -> None:
    assert control.servers(answer) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4G", 4 * GIB),
        ("512M", 512 << 20),
        ("1024K", 1 << 20),
        ("1g", GIB),
        ("1.5G", 3 << 29),
        ("0.000001K", 1),
        ("4096", 4096),
        ("0G", None),
        ("-", None),
        ("", None),
        ("G", None),
        ("1e3G", None),
        ("-1G", None),
        ("9" * 13 + "G", None),
        ("9" * 12 + "T", None),
        ("unlimited", None),
    ],
)
def test_amounts_are_whole_bytes_or_nothing(text: str, found: int | None) -> None:
    assert control.memory_bytes(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("30", 30_000),
        ("30.00", 30_000),
        ("30.0001", 30_001),
        ("30%", 30_000),
        ("100", 100_000),
        ("100.1", None),
        ("0", None),
        ("-", None),
        ("nan", None),
        ("", None),
    ],
)
def test_percentages_are_thousandths_rounded_up_or_nothing(text: str, found: int | None) -> None:
    assert control.millis(text) == found


@given(st.text(alphabet=st.sampled_from("a1,-.\n\r GM_/"), max_size=200))
def test_of_any_answer_something_is_made(answer: str) -> None:
    assert all(one.memory_bytes is None or one.memory_bytes > 0 for one in control.namespaces(answer))
    assert all(one.pid and one.server and one.namespace for one in control.clients(answer))
    assert len(control.servers(answer)) <= answer.count("\n") + 1


def test_of_an_endless_answer_its_beginning_is_read() -> None:
    line = "1,g,0,t,x\n"
    assert control.clients(line * (2 * control.MOST_BYTES // len(line))) == {Client(1, "g", "t")}
