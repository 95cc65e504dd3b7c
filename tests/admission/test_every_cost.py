"""What a pod costs admission grows with its bytes, not faster, in whichever dialect and way it is large."""

from __future__ import annotations

import random

import pytest

from admission.raw_pod import Bounds, entries
from admission.review import PodAdmission
from admission.settings import Choices, Settings
from tests.admission.pods import Raw, review
from tests.admission.test_dialects import raw
from tests.admission.worst import Grow, families, largest, longest, structures
from tests.calls import calls
from tests.gpu.dialects.everyrow import Case, every_row
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.thorough

CASES = families(every_row())
TIMES, MORE = 48 if IS_WHOLE else 24, 4
#: Rows whose growth is compared, and those of which the largest pods are reviewed.
GROWN, LARGEST = (CASES, CASES) if IS_WHOLE else (CASES[::6], CASES[1::3])
#: Sorting, and sums over the up to 64 ways to seat shares, come on top of what is linear.
STEEP = 1.75 * MORE
UNBOUNDED = Bounds(containers=10**6, resources=10**6, entries=10**7)
#: What one review of a pod of ours may spend at most, in calls: of the largest pods 260,000 were seen, some 15 ms.
MOST_CALLS = 300_000


def cost(case: Case, pod: Raw) -> int:
    admission = PodAdmission(Settings(choices=Choices(dialects=case.settings), bounds=UNBOUNDED), rng=random.Random(1))
    asked = review(pod)
    return calls(lambda: (admission.mutating(asked), admission.validating(asked)))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in GROWN])
def test_reviews_cost_no_more_than_in_proportion_to_the_pod(case: Case) -> None:
    pod = raw(case.pod)
    assert [name for name, grow in structures() if _is_steep(case, pod, grow)] == []


def _is_steep(case: Case, pod: Raw, grow: Grow) -> bool:
    """Whether four times the repetitions cost clearly more than four times as much; quadratic: 16 times."""
    small, large = (cost(case, grow(pod, times)) for times in (TIMES, TIMES * MORE))
    return large > STEEP * small


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in LARGEST])
def test_no_review_of_the_largest_pods_spends_more_than_its_share(case: Case) -> None:
    """Whatever a tenant sends: within the bounds, its share holds by what pods may have; beyond, nothing is read."""
    pod = raw(case.pod)
    sent = {"as many parts as are read": largest(pod), **dict(longest(pod))}
    assert 9_990 < entries(sent["as many parts as are read"], 10_001)[1] <= 10_000
    assert [name for name, each in sent.items() if _most_calls(case, each) > MOST_CALLS] == []


def _most_calls(case: Case, pod: Raw) -> int:
    """What the dearest of the reviews of a new pod calls, the product's bounds kept."""
    admission = PodAdmission(Settings(choices=Choices(dialects=case.settings)), rng=random.Random(1))
    new, foreign = review(pod), review({**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}})
    reviews = ((admission.mutating, new), (admission.validating, new), (admission.adopting, foreign))
    return max(calls(lambda: judge(asked)) for judge, asked in reviews)  # noqa: B023 - called at once


def test_a_quadratic_cost_would_be_seen() -> None:
    def quadratic(times: int) -> int:
        return calls(lambda: [abs(one * other) for one in range(times) for other in range(times)])

    assert quadratic(TIMES * MORE) > STEEP * quadratic(TIMES)
