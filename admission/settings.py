"""What an operator may choose about admission, and which pods of other schedulers become ours."""

from __future__ import annotations

import enum
from collections.abc import Collection
from itertools import islice
from typing import Final

import msgspec

from admission import raw_pod
from admission.raw_pod import Bounds, Raw
from gpu.dialects.settings import DialectSettings
from gpu.translate import combine, registry
from gpu.translation import Refusal
from wire import names
from wire.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements

_DEFAULT: Final = "default-scheduler"
#: The cluster's own scheduler, and those of the systems whose words are understood.
ORIGINS: Final = (_DEFAULT, "hami-scheduler", "koord-scheduler", "volcano")


#: How much of a pod that is too large is looked at for a word of GPUs: names of resources, and members of any list.
_MOST_RESOURCES: Final = 1024
_MOST_MEMBERS: Final = 10_000


def may_be_adopted(pod: Raw, origins: Collection[str]) -> bool:
    """Whether this is a pod of one of these schedulers that has no node yet. Looks at nothing else of it."""
    spec = pod["spec"]
    return (spec.get("schedulerName") or _DEFAULT) in origins and not spec.get("nodeName")


def adopted(pod: Raw, *, dialects: DialectSettings, scheduler_name: str) -> Raw:
    """Return the pod as one of ours if it asks for GPUs, else as it is. ``pod`` is known to decode as wire.core.Pod.

    A namespace asks for it (label ``moorage.dev/adopt: "true"``): teams that come from another system keep their
    manifests, which name its scheduler, or none. A pod that asks wrongly is taken as well: the refusal that follows
    says what is wrong, while a pod that waits for resources that no node has says nothing. A pod that brings its node
    stays, since no scheduler decides about it.

    Adoption is a webhook of its own that has to come first: the API server looks at the conditions of a webhook when
    its turn has come, and not again (docs/design/api-server-facts.md).
    """
    found = combine.translate(msgspec.convert(pod, Pod), dialects)
    if not isinstance(found, Refusal) and not found.request.containers:
        return pod
    return ours(pod, scheduler_name)


def ours(pod: Raw, scheduler_name: str) -> Raw:
    """Return the pod as one of ours."""
    return {**pod, "spec": {**pod["spec"], "schedulerName": scheduler_name}}


def names_gpus(pod: Raw, dialects: DialectSettings) -> bool:
    """Whether a pod that is too large to be read has a label, an annotation or a resource by which GPUs are asked for.

    ``pod`` may be anything with maps as metadata and spec. Only the first of very many members are looked at: whose
    words stand behind them stays with the scheduler that it names. Images that ask (C13) are not looked at.
    """
    found = raw_pod.resources(pod, _MOST_RESOURCES, most_containers=_MOST_MEMBERS)
    asked: dict[str, str | int | float] = dict.fromkeys(islice(found, _MOST_RESOURCES), 1)
    metadata = pod["metadata"]
    short = Pod(
        metadata=ObjectMeta(
            labels=_words(metadata.get("labels"), is_label=True),
            annotations=_words(metadata.get("annotations"), is_label=False),
        ),
        spec=PodSpec(containers=[Container(resources=ResourceRequirements(limits=asked))]),
    )
    return names.GPU_RECORD in (metadata.get("annotations") or ()) or registry.is_any_spoken(short, dialects)


def _words(texts: object, *, is_label: bool) -> dict[str, str]:
    """Labels or annotations that some dialect reads."""
    found = islice(texts.items(), _MOST_MEMBERS) if isinstance(texts, dict) else ()
    return {key: text for key, text in found if registry.is_word(key, is_label=is_label) and isinstance(text, str)}


class HandOver(enum.Enum):
    """How a container with a share learns its devices (docs/design/protocol.md, Hand-over to the container)."""

    #: Env reads annotations that the Binding writes: no further object.
    ANNOTATIONS = "annotations"
    #: Env reads ConfigMaps that the binder writes: KAI's exact way (kai-contract 1.3, 1.5).
    CONFIG_MAPS = "configMaps"


class Guard(enum.Enum):
    """What happens to NVIDIA_VISIBLE_DEVICES in containers to which no shared device was given."""

    #: Nothing: what image and spec say is what the container runtime does.
    OFF = "off"
    #: A container without GPU gets ``void``; what a container sets itself is taken out.
    INJECT = "inject"
    #: A container without GPU gets ``void``; a pod that sets anything but ``void`` or ``none`` itself is refused, and
    #: one that could set it unseen. Holds for pods of other schedulers as well (admission/policies.py).
    REJECT = "reject"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace may choose for its pods. The defaults are those of a cluster that says nothing."""

    guard: Guard = Guard.INJECT
    #: How the dialects are read. ``sharing``: whether shares are served at all; if not, pods that ask for one are
    #: refused (kai-contract 1.4, message 1).
    dialects: DialectSettings = DialectSettings()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the webhooks. ``choices`` hold for namespaces that say nothing themselves."""

    scheduler_name: str = names.SCHEDULER_NAME
    #: Schedulers whose pods become ours in namespaces that say so.
    origins: tuple[str, ...] = ORIGINS
    choices: Choices = Choices()
    hand_over: HandOver = HandOver.ANNOTATIONS
    #: RuntimeClass for pods with shares that name none; "" leaves them as they are.
    runtime_class: str = "nvidia"
    #: Namespaces whose GPU pods may have a system priority class, and come before everybody's.
    critical_namespaces: tuple[str, ...] = ("kube-system",)
    #: Resources of NVIDIA's device plugin that have other names than its own: what it was told to rename them to.
    gpu_resources: tuple[str, ...] = ()
    #: Containers with a share request the extended resource by which a ResourceClaim may give it.
    shares_by_claims: bool = False
    #: ``moorage podgrouper`` makes the PodGroups of workloads: admission names a new pod's on it.
    workloads_are_grouped: bool = False
    #: What a pod of ours may have at most, looked at before it is read.
    bounds: Bounds = Bounds()
