from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.container_edits import (
    Edits,
    Mount,
    Scratch,
    content,
    edits_in,
    merged,
    narrowed,
    pods_in,
)
from nodeagent.core.enforcement.driver_limits import (
    MOST_ASKS,
    NO_LIMIT,
    RECHECK_LOOKS,
    Answer,
    Ask,
    Group,
    Place,
    due,
    held,
    next_due,
    remembered,
    used_bytes,
)
from nodeagent.core.enforcement.overuse import MIB, Key

POD, OTHER = "pod-a", "pod-b"
CARD, CARD_2 = "GPU-1", "GPU-2"
CARDS = (CARD, CARD_2)
CAPS: Mapping[Key, int] = {(POD, CARD): 1000}
OWN = Group(POD, "/pod-a", is_pod=True)
NESTING = Group(POD, "/pod-a", is_pod=True, nests=True)
FIRST, SECOND = Group(POD, "/pod-a/1"), Group(POD, "/pod-a/2")


def reads(mib: int | None, *, used_mib: int = 0, look: int = 1, cap_mib: int = 1000, is_set: bool = False) -> Answer:
    return Answer(look, cap_mib, NO_LIMIT if mib is None else mib * MIB, used_mib * MIB, is_set=is_set)


REFUSED = Answer(1, 1000, problem="refused")
GONE = Answer(1, 1000, problem="not found", is_gone=True)


def known(**answers: Answer) -> dict[Place, Answer]:
    """Answers about a card, by the last part of the group's path; ``own``: of the pod's."""
    paths = {"own": "/pod-a", "first": "/pod-a/1", "second": "/pod-a/2"}
    return {(paths[name], CARD): answer for name, answer in answers.items()}


def test_the_group_of_a_pod_and_those_below_it_are_asked_about_each_capped_card_with_its_cap() -> None:
    caps = {(POD, CARD): 1000, (POD, CARD_2): 2000, (OTHER, CARD): 3000, ("pod-c", CARD): 4000}
    groups = [OWN, FIRST, Group(OTHER, "/pod-b/1")]
    assert due(groups, caps, CARDS, {}, look=1) == (
        Ask("/pod-a", CARD, 1000),
        Ask("/pod-a", CARD_2, 2000),
        Ask("/pod-a/1", CARD, 1000),
        Ask("/pod-a/1", CARD_2, 2000),
        Ask("/pod-b/1", CARD, 3000),
    )


def test_mig_slices_and_cards_that_do_not_answer_have_no_limits() -> None:
    caps = {(POD, "MIG-x"): 1000, (POD, CARD_2): 2000}
    assert due([FIRST], caps, [CARD], {}, look=1) == ()
    assert held([FIRST], caps, [CARD], {(FIRST.path, CARD_2): reads(10)}) == frozenset()


@pytest.mark.parametrize(
    ("answer", "look", "asks"),
    [
        (reads(1000), 2, []),
        (reads(1000), RECHECK_LOOKS, []),
        (reads(1000), RECHECK_LOOKS + 1, [Ask("/pod-a/1", CARD, 1000)]),
        # A refusal is not tried at each look, and not given up.
        (REFUSED, 2, []),
        (REFUSED, RECHECK_LOOKS + 1, [Ask("/pod-a/1", CARD, 1000)]),
        (reads(None), 2, []),
        # Another cap is set at once: also a larger one, where it was set here and is no stricter limit of others.
        (reads(900, cap_mib=900), 2, [Ask("/pod-a/1", CARD, 1000)]),
        (reads(900, cap_mib=900, is_set=True), 2, [Ask("/pod-a/1", CARD, 1000, is_forced=True)]),
        (reads(2000, cap_mib=2000, is_set=True), 2, [Ask("/pod-a/1", CARD, 1000, is_forced=True)]),
    ],
)
def test_what_is_known_is_asked_again_now_and_then(answer: Answer, look: int, asks: Sequence[Ask]) -> None:
    assert list(due([FIRST], CAPS, CARDS, {(FIRST.path, CARD): answer}, look=look)) == asks


