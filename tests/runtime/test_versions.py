"""Versions of components are read from labels of pods, from images, and from leases."""

from __future__ import annotations

import pytest

from runtime.versions import IMAGE, LABEL, NOWHERE, Component, components
from wire.coordination import Lease, LeaseSpec
from wire.core import Condition, Container, ObjectMeta, Pod, PodSpec, PodStatus


def pod(
    name: str,
    component: str,
    version: str = "",
    *,
    image: str = "r/moorage:0.1.0",
    is_ready: bool = False,
    phase: str = "Running",
) -> Pod:
    labels = {"app.kubernetes.io/component": component, "app.kubernetes.io/version": version}
    return Pod(
        metadata=ObjectMeta(name=name, labels={key: value for key, value in labels.items() if value}),
        spec=PodSpec(containers=[Container(name="main", image=image)]),
        status=PodStatus(phase=phase, conditions=[Condition(type="Ready", status=str(is_ready))]),
    )


def lease(component: str, host: str = "") -> Lease:
    holder = f"{host}_0123456789abcdef" if host else ""
    return Lease(metadata=ObjectMeta(name=f"moorage-{component}"), spec=LeaseSpec(holder_identity=holder))


def test_pods_of_one_version_are_counted_with_the_one_that_leads() -> None:
    pods = [pod("s-1", "scheduler", "1", is_ready=True), pod("s-2", "scheduler", "1")]
    assert components(pods, [lease("scheduler", "s-2")]) == [
        Component(name="scheduler", version="1", source=LABEL, image="r/moorage:0.1.0", pods=2, ready=1, leader="s-2")
    ]


def test_an_update_that_is_under_way_has_two_versions() -> None:
    pods = [pod("b-2", "binder", "2", image="r/m:2"), pod("b-1", "binder", "1", image="r/m:1")]
    found = components(pods, [lease("binder", "b-1")])
    assert [(each.version, each.leader) for each in found] == [("1", "b-1"), ("2", "")]


@pytest.mark.parametrize(
    ("image", "version", "source"),
    [
        ("moorage:0.2", "0.2", IMAGE),
        ("host:5000/moorage:0.2@sha256:0", "0.2", IMAGE),
        ("host:5000/moorage", "", ""),
        ("moorage@sha256:0", "", ""),
    ],
)
def test_without_a_label_the_tag_of_the_image_tells(image: str, version: str, source: str) -> None:
    (found,) = components([pod("a", "admission", image=image)], [])
    assert (found.version, found.source) == (version, source)


def test_what_runs_outside_of_pods_is_known_by_its_lease_alone() -> None:
    found = components([], [lease("scheduler", "laptop"), lease("binder"), lease("other", "x")])
    assert found == [Component(name="scheduler", version="", source=NOWHERE, leader="laptop")]


def test_pods_that_ended_do_not_count() -> None:
    assert components([pod("c", "crds", "1", phase="Succeeded")], []) == []
