"""Labels and annotations without effect, as lint and admission tell of them."""

from __future__ import annotations

import pytest

from gpu.keys import ignored_keys, is_known, unknown_keys
from wire import names

Texts = dict[str, str]


@pytest.mark.parametrize(
    ("labels", "annotations", "code", "text"),
    [
        ({}, {"GPU_Fraction": "0.5"}, "misspelt", "write gpu-fraction"),
        ({}, {"kai.scheduler/gpu-memory": "9"}, "misspelt", "write gpu-memory"),
        ({}, {"kai.scheduler/pod-group-name": "g"}, "misspelt", "write pod-group-name"),
        ({"runai/queue": "q"}, {}, "misspelt", "write kai.scheduler/queue"),
        ({"moorage.dev/queue": "q"}, {}, "misspelt", "write kai.scheduler/queue"),
        ({"kai.scheduler/preemptability": "x"}, {}, "misspelt", "write kai.scheduler/preemptibility"),
        ({}, {"kai.scheduler/batch-min-members": "4"}, "misspelt", "write kai.scheduler/batch-min-member"),
        ({}, {"moorage.dev/max_runtime": "4h"}, "misspelt", "write moorage.dev/max-runtime"),
        ({}, {"nvidia.com/use-gpu-type": "A100"}, "misspelt", "write nvidia.com/use-gputype"),
        ({}, {"hami.io/gpu-schedule-policy": "spread"}, "misspelt", "write hami.io/gpu-scheduler-policy"),
        ({}, {"volcano.sh/vgpu-mod": "mig"}, "misspelt", "write volcano.sh/vgpu-mode"),
        ({"gpu-memory": "9"}, {}, "wrong-place", "it is an annotation"),
        ({"pod-group-name": "g"}, {}, "wrong-place", "it is an annotation"),
        ({"kai.scheduler/batch-min-member": "4"}, {}, "wrong-place", "it is an annotation"),
        ({}, {"kai.scheduler/queue": "q"}, "wrong-place", "it is a label"),
        ({}, {"clearml-injector/fraction": "0.500"}, "wrong-place", "it is a label"),
        ({"kai.scheduler/preemptibility": "non-preemptable"}, {}, "unread-value", "preemptible, non-preemptible"),
        ({"kai.scheduler/task-priority": "high"}, {}, "unread-value", "a whole number"),
        ({}, {"kai.scheduler/skip-podgrouper": "yes"}, "unread-value", "true, false"),
        ({}, {"kai.scheduler/preemption-delay": "5 minutes"}, "unread-value", "90s or 1h30m"),
        ({}, {"kai.scheduler/staleness-grace-period": "10"}, "unread-value", "90s or 1h30m"),
        ({}, {"moorage.dev/max-runtime": "1d"}, "unread-value", "90s or 1h30m"),
    ],
)
def test_a_key_without_effect_is_named_with_what_was_probably_meant(
    labels: Texts, annotations: Texts, code: str, text: str
) -> None:
    (found,) = ignored_keys(labels, annotations)
    assert (found.code, found.key) == (code, next(iter(labels or annotations)))
    assert found.text.endswith(text)
    assert list(unknown_keys(labels, annotations)) == []


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"clearml-injector/fraction": "0.500"}, {"gpu-fraction": "0.5"}),
        ({"priorityClassName": "train", "project": "a", "user": "b"}, {"priorityClassName": "x", "project": "y"}),
        ({"kai.scheduler/preemptibility": "preemptible"}, {"kai.scheduler/preemption-delay": "1h30m"}),
        ({"runai-gpu-group/g": "g"}, {"moorage.dev/visible-devices.c0": "GPU-a", "env.moorage.dev/c0.X": "1"}),
        ({}, {"nvidia.com/container.main.gpu-memory.request": "9"}),
        ({}, {"team.example/fraction": "0.5", "example.com/preemptability": "x"}),
    ],
)
def test_what_is_read_or_is_of_others_is_not_named(labels: Texts, annotations: Texts) -> None:
    assert [*ignored_keys(labels, annotations), *unknown_keys(labels, annotations)] == []


@pytest.mark.parametrize(
    "key", ["moorage.dev/fast", "kai.scheduler/colour", "koordinator.sh/qosClass", "volcano.sh/preemptable"]
)
def test_a_key_of_a_system_that_is_read_is_named_though_nothing_like_it_is_known(key: str) -> None:
    (found,) = unknown_keys({key: "x"}, {})
    assert (found.code, found.key) == ("unknown-key", key)
    assert list(ignored_keys({key: "x"}, {})) == []


def test_every_name_of_ours_is_known() -> None:
    ours = [text for text in vars(names).values() if isinstance(text, str) and text.startswith(names.MOORAGE_PREFIX)]
    assert len(ours) > 30
    assert [key for key in ours if key != names.MOORAGE_PREFIX and not is_known(key)] == []
