from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.caps import PAUSE_NS, Steady, is_weaker, steadied
from nodeagent.core.enforcement.container_edits import Lasting, Lingering
from nodeagent.core.enforcement.overuse import (
    MIB,
    Action,
    Device,
    History,
    Judgement,
    Key,
    Kill,
    Process,
    Rules,
    Sample,
    Seen,
    above,
    is_still,
    judge,
)
from tests.whole import IS_WHOLE

SECOND = 10**9
CARD = "GPU-1"
KILLS = Rules(dry_run=False)
EXACT = replace(KILLS, tolerance_mib=0)


def process(pid: int, mib: int | None, pod: str = "pod-a", *, started: int = 1) -> Process:
    return Process(pid, started, None if mib is None else mib * MIB, pod_uid=pod)


def device(*processes: Process, total_mib: int = 100_000, free_mib: int | None = None, uuid: str = CARD) -> Device:
    used = sum(each.used_bytes or 0 for each in processes)
    used = used if free_mib is None else (total_mib - free_mib) * MIB
    return Device(uuid, total_mib * MIB, used, processes)


def looks(
    seen: Sequence[Sequence[Device]], caps: Mapping[Key, int], rules: Rules = KILLS, *, every_ns: int = SECOND
) -> list[Judgement]:
    history, found = History(), []
    for number, devices in enumerate(seen):
        found.append(judge(Sample(number * every_ns, tuple(devices)), caps, history, rules))
        history = found[-1].history
    return found


def ended(judgements: Sequence[Judgement]) -> list[list[int]]:
    """PIDs that are ended in each look."""
    return [[victim.pid for kill in each.kills for victim in kill.victims] for each in judgements]


@pytest.mark.parametrize(
    ("cap_mib", "used_mib", "is_ended"),
    [
        (1000, 999, False),
        (1000, 1000, False),
        (1000, 1001, True),
        (1000, 50_000, True),
        (1, 2, True),
        # 0 is no cap, as is none.
        (0, 1, False),
        (0, 99_000, False),
    ],
)
def test_the_cap_itself_is_allowed_and_one_mib_more_is_not(cap_mib: int, used_mib: int, *, is_ended: bool) -> None:
    seen = [[device(process(7, used_mib))]] * 2
    assert ended(looks(seen, {("pod-a", CARD): cap_mib}, EXACT)) == [[], [7] if is_ended else []]


@pytest.mark.parametrize(("used_mib", "is_ended"), [(1064, False), (1065, True)])
def test_contexts_differ_in_size_so_there_is_a_tolerance(used_mib: int, *, is_ended: bool) -> None:
    found = looks([[device(process(7, used_mib))]] * 2, {("pod-a", CARD): 1000})
    assert ended(found) == [[], [7] if is_ended else []]


def test_a_byte_above_is_above() -> None:
    one = Process(7, 1, 1000 * MIB + 1, pod_uid="pod-a")
    assert ended(looks([[device(one)]] * 2, {("pod-a", CARD): 1000}, EXACT)) == [[], [7]]


def test_the_sum_of_a_pods_processes_counts_and_its_largest_goes() -> None:
    seen = [[device(process(5, 300), process(6, 600), process(7, 300), process(8, 900, "pod-b"))]] * 2
    (_, second) = looks(seen, {("pod-a", CARD): 1000, ("pod-b", CARD): 1000})
    (kill,) = second.kills
    assert (kill.pod_uid, kill.used_bytes, kill.cap_mib, kill.action) == ("pod-a", 1200 * MIB, 1000, Action.END_LARGEST)
    assert [victim.pid for victim in kill.victims] == [6]


def test_of_equals_the_youngest_goes() -> None:
    seen = [[device(process(5, 600, started=9), process(6, 600, started=3), process(7, 600, started=8))]] * 2
    assert ended(looks(seen, {("pod-a", CARD): 1000})) == [[], [5]]


