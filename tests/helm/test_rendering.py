"""What the chart renders, and what it refuses, with the real Helm."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import program_parser
from nodeagent.enforcement.memory_enforcer import main as enforcer_main
from nodeagent.mps.mps_daemon import main as mps_daemon_main
from runtime.processes.nodeagent import settings as node_agent_settings
from runtime.settings.page import PageSettings, is_loopback
from runtime.settings.sources import from_line
from simulator import installation
from tests.cli.given import options
from tests.helm.chart import TABLE, Object, Refused, Values, arguments_of, helm, only, rendered, written
from tests.whole import IS_WHOLE
from tools.chart import CHART
from wire import names
from wire.crds.render import DEFINITIONS

pytestmark = pytest.mark.helm

COMPONENTS = ("scheduler", "binder", "podgrouper", "admission")

#: Linting takes as long as all else with a row. What is wrong with the chart itself shows with most rows.
LINTED = [*TABLE] if IS_WHOLE else [*TABLE][::4]
GROUPING = "moorage-podgrouper"


def deployed(objects: list[Object]) -> list[str]:
    """Our components that are there: all, or all but the podgrouper."""
    there = {made["metadata"]["name"] for made in objects if made["kind"] == "Deployment"}
    found = [component for component in COMPONENTS if f"moorage-{component}" in there]
    assert set(COMPONENTS) - set(found) <= {"podgrouper"}
    return found


@pytest.mark.parametrize(
    ("values", "is_there"),
    [
        ({}, True),
        ({"podgrouper": {"enabled": True, "queueLabelKey": "q"}}, True),
        ({"podgrouper": {"enabled": False}}, False),
    ],
)
def test_workloads_are_grouped_unless_that_is_turned_off_by_kais_value(
    values: Values, is_there: bool, tmp_path: Path
) -> None:
    objects = rendered(tmp_path, values)
    kinds = {made["kind"] for made in objects if made["metadata"]["name"] == GROUPING}
    expected = {
        *("Deployment", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"),
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    }
    assert kinds == (expected if is_there else set())
    for component in ("scheduler", "admission"):
        assert options(component, arguments_of(objects, component)[1:]).workloads_are_grouped is is_there


@pytest.mark.parametrize("values", [TABLE[name] for name in LINTED], ids=LINTED)
def test_helm_lints_it_strictly(values: Values, tmp_path: Path) -> None:
    said = helm("lint", "--strict", CHART, "-n", "kai-scheduler", "-f", written(tmp_path, values))
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("values", TABLE.values(), ids=TABLE)
def test_every_argument_is_one_that_its_component_takes(values: Values, tmp_path: Path) -> None:
    objects = rendered(tmp_path, values)
    for component in deployed(objects):
        command, *given = arguments_of(objects, component)
        assert command == component
        assert options(component, given)


@pytest.mark.parametrize(("name", "scheme", "port"), [("page", "HTTP", 80), ("page-with-a-certificate", "HTTPS", 443)])
def test_the_page_takes_tokens_over_tls_alone_and_is_restricted(
    name: str, scheme: str, port: int, tmp_path: Path
) -> None:
    objects = rendered(tmp_path, TABLE[name])
    spec = only(objects, "Deployment", "moorage-page")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    settings = from_line(PageSettings, program_parser().parse_args(container["args"]))
    assert not is_loopback(settings.listen[0])
    assert settings.tls_elsewhere != bool(settings.tls_cert_file)
    assert settings.trace_url == TABLE[name]["page"].get("traceUrl", "")
    assert container["readinessProbe"]["httpGet"] == {"path": "/", "port": "page", "scheme": scheme}
    assert only(objects, "Service", "moorage-page")["spec"]["ports"][0]["port"] == port
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert only(objects, "NetworkPolicy", "moorage-page")["spec"]["ingress"] == [{"ports": [{"port": 8484}]}]
    verbs = {verb for rule in only(objects, "ClusterRole", "moorage-page")["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch", "create"}


@pytest.mark.parametrize("name", ["node-agent", "node-agent-elsewhere"])
def test_the_agent_of_a_node_has_of_roots_powers_none_and_sees_one_folder(name: str, tmp_path: Path) -> None:
    values, objects = TABLE[name]["nodeAgent"], rendered(tmp_path, TABLE[name])
    made = only(objects, "DaemonSet", "moorage-node-agent")
    assert made["metadata"]["namespace"] == names.NODE_NAMESPACE
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command, *given = container["args"]
    told = {"MOORAGE_NODE_AGENT_NODE_NAME": "n"}
    assert command == "node-agent"
    assert node_agent_settings(options(command, given, told)).node == "n"
    assert container["env"][0]["name"] in told
    own = container["securityContext"]
    assert (own["capabilities"], own["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert (own["readOnlyRootFilesystem"], "privileged" in own) == (True, False)
    assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys()
    (volume,) = spec["volumes"]
    folder = values.get("kubeletFolder", "/var/lib/kubelet")
    assert volume["hostPath"] == {"path": f"{folder}/pod-resources", "type": "Directory"}
    (mount,) = container["volumeMounts"]
    assert mount == {
        "name": "pod-resources",
        "mountPath": str(Path(options(command, given, told).pod_resources_socket).parent),
        "readOnly": True,
    }
    assert spec.get("runtimeClassName", "") == values.get("runtimeClassName", "nvidia")
    assert only(objects, "ServiceAccount", "moorage-node-agent")["metadata"]["namespace"] == names.NODE_NAMESPACE
    space = only(objects, "Namespace", names.NODE_NAMESPACE)["metadata"]
    assert space["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "annotations" not in space
    ports = only(objects, "NetworkPolicy", "moorage-node-agent")["spec"]["ingress"][0]["ports"]
    assert ports == [{"port": each["containerPort"]} for each in container["ports"]]
    if "metrics" in TABLE[name]:
        assert names.NODE_NAMESPACE in only(objects, "PodMonitor", "moorage")["spec"]["namespaceSelector"]["matchNames"]


@pytest.mark.parametrize("name", ["memory-enforcer", "enforcer-that-ends"])
def test_the_enforcer_may_end_processes_and_has_neither_a_token_nor_a_network(name: str, tmp_path: Path) -> None:
    objects = rendered(tmp_path, TABLE[name])
    agent, enforcer = (
        only(objects, "DaemonSet", f"moorage-{which}")["spec"]["template"]["spec"]
        for which in ("node-agent", "memory-enforcer")
    )
    assert only(objects, "DaemonSet", "moorage-memory-enforcer")["metadata"]["namespace"] == names.NODE_NAMESPACE
    assert (enforcer["hostPID"], enforcer["automountServiceAccountToken"]) == (True, False)
    assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & enforcer.keys()
    assert "hostPID" not in agent
    (container,) = enforcer["containers"]
    own = container["securityContext"]
    assert (own["capabilities"], own["allowPrivilegeEscalation"]) == ({"drop": ["ALL"], "add": ["KILL"]}, False)
    assert (own["readOnlyRootFilesystem"], "privileged" in own, "ports" in container) == (True, False, False)
    assert (container["image"], enforcer["nodeSelector"], enforcer["tolerations"]) == (
        agent["containers"][0]["image"],
        agent["nodeSelector"],
        agent["tolerations"],
    )
    policy = only(objects, "NetworkPolicy", "moorage-memory-enforcer")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & policy.keys()
    pods = only(objects, "DaemonSet", "moorage-memory-enforcer")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()


@pytest.mark.parametrize(
    ("name", "dry", "interval_ns"), [("memory-enforcer", True, 10**9), ("enforcer-that-ends", False, 10**9 // 2)]
)
def test_agent_and_enforcer_meet_at_one_socket_of_the_node(
    name: str, dry: bool, interval_ns: int, tmp_path: Path
) -> None:
    objects = rendered(tmp_path, TABLE[name])
    agent, enforcer = (
        only(objects, "DaemonSet", f"moorage-{which}")["spec"]["template"]["spec"]
        for which in ("node-agent", "memory-enforcer")
    )
    command, *given = enforcer["containers"][0]["args"]
    parser = argparse.ArgumentParser()
    enforcer_main.add_options(parser)
    read = parser.parse_args(given)
    assert (command, enforcer_main.rules(read).dry_run, read.interval_s) == ("memory-enforcer", dry, interval_ns)
    told = options("node-agent", agent["containers"][0]["args"][1:], {"MOORAGE_NODE_AGENT_NODE_NAME": "n"})
    assert told.memory_enforcer_socket == read.socket
    assert node_agent_settings(told).cap_all is not dry
    for spec, is_read_only in ((agent, True), (enforcer, False)):
        # Of what is in /run/moorage the memory enforcer has its own folder, and the agent no more for it.
        ((volume, path),) = [
            (each["name"], each["hostPath"])
            for each in spec["volumes"]
            if each["hostPath"]["path"].startswith("/run/moorage")
        ]
        assert path["path"] == "/run/moorage/memory-enforcer"
        assert path["type"] == "DirectoryOrCreate"
        (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume]
        assert (mount["mountPath"], mount.get("readOnly", False)) == (str(Path(read.socket).parent), is_read_only)


@pytest.mark.parametrize("name", ["memory-enforcer", "enforcer-that-ends", "enforcer-that-limits"])
def test_an_enforcer_that_sets_limits_has_the_right_for_it_and_sees_control_groups(name: str, tmp_path: Path) -> None:
    limits = name == "enforcer-that-limits"
    spec = only(rendered(tmp_path, TABLE[name]), "DaemonSet", "moorage-memory-enforcer")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    parser = argparse.ArgumentParser()
    enforcer_main.add_options(parser)
    read = parser.parse_args(container["args"][1:])
    assert read.driver_limits == ("true" if limits else "false")
    capabilities = ["KILL", "SYS_ADMIN"] if limits else ["KILL"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": capabilities}
    assert container["securityContext"]["allowPrivilegeEscalation"] is limits
    mounts = [each for each in container["volumeMounts"] if each["mountPath"] == read.control_groups]
    assert mounts == ([{"name": "control-groups", "mountPath": "/sys/fs/cgroup", "readOnly": True}] if limits else [])
    of_host = [each["hostPath"]["path"] for each in spec["volumes"]]
    assert of_host == (["/sys/fs/cgroup"] if limits else []) + ["/run/moorage/memory-enforcer"]


def test_the_mps_daemon_of_mps_has_no_token_no_network_and_no_power_and_is_replaced_only_by_hand(
    tmp_path: Path,
) -> None:
    objects = rendered(tmp_path, TABLE["mps"])
    mps_daemon = only(objects, "DaemonSet", "moorage-mps-daemon")
    assert (mps_daemon["metadata"]["namespace"], mps_daemon["spec"]["updateStrategy"]) == (
        names.NODE_NAMESPACE,
        {"type": "OnDelete"},
    )
    spec = mps_daemon["spec"]["template"]["spec"]
    assert (spec["hostPID"], spec["automountServiceAccountToken"]) == (True, False)
    assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & spec.keys()
    (container,) = spec["containers"]
    own = container["securityContext"]
    assert (own["capabilities"], own["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert (own["readOnlyRootFilesystem"], "privileged" in own, "ports" in container) == (True, False, False)
    policy = only(objects, "NetworkPolicy", "moorage-mps-daemon")["spec"]
    assert (policy["policyTypes"], {"ingress", "egress"} & policy.keys()) == (["Ingress", "Egress"], set())


def test_agent_and_mps_daemon_of_mps_meet_at_one_socket_and_pipes_are_where_the_node_has_them(tmp_path: Path) -> None:
    objects = rendered(tmp_path, TABLE["mps"])
    agent, mps_daemon = (
        only(objects, "DaemonSet", f"moorage-{which}")["spec"]["template"]["spec"]
        for which in ("node-agent", "mps-daemon")
    )
    command, *given = mps_daemon["containers"][0]["args"]
    parser = argparse.ArgumentParser()
    mps_daemon_main.add_options(parser)
    read = parser.parse_args(given)
    assert (command, read.interval_s) == ("mps-daemon", 10 * 10**9)
    assert f"--mps-daemon={read.socket}" in agent["containers"][0]["args"]
    for spec in (agent, mps_daemon):
        hosts = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
        mounted = {hosts[each["name"]] for each in spec["containers"][0]["volumeMounts"] if each["name"] in hosts}
        assert str(Path(read.socket).parent) in mounted
        assert (read.pipes in mounted) is (spec is mps_daemon)


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ({"mps": {"enabled": True}}, r"nodeAgent\.mps\.enabled: an MPS daemon gets its tenants from the agent"),
        (
            {"enabled": True, "mps": {"enabled": True}, "hamiCore": {"library": "/l.so"}},
            r"nodeAgent\.mps\.enabled: not allowed beside nodeAgent\.hamiCore\.library",
        ),
        (
            {"enabled": True, "mps": {"enabled": True}, "hamiCore": {"removeFiles": True}},
            r"nodeAgent\.hamiCore\.removeFiles: not allowed beside library and nodeAgent\.mps\.enabled",
        ),
        (
            {"enabled": True, "mps": {"enabled": True, "args": {"pipes": "/p"}}},
            r"nodeAgent\.mps\.args\.pipes: not allowed",
        ),
    ],
)
def test_an_mps_daemon_that_its_agent_could_not_use_is_refused(
    tmp_path: Path, agent: dict[str, object], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        rendered(tmp_path, {"nodeAgent": agent})


def test_an_enforcer_without_an_agent_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, {"nodeAgent": {"memoryEnforcer": {"enabled": True}}})
    with pytest.raises(
        Refused, match=r"nodeAgent\.memoryEnforcer\.enabled: a memory enforcer gets its caps from the agent"
    ):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file)


def test_without_being_asked_for_there_is_no_agent_and_no_namespace_of_its_own(tmp_path: Path) -> None:
    for made in rendered(tmp_path, {}):
        assert made["kind"] != "DaemonSet"
        assert names.NODE_NAMESPACE not in {made["metadata"]["name"], made["metadata"].get("namespace")}


@pytest.mark.parametrize(
    ("name", "files"),
    [("node-agent-as-device-plugin", "moorage-device-plugin"), ("node-agent-by-a-config-map", "plugin-files")],
)
def test_an_agent_that_is_the_device_plugin_sees_what_it_needs_for_that(name: str, files: str, tmp_path: Path) -> None:
    values, objects = TABLE[name]["nodeAgent"], rendered(tmp_path, TABLE[name])
    spec = only(objects, "DaemonSet", "moorage-node-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command, *given = container["args"]
    told = options(command, given, {})
    assert told.device_plugin == "own"
    kubelet = values.get("kubeletFolder", "/var/lib/kubelet")
    by_name = {each["name"]: each.get("hostPath", each.get("configMap")) for each in spec["volumes"]}
    writable, read_only = (
        {
            each["mountPath"]: by_name[each["name"]]
            for each in container["volumeMounts"]
            if each.get("readOnly", False) is is_read_only
        }
        for is_read_only in (False, True)
    )
    assert writable == {
        told.device_plugin_sockets: {"path": f"{kubelet}/device-plugins", "type": "Directory"},
        told.device_plugin_state: {"path": "/run/moorage/device-plugin", "type": "DirectoryOrCreate"},
        told.device_plugin_cdi: {"path": "/var/run/cdi", "type": "DirectoryOrCreate"},
    }
    assert read_only == {
        str(Path(told.pod_resources_socket).parent): {"path": f"{kubelet}/pod-resources", "type": "Directory"},
        told.device_plugin_files: {"name": files},
    }
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    if given_files := values["devicePlugin"].get("files"):
        made = only(objects, "ConfigMap", files)
        assert (made["metadata"]["namespace"], made["data"]) == (names.NODE_NAMESPACE, given_files)


@pytest.mark.parametrize("mode", ["off", False])
def test_an_agent_that_is_no_device_plugin_has_no_right_to_label_nodes(mode: object, tmp_path: Path) -> None:
    off = {"nodeAgent": {"enabled": True, "devicePlugin": {"mode": mode, "files": {"default": ""}}}}
    rights = "moorage-node-agent-device-plugin"
    for values, count in ((off, 0), (TABLE["node-agent-as-device-plugin"], 2)):
        objects = rendered(tmp_path, values)
        assert sum(each["metadata"]["name"] == rights for each in objects) == count
        assert any(each["metadata"]["name"] == "moorage-device-plugin" for each in objects) == bool(count)


def test_two_sources_of_the_device_plugins_files_are_refused(tmp_path: Path) -> None:
    plugin = {"mode": "own", "files": {"default": ""}, "configMap": "x"}
    file = written(tmp_path, {"nodeAgent": {"enabled": True, "devicePlugin": plugin}})
    with pytest.raises(Refused, match=r"nodeAgent\.devicePlugin\.configMap: not allowed beside files"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file)


def test_an_agent_that_makes_mig_slices_has_the_driver_s_right_to_it_and_no_other_one_has(tmp_path: Path) -> None:
    for is_on in (False, True):
        plugin = {"mode": "own", "migOnDemand": is_on}
        objects = rendered(tmp_path, {"nodeAgent": {"enabled": True, "devicePlugin": plugin}})
        daemons = only(objects, "DaemonSet", "moorage-node-agent")
        (container,) = daemons["spec"]["template"]["spec"]["containers"]
        assert ("--mig-on-demand" in container["args"]) is is_on
        assert ("NVIDIA_MIG_CONFIG_DEVICES" in {each["name"] for each in container["env"]}) is is_on
        added = container["securityContext"]["capabilities"].get("add", [])
        assert (added, container["securityContext"]["allowPrivilegeEscalation"]) == (["SYS_ADMIN"] * is_on, is_on)


def test_mig_slices_are_made_by_the_agent_s_own_device_plugin_only(tmp_path: Path) -> None:
    file = written(tmp_path, {"nodeAgent": {"enabled": True, "devicePlugin": {"migOnDemand": True}}})
    with pytest.raises(Refused, match=r"nodeAgent\.devicePlugin\.migOnDemand: only the agent's own device plug-in"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file)


def test_an_agent_that_shows_tenants_their_shares_writes_their_sockets_and_the_cdi_file(tmp_path: Path) -> None:
    values = {"nodeAgent": {"enabled": True, "tenantView": True, "memoryEnforcer": {"enabled": True}}}
    spec = only(rendered(tmp_path, values), "DaemonSet", "moorage-node-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command, *given = container["args"]
    told = options(command, given, {})
    by_name = {each["name"]: each["hostPath"] for each in spec["volumes"]}
    writable = {one["mountPath"]: by_name[one["name"]] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {
        told.tenant_view: {"path": told.tenant_view, "type": "DirectoryOrCreate"},
        told.tenant_view_cdi: {"path": told.tenant_view_cdi, "type": "DirectoryOrCreate"},
    }
    file = written(tmp_path, {"nodeAgent": {"enabled": True, "tenantView": True}})
    with pytest.raises(Refused, match=r"nodeAgent\.tenantView: not allowed without nodeAgent\.memoryEnforcer\.enabled"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file)


@pytest.mark.parametrize("library", ["/opt/hami/libvgpu.so", "/usr/lib64/libvgpu.so"])
def test_an_agent_that_limits_tenants_by_a_library_reads_it_and_writes_their_files_and_the_cdi_file(
    tmp_path: Path, library: str
) -> None:
    values = {"nodeAgent": {"enabled": True, "hamiCore": {"library": library}}}
    spec = only(rendered(tmp_path, values), "DaemonSet", "moorage-node-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command, *given = container["args"]
    told = options(command, given, {})
    by_name = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounts = {one["mountPath"]: (by_name[one["name"]], one.get("readOnly", False)) for one in container["volumeMounts"]}
    assert (told.hami_core, told.hami_core_seen_at) == (library, f"/host{library}")
    # None of the agent's own folders is hidden.
    assert mounts[str(Path(told.hami_core_seen_at).parent)] == (str(Path(library).parent), True)
    # Containers mount what the agent makes, so paths are the host's.
    assert mounts[told.limits] == (told.limits, False)
    assert mounts[told.limits_cdi] == (told.limits_cdi, False)
    (plain,) = only(rendered(tmp_path, TABLE["node-agent"]), "DaemonSet", "moorage-node-agent")["spec"]["template"][
        "spec"
    ]["containers"]
    assert not any("hami" in text for text in (*plain["args"], *(one["name"] for one in plain["volumeMounts"])))
    file = written(tmp_path, {"nodeAgent": {"enabled": True, "hamiCore": {"library": "libvgpu.so"}}})
    with pytest.raises(Refused, match=r"nodeAgent\.hamiCore\.library: libvgpu\.so is not absolute"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file)


def test_an_agent_that_removes_former_limits_writes_their_folder_and_the_cdi_file(tmp_path: Path) -> None:
    values = {"nodeAgent": {"enabled": True, "hamiCore": {"removeFiles": True}}}
    spec = only(rendered(tmp_path, values), "DaemonSet", "moorage-node-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command, *given = container["args"]
    told = options(command, given, {})
    assert (told.hami_core, told.remove_limits) == ("", True)
    by_name = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    writable = {one["mountPath"]: by_name[one["name"]] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {told.limits: told.limits, told.limits_cdi: told.limits_cdi}
    both = {"nodeAgent": {"enabled": True, "hamiCore": {"removeFiles": True, "library": "/l.so"}}}
    with pytest.raises(Refused, match=r"nodeAgent\.hamiCore\.removeFiles: not allowed beside library"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", written(tmp_path, both))


def test_where_a_token_names_no_node_there_is_no_agent(tmp_path: Path) -> None:
    file = written(tmp_path, TABLE["node-agent"])
    with pytest.raises(Refused, match=r"Kubernetes v1\.31\.0 does not say on which node a token is used"):
        helm("template", "moorage", CHART, "-n", "kai-scheduler", "-f", file, "--kube-version", "1.31.0")


def test_schedulers_that_explain_are_reached_at_one_port_by_the_groups_that_are_named(tmp_path: Path) -> None:
    objects = rendered(tmp_path, TABLE["explaining"])
    port = options("scheduler", arguments_of(objects, "scheduler")[1:]).explain_address[1]
    (container,) = only(objects, "Deployment", "moorage-scheduler")["spec"]["template"]["spec"]["containers"]
    assert {"name": "explain", "containerPort": port} in container["ports"]
    assert only(objects, "Service", "moorage-scheduler")["spec"]["ports"][0]["targetPort"] == "explain"
    assert {"port": port} in only(objects, "NetworkPolicy", "moorage-scheduler")["spec"]["ingress"][0]["ports"]
    (rule,) = only(objects, "Role", "moorage-explain")["rules"]
    service = f"https:{names.EXPLAIN_SERVICE}:explain"
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["services/proxy"], [service], ["get"])
    bound = only(objects, "RoleBinding", "moorage-explain")["subjects"]
    assert [(each["kind"], each["name"]) for each in bound] == [("Group", "team-a"), ("Group", "team-b")]
    assert only(objects, "ClusterRole", "moorage-explain")


def test_without_being_asked_for_schedulers_explain_nothing(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {})
    assert not [made for made in objects if made["metadata"]["name"] == "moorage-explain"]
    assert not [
        made for made in objects if (made["kind"], made["metadata"]["name"]) == ("Service", "moorage-scheduler")
    ]
    assert options("scheduler", arguments_of(objects, "scheduler")[1:]).explain_address is None


def test_without_being_asked_for_there_is_no_page(tmp_path: Path) -> None:
    assert not [made for made in rendered(tmp_path, {}) if made["metadata"]["name"] == "moorage-page"]


@pytest.mark.parametrize("values", TABLE.values(), ids=TABLE)
def test_everything_bears_the_charts_labels_and_no_name_is_kais(values: Values, tmp_path: Path) -> None:
    kais = {"admission", "binder", "scheduler", "kai-admission", "kai-binder", "kai-scheduler-default", "kai-operator"}
    for made in rendered(tmp_path, values):
        assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "moorage", made["metadata"]["name"]
        assert made["metadata"]["name"] not in kais


@pytest.mark.parametrize("values", TABLE.values(), ids=TABLE)
def test_pods_of_components_are_what_restricted_pod_security_lets_in(values: Values, tmp_path: Path) -> None:
    objects = rendered(tmp_path, values)
    for component in deployed(objects):
        spec = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        own = container["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}
        # Variables of Services would look like settings.
        assert spec["enableServiceLinks"] is False
        assert not any("hostPath" in volume for volume in spec.get("volumes") or ())
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize(
    ("values", "component", "expected"),
    [
        ({}, "admission", "--gpu-sharing-enabled=true"),
        ({"global": {"gpuSharing": False}}, "admission", "--gpu-sharing-enabled=false"),
        ({"global": {"gpuSharingMode": "Disabled"}}, "admission", "--gpu-sharing-enabled=false"),
        ({"global": {"gpuSharingMode": "NvFractions"}}, "admission", "--gpu-sharing-enabled=true"),
        ({}, "admission", "--visible-devices-guard=inject"),
        ({"global": {"blockNvidiaVisibleDevices": True}}, "admission", "--visible-devices-guard=reject"),
        ({"admission": {"visibleDevicesGuard": "off"}}, "admission", "--visible-devices-guard=off"),
        ({}, "admission", "--self-made-certificates"),
        ({"admission": {"certificates": {"by": "certManager"}}}, "admission", "--certificate=/certificates/tls.crt"),
        ({}, "binder", "--reservation-runtime-class=nvidia"),
        ({"binder": {"resourceReservation": {"runtimeClassName": ""}}}, "binder", "--reservation-runtime-class="),
        ({"binder": {"runtimeClassName": "theirs"}}, "binder", "--reservation-runtime-class=theirs"),
        ({}, "binder", "--reservation-image=registry.example/team/moorage/reservation:0.1.0"),
        (
            {"global": {"registry": "r:5000/a/", "tag": "7"}},
            "binder",
            "--reservation-image=r:5000/a/moorage/reservation:7",
        ),
        ({"scheduler": {"placementStrategy": "spread"}}, "scheduler", "--gpu-strategy=spread"),
        ({"scheduler": {"placementStrategy": "spread"}}, "scheduler", "--cpu-strategy=spread"),
        ({"scheduler": {"placementStrategy": "priced"}}, "scheduler", "--cpu-strategy=priced"),
        ({}, "scheduler", "--object-status=true"),
        ({"scheduler": {"objectStatus": False}}, "scheduler", "--object-status=false"),
        # As with --reuse-values, where the values of a release are older than the setting.
        ({"scheduler": {"objectStatus": None}}, "scheduler", "--object-status=true"),
        ({"binder": {"cdiEnabled": False}}, "scheduler", "--cdi-enabled=false"),
        (
            {"global": {"clusterAutoscaling": True}},
            "scheduler",
            "--scaling-pod-image=registry.example/team/moorage/scalingpod:0.1.0",
        ),
        ({"global": {"jsonLog": True}}, "binder", "--log-format=json"),
        ({"global": {"jsonLog": False}}, "admission", "--log-format=text"),
        ({"scheduler": {"args": {"lease-duration-s": 20}}}, "scheduler", "--lease-duration-s=20"),
        *(({}, component, "--metrics-bind-address=:8080") for component in COMPONENTS),
        *((TABLE["tracing"], component, "--traces-endpoint=http://otel.monitoring:4318") for component in COMPONENTS),
        *((TABLE["tracing"], component, "--traces-ratio=0.01") for component in COMPONENTS),
        ({"tracing": {"endpoint": "https://o", "ratio": 1}}, "binder", "--traces-ratio=1"),
        (TABLE["tracing"], "binder", "--traces-headers-file=/traces-headers/headers"),
        (TABLE["tracing"], "binder", "--traces-ca-file=/traces-ca/ca.crt"),
    ],
)
def test_a_value_becomes_an_argument(values: Values, component: str, expected: str, tmp_path: Path) -> None:
    assert expected in arguments_of(rendered(tmp_path, values), component)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"global": {"gpuSharing": True, "gpuSharingMode": "Disabled"}},
            "global.gpuSharing=true contradicts global.gpuSharingMode=Disabled: set one of them",
        ),
        (
            {"global": {"gpuSharing": False, "gpuSharingMode": "NvFractions"}},
            "global.gpuSharing=false contradicts global.gpuSharingMode=NvFractions: set one of them",
        ),
        ({"global": {"gpuSharingMode": "HamiCore"}}, "global.gpuSharingMode: HamiCore is not served"),
        (
            {"global": {"blockNvidiaVisibleDevices": True}, "admission": {"visibleDevicesGuard": "off"}},
            "global.blockNvidiaVisibleDevices=true contradicts admission.visibleDevicesGuard=off",
        ),
        (
            {"binder": {"runtimeClassName": "a", "resourceReservation": {"runtimeClassName": "b"}}},
            'binder.resourceReservation.runtimeClassName="b" contradicts binder.runtimeClassName="a"',
        ),
        ({"scheduler": {"plugins": {"numa": {"enabled": True}}}}, "scheduler.plugins: Moorage has nothing that does"),
        ({"scheduler": {"pools": [{"value": "a"}, {"value": "a"}]}}, 'scheduler.pools: "a" is there twice'),
        ({"scheduler": {"pools": [{"value": "Pool_A"}]}}, "at '/scheduler/pools/0/value'"),
        ({"scheduler": {"pools": [{"placementStrategy": "spread"}]}}, "missing property 'value'"),
        (
            {"global": {"resourceReservation": {"namespace": "runai-reservation"}}},
            "global.resourceReservation.namespace=runai-reservation: allowed: kai-resource-reservation",
        ),
        ({"global": {"fipsMode": "only"}}, "global.fipsMode=only: Moorage has no such images; allowed: off"),
        (
            {"global": {"registry": "registry/local/kai-scheduler"}},
            "global.registry=registry/local/kai-scheduler is KAI's",
        ),
        ({"binder": {"enabled": False}}, "binder.enabled=false: Moorage does not work without it"),
        ({"scheduler": {"image": {"pullPolicy": "Sometimes"}}}, "at '/scheduler/image/pullPolicy'"),
        ({"defaultQueue": {"childResources": {"gpus": {}}}}, "additional properties 'gpus' not allowed"),
        ({"global": {"gpuSharring": True}}, "additional properties 'gpuSharring' not allowed"),
        ({"schedular": {}}, "additional properties 'schedular' not allowed"),
        ({"scheduler": {"replicas": "two"}}, "at '/scheduler/replicas': got string, want integer"),
        ({"admission": {"handOver": "mail"}}, "at '/admission/handOver'"),
        ({"scheduler": {"args": {"--idle": 1}}}, "'--idle' does not match pattern"),
        ({"metrics": {"enabled": False, "rules": {"enabled": True}}}, "metrics.enabled=false, so there is nothing for"),
        ({"metrics": {"podMonitor": {"interval": "often"}}}, "at '/metrics/podMonitor/interval'"),
        ({"tracing": {"endpoint": "otel:4317"}}, "at '/tracing/endpoint'"),
        ({"tracing": {"ratio": 0}}, "at '/tracing/ratio'"),
        ({"page": {"traceUrl": "javascript:{trace_id}"}}, "at '/page/traceUrl'"),
        ({"page": {"traceUrl": "https://jaeger.example/trace"}}, "at '/page/traceUrl'"),
        ({"page": {"traceUrl": "https://{trace_id}.example/"}}, "at '/page/traceUrl'"),
    ],
)
def test_what_can_not_be_is_refused_with_a_sentence(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        rendered(tmp_path, values)
    assert sentence in str(refused.value)


def test_another_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the release's namespace is default; allowed: kai-scheduler"):
        rendered(tmp_path, {}, namespace="default")


@pytest.mark.parametrize("values", [TABLE["kais-own-file"], TABLE["kais-own-file-of-v0.9"]], ids=["v0.18", "v0.9"])
def test_of_kais_own_file_no_image_is_run_and_the_notes_name_what_has_no_effect(values: Values, tmp_path: Path) -> None:
    said = helm("install", "moorage", CHART, "-n", "kai-scheduler", "-f", written(tmp_path, values), "--dry-run=client")
    manifests, _, notes = said.partition("NOTES:")
    assert set(re.findall(r'image[:=] ?"?([^"\s]+)', manifests)) == {
        f"registry.example/team/moorage/{name}:0.1.0" for name in ("moorage", "reservation", "scalingpod")
    }
    named = set(re.findall(r"^  (\S+)", notes.partition("change nothing here:")[2], re.MULTILINE))
    ours = {*yaml.safe_load((CHART / "values.yaml").read_text())}
    assert named >= {*values} - ours
    assert named >= {"binder.name", "binder.ports", "scheduler.ports", "admission.name", "scheduler.image.name"}
    assert named >= {"nodescaleadjuster.image", "nodescaleadjuster.affinity"}


def test_an_image_has_its_own_tag_and_policy_or_those_of_all(tmp_path: Path) -> None:
    own = {"tag": "mine", "pullPolicy": "Never"}
    values: Values = {"global": {"tag": "all", "imagePullPolicy": "Always"}, "binder": {"image": own}}
    objects = rendered(tmp_path, values)
    found = {}
    for component in COMPONENTS:
        (container,) = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]["containers"]
        found[component] = (container["image"].rpartition(":")[2], container["imagePullPolicy"])
    others = dict.fromkeys(("scheduler", "podgrouper", "admission"), ("all", "Always"))
    assert found == {**others, "binder": ("mine", "Never")}


def test_a_component_has_its_own_affinity_or_that_of_all(tmp_path: Path) -> None:
    values: Values = {"global": {"affinity": {"nodeAffinity": {}}}, "binder": {"affinity": {"podAffinity": {}}}}
    objects = rendered(tmp_path, values)
    found = {
        component: only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]["affinity"]
        for component in COMPONENTS
    }
    assert found["binder"] == {"podAffinity": {}}
    assert found["scheduler"] == found["admission"] == {"nodeAffinity": {}}


def test_the_queues_have_the_resources_that_the_values_give_them(tmp_path: Path) -> None:
    given = {"gpu": {"quota": 4, "limit": 8, "overQuotaWeight": 2}}
    objects = rendered(tmp_path, {"defaultQueue": {"childResources": given}})
    assert only(objects, "Queue", "default-queue")["spec"]["resources"]["gpu"] == given["gpu"]
    unlimited = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    assert only(objects, "Queue", "default-parent-queue")["spec"]["resources"] == dict.fromkeys(
        ("cpu", "gpu", "memory"), unlimited
    )


def test_options_of_kais_scheduler_that_mean_nothing_here_are_left_out_and_named(tmp_path: Path) -> None:
    values = {"scheduler": {"args": {"v": "4", "default-staleness-grace-period": "2m"}}}
    given = arguments_of(rendered(tmp_path, values), "scheduler")
    assert "--default-staleness-grace-period=2m" in given
    assert not [argument for argument in given if argument.startswith("--v=")]
    said = helm("install", "moorage", CHART, "-n", "kai-scheduler", "-f", written(tmp_path, values), "--dry-run=client")
    assert "scheduler.args.v" in said.partition("change nothing here:")[2]


@pytest.mark.parametrize("component", ["binder", "admission"])
def test_options_of_other_components_are_given_to_them_as_they_are(component: str, tmp_path: Path) -> None:
    """Nothing says that they are left out, so the component has to refuse what it does not know."""
    given = arguments_of(rendered(tmp_path, {component: {"args": {"qps": 50}}}), component)
    assert "--qps=50" in given


@pytest.mark.parametrize("registry", ["", "/"])
def test_without_a_registry_it_is_refused_and_told_where_images_come_from(registry: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"global.registry is not set.*docs/images\.md.*global\.registry=localhost"):
        rendered(tmp_path, {"global": {"registry": registry}})


@pytest.mark.parametrize("values", TABLE.values(), ids=TABLE)
def test_the_notes_name_the_images_and_the_deployments_that_run(values: Values, tmp_path: Path) -> None:
    said = helm("install", "moorage", CHART, "-n", "kai-scheduler", "-f", written(tmp_path, values), "--dry-run=client")
    manifests, _, notes = said.partition("NOTES:")
    images = set(re.findall(r'image[:=] ?"?([^"\s]+)', manifests))
    assert images
    assert images == set(re.findall(r"^  (\S+/moorage/\S+:\S+)", notes, re.MULTILINE))
    deployments = {
        f"deployment/{name}" for name in re.findall(r"kind: Deployment\nmetadata:\n  name: (\S+)", manifests)
    }
    (line,) = re.findall(r"rollout status(.*)", notes)
    assert set(line.split()) == deployments


@pytest.mark.parametrize(
    ("values", "kind", "name", "is_there"),
    [
        ({}, "Namespace", "kai-scale-adjust", False),
        ({"global": {"clusterAutoscaling": True}}, "Namespace", "kai-scale-adjust", True),
        ({}, "ClusterRole", "moorage-binder-configmaps", False),
        ({"admission": {"handOver": "configMaps"}}, "ClusterRole", "moorage-binder-configmaps", True),
        *(
            ({"scheduler": scheduler}, kind, "moorage-scheduler-mig-on-demand", is_there)
            for kind in ("ClusterRole", "ClusterRoleBinding")
            for scheduler, is_there in (
                ({}, False),
                ({"args": {"mig-on-demand": True}}, True),
                ({"args": {"mig-on-demand": "true"}}, True),
                ({"args": {"mig-on-demand": False}}, False),
                ({"pools": [{"value": "a"}, {"value": "b", "args": {"mig-on-demand": True}}]}, True),
                ({"pools": [{"value": "a"}]}, False),
            )
        ),
        ({}, "MutatingWebhookConfiguration", "moorage-adoption", True),
        ({"admission": {"adoption": {"enabled": False}}}, "MutatingWebhookConfiguration", "moorage-adoption", False),
        ({}, "PriorityClass", "train", True),
        ({"defaultPriorityClasses": {"enabled": False}}, "PriorityClass", "train", False),
        ({"defaultPriorityClasses": {"enabled": False}}, "PriorityClass", "moorage-reservation", True),
        ({}, "Queue", "default-queue", True),
        ({"defaultQueue": {"createDefaultQueue": False}}, "Queue", "default-queue", False),
        ({}, "PodDisruptionBudget", "moorage-binder", True),
        ({"binder": {"replicas": 1}}, "PodDisruptionBudget", "moorage-binder", False),
        *(({}, kind, "moorage-crds", True) for kind in ("Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")),
        *(
            ({"crds": {"upgrade": False}}, kind, "moorage-crds", False)
            for kind in ("Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        ),
        ({}, "PodMonitor", "moorage", False),
        ({}, "PrometheusRule", "moorage", False),
        ({}, "ConfigMap", "moorage-dashboard", False),
        (TABLE["monitoring"], "PodMonitor", "moorage", True),
        (TABLE["monitoring"], "PrometheusRule", "moorage", True),
        (TABLE["monitoring"], "ConfigMap", "moorage-dashboard", True),
        ({}, "Certificate", "moorage-admission", False),
        ({}, "Secret", "moorage-webhook-certificates", True),
        ({"admission": {"certificates": {"by": "certManager"}}}, "Secret", "moorage-webhook-certificates", False),
        ({"admission": {"certificates": {"by": "certManager"}}}, "Role", "moorage-admission", False),
        ({"admission": {"certificates": {"by": "certManager"}}}, "Certificate", "moorage-admission", True),
        ({"admission": {"certificates": {"by": "certManager"}}}, "Issuer", "moorage-self-signed", True),
    ],
)
def test_what_the_values_do_not_want_is_not_there(
    values: Values, kind: str, name: str, is_there: bool, tmp_path: Path
) -> None:
    found = [made for made in rendered(tmp_path, values) if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    assert len(found) == is_there


def test_what_tenants_and_administrators_need_stays_at_an_uninstallation(tmp_path: Path) -> None:
    kept = {
        (made["kind"], made["metadata"]["name"])
        for made in rendered(tmp_path, {})
        if made["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {
        ("Namespace", "kai-resource-reservation"),
        ("ServiceAccount", "kai-resource-reservation"),
        ("Role", "kai-resource-reservation"),
        ("RoleBinding", "kai-resource-reservation"),
        ("PodDisruptionBudget", "moorage-reservations"),
        *(("PriorityClass", name) for name in ("train", "build-preemptible", "build", "inference")),
        ("Queue", "default-parent-queue"),
        ("Queue", "default-queue"),
    }


def test_crds_are_upgraded_first_by_an_account_that_is_there_no_longer_than_that(tmp_path: Path) -> None:
    hooks = [made for made in rendered(tmp_path, {}) if made["metadata"]["name"] == "moorage-crds"]
    weights = {made["kind"]: int(made["metadata"]["annotations"]["helm.sh/hook-weight"]) for made in hooks}
    assert weights.pop("Job") > max(weights.values())
    for made in hooks:
        said = made["metadata"]["annotations"]
        assert said["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert said["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    spec = only(hooks, "Job", "moorage-crds")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == "moorage-crds"
    assert container["image"] == "registry.example/team/moorage/moorage:0.1.0"
    assert program_parser().parse_args(container["args"]).run
    # What restricted Pod Security lets in.
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (False, {"drop": ["ALL"]})


def test_the_account_that_upgrades_crds_may_change_ours_and_no_others(tmp_path: Path) -> None:
    (rule,) = only(rendered(tmp_path, {}), "ClusterRole", "moorage-crds")["rules"]
    assert rule["resources"] == ["customresourcedefinitions"]
    assert sorted(rule["resourceNames"]) == sorted(definition.name for definition in DEFINITIONS)
    assert rule["verbs"] == ["get", "patch"]


def test_the_notes_name_what_of_kais_values_changes_nothing(tmp_path: Path) -> None:
    values = written(tmp_path, TABLE["kais-values"])
    said = helm("install", "moorage", CHART, "-n", "kai-scheduler", "-f", values, "--dry-run=client")
    notes = said.partition("NOTES:")[2]
    named = notes.partition("change nothing here:")[2].split()[:4]
    assert named == ["operator", "prometheus", "global.leaderElection", "global.vpa"]


@pytest.mark.parametrize("is_on", [True, False])
def test_metrics_have_a_port_and_a_way_in_or_nothing(is_on: bool, tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"metrics": {"enabled": is_on}})
    for component in COMPONENTS:
        (container,) = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports.get("http-metrics") == (8080 if is_on else None)
        (ingress,) = only(objects, "NetworkPolicy", f"moorage-{component}")["spec"]["ingress"]
        assert ({"port": 8080} in ingress["ports"]) is is_on
        assert ("--metrics-bind-address=:8080" in container["args"]) is is_on


def test_what_a_collector_wants_is_mounted_where_its_arguments_name_it_and_else_nothing_is(tmp_path: Path) -> None:
    for values, is_on in ((TABLE["tracing"], True), ({"tracing": {"headersSecret": "otel"}}, False)):
        objects = rendered(tmp_path, values)
        for component in COMPONENTS:
            spec = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]
            mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0].get("volumeMounts") or ()}
            volumes = {volume["name"] for volume in spec.get("volumes") or ()}
            assert (mounts.get("traces-headers") == "/traces-headers") is is_on
            assert (mounts.get("traces-ca") == "/traces-ca") is is_on
            assert volumes == set(mounts)
            assert any(given.startswith("--traces-") for given in spec["containers"][0]["args"]) is is_on


def test_prometheus_operator_finds_the_components_by_their_labels_and_the_rules_and_dashboard_as_they_are_written(
    tmp_path: Path,
) -> None:
    objects = rendered(tmp_path, TABLE["monitoring"])
    monitor = only(objects, "PodMonitor", "moorage")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    for component in COMPONENTS:
        template = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["labels"][monitor["spec"]["jobLabel"]] == component
        (container,) = template["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
    written_rules = yaml.safe_load((CHART / "alerts" / "moorage.yaml").read_text())
    assert only(objects, "PrometheusRule", "moorage")["spec"] == written_rules
    shown = only(objects, "ConfigMap", "moorage-dashboard")
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(shown["data"]["moorage.json"]) == json.loads((CHART / "dashboards" / "moorage.json").read_text())


def test_each_node_pool_has_a_scheduler_with_what_its_entry_does_not_say_from_the_first_one(tmp_path: Path) -> None:
    pools = [{"value": "a", "placementStrategy": "spread", "args": {"preemption": True}}, {"value": "b", "replicas": 1}]
    own = {"replicas": 3, "logLevel": "debug", "args": {"reserved-nodes-percent": 5}, "pools": pools}
    objects = rendered(tmp_path, {"scheduler": own, "global": {"nodePoolLabelKey": "team"}})
    made = {name: only(objects, "Deployment", f"moorage-scheduler{name}")["spec"] for name in ("", "-a", "-b")}
    assert {name: spec["replicas"] for name, spec in made.items()} == {"": 3, "-a": 3, "-b": 1}
    args = {name: spec["template"]["spec"]["containers"][0]["args"] for name, spec in made.items()}
    assert not any(each.startswith("--partition-label-value") for each in args[""])
    for name in ("-a", "-b"):
        assert f"--partition-label-value={name[1:]}" in args[name]
    for each in args.values():
        assert {"--nodepool-label-key=team", "--reserved-nodes-percent=5", "--log-level=debug"} <= {*each}
    assert "--gpu-strategy=spread" in args["-a"]
    assert "--preemption=true" in args["-a"]
    assert "--gpu-strategy=priced" in args["-b"]
    assert "--preemption=true" not in args["-b"]
    selectors = [tuple(sorted(spec["selector"]["matchLabels"].items())) for spec in made.values()]
    assert len({*selectors}) == 3
    for spec in made.values():
        assert spec["template"]["spec"]["serviceAccountName"] == "moorage-scheduler"
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    # Two budgets of one pod would refuse its eviction.
    budgets = [each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert [name for name in budgets if "scheduler" in name] == ["moorage-scheduler"]


@pytest.mark.parametrize(
    "values",
    [
        {"scheduler": {"disruptionBudgets": "within-quota"}},
        {"scheduler": {"pools": [{"value": "a", "disruptionBudgets": "share"}]}},
    ],
)
def test_a_scheduler_may_delete_pods_only_where_budgets_do_not_protect_all(tmp_path: Path, values: Any) -> None:
    name = "moorage-scheduler-past-budgets"
    (rule,) = only(rendered(tmp_path, values), "ClusterRole", name)["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods"], ["delete"])
    assert not [each for each in rendered(tmp_path, {}) if each["metadata"]["name"] == name]


def test_schedulers_of_node_pools_may_use_what_is_their_own(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"scheduler": {"pools": [{"value": "a"}]}})
    rules = only(objects, "Role", "moorage-scheduler-pools")["rules"]
    assert [rule["resourceNames"] for rule in rules] == [
        ["moorage-scheduler-a"],
        ["moorage-queue-use-a", "moorage-nominations-a", *(f"moorage-evictions-{piece}-a" for piece in range(8))],
    ]
    (subject,) = only(objects, "RoleBinding", "moorage-scheduler-pools")["subjects"]
    assert subject["name"] == "moorage-scheduler"
    assert not [each for each in rendered(tmp_path, {}) if each["metadata"]["name"] == "moorage-scheduler-pools"]


def test_a_simulation_has_the_priority_classes_and_queues_of_the_chart(tmp_path: Path) -> None:
    objects = [each for each in rendered(tmp_path, {}) if each["kind"] in {"PriorityClass", "Queue"}]
    wanted = {each["metadata"]["name"]: each for each in objects if each["metadata"]["name"] != "moorage-reservation"}
    made = {each["metadata"]["name"]: each for each in (*installation.priority_classes(), *installation.queues())}
    assert wanted.keys() == made.keys()
    for name, each in made.items():
        assert (each["kind"], each.get("value")) == (wanted[name]["kind"], wanted[name].get("value"))
        assert each.get("spec") == wanted[name].get("spec")
