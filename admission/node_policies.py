"""Admission policies that hold the agent of a node to its own node (docs/node-agent.md, Rights).

RBAC can't say "of your own node". The API server tells on which node the pod is to which a token is bound
(``authentication.kubernetes.io/node-name``, since Kubernetes 1.32), and these policies compare. A token that names no
node may do nothing. The writers of a reservation pod's device are in ``admission/policies.py``; the policies here bound
what an agent may change of the pod.
"""

from __future__ import annotations

from typing import Final

from admission import cel, protected
from wire import names

NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"

#: The policies' names.
OWN_NODE: Final = "moorage-node-agent"
OWN_RESERVATIONS: Final = "moorage-node-agent-reservations"
OWN_EVENTS: Final = "moorage-node-agent-events"

#: Labels of a Node that GPU feature discovery writes, and the agent where none runs. None steers the GPU operator.
_LABELS: Final = (
    *(
        f"nvidia.com/gpu.{what}"
        for what in ("count", "product", "memory", "family", "machine", "mode", "replicas", "sharing-strategy")
    ),
    *(f"nvidia.com/gpu.compute.{what}" for what in ("major", "minor")),
    *(f"nvidia.com/mig.{what}" for what in ("strategy", "capable")),
    "nvidia.com/gfd.timestamp",
)
_LABEL_PREFIXES: Final = (
    "nvidia.com/cuda.driver",
    "nvidia.com/cuda.runtime",
    "nvidia.com/mig-",
)
#: What the agent says of a pod, up to the name of the process (nodeagent/enforcement/memory.py).
CAP_NOTE: Final = "^[0-9]+ MiB of (GPU|MIG)-[A-Za-z0-9-]+ are in use, the cap is [0-9]+ MiB(: process .{1,200})?$"
_POD_UID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
#: Metadata by which other controllers are steered.
_OF_OTHERS: Final = ("labels", "annotations", "ownerReferences", "finalizers")
#: Annotations of a Node that the agent writes.
_ANNOTATIONS: Final = (names.NODE_UUIDS, names.NODE_CARDS, names.NODE_ENFORCES_SEEN)


def own_node(agent: str) -> cel.Manifest:
    """The agent writes its own Node and GpuNode, and of these no more than it has to."""
    label = f"!({cel.is_one_of(_LABELS, _LABEL_PREFIXES)})"
    annotation = f"!(key in {cel.texts(_ANNOTATIONS)})"
    subresource = "request.?subResource.orValue('')"
    return cel.policy(
        OWN_NODE,
        rules=[
            cel.rule("", ["nodes", "nodes/*"], ["CREATE", "UPDATE", "DELETE"]),
            cel.rule(names.MOORAGE_GROUP, ["gpunodes", "gpunodes/*"], ["CREATE", "UPDATE", "DELETE"]),
        ],
        conditions={"agent": f"request.userInfo.username == {cel.text(agent)}"},
        variables=cel.MAPS
        | {
            "own": f"{cel.claim(NODE_CLAIM)} == [object == null ? request.name : object.metadata.name]",
            "kept": "oldObject != null && object != null"
            " && object.metadata.?finalizers == oldObject.metadata.?finalizers"
            " && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
            "foreign": f"{cel.changed('labels', label)} + {cel.changed('annotations', annotation)}",
            "owners": "object == null ? [] : object.metadata.?ownerReferences.orValue([])",
        },
        validations=[
            ("variables.own", "'the agent of a node may write its own Node and GpuNode only'"),
            (
                "request.resource.resource != 'nodes' || request.operation == 'UPDATE'"
                f" && {subresource} == '' && variables.kept && variables.foreign.size() == 0"
                " && object.spec == oldObject.spec",
                "'the agent of a node may write labels and annotations of GPUs on its Node only'",
            ),
            (
                "request.resource.resource != 'gpunodes'"
                f" || request.operation == 'UPDATE' && {subresource} == 'status'"
                f" || request.operation == 'CREATE' && {subresource} == '' && !has(object.spec)"
                " && variables.owners.size() == 1 && variables.owners[0].kind == 'Node'"
                " && variables.owners[0].name == object.metadata.name",
                "'the agent of a node may make its GpuNode, owned by its Node, and write the status of it'",
            ),
        ],
    )


