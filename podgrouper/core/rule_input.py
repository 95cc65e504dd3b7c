"""A row of the table of kinds, and what its rule is given."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import msgspec

from podgrouper.core.answers import Json, Shape
from podgrouper.core.owner_chain import Read


class Top(enum.Enum):
    """Which object stands for the workload."""

    #: The top owner.
    OWNER = "owner"
    #: Not this one: the object below it does, with this one's labels and annotations where it lacks them.
    SKIP = "skip"


class Name(enum.Enum):
    """What names and owns the PodGroup."""

    BY_OWNER = "owner"
    BY_POD = "pod"
    #: The value of a label, as it is, without a prefix.
    BY_LABEL = "label"


class Makes(enum.Enum):
    """When a PodGroup object is written."""

    #: Where an owner states something that the pod doesn't. Pods of other owners are groups of their own.
    WHEN_ASKED = "when-asked"
    ALWAYS = "always"


class Case(msgspec.Struct, frozen=True):
    """One pod and its workload. ``top`` stands for the workload; ``chain``: the pod's owners, the direct one first."""

    pod: Json
    top: Json
    chain: Sequence[Json]
    kind: Kind
    read: Read


Rule = Callable[[Case], Shape]


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object describes pods of one sort: for the simulator, which makes them without the object's controller.

    Paths are below ``spec``; those that begin with a dot are below an object of the list ``each``. ``template``: a pod
    template, or, with ``is_spec``, the spec of one, whose main container may be in one of the fields ``container``.
    ``copied``: paths from the object to labels and annotations that pods of a spec get, the last one wins.
    ``counts``: numbers that are multiplied, 1 where one is absent; ``scale``: an annotation of the template that says
    how many instead. ``below``: objects between, the owner of the pods first. ``unless``: a field with which other
    pods are made; ``stopped``: an annotation of the object with which none are.
    """

    template: str
    is_spec: bool = False
    each: str = ""
    counts: tuple[str, ...] = ()
    scale: str = ""
    container: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    below: tuple[tuple[str, str], ...] = ()
    unless: str = ""
    stopped: str = ""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One row. ``versions``: those that it holds for; none: all.

    ``replicas`` and ``required`` are for the rule: the field with the replica types, and types that have to be there.
    ``pod_labels``: the row holds only for pods with all of these labels; the last one names the group.
    """

    api_group: str
    kind: str
    versions: tuple[str, ...] = ()
    top: Top = Top.OWNER
    name: Name = Name.BY_OWNER
    rule: Rule | None = None
    replicas: str = ""
    required: tuple[str, ...] = ()
    priority: str = "train"
    makes: Makes = Makes.ALWAYS
    pod_labels: tuple[str, ...] = ()
    #: Where its objects describe their pods, if they have templates of these and nothing else has to be read.
    pods: tuple[Pods, ...] = ()
    #: What it departs from KAI in, for the reference page.
    differs: str = ""
