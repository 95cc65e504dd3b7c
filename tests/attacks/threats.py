"""Threats to Moorage, one row each: what is tried, what happens, what holds it, and the tests that try it.

The table of docs/reference/threats.md is made of it (tests/attacks/table.py). Rows ``1.1`` to ``11.1`` have the numbers
of kai-contract 9.2; the others have a letter for what is attacked: admission (A), charges (Q), devices and claims (D),
evictions (E), gangs (G), hand-over (H), identities and logs (K), leaks (L), memory (M), owners and paths (P, W), use
over time (U), what reads (X), victims (V).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec


class Layer(enum.Enum):
    """What holds an attack."""

    POLICY = "policy"
    WEBHOOK = "webhook"
    RBAC = "RBAC"
    BOUND = "bound"
    RULE = "rule"
    TLS = "TLS"


class Threat(msgspec.Struct, frozen=True):
    """A row. ``tests``: files, or files with parts of the names of their tests: ``tests/a/test_b: one, other``."""

    id: str
    threat: str
    happens: str
    by: Layer
    tests: Sequence[str]


THREATS: Final = (
    Threat(
        "1.1",
        "`NVIDIA_VISIBLE_DEVICES` of the pod or its image",
        "replaced by `void` (`inject`), or refused (`reject`)",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: no_environment_shows_more, choosing_devices_is_refused"],
    ),
    Threat(
        "1.2",
        "the same by `envFrom` on a container with whole GPUs",
        "`reject`: refused; `inject`: [not seen](../security.md#what-does-not-hold)",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: takes_no_environment_from_what_nobody_sees"],
    ),
    Threat(
        "1.3",
        "the same by a pod of another scheduler",
        "`reject`: refused; else [not guarded](../security.md#what-does-not-hold)",
        Layer.POLICY,
        ["tests/attacks/test_attackers: another_scheduler_is_no_way_around"],
    ),
    Threat(
        "1.4",
        "the same with a resource that no plugin serves (`example.com/gpu-x`)",
        "guarded like a container without GPUs",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_attackers: asks_for_what_it_lacks, another_scheduler_is_no_way_around",
            "tests/admission/test_guard: what_kubelet_ignores",
        ],
    ),
    Threat(
        "1.5",
        "the same with GPUs and a `spec.nodeName` that lacks them",
        "refused; of other schedulers: under `reject`",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: who_asks_for_gpus_brings_no_node, a_gpu_on_a_node_brought_along"],
    ),
    Threat(
        "1.6",
        "the same by an ephemeral container",
        "`void`, or refused",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_forgery: a_debug_container",
            "tests/attacks/test_attackers: honest_pods_of_other_schedulers",
        ],
    ),
    Threat(
        "1.7",
        "the same by annotations `...gpus.devices` or `nvidia.cdi.k8s.io`",
        "removed, later refused; the first for every scheduler",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_forgery: forged_keys",
            "tests/cluster/test_policies: nobody_creates_a_pod_with_a_protected_key, what_admission_wrote",
        ],
    ),
    Threat(
        "2.1",
        "edit of the ConfigMap that names the devices",
        "immutable; only the binder creates it again",
        Layer.POLICY,
        ["tests/attacks/test_configmaps: nobody_moves_a_container"],
    ),
    Threat(
        "3.1",
        "a ConfigMap prefix that would overwrite another pod's",
        "replaced; a foreign ConfigMap is never overwritten",
        Layer.WEBHOOK,
        ["tests/attacks/test_configmaps: brings_a_prefix_along, a_foreign_config_map"],
    ),
    Threat(
        "4.1",
        "label of reservation or scaling pods, to count for nothing",
        "counts like any pod",
        Layer.RULE,
        ["tests/attacks/test_attackers: looks_like_one_of_kais_own_pods"],
    ),
    Threat(
        "4.2",
        "a false reservation that names a device",
        "ignored; refused in the reservations' namespace",
        Layer.RULE,
        [
            "tests/attacks/test_attackers: a_false_reservation",
            "tests/cluster/test_policies: only_we_make_reservation_pods",
        ],
    ),
    Threat(
        "5.1",
        "forged, changed or removed label of the GPU group",
        "removed from new pods, later refused",
        Layer.POLICY,
        ["tests/attacks/test_forgery: forged_keys, after_placement"],
    ),
    Threat(
        "6.1",
        "joining a PodGroup of another namespace",
        "not found",
        Layer.RULE,
        ["tests/attacks/test_attackers: nobody_joins_a_pod_group"],
    ),
    Threat(
        "7.1",
        "naming any queue",
        "refused where the namespace is [bound to queues](../security.md#settings-for-tenants-namespaces)",
        Layer.POLICY,
        ["tests/attacks/test_attackers: bound_to_queues"],
    ),
    Threat(
        "8.1",
        "share shrunk, removed or spoilt after placement, also by `pods/status`",
        "refused",
        Layer.POLICY,
        ["tests/attacks/test_forgery: after_placement"],
    ),
    Threat(
        "8.2",
        "a placed pod copied with its node",
        "the copy has no device",
        Layer.WEBHOOK,
        ["tests/attacks/test_forgery: a_copy_that_brings_its_node"],
    ),
    Threat(
        "9.1",
        "a reservation pod rewrites another's identity or a book",
        "refused: its token names pod and UID",
        Layer.POLICY,
        ["tests/attacks/test_attackers: who_broke_into_a_reservation_pod"],
    ),
    Threat(
        "9.2",
        "it lies about its own device",
        "that device takes no tenant",
        Layer.RULE,
        ["tests/attacks/test_attackers: lies_about_its_device"],
    ),
    Threat(
        "9.3",
        "a node agent's token writes other nodes, books, tenants' pods, or more of its Node than GPU labels",
        "refused: its token names its node",
        Layer.POLICY,
        [
            "tests/cluster/test_node_policies: the_agent_of_another_node, writes_no_book, touches_no_tenants_pod",
            "tests/cluster/test_node_policies: changes_nothing_else_of_its_node, makes_no_other_gpu_node",
            "tests/cluster/test_node_policies: writes_no_spec",
        ],
    ),
    Threat(
        "9.4",
        "a node agent's token forges or changes Events",
        "refused",
        Layer.POLICY,
        [
            "tests/cluster/test_node_policies: says_nothing_in_the_name_of_others, changes_and_deletes_no_event",
            "tests/cluster/test_node_agent: about_its_own_node",
        ],
    ),
    Threat(
        "9.5",
        "a tenant writes into [HAMi-core's](../enforcement.md#memory-and-compute-by-hami-core) file, or lets it grow",
        "misreports its own cap only; cut to 16 MiB every 5 s",
        Layer.BOUND,
        ["tests/nodeagent/test_backends", "tests/nodeagent/enforcement/test_hamicore"],
    ),
    Threat(
        "9.6",
        "messages to the [MPS daemon's](../design/mps.md) socket, or a forged client name",
        "other users are refused; processes are checked",
        Layer.RULE,
        [
            "tests/nodeagent/mps/mps_daemon/test_main",
            "tests/nodeagent/mps/mps_daemon/test_loop: makes_no_other_pod_joined",
            "tests/nodeagent/core/mps/test_mpsmessages",
            "tests/nodeagent/core/mps/test_mpssteps",
        ],
    ),
    Threat(
        "9.7",
        "somebody else writes `moorage.dev/device-reporter`",
        "refused, for administrators too",
        Layer.POLICY,
        ["tests/cluster/test_node_policies: nobody_else_reports_devices"],
    ),
    Threat(
        "9.8",
        "components with more rights than they need",
        "`make test-all` compares roles with their use",
        Layer.RBAC,
        ["tests/tools/test_rights"],
    ),
    Threat(
        "9.9",
        "the Job that upgrades CRDs removes fields or changes other CRDs",
        "upgrades only older CRDs; its account names five",
        Layer.RBAC,
        [
            "tests/e2e/test_chart: an_upgrade_brings_older_crds_along",
            "tests/helm/test_rendering: the_account_that_upgrades_crds",
            "tests/cli/checks/test_upgrading: one_that_knows_more",
        ],
    ),
    Threat(
        "10.1",
        "HTTP endpoints without authentication",
        "[few names](../security.md#endpoints); read-only, but for the pod's own [log level](../logging.md)",
        Layer.RULE,
        [
            "tests/attacks/test_attackers: nothing_of_ours_listens",
            "tests/e2e/test_metrics: name_nobody",
            "tests/kube/telemetry/test_loglevel: only_the_same_machine",
        ],
    ),
    Threat(
        "X1",
        "explanations (`--explain-address`) read without a right, or flooded",
        "the API server checks the token; others' pods have no names; a tenth of the time",
        Layer.RBAC,
        [
            "tests/e2e/test_explaining",
            "tests/ui/explain/test_answering: without_a_right, few_questions_wait",
            "tests/ui/explain/test_groups",
            "tests/ui/explain/test_judging: a_tenth_of_the_time",
        ],
    ),
    Threat(
        "X2",
        "the token that `explain` or the page passes on",
        "TLS, but [unverified](../security.md#what-does-not-hold); only digests are kept",
        Layer.TLS,
        [],
    ),
    Threat(
        "X3",
        "the [page](../page.md) read without a right, or by a site's script or texts",
        "the same; no text becomes HTML",
        Layer.RBAC,
        [
            "tests/e2e/test_page: each_reader_sees",
            "tests/ui/page/test_answering: without_a_token, of_others_no_name, asked_for_by_its_own_name",
            "tests/browser/test_page: stays_text",
        ],
    ),
    Threat(
        "X4",
        "idle or slow connections keep readers from the page",
        "time limits; idle connections are closed first",
        Layer.BOUND,
        ["tests/ui/page/test_door: shake_hands, ask_to_an_end, does_not_read, open_pages_stay"],
    ),
    Threat(
        "10.2",
        "thousands of idle connections to the webhooks, or half a review",
        "idle ones are closed first; a review has 10 s",
        Layer.BOUND,
        [
            "tests/admission/test_connections: the_first_of_those_that_ask_nothing, no_more_than_half",
            "tests/admission/test_connections: does_not_say_goodbye",
            "tests/admission/test_server: half_a_review",
        ],
    ),
    Threat(
        "11.1",
        "BindRequest or gang plan made by a user",
        "refused, for administrators too",
        Layer.POLICY,
        ["tests/attacks/test_foreign_objects: nobody_but_us, a_tenant_writes_no_plan"],
    ),
    Threat(
        "H6",
        "a BindRequest kept by a finalizer, to hold its GPUs without a pod",
        "refused; one that is being deleted counts as gone",
        Layer.POLICY,
        [
            "tests/attacks/test_foreign_objects: keeps_a_bind_request, foreground_deletion",
            "tests/scheduler/commit/test_handed: kept_while_it_is_deleted, beside_one_that_is_kept",
            "tests/simulator/test_policies",
        ],
    ),
    Threat(
        "G1",
        "an old `kai.scheduler/stale-podgroup-timestamp`",
        "a restarted scheduler releases that gang at once",
        Layer.RULE,
        ["tests/scheduler/background/test_stale_gangs: somebody_forged"],
    ),
    Threat(
        "E2",
        "the priority class of reservation pods on a tenant's pod",
        "refused",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: takes_the_priority"],
    ),
    Threat(
        "A1",
        "`managedFields` nested thousands of levels deep",
        "read without what is too deep",
        Layer.BOUND,
        ["tests/kube/client/test_listing", "tests/kube/test_on_a_real_server: nest_a_thousand_levels_deep"],
    ),
    Threat(
        "A2",
        "pods with thousands of terms, labels, tolerations, resources or UUIDs",
        "above 500 the pod waits with a reason",
        Layer.BOUND,
        [
            "tests/scheduler/core/convert/test_blockers: a_hard_constraint, what_a_record_names",
            "tests/scheduler/core/decide/test_decide: a_few_at_a_time",
        ],
    ),
    Threat(
        "E3",
        "pods that exclude the GPUs in use, to open one each",
        "[exclusions](../dialects.md#gpus-by-index-or-uuid) open no GPU; above 500 names refused",
        Layer.RULE,
        ["tests/scheduler/core/decide/test_placer", "tests/gpu/dialects/test_hami: leaves_no_card"],
    ),
    Threat(
        "A3",
        "thousands of different pods that fit nowhere",
        "a decision ends after some 30 ms, divided between [namespaces](../design/scheduler-core.md#as-built)",
        Layer.BOUND,
        [
            "tests/scheduler/core/decide/test_decide: does_not_keep_another, costs_the_next_decision_nothing",
            "tests/scheduler/core/stories/test_machine: what_sleeps_fits_nowhere",
        ],
    ),
    Threat(
        "V2",
        "a running pod deleted by force, to free its share",
        "the share is kept for the grace period and two minutes",
        Layer.RULE,
        ["tests/attacks/test_vanished: deleted_by_force"],
    ),
    Threat(
        "H1",
        "a tenant's Binding that brings devices (`pods/binding`, `bindings`)",
        "refused",
        Layer.POLICY,
        [
            "tests/attacks/test_forgery: a_tenants_own_binding",
            "tests/cluster/test_policies: a_binding_of_somebody_else",
        ],
    ),
    Threat(
        "H2",
        "`moorage.dev/gpu` changed, added or removed later, or by a Binding",
        "refused, for our components too",
        Layer.POLICY,
        ["tests/cluster/test_policies: what_admission_wrote_nobody, a_binding_brings_no_record"],
    ),
    Threat(
        "H3",
        "a record made by a tenant, or copied",
        "a request like any other; other words beside it must agree",
        Layer.RULE,
        ["tests/gpu/translate/test_asked: a_record_is_an_ask, words_that_were_changed_beside"],
    ),
    Threat(
        "A4",
        "a pod of 1 MiB, to block all reviews",
        "refused unread ([bounds](../security.md#how-large-a-pod-may-be))",
        Layer.BOUND,
        ["tests/admission/test_bounds: refused_before_it_is_read, let_through_unread, does_not_grow"],
    ),
    Threat(
        "A5",
        "floods of reviews, or callers that go away",
        "one review at a time, health in between; gone callers are skipped",
        Layer.BOUND,
        [
            "tests/admission/test_turns: closed_its_connection, two_reviews_at_most, largest_pods_are_sent",
            "tests/admission/test_server: waits_no_more",
        ],
    ),
    Threat(
        "A6",
        "a PodGroup with very many subgroups",
        "above 10,000 refused unread",
        Layer.BOUND,
        ["tests/admission/objects/test_review: too_many_subgroups, before_the_bound"],
    ),
    Threat(
        "A7",
        "floods of reviews of Queues, to make admission list them",
        "one list at a time serves all that wait",
        Layer.BOUND,
        ["tests/admission/objects/test_known_queues: serves_all_that_wait"],
    ),
    Threat(
        "A8",
        "a pod that requests very many devices in another dialect",
        "above 384 devices refused",
        Layer.BOUND,
        ["tests/gpu/translate/test_combine: ways_of_many_containers, slices_of_many_profiles, of_very_many_resources"],
    ),
    Threat(
        "H4",
        "another dialect's labels or annotations changed later",
        "refused",
        Layer.WEBHOOK,
        ["tests/admission/test_validate: words_of_a_pod_with_a_record, words_that_came_too_late"],
    ),
    Threat(
        "H5",
        "a Binding that makes a reservation pod, or names a queue outside its namespace's",
        "refused",
        Layer.POLICY,
        ["tests/cluster/test_policies: a_binding_makes_no_reservation, a_binding_names_no_queue"],
    ),
    Threat(
        "K1",
        "the webhooks' Secret is read",
        "RBAC by its name; it has no CA's key",
        Layer.RBAC,
        ["tests/admission/test_manifests: the_identities", "tests/admission/certificates/test_rotation: shows_its_key"],
    ),
    Threat(
        "K2",
        "line ends or escape sequences in names, to forge log lines",
        "escaped: one record is one line",
        Layer.RULE,
        ["tests/cli/test_logs: nobody_forges_a_line"],
    ),
    Threat(
        "K3",
        "a token, key or password in an error",
        "removed from every line, if it [looks like one](../logging.md)",
        Layer.RULE,
        ["tests/cli/test_logs: a_planted_secret", "tests/cli/test_secrets: a_token_is_in_no_line"],
    ),
    Threat(
        "K4",
        "a forged trace (`moorage.dev/traceparent`)",
        "a wrong picture only; waiting spans are bounded ([traces](../tracing.md))",
        Layer.BOUND,
        ["tests/wire/test_words: any_text_is_read", "tests/runtime/tracing/test_exporter: is_bounded"],
    ),
    Threat(
        "K6",
        "requests that are no HTTP, to fill logs with tracebacks",
        "answered with 400, and logged at DEBUG only",
        Layer.BOUND,
        ["tests/kube/test_serving", "tests/admission/test_server: no_http"],
    ),
    Threat(
        "K5",
        "our identities, namespaces, policies",
        "a tenant has no right to them",
        Layer.RBAC,
        ["tests/attacks/test_attackers: no_way_to_our_identities"],
    ),
    Threat(
        "P1",
        "a path as name in `ownerReferences`, to copy another namespace's object",
        "refused; no request is sent",
        Layer.RULE,
        [
            "tests/attacks/test_owners: leads_into_no_other_namespace",
            "tests/podgrouper/test_attackers: a_name_that_is_a_path, a_name_of_a_gang_that_is_a_path",
        ],
    ),
    Threat(
        "P2",
        "the path of a list as owner, to fill memory",
        "refused; 16 MiB an object, 2 MiB an owner, 32 MiB a page of a list",
        Layer.RULE,
        [
            "tests/attacks/test_owners: lists_nothing",
            "tests/kube/client/test_http: a_body_above_its_limit",
            "tests/kube/client/test_listing: a_page_that_is_too_long",
        ],
    ),
    Threat(
        "P3",
        "a query as owner (`?watch=true`), to block requests",
        "quoted: no such object",
        Layer.RULE,
        [
            "tests/attacks/test_owners: opens_no_watch",
            "tests/podgrouper/test_attackers: a_name_that_is_a_query, many_pods_with_queries",
        ],
    ),
    Threat(
        "P4",
        "owners that are slow to read, to block grouping",
        "a namespace has a quarter of the places, and takes turns",
        Layer.BOUND,
        ["tests/podgrouper/test_attackers: owners_answer_never", "tests/podgrouper/work/test_queue: fills_its_share"],
    ),
    Threat(
        "P5",
        "pods whose large owner is refused, to have it read for each of them every minute",
        "read once for all of them each time",
        Layer.BOUND,
        ["tests/podgrouper/test_attackers: read_once_for_all"],
    ),
    Threat(
        "P6",
        "a workload with thousands of templates, to block grouping",
        "the work grows with the templates, not with their square: 0.3 s for 4,000",
        Layer.BOUND,
        ["tests/podgrouper/core/test_cost"],
    ),
    Threat(
        "W1",
        "the UID of another namespace's object as owner, to copy its labels",
        "an owner must match namespace, group, kind, name and UID",
        Layer.RULE,
        ["tests/attacks/test_owners: brings_nothing_of_it_along", "tests/podgrouper/test_attackers: are_not_copied"],
    ),
    Threat(
        "W2",
        "an owner of an unknown kind with another Job's UID",
        "objects are known by all of these",
        Layer.RULE,
        ["tests/attacks/test_owners: keeps_it_from_no_group", "tests/podgrouper/read/test_owners: a_forged_reference"],
    ),
    Threat(
        "W4",
        "another owner on a pod that can't be grouped, to prolong its back-off",
        "key and back-off are its own",
        Layer.RULE,
        [
            "tests/podgrouper/test_attackers: has_no_pod_of_the_owner",
            "tests/podgrouper/core/test_projection: with_the_uid_of_an_owner_alone",
        ],
    ),
    Threat(
        "W5",
        "the UID of another namespace's controller on a pod that fails",
        "no name is shown, no node avoided",
        Layer.RULE,
        [
            "tests/scheduler/watch/test_node_agents: with_the_uid_of_anothers_controller",
            "tests/scheduler/core/convert/test_owners: a_pod_goes_by_no_job_of_another",
        ],
    ),
    Threat(
        "W6",
        "a Deployment that owns itself, to have the scheduler follow owners for ever",
        "no owner above a Deployment is followed",
        Layer.RULE,
        [
            "tests/scheduler/core/convert/test_owners: a_pod_of_a_deployment_goes_by_that",
            "tests/podgrouper/test_app: of_plain_owners_the_scheduler_knows",
            "tests/attacks/test_owners: owns_itself",
        ],
    ),
    Threat(
        "W7",
        "hundreds of made-up versions of a kind as owners, to have edits of workloads missed",
        "8 versions of a kind; those that are not served are given up",
        Layer.BOUND,
        ["tests/podgrouper/test_attackers: versions_that_do_not_exist"],
    ),
    Threat(
        "D1",
        "a ResourceClaim with a slow CEL selector",
        "above 5 ms refused; else charged to its namespace",
        Layer.BOUND,
        [
            "tests/attacks/test_work: slow_selectors",
            "tests/scheduler/core/claims/test_cel_cost: is_refused_before_it_is_evaluated, longer_than_its_bound",
            "tests/scheduler/core/nodes/test_claim_statement: a_selector_that_would_take_long",
        ],
    ),
    Threat(
        "D2",
        "many selectors or claims, to fill memory",
        "64 MiB each, divided between namespaces",
        Layer.BOUND,
        ["tests/scheduler/core/claims/test_selectors", "tests/scheduler/core/claims/test_inventory"],
    ),
    Threat(
        "D3",
        "a finalizer on a claim that is made for a pod, to keep its devices once they are given back",
        "its allocation is cleared before it is deleted",
        Layer.RULE,
        ["tests/scheduler/commit/test_extended_writes: a_finalizer_keeps"],
    ),
    Threat(
        "Q1",
        "a PodGroup deleted or changed while its pods run",
        "placed pods keep their queue and preemptibility",
        Layer.RULE,
        ["tests/attacks/test_charges: counts_for_the_queue_in_which_it_was_placed"],
    ),
    Threat(
        "Q2",
        "queue label or PodGroup name of a running pod changed",
        "refused",
        Layer.POLICY,
        ["tests/attacks/test_charges: is_charged_to_no_queue"],
    ),
    Threat(
        "Q3",
        "running pods relabelled to another allowed queue",
        "refused",
        Layer.POLICY,
        ["tests/attacks/test_charges: counts_for_the_queue_in_which_it_was_placed"],
    ),
    Threat(
        "Q4",
        "running preemptible pods labelled non-preemptible",
        "refused",
        Layer.POLICY,
        ["tests/attacks/test_charges: gets_its_quota_back"],
    ),
    Threat(
        "Q5",
        "the same by their PodGroup",
        "placed pods don't change",
        Layer.RULE,
        ["tests/attacks/test_charges: gets_its_quota_back"],
    ),
    Threat(
        "V1",
        "endless grace periods and forced deletion, to pass a queue's limit",
        "the kept share counts for its queue",
        Layer.RULE,
        ["tests/attacks/test_charges: deleted_by_force", "tests/scheduler/core/queues/test_use"],
    ),
    Threat(
        "Q6",
        "a running pod grown in place (`pods/resize`), or metadata changed by that",
        "counts as what it is then, [past its limit](../security.md#what-does-not-hold) too; metadata stays",
        Layer.RULE,
        [
            "tests/attacks/test_charges: grows_in_place",
            "tests/scheduler/core/convert/test_demand",
        ],
    ),
    Threat(
        "V9",
        "a finalizer on a pod, to count for longer or for nothing",
        "counts until its containers have ended, as without one",
        Layer.RULE,
        ["tests/attacks/test_charges: a_finalizer_keeps"],
    ),
    Threat(
        "M2",
        "ResourceClaims of 1.5 MiB of selectors",
        "above 64 KiB not read; its pods say so",
        Layer.BOUND,
        ["tests/scheduler/core/convert/test_resource_claims: more_than_the_bytes_that_are_kept"],
    ),
    Threat(
        "M1",
        "pods with thousands of labels, to fill the scheduler's memory",
        "above 256 labels or 16 KiB ours wait; others count as in doubt",
        Layer.BOUND,
        ["tests/attacks/test_work: thousands_of_labels", "tests/scheduler/core/convert/test_demand"],
    ),
    Threat(
        "M3",
        "the same to fill the memory of grouping",
        "8 KiB a pod, 8 MiB a namespace, 64 MiB in all are kept",
        Layer.BOUND,
        [
            "tests/podgrouper/watch/test_sinks",
            "tests/podgrouper/read/test_owners: no_more_than_the_share, too_long",
            "tests/sharing/test_state",
        ],
    ),
    Threat(
        "M4",
        "any field of 1.5 MiB, to fill the scheduler's memory",
        "at most 144 KiB of an object are kept",
        Layer.BOUND,
        ["tests/scheduler/core/stories/test_kept_bytes"],
    ),
    Threat(
        "M5",
        "labels that are not kept, to hide from anti-affinity",
        "counts as selected; for required affinity it does not",
        Layer.RULE,
        ["tests/scheduler/core/convert/test_demand: keeps_off_a_node"],
    ),
    Threat(
        "M6",
        "anti-affinity of many keys, in one pod or many, to keep other namespaces off nodes",
        "terms that name no namespaces take none but their own",
        Layer.RULE,
        ["tests/scheduler/core/nodes/test_anti_affinity: keep_nobody_of_others_off"],
    ),
    Threat(
        "B1",
        "thousands of nominations or evictions, to fill their record",
        "its bytes are divided between namespaces",
        Layer.BOUND,
        [
            "tests/scheduler/core/preemption/test_record_shares: finds_room_however_many, beside_one_greedy, "
            "evictions_of_an_hour"
        ],
    ),
    Threat(
        "B3",
        "thousands of events, to delay others'",
        "namespaces take turns; the largest loses its newest",
        Layer.BOUND,
        ["tests/kube/test_events: fill_the_queue, take_turns"],
    ),
    Threat(
        "B4",
        "each eviction rewrites the whole record (840 KiB)",
        "only the part of its 520 s is written",
        Layer.BOUND,
        ["tests/scheduler/core/preemption/test_record_shares: changes_its_piece_alone"],
    ),
    Threat(
        "E1",
        "a tenant causes evictions, deletes its pod and repeats",
        "its namespace waits 30 s after the second one given up, doubled up to 10 min",
        Layer.BOUND,
        [
            "tests/attacks/test_charges: gives_up_again_and_again",
            "tests/scheduler/preemption/test_whole",
            "tests/scheduler/core/preemption/test_takes",
        ],
    ),
    Threat(
        "E4",
        "the same, ended by its own pod of a higher priority",
        "counts as given up",
        Layer.RULE,
        [
            "tests/scheduler/preemption/test_whole: takes_it_over",
            "tests/scheduler/core/preemption/test_takes: how_a_take_ends",
        ],
    ),
    Threat(
        "E5",
        "the same, offset by pods taken between its own namespaces",
        "compared by the victims' namespace",
        Layer.RULE,
        ["tests/scheduler/core/preemption/test_takes: keeps_of_its_other_namespace"],
    ),
    Threat(
        "E6",
        "a system class named by a PodGroup, to evict the other work of a queue",
        "its pods have their own priority",
        Layer.RULE,
        ["tests/scheduler/core/groups/test_priority: class_of_the_system"],
    ),
    Threat(
        "V8",
        "disruption budgets over one's own pods above quota",
        "hold by default, not with `--disruption-budgets=share` or `within-quota`",
        Layer.RULE,
        ["tests/attacks/test_charges: budgets_protect_no_pod_above_the_quota", "tests/e2e/test_past_budgets"],
    ),
    Threat(
        "L1",
        "another tenant's names and UIDs in conditions, events, statuses",
        "others see the queue and numbers only",
        Layer.RULE,
        [
            "tests/attacks/test_charges: a_victim_is_not_told, is_not_told_whose_it_is",
            "tests/scheduler/conditions/test_reasons: of_another_namespace",
            "tests/simulation/test_two_tenants",
        ],
    ),
    Threat(
        "S1",
        "names or texts left in an anonymised snapshot",
        "texts are replaced, but for API words, times, UIDs and GPU models",
        Layer.RULE,
        ["tests/cli/snapshots/test_anonymizing: no_text_of_any_field", "tests/cli/snapshots/test_harmless"],
    ),
    Threat(
        "B5",
        "thousands of changed pods, to delay others' conditions",
        "namespaces take turns",
        Layer.BOUND,
        [
            "tests/scheduler/conditions/test_waiting: holds_up_no_other_one",
            "tests/scheduler/conditions/test_paced: holds_up_no_other_one",
        ],
    ),
    Threat(
        "U1",
        "a false, endless or deeply nested answer of the Prometheus for [use over time](../queues.md#from-prometheus)",
        "refused in time and size; the last answer counts until it is stale",
        Layer.BOUND,
        ["tests/scheduler/background/test_prometheus"],
    ),
    Threat(
        "U2",
        "a tenant's pod that a Prometheus scrapes reports use of queues: NaN, below 0, unknown queues",
        "ignored; above the cluster's capacity: counts as all of it ([the rest](../security.md#what-does-not-hold))",
        Layer.RULE,
        [
            "tests/scheduler/background/test_prometheus: ends_the_count_of_none, more_than_the_cluster_had",
            "tests/scheduler/background/test_use_queries_on_prometheus",
        ],
    ),
)
