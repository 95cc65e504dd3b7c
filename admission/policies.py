"""Admission policies that guard what only we may write and hold tenants within their namespaces, in the API server.

They are ValidatingAdmissionPolicies (CEL), so they hold while our webhook is down (docs/design/protocol.md, Hand-over
to the container). All keys come from wire.names by way of admission.protected; nothing is spelled twice. An
administrator narrows a namespace on its Namespace object, which the ClusterRoles ``admin`` and ``edit`` do not let
tenants write.
"""

from __future__ import annotations

from typing import Final

import msgspec

from admission import cel, node_policies, protected
from admission.settings import Guard
from gpu import book
from gpu.node_resources import MIG_RESOURCE
from wire import gangs, names

_POLICY_QUEUES: Final = "moorage-queues"
_POLICY_DEVICES: Final = "moorage-visible-devices"
_POLICY_PRIORITY: Final = "moorage-priority"
_POLICY_GANGS: Final = "moorage-stateful-gangs"

_GROUP_OF_POD: Final = "{0}.?metadata.?annotations[?" + cel.text(names.POD_GROUP_NAME) + "].orValue('')"
_BRINGS_NODE: Final = "{0}.?spec.?nodeName.orValue('') != ''"
_IS_CHARGED: Final = "{0}.?metadata.?annotations[?" + cel.text(names.CHARGED) + "].hasValue()"


_OURS: Final = cel.text(names.SCHEDULER_NAME)
_RUNTIME_CLASS: Final = "nvidia"


def bound_queues() -> cel.Manifest:
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
        conditions={"ours": f"object.?spec.?schedulerName.orValue({_OURS}) == {_OURS}"},
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


def stateful_gangs() -> cel.Manifest:
    """A StatefulSet of ours asks for several pods at once only if it makes them at once.

    One that was let in before is judged again only when what it asks for changes.
    """
    said = "{0}.?metadata.?annotations[?" + cel.text(names.BATCH_MIN_MEMBER) + "].orValue('1')"
    return cel.policy(
        _POLICY_GANGS,
        rules=[cel.rule("apps", ["statefulsets"], ["CREATE", "UPDATE"])],
        conditions={"ours": f"object.spec.template.spec.?schedulerName.orValue('') == {_OURS}"},
        variables={
            "said": said.format("object"),
            "before": f"oldObject == null ? '1' : {said.format('oldObject')}",
            "policy": "object.spec.?podManagementPolicy.orValue('')",
        },
        validations=[
            (
                f"variables.said.matches('^0*1$') || variables.policy == {cel.text(gangs.PARALLEL)}"
                " || request.operation == 'UPDATE' && variables.said == variables.before",
                f"'metadata.annotations[{names.BATCH_MIN_MEMBER}] is \"' + variables.said + '\"; allowed: ' + "
                f"{cel.text(gangs.IN_ORDER)}",
            )
        ],
    )


