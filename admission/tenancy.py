"""Policies that hold tenants within their namespaces: two by which an administrator narrows them, one for our priority.

The restriction is on the Namespace object, which tenants can't write: the ClusterRoles ``admin`` and ``edit`` do not
let them. So it is the administrator's word.
"""

from __future__ import annotations

from typing import Final

from admission import cel
from admission.settings import Guard
from gpu.slices import MIG_RESOURCE
from wire import names

_POLICY_QUEUES: Final = "moorage-queues"
_POLICY_DEVICES: Final = "moorage-visible-devices"
_POLICY_PRIORITY: Final = "moorage-priority"

_GROUP_OF_POD: Final = "{0}.?metadata.?annotations[?" + cel.text(names.POD_GROUP_NAME) + "].orValue('')"
_BRINGS_NODE: Final = "{0}.?spec.?nodeName.orValue('') != ''"
_IS_CHARGED: Final = "{0}.?metadata.?annotations[?" + cel.text(names.CHARGED) + "].hasValue()"


def bound_queues(scheduler_name: str) -> cel.Manifest:
    """Pods of ours and PodGroups name a queue that their namespace is bound to (kai-contract 9.2.7).

    A pod names its queue by a label. One without it that names a PodGroup has the queue of that, but for a pod that
    brings its node along: it runs, whether there is such a PodGroup or not. ``project`` is judged where it decides: on
    a pod that has neither, or its own node, and on a Binding, which does not show its pod. A pod that Moorage placed
    counts by none of these. What was let in before is not judged again: such a pod can still be ungated and freed of
    finalizers. The metadata of a Binding is judged as far as it names a queue.
    """
    allowed = f"namespaceObject.metadata.?annotations[?{cel.text(names.QUEUES)}]"
    label = "{0}.?metadata.?labels[?" + cel.text(names.QUEUE_LABEL) + "].orValue('')"
    project = "{0}.?metadata.?labels[?" + cel.text(names.PROJECT_LABEL) + "].orValue('')"
    by_project = f"variables.isBinding || ({_GROUP_OF_POD} == '' || {_BRINGS_NODE}) && !{_IS_CHARGED}"
    named = f"({label} != '' ? {label} : {by_project} ? {project} : '')"
    return cel.policy(
        _POLICY_QUEUES,
        rules=[
            cel.rule("", cel.PODS, ["CREATE", "UPDATE"]),
            cel.rule(names.SCHEDULING_GROUP, ["podgroups"], ["CREATE", "UPDATE"]),
        ],
        conditions={
            "ours": f"object.?spec.?schedulerName.orValue({cel.text(scheduler_name)}) == {cel.text(scheduler_name)}"
        },
        variables={
            "bound": f"{allowed}.hasValue()",
            "allowed": f"{allowed}.orValue('').split(',').map(queue, queue.trim()).filter(queue, queue != '')",
            "isGroup": "request.resource.resource == 'podgroups'",
            "isBinding": cel.IS_BINDING,
            "queue": f"variables.isGroup ? object.?spec.?queue.orValue('') : {named.format('object')}",
            "before": f"variables.isGroup ? oldObject.?spec.?queue.orValue('') : {named.format('oldObject')}",
            "elsewhere": "!variables.isGroup && variables.queue == '' && (variables.isBinding"
            f" || {_GROUP_OF_POD.format('object')} != '' && !({_BRINGS_NODE.format('object')}))",
            "field": f"variables.isGroup ? 'spec.queue' : {label.format('object')} == '' && variables.queue != ''"
            f" ? 'label {names.PROJECT_LABEL}' : 'label {names.QUEUE_LABEL}'",
        },
        validations=[
            (
                "!variables.bound || variables.queue in variables.allowed || variables.elsewhere"
                " || request.operation == 'UPDATE' && variables.queue == variables.before",
                "variables.field + ' is \"' + variables.queue"
                " + '\"; allowed in namespace ' + request.namespace + ': ' + variables.allowed.join(', ')",
            )
        ],
    )


