"""The stories of placing, told to kube-scheduler's plug-ins and to Moorage in memory.

They are told to both schedulers on a control plane as well (tests/e2e/test_placing_stories.py), with what wakes a pod.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.placing.of_nodes import AMOUNTS, LABELS, PORTS, TAINTS
from tests.e2e.placing.of_pods import APART, NEAR
from tests.e2e.placing.of_preferences import PREFERENCES
from tests.e2e.placing.of_spread import SPREAD
from tests.e2e.placing.story import NAMESPACES, NEW, Story
from tools.kubeoracle.comparing import SAME, better_than
from tools.kubeoracle.ours import answer
from tools.kubeoracle.program import Oracle
from wire import names

pytestmark = pytest.mark.oracle
_TOLD = (*TAINTS, *LABELS, *AMOUNTS, *PORTS, *NEAR, *APART, *SPREAD, *PREFERENCES)


STORIES = [story for story in _TOLD if not story.is_merged]


def _seen(given: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """An object as the API server serves it."""
    meta = {**given["metadata"], "uid": given["metadata"]["name"], "resourceVersion": "1"}
    return {"status": {}, **given, "metadata": meta, "spec": {**given.get("spec", {}), **spec}}


def _question(story: Story) -> dict[str, Any]:
    return {
        "nodes": [_seen(each) for each in story.nodes],
        "pods": [{**_seen(each), "status": {"phase": "Running"}} for each in story.running],
        "namespaces": [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()],
        "pod": {**_seen(story.pod, schedulerName=names.SCHEDULER_NAME), "status": {"phase": "Pending"}},
        "scores": True,
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title)
def test_a_story_holds_for_the_plug_ins_and_for_moorage_in_memory(oracle: Oracle, story: Story) -> None:
    asked = _question(story)
    (theirs,) = oracle.ask([asked])
    ours = answer(asked)
    assert asked["pod"]["metadata"]["name"] == NEW
    assert not ours.blocker
    assert ours.feasible == frozenset(theirs.feasible or ())
    if story.goes:
        assert ours.chosen in [*story.goes]
        assert better_than(ours.chosen, theirs) == ""
    else:
        assert (ours.chosen, theirs.feasible) == ("", ())


@pytest.mark.parametrize("story", [each for each in PREFERENCES if len(each.goes) == 1], ids=lambda story: story.title)
def test_a_story_of_one_preferred_node_has_another_that_fits_and_is_worse(oracle: Oracle, story: Story) -> None:
    """Else a scheduler that prefers nothing would pass."""
    (theirs,) = oracle.ask([_question(story)])
    worse = [node for node in theirs.scores if node not in story.goes and better_than(node, theirs)]
    has_room = story.title != "a node that has no room is not taken though it is preferred"
    assert bool(worse) is has_room


def test_each_preference_has_a_story_that_tells_nodes_apart(oracle: Oracle) -> None:
    telling: set[str] = set()
    for story in PREFERENCES:
        (theirs,) = oracle.ask([_question(story)])
        telling |= {plugin for plugin in SAME if len({each.get(plugin) for each in theirs.scores.values()}) > 1}
    assert telling == SAME.keys()
