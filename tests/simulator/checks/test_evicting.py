"""S7 and S13 of evictions for others, and L6: what stands on record when somebody is evicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.checks.checker import BUDGETS, NODES, NOMINATIONS, QUEUES
from simulator.checks.evictions import MOST
from simulator.checks.limits import Lateness
from simulator.checks.preemption import CLAIM_PAUSE_S, SERVED_S
from tests.simulator.checks.preemptions import PreemptionStory, holding, nomination, record
from tests.simulator.made_up import A, B, Story, granted, node, pod, reservation, version


@pytest.mark.parametrize("victim", ["w", "h", "x"])
def test_an_eviction_of_one_that_no_nomination_names_breaks_s7(victim: str) -> None:
    assert PreemptionStory().records(nomination("h", "v")).evicts(victim).broken() == {"S7"}


def test_an_eviction_before_its_nomination_is_written_breaks_s7() -> None:
    assert PreemptionStory().evicts("v").records(nomination("h", "v")).broken() == {"S7"}


def test_a_record_that_is_told_of_later_than_the_eviction_counts_from_when_it_was_written() -> None:
    story = PreemptionStory()
    written = story.number + 1
    story.number += 1
    assert story.evicts("v").records(nomination("h", "v"), at=written).broken() == set()


@pytest.mark.parametrize(("seconds", "broken"), [(59, set[str]()), (61, {"S7"})])
def test_an_eviction_may_be_on_its_way_for_a_minute_after_its_nomination_is_over(
    seconds: int, broken: set[str]
) -> None:
    story = PreemptionStory().records(nomination("h", "v")).records().later(seconds).evicts("v")
    assert story.later(10).broken() == broken


def test_another_pod_of_a_victims_name_is_not_named_by_its_nomination() -> None:
    story = PreemptionStory().records(nomination("h", "v")).goes("v")
    successor = holding("v", node="")
    successor["metadata"]["uid"] = "uid-v-2"
    story.sees(successor)
    assert story.evicts("v").broken() == {"S7"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"nominations": 1}',
        '{"nominations": [{"id": "a"}]}',
        '{"nominations": [{"id": "a", "places": [["=uid-h"]], "victims": [["=uid-v", "team", "v", "node-0", "="]]}]}',
        '{"nominations": [{"id": "a", "places": [["=u", "node-0"]], "victims": [["uid-v", "team", "v", "n", "="]]}]}',
    ],
)
def test_nobody_is_evicted_for_what_cannot_be_read(text: str) -> None:
    story = PreemptionStory()
    story.sees(record(text=text, at=11), kind=NOMINATIONS)
    assert story.evicts("v").broken() == {"S7"}


def test_uids_are_read_as_22_characters() -> None:
    story = PreemptionStory()
    victim = holding("u")
    victim["metadata"]["uid"] = "00112233-4455-6677-8899-aabbccddeeff"
    story.sees(victim)
    named = nomination("h", "u")
    named["victims"][0][0] = "ABEiM0RVZneImaq7zN3u_w"
    assert story.records(named).evicts("u").broken() == set()


def test_an_eviction_of_one_that_cannot_be_preempted_breaks_s7() -> None:
    story = PreemptionStory()
    fixed = holding("f", labels={"kai.scheduler/preemptibility": "non-preemptible"})
    story.sees(fixed)
    assert story.later(100).records(nomination("h", "f")).evicts("f").broken() == {"S7"}


def test_one_that_could_be_preempted_a_moment_ago_may_be_evicted() -> None:
    story = PreemptionStory(lateness=Lateness(30))
    story.records(nomination("h", "v")).later(100)
    story.sees(version(holding("v", labels={"kai.scheduler/preemptibility": "non-preemptible"}), 90))
    assert story.later(20).evicts("v").broken() == set()


# --- budgets ---------------------------------------------------------------------------------------------------------
def ready(name: str, **labels: str) -> dict[str, Any]:
    made = pod(name, labels={"app": "web", **labels}, phase="Running")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def budget(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    metadata = {"namespace": "team", "name": "b", "uid": "uid-b"}
    return {"metadata": metadata, "spec": {"selector": selector, **spec}}


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        ({"minAvailable": 2}, {"S7"}),
        ({"minAvailable": 1}, set[str]()),
        ({"minAvailable": "100%"}, {"S7"}),
        ({"minAvailable": "50%"}, set[str]()),
        ({"maxUnavailable": 0}, {"S7"}),
        ({"maxUnavailable": 1}, set[str]()),
        ({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "other"}}}, set[str]()),
        ({"maxUnavailable": 0, "selector": {}}, {"S7"}),
        ({"maxUnavailable": 0, "selector": None}, set[str]()),
        ({"maxUnavailable": 0, "selector": where("app", "In", "web")}, {"S7"}),
        ({"maxUnavailable": 0, "selector": where("app", "NotIn", "web")}, set[str]()),
        ({"maxUnavailable": 0, "selector": where("app", "Exists")}, {"S7"}),
        ({"maxUnavailable": 0, "selector": where("app", "DoesNotExist")}, set[str]()),
    ],
)
def test_an_eviction_past_a_disruption_budget_breaks_s7(spec: dict[str, Any], broken: set[str]) -> None:
    story = PreemptionStory()
    story.sees(ready("a")).sees(ready("b")).sees(budget(**spec), kind=BUDGETS)
    assert story.records(nomination("h", "a")).later(3).evicts("a").broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S7"})])
def test_a_budget_is_judged_when_the_disruption_controller_has_counted(seconds: int, broken: set[str]) -> None:
    changed = PreemptionStory()
    changed.sees(ready("a")).sees(budget(minAvailable=0), kind=BUDGETS).after(60)
    changed.sees(budget(minAvailable=1), kind=BUDGETS)
    assert changed.records(nomination("h", "a")).later(seconds).evicts("a").broken() == broken
    lost = PreemptionStory()
    lost.sees(ready("a")).sees(ready("b")).sees(budget(minAvailable=1), kind=BUDGETS).after(60)
    lost.sees(ready("b"), event="DELETED")
    assert lost.records(nomination("h", "a")).later(seconds).evicts("a").broken() == broken


def test_a_pod_that_is_not_ready_may_be_evicted_past_a_budget_and_a_deleted_budget_forbids_nothing() -> None:
    story = PreemptionStory()
    story.sees(pod("a", labels={"app": "web"})).sees(budget(minAvailable=1), kind=BUDGETS)
    assert story.records(nomination("h", "a")).evicts("a").broken() == set()
    story = PreemptionStory()
    story.sees(ready("a")).sees(budget(minAvailable=1), kind=BUDGETS)
    story.sees(budget(minAvailable=1), kind=BUDGETS, event="DELETED")
    assert story.records(nomination("h", "a")).evicts("a").broken() == set()


# --- S13 -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seconds", "broken"), [(4, set[str]()), (6, {"S13"})])
def test_an_eviction_for_one_that_is_gone_breaks_s13(seconds: int, broken: set[str]) -> None:
    story = PreemptionStory().records(nomination("h", "v")).goes("h", node="").later(seconds).evicts("v")
    assert story.broken() == broken


def test_an_eviction_for_one_that_is_placed_breaks_s13() -> None:
    story = PreemptionStory().records(nomination("h", "v")).goes("w").binds("h").later(6).evicts("v")
    assert story.broken() == {"S13"}


def test_an_eviction_for_two_of_whom_one_waits_is_for_somebody() -> None:
    story = PreemptionStory().records(nomination("h g", "v w")).goes("h", node="").later(60).evicts("v")
    assert story.broken() == set()


def test_who_evicts_may_hear_late_that_its_nominee_is_gone() -> None:
    story = (
        PreemptionStory(lateness=Lateness(30)).records(nomination("h", "v")).goes("h", node="").later(30).evicts("v")
    )
    assert story.broken() == set()


def test_a_pod_in_two_nominations_breaks_s13() -> None:
    assert PreemptionStory().records(nomination("h", "v"), nomination("g", "v")).broken() == {"S13"}


def test_a_pod_that_is_to_go_and_for_whom_room_is_made_breaks_s13() -> None:
    assert PreemptionStory().records(nomination("h", "v"), nomination("v", "w")).broken() == {"S13"}


def evicted_often(times: int, seconds: float, *, group: str = "ring") -> PreemptionStory:
    """One member of a group after the other is evicted, each for another nomination."""
    story = PreemptionStory()
    for number in range(times):
        name = f"m{number}"
        story.sees(holding(name, annotations={"pod-group-name": group} if group else {}))
        story.records(nomination("h", name, id_=f"i{number}")).evicts(name).goes(name)
        story.later(seconds)
    return story


@pytest.mark.parametrize(
    ("times", "seconds", "broken"),
    [(MOST, 1, set[str]()), (MOST + 1, 1, {"S13"}), (MOST + 1, 350, {"S13"}), (3 * MOST, 361, set[str]())],
)
def test_a_group_that_is_evicted_for_others_more_than_ten_times_an_hour_breaks_s13(
    times: int, seconds: float, broken: set[str]
) -> None:
    assert evicted_often(times, seconds).broken() == broken


def test_members_that_go_for_one_nomination_are_one_eviction_of_their_group() -> None:
    story = PreemptionStory()
    members = [f"m{number}" for number in range(2 * MOST)]
    for name in members:
        story.sees(holding(name, annotations={"pod-group-name": "ring"}))
    story.records(nomination("h", " ".join(members)))
    for name in members:
        story.evicts(name)
    assert story.broken() == set()


def test_a_pod_that_is_going_already_is_not_evicted_once_more() -> None:
    story = PreemptionStory().records(nomination("h", "v")).evicts("v").goes("h", node="").later(60)
    story.sees(holding("v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert story.evicts("v").broken() == set()


# --- L6 --------------------------------------------------------------------------------------------------------------
def at_rest(story: PreemptionStory) -> set[str]:
    story.checker.nominations.judge_rest(story.now_s)
    return story.broken()


@pytest.mark.parametrize(("seconds", "broken"), [(119, set[str]()), (121, {"L6"})])
def test_a_nomination_that_nobody_waits_for_leaves_the_record(seconds: int, broken: set[str]) -> None:
    story = PreemptionStory().records(nomination("h", "v")).evicts("v").goes("v").binds("h").later(seconds)
    assert at_rest(story) == broken


@pytest.mark.parametrize(("seconds", "broken"), [(899, set[str]()), (901, {"L6"})])
def test_a_nomination_of_which_nothing_comes_does_not_stand_for_ever(seconds: int, broken: set[str]) -> None:
    assert at_rest(PreemptionStory().records(nomination("h", "v")).evicts("v").later(seconds)) == broken


def test_a_nomination_that_was_taken_out_has_come_to_its_end() -> None:
    assert at_rest(PreemptionStory().records(nomination("h", "v")).records().later(9000)) == set()


# L6: who had others evicted runs soon after its nomination has left the record, or something happened to it.

Step = Callable[[PreemptionStory], object]


def told(*steps: Step, after_s: float = SERVED_S + 1, is_evicted: bool = True) -> set[str]:
    """``v`` was evicted for ``h``, then this happens, and the nomination leaves the record."""
    story = PreemptionStory()
    story.later(60).records(nomination("h", "v"))
    if is_evicted:
        story.evicts("v").goes("v")
    story.later(3)
    for step in steps:
        step(story)
    story.records().later(after_s)
    return story.sees(holding("x", node="")).broken()


def nothing(_: PreemptionStory) -> None:
    return


def changed_queue(story: PreemptionStory) -> None:
    story.sees({"metadata": {"name": "team", "uid": "uid-team"}, "spec": {}}, kind=QUEUES)


def test_a_nomination_that_is_dropped_once_its_victim_is_gone_breaks_l6() -> None:
    assert told(nothing) == {"L6"}


def test_a_nominee_has_two_minutes() -> None:
    assert told(nothing, after_s=SERVED_S - 1) == set()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda story: story.binds("h"), id="it is bound"),
        pytest.param(lambda story: story.goes("h", node=""), id="it is gone"),
        pytest.param(lambda story: story.sees(holding("h", node="", labels={"a": "b"})), id="it has changed"),
        pytest.param(lambda story: story.binds("g"), id="another one came while the nomination stood"),
        pytest.param(lambda story: story.sees(holding("f"), by_hand=True), id="somebody else's pod came"),
        pytest.param(lambda story: story.sees(node(gpus=1), kind=NODES), id="its node has less"),
        pytest.param(lambda story: story.sees(node(gpus=2), kind=NODES, event="DELETED"), id="its node is gone"),
        pytest.param(changed_queue, id="a queue has changed"),
    ],
)
def test_what_happens_to_it_meanwhile_explains_its_end(happens: Step) -> None:
    assert told(happens) & {"L6"} == set()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda story: story.sees(node(gpus=2), kind=NODES), id="its node says the same"),
        pytest.param(lambda story: story.sees(holding("h", node="")), id="it says the same"),
        pytest.param(lambda story: story.goes("x", node=""), id="another one that waits is gone"),
    ],
)
def test_what_has_nothing_to_do_with_it_explains_nothing(happens: Step) -> None:
    assert told(happens) == {"L6"}


def test_who_takes_the_place_after_the_nomination_was_dropped_explains_nothing() -> None:
    story = PreemptionStory()
    story.later(60).records(nomination("h", "v")).evicts("v").goes("v").later(3).records().later(1)
    story.binds("g").later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == {"L6"}


def test_a_victim_that_stays_explains_it() -> None:
    story = PreemptionStory()
    story.later(60).records(nomination("h", "v")).evicts("v").later(3).records().later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == set()


def test_a_nomination_that_is_revised_is_the_same_one() -> None:
    story = PreemptionStory()
    story.later(60).records(nomination("h", "v", id_="i")).evicts("v").goes("v").later(3)
    story.records(nomination("h", "w", id_="i")).later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == set()
    story.evicts("w").goes("w").later(3).records().later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == {"L6"}


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICE = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def again(after_s: float, spec: dict[str, Any]) -> set[str]:
    """Two are evicted for ``h``, which has this in its spec, in vain: one so long after the other."""
    story, nominee = PreemptionStory(), holding("h", node="")
    nominee["spec"].update(spec)
    story.sees(nominee)
    story.later(60)
    story.records(nomination("h", "v")).evicts("v").goes("v").later(3).records().later(after_s)
    story.records(nomination("h", "w", id_="second")).evicts("w").goes("w").later(3).records().later(SERVED_S + 1)
    return story.sees(holding("x", node="")).broken()


@pytest.mark.parametrize("spec", [CLAIM, DEVICE], ids=["a volume", "a device"])
def test_claims_that_may_have_failed_explain_one_end_of_a_nomination_in_a_while(spec: dict[str, Any]) -> None:
    assert again(CLAIM_PAUSE_S, spec) == set()
    assert again(CLAIM_PAUSE_S - 1, spec) == {"L6"}


# S13 of those who take: a namespace that gives up what others were evicted for waits before it takes again.


class Taking(PreemptionStory):
    """Pods of namespace ``team`` take from namespace ``others``, one after the other."""

    def takes(self, number: int, *, gives_up: bool = True, is_code: int = 201, of: str = "others") -> Taking:
        """One more pod has another one evicted; it is gone a moment later, if it gives up."""
        nominee, victim = f"h{number}", f"v{number}"
        self.sees(holding(victim, namespace=of))
        self.sees(holding(nominee, node=""))
        made = nomination(nominee, victim)
        made["victims"] = [[f"=uid-{victim}", of, victim, "n1", f"=owner-{victim}"]]
        self.records(made)
        self.writes("create", "pods", victim, subresource="eviction", namespace=of, code=is_code, version=self._next())
        self.goes(victim, namespace=of)
        self.later(4)
        if gives_up:
            self.goes(nominee)
        self.records()
        self.later(1)
        return self

    @property
    def blamed(self) -> bool:
        """Whether the namespace was found to take too often."""
        self.later(3).broken()
        return any("gave up what others" in text for _, text in self.checker.findings.found)


@pytest.mark.parametrize(
    ("waits_s", "is_broken"),
    [
        ((0, 0), False),  # the second time is free
        ((0, 0, 10), True),
        ((0, 0, 30), False),
        ((0, 0, 30, 30), True),
        ((0, 0, 30, 60), False),
        ((0, 0, 30, 60, 120, 240, 480, 600, 600), False),
        ((0, 0, 30, 60, 120, 240, 480, 600, 300), True),
    ],
)
def test_each_take_that_is_given_up_makes_the_next_one_wait_longer(waits_s: tuple[int, ...], is_broken: bool) -> None:
    story = Taking()
    for number, wait_s in enumerate(waits_s):
        story.later(wait_s)
        story.takes(number)
    assert story.blamed is is_broken


def test_what_is_kept_counts_against_what_is_given_up() -> None:
    story = Taking()
    for number in range(4):
        story.takes(number, gives_up=False)
    for number in range(4, 9):
        story.takes(number)
    assert not story.blamed


def test_what_is_kept_of_one_namespace_counts_nothing_against_what_another_one_loses() -> None:
    story = Taking()
    for number in range(4):
        story.takes(number, gives_up=False, of="team-2")
    for number in range(4, 9):
        story.takes(number)
    assert story.blamed


def test_what_one_takes_from_oneself_or_does_not_get_is_no_take() -> None:
    story = Taking()
    for number in range(5):
        story.takes(number, of="team")
    for number in range(5, 10):
        story.takes(number, is_code=429)
    assert not story.blamed


# S7: who may be evicted for the pod's own sake, beside the rest of a broken gang (test_isolation.py).


def _tenant(health: str = "Healthy") -> dict[str, Any]:
    told = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-a", "health": health}]}]
    raw = granted("p", "g")
    return {**raw, "status": {**raw["status"], "containerStatuses": [{"allocatedResourcesStatus": told}]}}


def _evicted(story: Story) -> bool:
    """Whether the eviction of the tenant is allowed."""
    return "S7" not in story.writes("create", "pods", "p", subresource="eviction", code=201).broken()


@pytest.mark.parametrize(("card", "is_allowed"), [(A, False), (B, True)])
def test_who_was_given_a_card_of_another_machine_may_be_evicted(card: Any, is_allowed: bool) -> None:
    assert _evicted(Story(cards=(card,)).sees(reservation("r", "g")).sees(_tenant())) == is_allowed


def test_who_has_an_unhealthy_card_may_be_evicted_however_long_it_lasts() -> None:
    assert _evicted(Story().sees(reservation("r", "g")).sees(_tenant("Unhealthy")).after(1000))


@pytest.mark.parametrize(("seconds", "is_allowed"), [(300, True), (301, False)])
def test_that_a_card_has_recovered_may_not_be_heard_for_a_while(seconds: float, is_allowed: bool) -> None:
    story = Story().sees(reservation("r", "g")).sees(_tenant("Unhealthy")).after(10).sees(_tenant())
    assert _evicted(story.after(seconds)) == is_allowed