def guarded_devices(scheduler_name: str, *, runtime_class: str) -> cel.Manifest:
    """Where a namespace says ``reject``, pods of other schedulers choose no devices by themselves either.

    Our webhooks are not asked about those. A container that gets GPUs may not set NVIDIA_VISIBLE_DEVICES; any other one
    under our runtime class has to set it to ``void`` or ``none`` itself, since its image may say ``all``. That a
    container gets what it asks for is a scheduler's word: on a node that the pod brings along, kubelet drops an ask for
    what the node lacks.
    """
    guard = cel.text(names.VISIBLE_DEVICES_GUARD)
    said = f"namespaceObject.metadata.?labels[?{guard}].or(namespaceObject.metadata.?annotations[?{guard}])"
    variable = f"entry.name == {cel.text(names.ENV_VISIBLE_DEVICES)}"
    harmless = f"{variable} && entry.?value.orValue('') in [{cel.text(names.VISIBLE_DEVICES_NONE)}, 'none']"
    mig = cel.text(f"^{MIG_RESOURCE}$")
    gets_gpus = (
        "object.spec.?nodeName.orValue('') == '' && container.?resources.?limits.orValue({}).exists(key, "
        f"(key == {cel.text(names.GPU_RESOURCE)} || key.matches({mig}))"
        " && string(container.resources.limits[key]) != '0')"
    )
    sources = "container.?envFrom.orValue([])"
    unseen = f"{sources}.exists(source, {cel.text(names.ENV_VISIBLE_DEVICES)}.startsWith(source.?prefix.orValue('')))"
    entries = "container.?env.orValue([])"
    return cel.policy(
        _POLICY_DEVICES,
        rules=[
            cel.rule("", ["pods"], ["CREATE"]),
            cel.rule("", ["pods/ephemeralcontainers"], ["UPDATE"]),
        ],
        conditions={"not-ours": f"object.spec.?schedulerName.orValue('') != {cel.text(scheduler_name)}"},
        variables={
            "rejects": f"{said}.orValue('') == {cel.text(Guard.REJECT.value)}",
            "old": "oldObject == null ? [] : oldObject.spec.?ephemeralContainers.orValue([])",
            # Of a pod that was let in before only what is new is judged.
            "containers": "request.operation == 'UPDATE'"
            " ? object.spec.?ephemeralContainers.orValue([])"
            ".filter(container, !variables.old.exists(old, old.name == container.name))"
            " : object.spec.containers + object.spec.?initContainers.orValue([])",
            "runtime": f"object.spec.?runtimeClassName.orValue('') == {cel.text(runtime_class)}",
            "wrong": "variables.containers.filter(container,"
            f" {entries}.exists(entry, {variable} && !({harmless}))"
            f" || !{entries}.exists(entry, {harmless}) && ({gets_gpus} ? {unseen} : variables.runtime))"
            ".map(container, container.name)",
        },
        validations=[
            (
                "!variables.rejects || variables.wrong.size() == 0",
                "'containers ' + variables.wrong.join(', ') + ' choose their devices themselves, or leave it to their"
                f" image or to objects that envFrom names (env {names.ENV_VISIBLE_DEVICES}; allowed in namespace '"
                f" + request.namespace + ': void or none, and none of it where a container gets GPUs'"
                " + ' on a node that a scheduler chooses)'",
            )
        ],
    )


def reserved_priority(reservation_namespace: str) -> cel.Manifest:
    """The priority of reservation pods is for these only: any other pod of it would come before everybody's."""
    name = cel.text(names.RESERVATION_PRIORITY_CLASS)
    return cel.policy(
        _POLICY_PRIORITY,
        rules=[cel.rule("", ["pods"], ["CREATE"])],
        conditions={"class": f"object.spec.?priorityClassName.orValue('') == {name}"},
        variables={},
        validations=[
            (
                f"request.namespace == {cel.text(reservation_namespace)}",
                f"'spec.priorityClassName is {names.RESERVATION_PRIORITY_CLASS}; allowed: in namespace "
                f"{reservation_namespace} only, for reservation pods'",
            )
        ],
    )