def test_a_look_has_so_many_questions_new_ones_first_and_then_the_oldest() -> None:
    groups = [Group(POD, f"/{number:04}") for number in range(MOST_ASKS + 50)]
    answers = {(group.path, CARD): reads(1000, look=1 + number % 5) for number, group in enumerate(groups[:-20])}
    asked = due(groups, CAPS, CARDS, answers, look=100)
    assert len(asked) == MOST_ASKS
    assert {ask.path for ask in asked[:20]} == {group.path for group in groups[-20:]}
    looks = [answers[ask.place].look for ask in asked[20:]]
    assert looks == sorted(looks)


@pytest.mark.parametrize(
    ("hard_bytes", "is_forced", "is_set"),
    [
        (NO_LIMIT, False, True),
        (1000 * MIB, False, False),
        # Rounded up to the driver's largest page, and no further.
        (1002 * MIB, False, False),
        (1002 * MIB + 1, False, True),
        (1024 * MIB, False, True),
        (0, False, False),
        (10 * MIB, False, False),
        (10 * MIB, True, True),
        (1000 * MIB, True, False),
    ],
)
def test_a_limit_is_set_where_it_lets_more_through_than_the_cap(
    hard_bytes: int, *, is_forced: bool, is_set: bool
) -> None:
    assert Ask("/x", CARD, 1000, is_forced).needs_set(hard_bytes) is is_set


@pytest.mark.parametrize(
    ("groups", "answers", "is_held"),
    [
        ([], {}, False),
        ([OWN], known(own=reads(1000)), False),
        ([OWN, FIRST], {}, False),
        ([OWN, FIRST], known(own=reads(1000)), False),
        ([OWN, FIRST], known(first=reads(1000)), True),
        ([OWN, FIRST], known(first=reads(500)), True),
        # It was answered that it was set, and it is not.
        ([OWN, FIRST], known(first=reads(None)), False),
        ([OWN, FIRST], known(first=reads(1024)), False),
        ([OWN, FIRST], known(first=REFUSED), False),
        ([OWN, FIRST], known(first=reads(900, cap_mib=900)), False),
        # A group of which nothing is known yet, to which a process may have moved.
        ([OWN, FIRST, SECOND], known(first=reads(1000)), False),
        ([OWN, FIRST, SECOND], known(first=reads(1000), second=reads(None)), False),
        ([OWN, FIRST, SECOND], known(first=reads(1000), second=GONE), True),
        ([OWN, FIRST], known(first=GONE), False),
        # The pod's group need not take a limit while one group has all of the pod's use.
        ([OWN, FIRST, SECOND], known(own=REFUSED, first=reads(1000, used_mib=7), second=reads(1000)), True),
        # Two with the cap each may have twice the cap, unless the pod's own limit bounds both.
        (
            [OWN, FIRST, SECOND],
            known(own=reads(1000), first=reads(1000, used_mib=7), second=reads(9, used_mib=1)),
            False,
        ),
        (
            [NESTING, FIRST, SECOND],
            known(own=reads(1000), first=reads(1000, used_mib=7), second=reads(9, used_mib=1)),
            True,
        ),
        (
            [NESTING, FIRST, SECOND],
            known(own=reads(None), first=reads(1000, used_mib=7), second=reads(9, used_mib=1)),
            False,
        ),
        # More groups than are listed: one of the others may have anything.
        ([Group(POD, "/pod-a", is_pod=True, has_more=True), FIRST], known(own=reads(1), first=reads(1)), False),
        (
            [Group(POD, "/pod-a", is_pod=True, nests=True, has_more=True), FIRST],
            known(own=reads(1), first=reads(1)),
            True,
        ),
    ],
)
def test_a_cap_is_held_where_all_groups_of_the_pod_were_read_back(
    groups: Sequence[Group], answers: Mapping[Place, Answer], *, is_held: bool
) -> None:
    assert held(groups, CAPS, CARDS, answers) == (frozenset({(POD, CARD)}) if is_held else frozenset())


def test_caps_are_held_by_pod_and_card() -> None:
    caps = {(POD, CARD): 1000, (POD, CARD_2): 1000, (OTHER, CARD): 1000}
    answers = {("/pod-a/1", CARD): reads(1000), ("/pod-a/1", CARD_2): REFUSED, ("/pod-b/1", CARD): reads(1000)}
    assert held([FIRST, Group(OTHER, "/pod-b/1")], caps, CARDS, answers) == {(POD, CARD), (OTHER, CARD)}