def guarded_devices() -> cel.Manifest:
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
        conditions={"not-ours": f"object.spec.?schedulerName.orValue('') != {_OURS}"},
        variables={
            "rejects": f"{said}.orValue('') == {cel.text(Guard.REJECT.value)}",
            "old": "oldObject == null ? [] : oldObject.spec.?ephemeralContainers.orValue([])",
            # Of a pod that was let in before only what is new is judged.
            "containers": "request.operation == 'UPDATE'"
            " ? object.spec.?ephemeralContainers.orValue([])"
            ".filter(container, !variables.old.exists(old, old.name == container.name))"
            " : object.spec.containers + object.spec.?initContainers.orValue([])",
            "runtime": f"object.spec.?runtimeClassName.orValue('') == {cel.text(_RUNTIME_CLASS)}",
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


_POLICY_PROTECTED: Final = "moorage-protected-keys"
_POLICY_ASKS: Final = "moorage-fixed-asks"
_POLICY_RESERVATIONS: Final = "moorage-reservations"
_POLICY_HANDOVER: Final = "moorage-hand-over"
_POLICY_CONFIG_MAPS: Final = "moorage-config-maps"

#: Names of the ConfigMaps that containers with shares read their devices from (admission/mutate.py,
#: gpu/container_devices.py).
_CONFIG_MAP_NAMES: Final = "-[a-z0-9]{7}-shared-gpu-i?[0-9]+(-evar)?$"

_FIXED: Final = "' is fixed when a pod is created'"

_POD_NAME_CLAIM: Final = "authentication.kubernetes.io/pod-name"
_POD_UID_CLAIM: Final = "authentication.kubernetes.io/pod-uid"
_NODE_NAME_CLAIM: Final = "authentication.kubernetes.io/node-name"

#: Who ends pods when their node or namespace goes, as the controller manager and the kubelets call themselves.
_LIFE_CYCLE_USERS: Final = (
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:pod-garbage-collector",
    "system:serviceaccount:kube-system:taint-eviction-controller",
)
_LIFE_CYCLE_GROUPS: Final = ("system:nodes",)


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """User names and groups, as the API server sees them, by what the policies let them do."""

    #: The scheduler and the binder: they write what is protected.
    ours: tuple[str, ...] = (
        f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-scheduler",
        f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-binder",
    )
    #: The processes in reservation pods: each may say which device its own pod holds.
    reservation: str = f"system:serviceaccount:{names.RESERVATION_NAMESPACE}:{names.RESERVATION_SERVICE_ACCOUNT}"
    #: The node agents: each may say which device a reservation pod of its own node was given.
    node_agent: str = f"system:serviceaccount:{names.NODE_NAMESPACE}:{names.NODE_AGENT_SERVICE_ACCOUNT}"
    #: Others who tell a reservation pod's device, such as fake-gpu-operator's status-updater.
    device_tellers: tuple[str, ...] = ()
    #: May delete reservation pods that have tenants: the life-cycle of nodes and namespaces.
    life_cycle_users: tuple[str, ...] = _LIFE_CYCLE_USERS
    life_cycle_groups: tuple[str, ...] = _LIFE_CYCLE_GROUPS


def policy_manifests(
    identities: Identities | None = None,
    *,
    reservation_namespace: str = names.RESERVATION_NAMESPACE,
) -> list[cel.Manifest]:
    """Return all policies with their bindings, and the budget of the reservation pods."""
    who = identities or Identities()
    policies = [
        _protected_keys(who),
        _fixed_asks(),
        _reservations(who, reservation_namespace),
        _hand_over(who),
        _config_maps(who),
        bound_queues(),
        guarded_devices(),
        reserved_priority(reservation_namespace),
        stateful_gangs(),
        node_policies.own_node(who.node_agent),
        node_policies.own_reservations(who.node_agent, reservation_namespace),
        node_policies.own_events(who.node_agent),
    ]
    return [*policies, *(cel.binding(made["metadata"]["name"]) for made in policies), _budget(reservation_namespace)]


def _protected_keys(who: Identities) -> cel.Manifest:
    """Nobody but us adds, changes or removes a protected key of any pod, by any sub-resource.

    Creation is an addition, and so is the metadata of a Binding, which the server merges into the pod, by whichever of
    the two ways it comes (``pods/NAME/binding``, or the older ``bindings``). The webhook runs before this and has
    stripped the pods of our scheduler. What a new pod may bring along, and is fixed from then on, no Binding may bring.

    A user who may update Queues may rewrite the queue that a placed pod is charged to. Without that nobody could move a
    pod whose Queue was deleted, or was made again under another name.
    """
    charge = cel.text(names.CHARGED)
    annotation = cel.is_one_of(protected.ANNOTATIONS, protected.ANNOTATION_PREFIXES, protected.ANNOTATION_SHAPES)
    label = cel.is_one_of(protected.LABELS, protected.LABEL_PREFIXES)
    fixed = cel.is_one_of(protected.FIXED_AT_CREATION, protected.FIXED_PREFIXES)
    return cel.policy(
        _POLICY_PROTECTED,
        rules=[cel.rule("", cel.PODS, ["CREATE", "UPDATE"])],
        conditions={"not-ours": f"!({cel.is_user(who.ours)})"},
        variables=cel.MAPS
        | {
            "touched": f"{cel.changed('annotations', annotation)} + {cel.changed('labels', label)}",
            "isBinding": cel.IS_BINDING,
            "late": f"variables.isBinding ? {cel.changed('annotations', fixed)} : []",
            "isCharge": f"variables.touched == [{charge}] && {charge} in variables.oldAnnotations"
            f" && {charge} in variables.newAnnotations",
            "mayCharge": f"authorizer.group({cel.text(names.SCHEDULING_GROUP)}).resource('queues').check('update')"
            ".allowed()",
        },
        validations=[
            (
                "variables.touched.size() == 0 || variables.isCharge && variables.mayCharge",
                "'only the scheduler and the binder may write ' + variables.touched.join(', ')",
            ),
            ("variables.late.size() == 0", f"variables.late.join(', ') + {_FIXED}"),
        ],
    )


def _fixed_asks() -> cel.Manifest:
    """After placement nobody changes what a pod asked for and counts for; what admission wrote nobody changes at all.

    A placed pod may still be given a PodGroup: pods that run when grouping is switched on have none. ``project`` is a
    common label: it is fixed only where a pod may count by it, that is without a queue of its own, and not bound by us.
    """
    placed = (
        f"has(oldObject.spec.nodeName) && oldObject.spec.nodeName != '' || '{names.GRANT}' in variables.oldAnnotations"
    )
    return cel.policy(
        _POLICY_ASKS,
        rules=[cel.rule("", ["pods", "pods/*"], ["UPDATE"])],
        conditions={
            "ours": "has(oldObject.spec) && has(oldObject.spec.schedulerName)"
            f" && oldObject.spec.schedulerName == {_OURS}"
        },
        variables=cel.MAPS
        | {
            "asks": cel.changed("annotations", cel.is_one_of(protected.ASKS, protected.ASK_PREFIXES)),
            "fixed": cel.changed("annotations", cel.is_one_of(protected.FIXED_AT_CREATION, protected.FIXED_PREFIXES)),
            "placed": placed,
            "isOfProject": f"!({cel.text(names.CHARGED)} in variables.oldAnnotations)"
            f" && variables.oldLabels[?{cel.text(names.QUEUE_LABEL)}].orValue('') == ''",
            "counted": cel.changed(
                "labels",
                f"key in {cel.texts(protected.COUNTED_LABELS)}"
                f" && (key != {cel.text(names.PROJECT_LABEL)} || variables.isOfProject)",
            )
            + " + "
            + cel.changed("annotations", f"key == {cel.text(names.POD_GROUP_NAME)} && key in variables.oldAnnotations"),
        },
        validations=[
            (
                "!variables.placed || variables.asks.size() == 0",
                "variables.asks.join(', ') + ' can not be changed any more: the pod has its GPUs on a node already ('"
                f" + variables.asks.map(key, key + ' is ' + {cel.shown('new', 'key')} + '; allowed: '"
                f" + {cel.shown('old', 'key')}).join(', ') + ')'",
            ),
            ("variables.fixed.size() == 0", f"variables.fixed.join(', ') + {_FIXED}"),
            (
                "!variables.placed || variables.counted.size() == 0",
                "variables.counted.join(', ') + ' can not be changed any more: the pod is placed, and counts in its'"
                " + ' queue as it was placed'",
            ),
        ],
    )


def _reservations(who: Identities, namespace: str) -> cel.Manifest:
    """Reservation pods are made, marked and ended by us; the process inside says which device its own pod holds.

    The agent of its node may say it first, and mark that it did (docs/design/protocol.md, Told early).
    """
    return cel.policy(
        _POLICY_RESERVATIONS,
        rules=[cel.rule("", cel.PODS, ["CREATE", "UPDATE"]), cel.rule("", ["pods"], ["DELETE"])],
        conditions={
            "namespace": f"request.namespace == {cel.text(namespace)}",
            "not-ours": f"!({cel.is_user(who.ours)})",
        },
        variables=cel.MAPS | _reservation_variables(who),
        validations=_reservation_rules(who),
    )


def _reservation_variables(who: Identities) -> dict[str, str]:
    """Variables of the rules for reservation pods."""
    other = f"!(key in {cel.texts(protected.IDENTITY)})"
    is_reservation = (
        "{0}.metadata.?labels[?" + cel.text(names.APP_LABEL) + "].orValue('') == " + cel.text(names.RESERVATION_APP)
    )
    return {
        "was": f"oldObject != null && {is_reservation.format('oldObject')}",
        "is": f"object != null && {is_reservation.format('object')}",
        "inside": f"request.userInfo.username == {cel.text(who.reservation)}",
        "itself": f"{cel.claim(_POD_NAME_CLAIM)} == [request.name]"
        f" && oldObject != null && {cel.claim(_POD_UID_CLAIM)} == [oldObject.metadata.uid]",
        "agent": f"request.userInfo.username == {cel.text(who.node_agent)} && oldObject != null"
        f" && {cel.claim(_NODE_NAME_CLAIM)} == [oldObject.spec.?nodeName.orValue('')]",
        "told": cel.changed("annotations", f"key in {cel.texts(protected.TOLD)}"),
        "elsewhere": f"{cel.changed('annotations', other)} + {cel.changed('labels', 'true')}",
        "oldFinalizers": "oldObject == null ? [] : oldObject.metadata.?finalizers.orValue([])",
        "newFinalizers": "object == null ? [] : object.metadata.?finalizers.orValue([])",
        "bookHeld": f"{cel.text(names.BOOK_FINALIZER)} in variables.oldFinalizers",
        "bookKept": f"{cel.text(names.BOOK_FINALIZER)} in variables.newFinalizers",
        "lifeCycle": f"{cel.is_user(who.life_cycle_users)}"
        f" || request.userInfo.?groups.orValue([]).exists(group, group in {cel.texts(who.life_cycle_groups)})",
    }


def _reservation_rules(who: Identities) -> list[tuple[str, str]]:
    """Rules for reservation pods, each with the message of a refusal."""
    book_of = "oldObject.metadata.?annotations[?" + cel.text(names.TENANTS) + "].orValue('')"
    return [
        (
            "request.operation == 'DELETE' || variables.is == variables.was",
            "'reservation pods are made by the binder only, and stay what they are'",
        ),
        (
            "request.operation != 'DELETE' || !variables.was || variables.lifeCycle"
            f" || {book_of} == {cel.text(book.render(book.EMPTY))}",
            "'the device of this reservation pod has tenants: delete those, and it goes too'",
        ),
        (
            "request.operation != 'UPDATE' || !variables.was || variables.bookHeld == variables.bookKept",
            f"'only the binder may add or remove the finalizer {names.BOOK_FINALIZER}'",
        ),
        (
            "request.operation != 'UPDATE' || !variables.was || variables.told.size() == 0"
            f" || variables.inside || variables.agent || {cel.is_user(who.device_tellers)}",
            "'only the process inside a reservation pod, and the agent of its node, may write '"
            " + variables.told.join(', ')",
        ),
        (
            "!variables.inside || request.operation == 'UPDATE' && request.?subResource.orValue('') == ''"
            " && variables.was && variables.itself && variables.elsewhere.size() == 0"
            " && variables.oldFinalizers == variables.newFinalizers && object.spec == oldObject.spec"
            " && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
            "'a reservation pod may only say which device it holds, and only of itself'",
        ),
    ]


def _hand_over(who: Identities) -> cel.Manifest:
    """BindRequests, and the plan of a gang, are orders to the binder: only we give them (kai-contract 9.2.11).

    Others may delete a BindRequest, label it or free it of finalizers, but not change what it orders, nor keep it.
    """
    plan = f"key == {cel.text(names.PLAN)}"
    order = f"key == {cel.text(names.HANDOVER)}"
    return cel.policy(
        _POLICY_HANDOVER,
        rules=[
            cel.rule(names.SCHEDULING_GROUP, ["bindrequests", "bindrequests/*"], ["CREATE", "UPDATE"]),
            cel.rule(names.SCHEDULING_GROUP, ["podgroups", "podgroups/*"], ["CREATE", "UPDATE"]),
        ],
        conditions={"not-ours": f"!({cel.is_user(who.ours)})"},
        variables=cel.MAPS
        | {
            "plan": cel.changed("annotations", plan),
            "order": cel.changed("annotations", order),
            "sameOrder": "oldObject != null && variables.order.size() == 0"
            " && object.?spec == oldObject.?spec && object.?status == oldObject.?status"
            " && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences"
            " && object.metadata.?finalizers.orValue([]).all(each,"
            " each in oldObject.metadata.?finalizers.orValue([]))",
        },
        validations=[
            (
                "request.resource.resource != 'bindrequests' || variables.sameOrder",
                "'BindRequests are written by the scheduler and the binder only'",
            ),
            (
                "request.resource.resource == 'bindrequests' || variables.plan.size() == 0",
                f"'only the scheduler and the binder may write {names.PLAN}'",
            ),
        ],
    )


def _config_maps(who: Identities) -> cel.Manifest:
    """Nobody but us makes a ConfigMap that a container reads its devices from.

    They are immutable, so that nobody edits one; without this a tenant could delete it and create it again with another
    device in it, for the next start of the container.
    """
    return cel.policy(
        _POLICY_CONFIG_MAPS,
        rules=[cel.rule("", ["configmaps"], ["CREATE"])],
        conditions={
            "name": f"object.metadata.?name.orValue('').matches({cel.text(_CONFIG_MAP_NAMES)})",
            "not-ours": f"!({cel.is_user(who.ours)})",
        },
        variables={},
        validations=[
            ("false", "'ConfigMaps of this form of name say which GPUs a pod sees: only the binder makes them'"),
        ],
    )


def _budget(namespace: str) -> cel.Manifest:
    """Return a budget that no eviction meets. Bare pods allow no other form than a number of pods to be left.

    A budget answers 429, upon which ``kubectl drain`` waits until the tenants have left and the binder has retired the
    reservation. A policy can only answer 403, upon which it gives up. The API server asks no budget about a pod that is
    Pending (``canIgnorePDB``): such a reservation is evicted at once. Without a node agent hardly any tenant runs under
    one, since tenants start only after the process inside has reported the device. With one they may
    (docs/design/protocol.md, Told early).
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "moorage-reservations", "namespace": namespace},
        "spec": {"minAvailable": 2**31 - 1, "selector": {"matchLabels": {names.APP_LABEL: names.RESERVATION_APP}}},
    }