def test_one_look_suffices_where_the_device_is_nearly_full() -> None:
    full = device(process(7, 2000), free_mib=1999)
    nearly = device(process(7, 2000), free_mib=2000)
    caps = {("pod-a", CARD): 1000}
    assert ended(looks([[full]], caps)) == [[7]]
    assert ended(looks([[nearly]], caps)) == [[]]


def test_who_is_back_below_his_cap_in_between_begins_anew() -> None:
    above, below = [device(process(7, 2000))], [device(process(7, 900))]
    found = looks([above, below, above, above], {("pod-a", CARD): 1000})
    assert ended(found) == [[], [], [], [7]]
    assert [len(each.suspects) for each in found] == [1, 0, 1, 0]


def test_memory_of_what_is_ending_counts_no_more() -> None:
    seen = [[device(process(6, 900), process(7, 2000))]] * 5
    assert ended(looks(seen, {("pod-a", CARD): 1000})) == [[], [7], [], [], []]


def test_what_does_not_end_counts_again_after_a_while() -> None:
    seen = [[device(process(6, 900), process(7, 2000))]] * 9
    assert ended(looks(seen, {("pod-a", CARD): 1000})) == [[], [7], [], [], [], [], [], [7], []]


def test_the_third_kill_in_a_minute_ends_all_of_the_pod_on_that_device_only() -> None:
    """A program that is started again and again by its parent."""
    parent, neighbour = process(1, 10), process(90, 5000, "pod-b")
    seen = [[device(parent, process(10 + n // 2, 2000 + n // 2), neighbour)] for n in range(8)]
    elsewhere = device(process(1, 500), uuid="GPU-2")
    caps = {("pod-a", CARD): 1000, ("pod-b", CARD): 9000, ("pod-a", "GPU-2"): 1000}
    found = looks([[*each, elsewhere] for each in seen], caps)
    assert ended(found)[:6] == [[], [10], [], [11], [], [12, 1]]
    assert [kill.action for each in found for kill in each.kills][:3] == [
        Action.END_LARGEST,
        Action.END_LARGEST,
        Action.END_ALL,
    ]
    assert {kill.device for each in found for kill in each.kills} == {CARD}


def test_kills_of_more_than_a_minute_ago_do_not_count() -> None:
    seen = [[device(process(1, 10), process(10 + n // 2, 2000))] for n in range(8)]
    found = looks(seen, {("pod-a", CARD): 1000}, every_ns=16 * SECOND)
    assert all(kill.action is Action.END_LARGEST for each in found for kill in each.kills)
    assert all(len(when) <= 2 for when in found[-1].history.kills.values())


def test_a_dry_run_says_what_it_would_do_once_a_minute() -> None:
    seen = [[device(process(7, 2000))]] * 130
    found = looks(seen, {("pod-a", CARD): 1000}, Rules())
    assert [number for number, each in enumerate(found) if each.kills] == [1, 61, 121]
    assert all(kill.is_dry for each in found for kill in each.kills)
    assert not found[-1].history.leaving


def test_a_dry_run_that_has_spoken_of_one_pod_still_speaks_of_the_next_one_on_its_device() -> None:
    first, other = process(7, 2000), process(8, 2000, "pod-b")
    caps = {("pod-a", CARD): 1000, ("pod-b", CARD): 1000}
    found = looks([[device(first)], [device(first)], [device(first, other)], [device(first, other)]], caps, Rules())
    assert ended(found) == [[], [7], [], [8]]


def test_a_device_with_memory_that_is_not_known_is_not_judged() -> None:
    odd = device(process(6, None, "pod-b"), process(7, 2000))
    plain = device(process(8, 2000, "pod-c"), uuid="GPU-2")
    caps = {("pod-a", CARD): 1000, ("pod-c", "GPU-2"): 1000}
    found = looks([[odd, plain]] * 2, caps)
    assert ended(found) == [[], [8]]
    assert found[1].unjudged == {CARD}


def test_a_cap_is_of_one_device() -> None:
    seen = [[device(process(7, 2000)), device(process(7, 2000), uuid="GPU-2")]] * 2
    assert ended(looks(seen, {("pod-a", "GPU-3"): 1})) == [[], []]
    (_, second) = looks(seen, {("pod-a", "GPU-2"): 1000})
    assert [kill.device for kill in second.kills] == ["GPU-2"]


PODS = ("", "pod-a", "pod-b", "pod-c")
PROCESSES = st.builds(
    process, st.integers(1, 6), st.none() | st.integers(0, 3000), st.sampled_from(PODS), started=st.integers(1, 2)
)
DEVICES = st.lists(PROCESSES, max_size=5, unique_by=lambda one: one.pid).map(lambda found: device(*found))
CAPS = st.dictionaries(st.sampled_from([(pod, CARD) for pod in PODS]), st.integers(0, 2500))


@given(st.lists(DEVICES, max_size=6), CAPS, st.booleans())
def test_no_history_makes_anything_else_end(seen: list[Device], caps: dict[Key, int], dry_run: bool) -> None:
    rules = replace(KILLS, dry_run=dry_run)
    for one, judgement in zip(seen, looks([[each] for each in seen], caps, rules), strict=True):
        for kill in judgement.kills:
            assert caps[kill.pod_uid, CARD] > 0
            assert kill.pod_uid
            assert kill.victims
            assert all(victim in one.processes and victim.pod_uid == kill.pod_uid for victim in kill.victims)
            used = sum(each.used_bytes or 0 for each in one.processes if each.pod_uid == kill.pod_uid)
            assert used >= kill.used_bytes > (caps[kill.pod_uid, CARD] + rules.tolerance_mib) * MIB
            assert all(each.used_bytes is not None for each in one.processes)
            assert kill.victims[0].used_bytes == max(victim.used_bytes or 0 for victim in kill.victims)


@given(st.integers(1, 3000), st.integers(0, 6000))
def test_over_use_is_ended_by_the_second_look_and_no_other(cap_mib: int, used_mib: int) -> None:
    found = ended(looks([[device(process(7, used_mib))]] * 2, {("pod-a", CARD): cap_mib}))
    assert found == [[], [7] if used_mib > cap_mib + 64 else []]


# --- PIDs that are used again ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Alive:
    """A process of the simulated machine: ``number`` is who it really is."""

    number: int
    pid: int
    started: int
    pod: str
    mib: int


class Machine:
    """A machine with so few PIDs that they are used again all the time. One of its pods has no cap."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._numbers, self._ticks = count(1), count(1)
        self.alive: dict[int, Alive] = {}
        for pid in range(1, 9):
            self._start(pid)

    def _start(self, pid: int) -> None:
        pod = self._rng.choice(PODS)
        self.alive[pid] = Alive(next(self._numbers), pid, next(self._ticks), pod, self._rng.choice([100, 400, 1500]))

    def churn(self, most: int) -> None:
        """Some processes end, and their PIDs are taken at once."""
        for pid in self._rng.sample(sorted(self.alive), self._rng.randint(0, most)):
            self._start(pid)

    def device(self) -> Device:
        return device(*(process(one.pid, one.mib, one.pod, started=one.started) for one in self.alive.values()))

    def seen(self, pid: int) -> Seen | None:
        one = self.alive.get(pid)
        return None if one is None else Seen(one.started, one.pod)


@dataclass(slots=True)
class Tally:
    signals: int = 0
    wrong: int = 0
    left_alone: int = 0


def end(machine: Machine, kill: Kill, judged: Mapping[int, int], tally: Tally, *, looks_again: bool) -> None:
    """What nodeagent/enforcement/memory_enforcer/loop.py does: pin, look again, signal. Others run between any two."""
    for victim in kill.victims:
        machine.churn(2)
        pinned = machine.alive[victim.pid]
        machine.churn(2)
        if looks_again and not is_still(victim, machine.seen(victim.pid)):
            tally.left_alone += 1
            continue
        machine.churn(2)
        tally.signals += 1
        tally.wrong += pinned.number != judged[victim.pid]


def rounds(signals: int, *, looks_again: bool) -> Tally:
    tally, machine, history = Tally(), Machine(7), History()
    caps = {("pod-a", CARD): 500, ("pod-b", CARD): 1000}
    for number in count():
        if tally.signals >= signals:
            return tally
        machine.churn(3)
        judged = {one.pid: one.number for one in machine.alive.values()}
        judgement = judge(Sample(number * SECOND, (machine.device(),)), caps, history, KILLS)
        history = judgement.history
        for kill in judgement.kills:
            end(machine, kill, judged, tally, looks_again=looks_again)
    raise AssertionError


@pytest.mark.thorough
def test_no_other_process_is_ended_where_pids_are_used_again() -> None:
    tally = rounds(4_000, looks_again=True)
    assert tally.wrong == 0
    assert tally.left_alone > 400


def test_without_the_second_look_others_would_be_ended() -> None:
    """So the simulation can tell."""
    assert rounds(1_000, looks_again=False).wrong > 100


@pytest.mark.thorough
def test_no_other_process_is_ended_in_many_thousands() -> None:
    assert rounds(100_000 if IS_WHOLE else 15_000, looks_again=True).wrong == 0


@pytest.mark.parametrize(
    ("seen", "is_same"),
    [
        (Seen(5, "pod-a"), True),
        (Seen(6, "pod-a"), False),
        (Seen(5, "pod-b"), False),
        (Seen(5, ""), False),
        (None, False),
    ],
)
def test_a_process_is_its_pid_start_time_and_pod(seen: Seen | None, *, is_same: bool) -> None:
    assert is_still(process(7, 1, started=5), seen) is is_same


@pytest.mark.parametrize(
    ("counted_mib", "is_ended"), [(None, True), (999, False), (1064, False), (1065, True), (0, False), (90_000, True)]
)
def test_what_the_driver_counts_for_a_pod_is_better_than_the_sum_over_its_processes(
    counted_mib: int | None, *, is_ended: bool
) -> None:
    caps, key = {("pod-a", CARD): 1000}, ("pod-a", CARD)
    counted = {} if counted_mib is None else {key: counted_mib * MIB}
    sample = Sample(0, (device(process(7, 900), process(8, 300)),))
    found = judge(sample, caps, History(over=frozenset({key})), KILLS, counted=counted)
    assert bool(found.kills) is is_ended
    if is_ended and counted_mib is not None:
        assert found.kills[0].used_bytes == counted_mib * MIB


def test_what_is_ending_is_taken_off_the_drivers_count_as_well() -> None:
    caps, key = {("pod-a", CARD): 1000}, ("pod-a", CARD)
    history = History(over=frozenset({key}), leaving={(7, 1): 0})
    sample = Sample(SECOND, (device(process(7, 900), process(8, 300)),))
    assert not judge(sample, caps, history, KILLS, counted={key: 1900 * MIB}).kills
    assert judge(sample, caps, history, KILLS, counted={key: 2000 * MIB}).kills


def test_only_pods_above_their_cap_are_counted_again() -> None:
    caps = {("pod-a", CARD): 1000, ("pod-b", CARD): 1000, ("pod-c", "GPU-2"): 1}
    sample = Sample(
        0,
        (
            device(process(7, 900), process(8, 300), process(9, 1064, "pod-b"), process(10, 9_000, "pod-c")),
            device(process(11, None, "pod-c"), uuid="GPU-2"),
        ),
    )
    assert above(sample, caps, KILLS) == {("pod-a", CARD)}


def test_a_thing_counts_once_it_was_so_all_the_time() -> None:
    lasting = Lasting(30.0)
    assert lasting.take(["a"], 0.0) == set()
    assert lasting.take(["a", "b"], 29.0) == set()
    assert lasting.take(["a", "b"], 30.0) == {"a"}
    assert lasting.take(["b"], 59.0) == {"b"}
    assert lasting.take(["a", "b"], 60.0) == {"b"}


def test_what_was_so_before_counts_at_once_and_begins_again_as_any_other() -> None:
    lasting = Lasting(30.0)
    lasting.begin(["a", "b"])
    assert lasting.take(["a", "c"], 0.0) == {"a"}
    assert lasting.take(["a", "b"], 1.0) == {"a"}
    assert lasting.take([], 2.0) == set()
    assert lasting.take(["a"], 31.0) == set()


def test_a_pod_is_kept_for_a_while_after_it_was_seen_last() -> None:
    kept = Lingering(60.0)
    assert kept.take({"a", "b"}, 0.0) == {"a", "b"}
    assert kept.take({"b"}, 59.0) == {"a", "b"}
    assert kept.take({"b"}, 60.0) == {"b"}
    assert kept.take({"a"}, 70.0) == {"a", "b"}
    assert kept.take((), 120.0) == {"a"}


PAUSE_S = PAUSE_NS // SECOND


def told(looks: Sequence[tuple[int, str]]) -> list[str]:
    """What a tenant is told to be limited by after each look: (second, what is so)."""
    kept: dict[str, Steady] = {}
    found = []
    for at_s, word in looks:
        kept = steadied(kept, {"pod": word}, at_s * SECOND)
        found.append(kept["pod"].word)
    return found


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        # A first gain and a loss are reported at once.
        ([(0, ""), (1, "kill"), (2, "driver")], ["", "kill", "driver"]),
        ([(0, "driver"), (1, "kill"), (2, "")], ["driver", "kill", ""]),
        # What comes back waits for the end of the pause.
        ([(0, "kill"), (1, ""), (2, "kill"), (PAUSE_S, "kill"), (1 + PAUSE_S, "kill")], ["kill", "", "", "", "kill"]),
        ([(0, "kill"), (1, ""), (2, "kill"), (3, ""), (1 + PAUSE_S, "")], ["kill", "", "", "", ""]),
        # A better one as well, and a loss meanwhile begins another pause.
        ([(0, "driver"), (1, "kill"), (2, "driver"), (31, "driver")], ["driver", "kill", "kill", "driver"]),
        ([(0, "driver"), (1, "kill"), (20, ""), (31, "kill"), (50, "kill")], ["driver", "kill", "", "", "kill"]),
    ],
)
def test_a_loss_is_told_at_once_and_what_comes_back_after_a_pause(
    looks: Sequence[tuple[int, str]], words: Sequence[str]
) -> None:
    assert told(looks) == words


def test_a_tenant_that_is_gone_is_forgotten() -> None:
    kept = steadied({"a": Steady("kill", 5), "b": Steady("", 5)}, {"b": "kill", "c": "driver"}, 6)
    assert kept == {"b": Steady("", 5), "c": Steady("driver")}


WORDS = st.sampled_from(["", "hami-core", "mps", "kill", "driver"])


@given(st.lists(WORDS, min_size=2, max_size=60))
def test_nobody_is_told_to_be_limited_better_than_it_is(words: Sequence[str]) -> None:
    looks = list(enumerate(words))
    for word, said in zip(words, told(looks), strict=True):
        assert not is_weaker(word, said)


@given(st.lists(st.sampled_from(["", "kill"]), min_size=120, max_size=120))
def test_what_alternates_is_told_twice_in_a_pause_at_most(words: Sequence[str]) -> None:
    said = told(list(enumerate(words)))
    changes = [number for number in range(1, len(said)) if said[number] != said[number - 1]]
    for first, third in zip(changes, changes[2:], strict=False):
        assert third - first >= PAUSE_S - 1