def test_the_next_question_is_ten_looks_after_the_oldest_answer_and_at_once_where_some_are_left() -> None:
    asked = [Ask("/x", CARD, 1)] * MOST_ASKS
    answers = known(own=reads(1, look=7), first=reads(1, look=4))
    assert next_due(answers, asked[1:], 9) == 4 + RECHECK_LOOKS
    assert next_due(answers, asked, 9) == 10
    assert next_due({}, [], 9) == 9 + RECHECK_LOOKS


def test_answers_about_groups_that_are_gone_are_forgotten() -> None:
    answers = known(first=reads(1000), second=GONE)
    assert remembered([OWN, FIRST], CAPS, CARDS, answers) == known(first=reads(1000))


@pytest.mark.parametrize(("caps", "cards"), [({}, CARDS), ({(POD, CARD_2): 1}, CARDS), (CAPS, (CARD_2,)), (CAPS, ())])
def test_answers_about_cards_without_a_cap_or_that_do_not_answer_are_forgotten(
    caps: Mapping[Key, int], cards: Sequence[str]
) -> None:
    assert remembered([OWN, FIRST], caps, cards, known(own=reads(1000), first=reads(1000))) == {}


@pytest.mark.parametrize(
    ("groups", "readings", "used"),
    [
        ([OWN, FIRST, SECOND], {"/pod-a/1": 5, "/pod-a/2": 7}, 12),
        ([OWN, FIRST, SECOND], {"/pod-a/1": 5}, None),
        ([NESTING, FIRST, SECOND], {"/pod-a": 13}, 13),
        ([NESTING, FIRST, SECOND], {"/pod-a/1": 5, "/pod-a/2": 7}, None),
        ([OWN], {"/pod-a": 13}, None),
        ([Group(OTHER, "/pod-b/1")], {"/pod-b/1": 3}, None),
    ],
)
def test_the_use_of_a_pod_is_that_of_its_groups(
    groups: Sequence[Group], readings: Mapping[str, int], used: int | None
) -> None:
    assert used_bytes((POD, CARD), groups, {(path, CARD): each for path, each in readings.items()}) == used


ANSWERS = st.one_of(
    st.none(),
    st.builds(
        Answer,
        look=st.integers(0, 20),
        cap_mib=st.sampled_from([500, 1000]),
        hard_bytes=st.sampled_from([None, 0, 500 * MIB, 1000 * MIB, 1500 * MIB, NO_LIMIT]),
        used_bytes=st.sampled_from([0, MIB]),
        is_set=st.booleans(),
        is_gone=st.booleans(),
    ),
)


@given(st.lists(ANSWERS, min_size=3, max_size=3), st.booleans())
def test_nothing_is_called_held_while_a_group_that_is_there_lets_more_through(
    answers: Sequence[Answer | None], nests: bool
) -> None:
    groups = [Group(POD, "/pod-a", is_pod=True, nests=nests), FIRST, SECOND]
    there = {(group.path, CARD): each for group, each in zip(groups, answers, strict=True) if each is not None}
    if not held(groups, CAPS, CARDS, there):
        return
    below = [there.get((group.path, CARD)) for group in groups[1:]]
    assert all(
        each is not None and (each.is_gone or (each.hard_bytes is not None and each.hard_bytes <= 1002 * MIB))
        for each in below
    )
    assert any(each is not None and not each.is_gone for each in below)


LIBRARY = Mount(PurePosixPath("/opt/l.so"), PurePosixPath("/usr/l.so"), is_code=True)
CACHE = Mount(PurePosixPath("/var/c"), PurePosixPath("/run/c"), is_writable=True)


def test_a_mount_may_do_no_more_than_it_says() -> None:
    assert LIBRARY.written() == {
        "hostPath": "/opt/l.so",
        "containerPath": "/usr/l.so",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }
    assert CACHE.written()["options"] == ["nosuid", "nodev", "rbind", "rprivate", "noexec"]


def test_memory_of_a_container_is_bounded() -> None:
    assert Scratch(PurePosixPath("/run/lock"), 64).written() == {
        "hostPath": "tmpfs",
        "containerPath": "/run/lock",
        "type": "tmpfs",
        "options": ["size=64k", "nr_inodes=64", "mode=1777", "nosuid", "nodev", "noexec"],
    }


