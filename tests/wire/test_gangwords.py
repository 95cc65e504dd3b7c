from __future__ import annotations

from wire import gangs


def test_words_are_found_with_their_places() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g", "app": "a", "pod-group.scheduling.sigs.k8s.io": ""}
    annotations = {"scheduling.k8s.io/group-name": "g"}
    assert list(gangs.written(labels, annotations)) == [
        "label scheduling.x-k8s.io/pod-group",
        "annotation scheduling.k8s.io/group-name",
    ]
    assert list(gangs.written(None, {})) == []


def test_every_word_that_is_translated_is_looked_for() -> None:
    assert {word.partition(" ")[2] for word in gangs.TRANSLATED} <= {*gangs.ALL}
