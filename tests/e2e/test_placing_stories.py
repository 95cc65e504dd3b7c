"""Stories after the titles of Kubernetes' own suites for filters and scores, each told to both schedulers.

That a story holds for kube-scheduler shows that the story is right; that it holds for Moorage is what it is for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.e2e.bare import STOCK, Bare, bare, two_schedulers
from tests.e2e.placing.of_changes import CHANGES
from tests.e2e.placing.of_nodes import AMOUNTS, LABELS, PORTS, TAINTS
from tests.e2e.placing.of_pods import APART, NEAR
from tests.e2e.placing.of_preferences import PREFERENCES
from tests.e2e.placing.of_spread import SPREAD
from tests.e2e.placing.story import NAMESPACES, Story
from tests.whole import IS_WHOLE
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster
STORIES = (*TAINTS, *LABELS, *AMOUNTS, *PORTS, *NEAR, *APART, *SPREAD, *CHANGES, *PREFERENCES)
#: Those that wake a pod, and those of which the API server changes terms. All others run in memory as well
#: (tests/oracle/test_stories.py).
ONLY_HERE = [story for story in STORIES if story.then is not None or story.is_merged]
TOLD = [story for i, story in enumerate(STORIES) if IS_WHOLE or not i % 4 or story in ONLY_HERE]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with two_schedulers() as made:
        yield made


@pytest.fixture(scope="module")
async def cluster(plane: ControlPlane) -> AsyncIterator[Bare]:
    async with bare(plane) as made:
        for name, labels in NAMESPACES.items():
            await made.namespace(name, **labels)
        yield made


@pytest.mark.parametrize("story", TOLD, ids=lambda story: story.title)
async def test_a_story_holds_for_kube_scheduler_and_for_moorage(cluster: Bare, story: Story) -> None:
    for scheduler in (STOCK, names.SCHEDULER_NAME):
        try:
            await story.told_to(cluster, scheduler)
        finally:
            await cluster.clear([*NAMESPACES])


def test_stories_are_told_once() -> None:
    titles = [story.title for story in STORIES]
    assert len({*titles}) == len(titles)
