"""Threats to Moorage, one row each: what is tried, what happens, what holds it, and the tests that try it.

The table of docs/security.md is made of it (tests/attacks/table.py). Rows ``1.1`` to ``11.1`` have the numbers of
kai-contract 9.2; the others have a letter for what is attacked: admission (A), charges (Q), devices and claims (D),
evictions (E), gangs (G), hand-over (H), identities and logs (K), leaks (L), memory (M), owners and paths (P, W), what
reads (X), victims (V).
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
        "devices chosen by `NVIDIA_VISIBLE_DEVICES`, in the pod or in its image",
        "taken out, `void` put in (`inject`); refused (`reject`)",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: no_environment_shows_more, choosing_devices_is_refused"],
    ),
    Threat(
        "1.2",
        "the same by `envFrom` on a container that gets whole GPUs",
        "`reject`: refused; `inject`: [not seen](#what-does-not-hold)",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: takes_no_environment_from_what_nobody_sees"],
    ),
    Threat(
        "1.3",
        "the same by a pod of another scheduler",
        "`reject`: refused; else [not guarded](#what-does-not-hold)",
        Layer.POLICY,
        ["tests/attacks/test_attackers: another_scheduler_is_no_way_around"],
    ),
    Threat(
        "1.4",
        "the same by an ask that no plugin serves (`example.com/gpu-x`, `nvidia.com/mig-9g.bogus`): kubelet "
        "drops it on a node that lacks it, and the image says `all`",
        "such a container is guarded like any without GPUs",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_attackers: asks_for_what_it_lacks, another_scheduler_is_no_way_around",
            "tests/admission/test_guard: what_kubelet_ignores",
        ],
    ),
    Threat(
        "1.5",
        "the same by an ask for GPUs and a node that the pod brings along (`spec.nodeName`), which lacks them",
        "refused; of other schedulers: under `reject`",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: who_asks_for_gpus_brings_no_node, a_gpu_on_a_node_brought_along"],
    ),
    Threat(
        "1.6",
        "the same by an ephemeral container",
        "`void` put in, or refused",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_forgery: a_debug_container",
            "tests/attacks/test_attackers: honest_pods_of_other_schedulers",
        ],
    ),
    Threat(
        "1.7",
        "the same by annotations of NvFractions' daemon (`...gpus.devices`) or of NVIDIA's NRI plugin "
        "(`nvidia.cdi.k8s.io`)",
        "stripped from new pods, refused later; the first from pods of any scheduler",
        Layer.WEBHOOK,
        [
            "tests/attacks/test_forgery: forged_keys",
            "tests/cluster/test_policies: nobody_creates_a_pod_with_a_protected_key, what_admission_wrote",
        ],
    ),
    Threat(
        "2.1",
        "edit of the ConfigMap that names the devices",
        "immutable; created again only by the binder",
        Layer.POLICY,
        ["tests/attacks/test_configmaps: nobody_moves_a_container"],
    ),
    Threat(
        "3.1",
        "a ConfigMap prefix brought along, to overwrite another pod's",
        "replaced; a foreign ConfigMap is never overwritten",
        Layer.WEBHOOK,
        ["tests/attacks/test_configmaps: brings_a_prefix_along, a_foreign_config_map"],
    ),
    Threat(
        "4.1",
        "label of reservation or scaling pods, to be counted for nothing",
        "counted like any other",
        Layer.RULE,
        ["tests/attacks/test_attackers: looks_like_one_of_kais_own_pods"],
    ),
    Threat(
        "4.2",
        "a false reservation that names a device",
        "takes nothing from it; in the reservations' namespace refused",
        Layer.RULE,
        [
            "tests/attacks/test_attackers: a_false_reservation",
            "tests/cluster/test_policies: only_we_make_reservation_pods",
        ],
    ),
    Threat(
        "5.1",
        "forged, changed or removed group label",
        "stripped from new pods, refused later",
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
        "naming anybody's queue",
        "refused where the namespace is bound to queues, below",
        Layer.POLICY,
        ["tests/attacks/test_attackers: bound_to_queues"],
    ),
    Threat(
        "8.1",
        "share shrunk, removed, or made garbage after placement; metadata changed through `pods/status`",
        "refused",
        Layer.POLICY,
        ["tests/attacks/test_forgery: after_placement"],
    ),
    Threat(
        "8.2",
        "a placed pod copied, node and all",
        "the copy has no device, and takes none",
        Layer.WEBHOOK,
        ["tests/attacks/test_forgery: a_copy_that_brings_its_node"],
    ),
    Threat(
        "9.1",
        "a reservation pod rewrites another's identity or any book",
        "refused: its token names pod and UID",
        Layer.POLICY,
        ["tests/attacks/test_attackers: who_broke_into_a_reservation_pod"],
    ),
    Threat(
        "9.2",
        "it lies about its own device",
        "written, and not believed: that device takes nobody in",
        Layer.RULE,
        ["tests/attacks/test_attackers: lies_about_its_device"],
    ),
    Threat(
        "9.3",
        "a node agent's token writes another node's Node, GpuNode or reservation pod, a book, a tenant's pod,"
        " or more of its own Node than labels and annotations of GPUs",
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
        "a node agent's token makes Events of other components, for other reasons or in another node's name, "
        "or changes any",
        "refused",
        Layer.POLICY,
        [
            "tests/cluster/test_node_policies: says_nothing_in_the_name_of_others, changes_and_deletes_no_event",
            "tests/cluster/test_node_agent: about_its_own_node",
        ],
    ),
    Threat(
        "9.5",
        "a tenant writes into the file that [HAMi-core](enforcement.md#memory-and-compute-by-hami-core) maps,"
        " or lets it grow",
        "it can say of its own cap that it is in place, and no more; the file is cut to 16 MiB every 5 s, "
        "unless the container's root took it from the agent; no link or pipe is followed",
        Layer.BOUND,
        ["tests/nodeagent/test_hamicore", "tests/nodeagent/enforcement/test_hamicore"],
    ),
    Threat(
        "9.6",
        "somebody speaks to the socket of the [MPS keeper](design/mps.md), or a tenant gives its program a "
        "name that looks as another client",
        "another user is refused; no message becomes a command but limits of a pod and a GPU by their UUIDs; "
        "a listed client counts where its process is in the pod of its namespace",
        Layer.RULE,
        [
            "tests/nodeagent/mps/mps_daemon/test_main",
            "tests/nodeagent/mps/mps_daemon/test_loop: makes_no_other_pod_joined",
            "tests/nodeagent/core/mps/test_mpsmessages",
            "tests/nodeagent/core/mps/test_mpsjoining",
        ],
    ),
    Threat(
        "9.7",
        "somebody else says that kubelet named a reservation's GPU (`moorage.dev/witness`)",
        "refused, for administrators too",
        Layer.POLICY,
        ["tests/cluster/test_node_policies: nobody_else_bears_witness"],
    ),
    Threat(
        "9.8",
        "components with more rights than they need",
        "there are none: `make test-all` compares roles with their use (`tools/rights.py`)",
        Layer.RBAC,
        ["tests/tools/test_rights"],
    ),
    Threat(
        "9.9",
        "the Job that upgrades CRDs takes a field away, or is used to change other CRDs",
        "it replaces only what knows no more than this version; its account names five CRDs, makes none, and "
        "goes with a Job that succeeded (after one that failed both stay until the next install or upgrade)",
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
        "scheduler and binder listen to nothing unless they are told to; `/metrics` has numbers and names of "
        "queues, no names of pods, users, namespaces or nodes, but for a [node agent beside a "
        "warden](metrics.md#of-tenants), which names pods with shares; `--inspect-address` (off) tells names "
        "and shares; both take nothing; the log level is changed from the same pod only "
        "([logging](logging.md))",
        Layer.RULE,
        [
            "tests/attacks/test_attackers: nothing_of_ours_listens",
            "tests/e2e/test_metrics: name_nobody",
            "tests/kube/telemetry/test_loglevel: only_the_same_machine",
        ],
    ),
    Threat(
        "X1",
        "somebody has a scheduler explain a pod (`--explain-address`, off) who may not see it, or learns of "
        "others' pods by it, or keeps it from deciding by questions",
        "the API server says whose the token is and whether they may get that pod; others' pods have no names"
        " for those who may not list all; few questions wait, one is worked on, in slices, in a tenth of the "
        "time",
        Layer.RBAC,
        [
            "tests/e2e/test_explaining",
            "tests/ui/explain/test_answering: without_a_right, few_questions_wait",
            "tests/ui/explain/test_others",
            "tests/ui/explain/test_budget: a_tenth_of_the_time",
        ],
    ),
    Threat(
        "X2",
        "the token that `kubectl moorage explain` or the page passes on is read on the way, or kept",
        "TLS from the API server to the scheduler, whose certificate nobody verifies: who may change Service,"
        " Endpoints or pods in `kai-scheduler` could take it. The scheduler keeps digests",
        Layer.TLS,
        [],
    ),
    Threat(
        "X3",
        "somebody reads the [page](page.md) (off in the chart) who may not: without a token, with another's "
        "rights, by a site's script or name, or by what people wrote into it",
        "beyond loopback the API server says who it is and what they may list; others' shares have no name; "
        "on loopback other names are turned away; nothing becomes HTML",
        Layer.RBAC,
        [
            "tests/e2e/test_page: each_reader_sees",
            "tests/ui/page/test_answering: without_a_token, of_others_no_name, asked_for_by_its_own_name",
            "tests/browser/test_page: stays_text",
        ],
    ),
    Threat(
        "X4",
        "somebody keeps readers from the page: connections that say nothing, half a request, answers that nobody reads",
        "a time for each of them, and a bound on connections: those that ask nothing make room",
        Layer.BOUND,
        ["tests/ui/page/test_door: shake_hands, ask_to_an_end, does_not_read, open_pages_stay"],
    ),
    Threat(
        "10.2",
        "thousands of connections to the webhooks that say nothing, or half a review, to keep the API server out",
        "of too many the oldest that ask nothing make room; a review has to come within 10 s",
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
        "refused, for administrators too; a foreign one is not carried out",
        Layer.POLICY,
        ["tests/attacks/test_foreign_objects: nobody_but_us, a_tenant_writes_no_plan"],
    ),
    Threat(
        "G1",
        "an old `kai.scheduler/stale-podgroup-timestamp` on a PodGroup that is below its minimum",
        "believed by a scheduler that starts: that gang is released at once. It harms nobody else, and its "
        "writers may delete its pods as well; one in the future or unreadable counts as now",
        Layer.RULE,
        ["tests/scheduler/background/test_stale_stamps: somebody_forged"],
    ),
    Threat(
        "E2",
        "the priority class of reservation pods on a tenant's pod, to come before everybody",
        "refused",
        Layer.WEBHOOK,
        ["tests/attacks/test_attackers: takes_the_priority"],
    ),
    Threat(
        "A1",
        "an object that no decoder reads to its end (`managedFields` nested thousands of levels deep, which "
        "the API server stores), so that nobody who lists pods goes on",
        "read without what is too deep",
        Layer.BOUND,
        ["tests/kube/client/test_depth", "tests/kube/test_on_a_real_server: nest_a_thousand_levels_deep"],
    ),
    Threat(
        "A2",
        "pods with more node affinity terms, labels, tolerations, resources, UUIDs of GPUs or places of "
        "records than can be judged within a lease",
        "above 500 (10,000 in all places of a record, 100 resources) the pod waits and says so; what is new "
        "is judged a few at a time",
        Layer.BOUND,
        [
            "tests/scheduler/core/convert/test_blockers: a_hard_constraint, what_a_record_names",
            "tests/scheduler/core/decide/test_decide: a_few_at_a_time",
        ],
    ),
    Threat(
        "E3",
        "a pod of 1 MiB that excludes the GPUs in use, and the next one that excludes its GPU as well, to "
        "open one GPU each",
        "an exclusion opens no GPU that the pod would not open without it: the pod waits "
        "([rule](dialects.md#gpus-by-index-or-uuid)); more than 500 names in a list, or each GPU that the pod"
        " wants, is refused",
        Layer.RULE,
        ["tests/scheduler/core/decide/test_exclusions", "tests/gpu/dialects/test_hami: leaves_no_card"],
    ),
    Threat(
        "A3",
        "thousands of different pods that fit nowhere, so that deciding on them keeps other tenants' pods waiting",
        "a decision ends after some 30 ms, divided between namespaces; what fitted nowhere is judged again "
        "only after a change that may help ([rule](design/scheduler-core.md#as-built))",
        Layer.BOUND,
        [
            "tests/scheduler/core/decide/test_decide: does_not_keep_another, costs_the_next_decision_nothing",
            "tests/scheduler/core/stories/test_machine: what_sleeps_fits_nowhere",
        ],
    ),
    Threat(
        "V2",
        "a running pod deleted by force, to free its share while its program runs on",
        "the share is kept for the grace period and a minute",
        Layer.RULE,
        ["tests/attacks/test_vanished: deleted_by_force"],
    ),
    Threat(
        "H1",
        "a Binding by a tenant that brings devices along, by `pods/NAME/binding` or by the older `bindings`",
        "refused",
        Layer.POLICY,
        [
            "tests/attacks/test_forgery: a_tenants_own_binding",
            "tests/cluster/test_policies: a_binding_of_somebody_else",
        ],
    ),
    Threat(
        "H2",
        "what admission read of a pod (`moorage.dev/gpu`) changed, added or removed later, or brought by a Binding",
        "refused, for our own components too",
        Layer.POLICY,
        ["tests/cluster/test_policies: what_admission_wrote_nobody, a_binding_brings_no_record"],
    ),
    Threat(
        "H3",
        "a record of a tenant's own making, or of a copied pod",
        "an ask like any other; other words beside it have to agree",
        Layer.RULE,
        ["tests/gpu/translate/test_native: a_record_is_an_ask, words_that_were_changed_beside"],
    ),
    Threat(
        "A4",
        "a pod of 1 MiB of containers, resources, variables, annotations, labels or expressions, so that "
        "reading it holds all reviews up",
        "refused before anything of it is read: [bounds](#how-large-a-pod-may-be) on what admission reads",
        Layer.BOUND,
        ["tests/admission/test_bounds: refused_before_it_is_read, let_through_unread, does_not_grow"],
    ),
    Threat(
        "A5",
        "floods of reviews, or callers that go away, so that health is not answered or work is done for nobody",
        "reviews are judged one at a time, everything else is served between two of them; whose caller has "
        "closed its connection or waited out its time is not judged",
        Layer.BOUND,
        [
            "tests/admission/test_turns: closed_its_connection, two_reviews_at_most, largest_pods_are_sent",
            "tests/admission/test_server: waits_no_more",
        ],
    ),
    Threat(
        "A6",
        "a PodGroup of very many subgroups, so that reading it holds reviews of pods up",
        "more than 10,000 are refused before they are read",
        Layer.BOUND,
        ["tests/admission/objects/test_review: too_many_subgroups, before_the_bound"],
    ),
    Threat(
        "A7",
        "floods of reviews of Queues, so that the API server is kept busy with listing them",
        "one list at a time, which serves every review that came before it began",
        Layer.BOUND,
        ["tests/admission/objects/test_known_queues: serves_all_that_wait"],
    ),
    Threat(
        "A8",
        "a pod within these bounds that asks for very many devices in another system's words",
        "refused before anything is made of its asks: 384 devices in a pod at most",
        Layer.BOUND,
        ["tests/gpu/translate/test_combine: ways_of_many_containers, slices_of_many_profiles, of_very_many_resources"],
    ),
    Threat(
        "H4",
        "labels or annotations of another system's changed after they were read",
        "refused",
        Layer.WEBHOOK,
        ["tests/admission/test_validate: words_of_a_pod_with_a_record, words_that_came_too_late"],
    ),
    Threat(
        "H5",
        "a Binding that makes a reservation pod of a pod, or names a queue that its namespace is not bound to",
        "refused",
        Layer.POLICY,
        ["tests/cluster/test_policies: a_binding_makes_no_reservation, a_binding_names_no_queue"],
    ),
    Threat(
        "K1",
        "the webhooks' Secret read: the key of a server certificate, of no CA; it ends with that certificate",
        "one Secret, by its name; never shown in a log",
        Layer.RBAC,
        ["tests/admission/test_manifests: the_identities", "tests/admission/certificates/test_steps: shows_its_key"],
    ),
    Threat(
        "K2",
        "names, annotations or a server's words with line ends or escape sequences, to forge lines of a log "
        "or move a terminal's cursor",
        "written as escapes: one record is one line",
        Layer.RULE,
        ["tests/cli/test_logs: nobody_forges_a_line"],
    ),
    Threat(
        "K3",
        "a token, key or password in the words of an error",
        "taken out of every line, as far as it looks like one ([logging](logging.md))",
        Layer.RULE,
        ["tests/cli/test_logs: a_planted_secret", "tests/cli/test_secrets: a_token_is_in_no_line"],
    ),
    Threat(
        "K4",
        "a trace of a tenant's own making (`moorage.dev/traceparent`), somebody else's, or nonsense, to "
        "change how his pods are decided on, or to cost what traces cost for all",
        "a wrong picture; nothing is decided by it, and the number of spans that wait is bounded "
        "([tracing](tracing.md))",
        Layer.BOUND,
        ["tests/wire/test_traceparent: any_text_is_read", "tests/runtime/tracing/test_exporter: is_bounded"],
    ),
    Threat(
        "K5",
        "our identities, namespaces, policies",
        "RBAC: a tenant has no way to them",
        Layer.RBAC,
        ["tests/attacks/test_attackers: no_way_to_our_identities"],
    ),
    Threat(
        "P1",
        "a name in `ownerReferences` that is a path (`../../team/jobs/quiet`), to copy another namespace's object",
        "refused on the pod with field, value and what is allowed; no request is sent",
        Layer.RULE,
        [
            "tests/attacks/test_owners: leads_into_no_other_namespace",
            "tests/podgrouper/test_attackers: a_name_that_is_a_path, a_name_of_a_gang_that_is_a_path",
        ],
    ),
    Threat(
        "P2",
        "a name in `ownerReferences` that is the path of a list (`../../../../../../api/v1/pods`), to fill memory",
        "the same; an object has 16 MiB at most, an owner 2 MiB, a page of a list 32 MiB",
        Layer.RULE,
        [
            "tests/attacks/test_owners: lists_nothing",
            "tests/kube/client/test_http: a_body_above_its_limit",
            "tests/kube/client/test_listing: a_page_that_is_too_long",
        ],
    ),
    Threat(
        "P3",
        "a name in `ownerReferences` that is a query (`?watch=true`), to hold places in flight",
        "one quoted segment of the path: such an object does not exist",
        Layer.RULE,
        [
            "tests/attacks/test_owners: opens_no_watch",
            "tests/podgrouper/test_attackers: a_name_that_is_a_query, many_pods_with_queries",
        ],
    ),
    Threat(
        "P4",
        "owners whose reads take long, to hold all places of the component that groups pods",
        "a namespace has a quarter of the places, and takes turns with others",
        Layer.BOUND,
        ["tests/podgrouper/test_attackers: owners_answer_never", "tests/podgrouper/work/test_queue: fills_its_share"],
    ),
    Threat(
        "W1",
        "the UID of another namespace's object as owner, to have its labels and annotations copied into a PodGroup",
        "only an object of the pod's namespace with that group, kind, name and UID is its owner",
        Layer.RULE,
        ["tests/attacks/test_owners: brings_nothing_of_it_along", "tests/podgrouper/test_attackers: are_not_copied"],
    ),
    Threat(
        "W2",
        "an owner of a kind that does not exist, with another Job's UID, so that its pods stay ungrouped",
        "what is known of an object is kept by group, kind, namespace, name and UID",
        Layer.RULE,
        ["tests/attacks/test_owners: keeps_it_from_no_group", "tests/podgrouper/read/test_owners: a_forged_reference"],
    ),
    Threat(
        "W4",
        "a pod that can't be grouped and names another owner first, to prolong the back-off of its pods",
        "its key and its back-off are its own",
        Layer.RULE,
        [
            "tests/podgrouper/test_attackers: has_no_pod_of_the_owner",
            "tests/podgrouper/core/test_projection: with_the_uid_of_an_owner_alone",
        ],
    ),
    Threat(
        "W5",
        "the UID of another namespace's Job or controller on a pod that fails or waits",
        "the scheduler knows controllers by all of their identity: no name is shown, no node avoided",
        Layer.RULE,
        [
            "tests/scheduler/watch/test_refusing_nodes: with_the_uid_of_anothers_controller",
            "tests/scheduler/core/convert/test_job_owners: a_pod_goes_by_no_job_of_another",
        ],
    ),
    Threat(
        "D1",
        "one ResourceClaim whose CEL selector takes long for each device, to stop all decisions",
        "bounded before: above 5 ms it is refused and its pod says so; else its namespace is charged the bound",
        Layer.BOUND,
        [
            "tests/attacks/test_work: slow_selectors",
            "tests/scheduler/core/claims/test_cel_cost: is_refused_before_it_is_evaluated, longer_than_its_bound",
            "tests/scheduler/core/nodes/test_claim_statement: a_selector_that_would_take_long",
        ],
    ),
    Threat(
        "D2",
        "many selectors that name a UUID, or many different claims, to fill memory with answers",
        "64 MiB each in all, with a share for each namespace",
        Layer.BOUND,
        ["tests/scheduler/core/claims/test_selectors", "tests/scheduler/core/claims/test_inventory"],
    ),
    Threat(
        "Q1",
        "PodGroup deleted, changed or made again while its pods run, so that they count for nothing or for others",
        "a placed pod counts for what its Binding wrote: queue and preemptibility at the placement",
        Layer.RULE,
        ["tests/attacks/test_charges: counts_for_the_queue_in_which_it_was_placed"],
    ),
    Threat(
        "Q2",
        "label or PodGroup's name of a running pod changed, so that another team's queue is charged for it",
        "refused after the placement; what counts is what the Binding wrote",
        Layer.POLICY,
        ["tests/attacks/test_charges: is_charged_to_no_queue"],
    ),
    Threat(
        "Q3",
        "running pods relabelled from one allowed queue to another, to pass the limits of both",
        "the same",
        Layer.POLICY,
        ["tests/attacks/test_charges: counts_for_the_queue_in_which_it_was_placed"],
    ),
    Threat(
        "Q4",
        "running preemptible pods above a quota labelled non-preemptible, so that nobody takes them back",
        "refused; what counts is what held at the placement",
        Layer.POLICY,
        ["tests/attacks/test_charges: gets_its_quota_back"],
    ),
    Threat(
        "Q5",
        "the same by their PodGroup: its preemptibility, its priority class, or by deleting it",
        "changes nothing of pods that are placed",
        Layer.RULE,
        ["tests/attacks/test_charges: gets_its_quota_back"],
    ),
    Threat(
        "V1",
        "shares of pods with an endless grace period, deleted by force, to pass the limit of a queue",
        "a share that is kept counts for its queue as long",
        Layer.RULE,
        ["tests/attacks/test_charges: deleted_by_force", "tests/scheduler/core/queues/test_vanished"],
    ),
    Threat(
        "M2",
        "ResourceClaims of 1.5 MiB of selectors, to fill the scheduler's memory (1 MiB a claim was kept)",
        "a claim that asks more than 64 KiB is not read, and its pods say so",
        Layer.BOUND,
        ["tests/scheduler/core/convert/test_resource_claims: more_than_the_bytes_that_are_kept"],
    ),
    Threat(
        "M1",
        "pods with thousands of labels, of any scheduler, to fill the scheduler's memory",
        "above 256 labels or 16 KiB a pod of ours waits; a placed pod counts as one whose labels are in doubt",
        Layer.BOUND,
        ["tests/attacks/test_work: thousands_of_labels", "tests/scheduler/core/convert/test_bounds"],
    ),
    Threat(
        "M3",
        "pods with thousands of labels, or owners and PodGroups of 1.5 MiB, to fill the component that groups pods",
        "8 KiB of a pod are kept, 8 MiB of a namespace, 64 MiB in all; the rest is read again when it is its turn",
        Layer.BOUND,
        [
            "tests/podgrouper/watch/test_sinks",
            "tests/podgrouper/read/test_owners: no_more_than_the_share, too_long",
            "tests/sharing/test_pods",
        ],
    ),
    Threat(
        "M4",
        "pods, PodGroups, claims, Jobs or budgets with any one field of 1.5 MiB, to fill the scheduler's memory",
        "each field that a tenant may write has a bound; at most 144 KiB of an object stay for it",
        Layer.BOUND,
        ["tests/scheduler/core/stories/test_kept_bytes"],
    ),
    Threat(
        "M5",
        "labels that nobody keeps, to hide a pod from anti-affinity",
        "anti-affinity, spread and budgets of its namespace count it as selected, required affinity does not",
        Layer.RULE,
        ["tests/scheduler/core/convert/test_bounds: keeps_off_a_node"],
    ),
    Threat(
        "B1",
        "thousands of nominations or of evictions within an hour, to fill the record of evictions",
        "bytes are divided between the namespaces that room is made for",
        Layer.BOUND,
        [
            "tests/scheduler/core/preemption/test_record_shares: finds_room_however_many, beside_one_greedy, "
            "evictions_of_an_hour",
        ],
    ),
    Threat(
        "B3",
        "events in thousands, so that those of others are lost or late",
        "namespaces take turns; where the queue is full, the namespace with most events loses its newest",
        Layer.BOUND,
        ["tests/kube/test_events: fill_the_queue, take_turns"],
    ),
    Threat(
        "B4",
        "each eviction rewrites the whole record (840 KiB)",
        "it rewrites the evictions of its 520 s, and the nominations that stand",
        Layer.BOUND,
        ["tests/scheduler/core/preemption/test_record_shares: changes_its_piece_alone"],
    ),
    Threat(
        "E1",
        "a tenant has others evicted, deletes its pod and begins again, with any number of groups",
        "its namespace waits: 30 s after the second take that it gives up, doubled up to 10 min; others don't wait",
        Layer.BOUND,
        [
            "tests/attacks/test_charges: gives_up_again_and_again",
            "tests/scheduler/preemption/test_giving_up",
            "tests/scheduler/core/preemption/test_takes",
        ],
    ),
    Threat(
        "E4",
        "the same, each take ended by a pod of its own with a higher priority, so that it counts as evicted for others",
        "a take that its own namespace takes over is given up",
        Layer.RULE,
        [
            "tests/scheduler/preemption/test_giving_up: takes_it_over",
            "tests/scheduler/core/preemption/test_takes: how_a_take_ends",
        ],
    ),
    Threat(
        "E5",
        "the same, offset by pods that one of its namespaces took from another one and keeps",
        "takes are compared by the namespace of the victims",
        Layer.RULE,
        ["tests/scheduler/core/preemption/test_takes: keeps_of_its_other_namespace"],
    ),
    Threat(
        "V8",
        "a budget over one's own pods above the quota, two budgets or one that is long to read, so that reclaim stops",
        "`--disruption-budgets=share` or `within-quota`: they go; by default (`always`) budgets hold",
        Layer.RULE,
        ["tests/attacks/test_charges: budgets_protect_no_pod_above_the_quota", "tests/e2e/test_past_budgets"],
    ),
    Threat(
        "L1",
        "names, groups and UIDs of another tenant's workload in conditions, events and statuses",
        "readers of other namespaces are told the queue; pods and claims of others are counted",
        Layer.RULE,
        [
            "tests/attacks/test_charges: a_victim_is_not_told, is_not_told_whose_it_is",
            "tests/scheduler/conditions/test_reasons: of_another_namespace",
            "tests/simulation/test_two_tenants",
        ],
    ),
    Threat(
        "S1",
        "names or texts left in a snapshot that was anonymised",
        "every text is replaced but for words of the API and of what is read, numbers, times, UIDs; known models of "
        "GPUs, where a text says which GPUs",
        Layer.RULE,
        ["tests/cli/snapshots/test_anonymizing: no_text_of_any_field", "tests/cli/snapshots/test_harmless"],
    ),
    Threat(
        "B5",
        "thousands of pods or PodGroups whose status changes, so that others are not told why they wait",
        "namespaces take turns in having conditions and statuses written",
        Layer.BOUND,
        [
            "tests/scheduler/conditions/test_turns: holds_up_no_other_one",
            "tests/scheduler/conditions/test_paced: holds_up_no_other_one",
        ],
    ),
)