def own_reservations(agent: str, namespace: str) -> cel.Manifest:
    """The agent tells the devices of reservation pods on its node, and changes nothing else of any pod."""
    other = f"!(key in {cel.texts(protected.TOLD)})"
    is_reservation = (
        f"request.namespace == {cel.text(namespace)} && oldObject != null && oldObject.metadata.?labels"
        f"[?{cel.text(names.APP_LABEL)}].orValue('') == {cel.text(names.RESERVATION_APP)}"
    )
    return cel.policy(
        OWN_RESERVATIONS,
        rules=[cel.rule("", cel.PODS, ["CREATE", "UPDATE"]), cel.rule("", ["pods"], ["DELETE"])],
        conditions={"agent": f"request.userInfo.username == {cel.text(agent)}"},
        variables=cel.MAPS
        | {
            "own": f"{is_reservation} && {cel.claim(NODE_CLAIM)} == [oldObject.spec.?nodeName.orValue('')]",
            "elsewhere": f"{cel.changed('annotations', other)} + {cel.changed('labels', 'true')}",
        },
        validations=[
            (
                "request.operation == 'UPDATE' && request.?subResource.orValue('') == '' && variables.own",
                "'the agent of a node may write reservation pods of its own node only'",
            ),
            (
                "request.operation == 'UPDATE' && variables.elsewhere.size() == 0"
                " && object.metadata.?finalizers == oldObject.metadata.?finalizers"
                " && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences"
                " && object.spec == oldObject.spec",
                "'the agent of a node may only say which device a reservation pod was given'",
            ),
        ],
    )


def own_events(agent: str) -> cel.Manifest:
    """The agent says in its own name, and in its node's, what became of processes of pods, and what its Node has.

    Which node a pod is on, a policy can't know: an Event of the agent may be about any pod. Objects that a policy may
    read as parameters all have to allow a request, so "one of the books names the pod" can't be asked of them, and the
    one that is the node's own, its GpuNode, is the agent's to write. What an Event may say is bounded instead. A
    finalizer on it would keep a user's namespace from being deleted.
    """
    node = cel.claim(NODE_CLAIM)
    return cel.policy(
        OWN_EVENTS,
        rules=[cel.rule("events.k8s.io", ["events"], ["CREATE", "UPDATE", "DELETE"])],
        conditions={"agent": f"request.userInfo.username == {cel.text(agent)}"},
        variables={
            "kind": "object == null ? '' : object.?regarding.kind.orValue('')",
            "pod": f"variables.kind == 'Pod' && object.reason == {cel.text(names.REASON_MEMORY_EXCEEDED)}"
            " && object.?type.orValue('') == 'Warning'"
            f" && object.regarding.?uid.orValue('').matches({cel.text(_POD_UID)})"
            f" && object.?note.orValue('').matches({cel.text(CAP_NOTE)})",
            "node": f"variables.kind == 'Node' && {node} == [object.regarding.name]",
        },
        validations=[
            (
                "request.operation == 'CREATE'"
                f" && object.?reportingController.orValue('') == {cel.text(names.NODE_AGENT_SERVICE_ACCOUNT)}"
                f" && {node} == [object.?reportingInstance.orValue('')]"
                " && (variables.pod || variables.node)",
                "'the agent of a node may make Events in its own name, about memory caps and its Node only'",
            ),
            (
                "object != null && !has(object.related) && !has(object.series)"
                " && object.?note.orValue('').size() <= 1024"
                f" && {' && '.join(f'!has(object.metadata.{each})' for each in _OF_OTHERS)}",
                "'an Event of the agent of a node has no labels, annotations, owners or finalizers'",
            ),
        ],
    )