def test_nothing_empty_is_written() -> None:
    assert Edits().written() == {}
    assert Edits(env={"B": "2", "A": "1"}).written() == {"env": ["A=1", "B=2"]}


def test_a_variable_that_is_not_given_any_more_stays_beside_the_same_mounts() -> None:
    former = Edits((LIBRARY, CACHE), {"MEMORY": "1", "COMPUTE": "1"})
    moved = Mount(PurePosixPath("/moved/l.so"), LIBRARY.at, is_code=True)
    assert Edits((CACHE, moved), {"COMPUTE": "2"}).with_former(former) == Edits(
        (CACHE, moved), {"MEMORY": "1", "COMPUTE": "2"}
    )
    assert Edits((CACHE,), {"COMPUTE": "2"}).with_former(former) == Edits((CACHE,), {"COMPUTE": "2"})
    assert former.with_former(None) == former


def test_several_parts_are_put_together() -> None:
    both = merged([Edits((LIBRARY,), {"A": "1", "B": "1"}), Edits((CACHE, LIBRARY), {"B": "2"})])
    assert both == Edits((LIBRARY, CACHE), {"A": "1", "B": "2"})


LIMITSFILE_POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
LIMITSFILE_OTHER = "00000000-1111-4222-8333-444444444444"


def test_each_pod_is_a_device_with_its_own_edits() -> None:
    said = json.loads(content({LIMITSFILE_POD: Edits(env={"A": "1"}), LIMITSFILE_OTHER: Edits(env={"A": "2"})}))
    assert said == {
        "cdiVersion": "0.5.0",
        "kind": "moorage.dev/limits",
        "devices": [
            {"name": LIMITSFILE_OTHER, "containerEdits": {"env": ["A=2"]}},
            {"name": LIMITSFILE_POD, "containerEdits": {"env": ["A=1"]}},
        ],
    }


def test_the_same_is_the_same_file() -> None:
    one, two = Edits(env={"A": "1"}), Edits(env={"A": "2"})
    assert content({LIMITSFILE_POD: one, LIMITSFILE_OTHER: two}) == content(
        {LIMITSFILE_OTHER: two, LIMITSFILE_POD: one}
    )


def test_a_file_is_read_back_as_it_was_written() -> None:
    edits = {
        LIMITSFILE_POD: Edits((LIBRARY, CACHE, Scratch(PurePosixPath("/run/lock"), 64)), {"A": "1=2", "B": ""}),
        LIMITSFILE_OTHER: Edits(env={"A": "2"}),
    }
    assert edits_in(content(edits)) == edits


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[" * 100_000,
        b"{}",
        b'{"devices": [{"name": "a", "containerEdits": {}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"env": ["A"]}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"mounts": [{"hostPath": "/a"}]}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"mounts": [{"hostPath": "a", "containerPath": "/a", '
        b'"type": "tmpfs", "options": ["size=xk"]}]}}]}',
    ],
)
def test_a_file_that_can_not_be_read_gives_nobody_anything(said: bytes) -> None:
    assert edits_in(said) == {}


def test_a_device_whose_name_is_no_text_is_left_out() -> None:
    said = json.dumps({"devices": [{"name": ["a"]}, {"name": LIMITSFILE_POD}]}).encode()
    assert pods_in(said) == {LIMITSFILE_POD}
    assert pods_in(narrowed(said, {LIMITSFILE_POD})) == {LIMITSFILE_POD}


def test_a_file_is_narrowed_down_to_some_pods_and_keeps_what_another_version_wrote() -> None:
    said = json.loads(content({LIMITSFILE_POD: Edits(env={"A": "1"}), LIMITSFILE_OTHER: Edits(env={"A": "2"})}))
    said["annotations"] = {"of": "another version"}
    written = json.dumps(said).encode()
    assert pods_in(written) == {LIMITSFILE_POD, LIMITSFILE_OTHER}
    left = json.loads(narrowed(written, {LIMITSFILE_POD}))
    assert (left["annotations"], [each["name"] for each in left["devices"]]) == (said["annotations"], [LIMITSFILE_POD])


@pytest.mark.parametrize("said", [b"", b"[" * 100_000, b"{}", b"[]", b'{"devices": [1]}', b'{"devices": 1}'])
def test_the_pods_of_a_file_that_can_not_be_read_are_not_known(said: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pods_in(said)
