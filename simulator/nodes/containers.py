"""What runs inside simulated containers: a user's work or the real reservation process, its environment and its GPUs.

A process runs until it returns its exit code, or until its task is cancelled: that is its SIGKILL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import anyio
import msgspec

from kube.client import errors
from kube.client.transport import Transport
from reservation import device as reservation_device
from reservation import steps
from simulator.nodes.device_manager import Device
from simulator.nodes.shape import ReservationFault
from wire import names
from wire.core import Container, EnvFromSource, EnvVar, Pod

#: (kind, name) -> the data of a ConfigMap or Secret of the pod's namespace; None: it is not there.
Sources = Mapping[tuple[str, str], Mapping[str, str] | None]

INIT: Final = "init"
REGULAR: Final = "regular"
CONFIG_MAP: Final = "configmap"
SECRET: Final = "secret"  # noqa: S105 - a kind of object

#: CDI devices that are mounts and variables, and no GPU.
_BESIDE_GPUS: Final = (names.VIEW_DEVICE_PREFIX, names.LIMITS_DEVICE_PREFIX)
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT: Final = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")


class MissingSource(msgspec.Struct, frozen=True):
    """A ConfigMap, a Secret or a key of one is not there yet, so the container can't be made."""

    message: str


class _Source(msgspec.Struct, frozen=True):
    """A ConfigMap or Secret that an entry reads, whole or by ``key``."""

    kind: str
    name: str
    optional: bool
    key: str = ""


class UnknownDevice(msgspec.Struct, frozen=True):
    """The environment names a device that the node doesn't have: the runtime refuses to start the container."""

    value: str


def sources_of(container: Container) -> set[tuple[str, str]]:
    """Return ConfigMaps and Secrets that the environment of a container is made from, as (kind, name)."""
    bulk = [_bulk_source(entry) for entry in container.env_from or ()]
    keyed = [_key_source(variable) for variable in container.env or ()]
    return {(source.kind, source.name) for source in (*bulk, *keyed) if source is not None}


def resolve(
    pod: Pod, container: Container, *, sources: Sources, assigned: Sequence[Device], image: Mapping[str, str]
) -> dict[str, str] | MissingSource:
    """Make the environment. ``image`` is what the image sets, ``assigned`` what the device plugin gave.

    Order matters for safety (kai-contract 13): what the device plugin gives comes first, ``envFrom`` and ``env`` after
    it, and the last entry of a name wins. The NVIDIA runtime then reads ``NVIDIA_VISIBLE_DEVICES``, from any writer.
    """
    env = dict(image)
    if assigned:
        env[names.ENV_VISIBLE_DEVICES] = ",".join(device.uuid for device in assigned)
    for entry in container.env_from or ():
        found = _bulk_values(entry, sources)
        if isinstance(found, MissingSource):
            return found
        env.update({entry.prefix + key: value for key, value in found.items()})
    for variable in container.env or ():
        value = _value(variable, pod, sources, env)
        if isinstance(value, MissingSource):
            return value
        if value is not None:
            env[variable.name] = value
    return env


def visible(value: str | None, devices: Sequence[Device]) -> tuple[Device, ...] | UnknownDevice:
    """Return the devices that the NVIDIA runtime shows for a value of ``NVIDIA_VISIBLE_DEVICES``; unset shows none."""
    if value is None or value in {"", "void", "none"}:
        return ()
    if value == "all":
        return tuple(devices)
    by_name = {str(device.index): device for device in devices if not device.is_slice}
    by_name |= {device.uuid: device for device in devices}
    shown: dict[str, Device] = {}
    for part in value.split(","):
        if part.startswith(_BESIDE_GPUS):
            continue
        device = by_name.get(part.strip().removeprefix(names.CDI_DEVICE_PREFIX))
        if device is None:
            return UnknownDevice(part)
        shown[device.uuid] = device
    return tuple(sorted(shown.values(), key=lambda device: device.index))


def _bulk_values(entry: EnvFromSource, sources: Sources) -> Mapping[str, str] | MissingSource:
    source = _bulk_source(entry)
    if source is None:
        return {}
    data = sources.get((source.kind, source.name))
    if data is None:
        return {} if source.optional else MissingSource(f'{source.kind} "{source.name}" not found')
    return data


def _bulk_source(entry: EnvFromSource) -> _Source | None:
    if ref := entry.config_map_ref:
        return _Source(CONFIG_MAP, ref.name, bool(ref.optional))
    if secret := entry.secret_ref:
        return _Source(SECRET, str(secret.get("name", "")), bool(secret.get("optional")))
    return None


def _key_source(variable: EnvVar) -> _Source | None:
    if variable.value_from is None:
        return None
    if ref := variable.value_from.config_map_key_ref:
        return _Source(CONFIG_MAP, ref.name, bool(ref.optional), ref.key)
    if secret := variable.value_from.secret_key_ref:
        key = str(secret.get("key", ""))
        return _Source(SECRET, str(secret.get("name", "")), bool(secret.get("optional")), key)
    return None


def _value(variable: EnvVar, pod: Pod, sources: Sources, env: Mapping[str, str]) -> str | MissingSource | None:
    """Return the value of one entry; None leaves the variable as it was (an optional key that is not there)."""
    if variable.value_from is None:
        return _expand(variable.value, env)
    if ref := variable.value_from.field_ref:
        return field_value(pod, ref.field_path)
    source = _key_source(variable)
    if source is None:
        # resourceFieldRef: limits of the container, which no GPU depends on.
        return ""
    return _keyed_value(source, pod, sources)


def _keyed_value(source: _Source, pod: Pod, sources: Sources) -> str | MissingSource | None:
    data = sources.get((source.kind, source.name))
    if data is not None and source.key in data:
        return data[source.key]
    if source.optional:
        return None
    if data is None:
        return MissingSource(f'{source.kind} "{source.name}" not found')
    place = f"{pod.metadata.namespace}/{source.name}"
    return MissingSource(f"couldn't find key {source.key} in {source.kind} {place}")


def _expand(value: str, env: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` from earlier entries; ``$$`` is one dollar, unknown names stay as they are."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(replaced, value)


def field_value(pod: Pod, path: str) -> str:
    """Resolve a fieldRef. A key that is not there, or a field that kubelet alone knows, is empty."""
    if match := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.annotations if match[1] == "annotations" else pod.metadata.labels
        return (values or {}).get(match[2], "")
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
    }
    return fields.get(path, "")


def containers_of(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Yield all containers in kubelet's order of starting, init containers first, each with its list's name."""
    for container in pod.spec.init_containers or ():
        yield INIT, container
    for container in pod.spec.containers:
        yield REGULAR, container


#: Pod annotations by which a manifest tells the simulator what its containers do; elsewhere they mean nothing.
RUN_S: Final = "simulator.moorage.dev/run-s"
EXIT_CODE: Final = "simulator.moorage.dev/exit-code"

_CALL_TIMEOUT_S: Final = 10.0
_LONGEST_RUN_S: Final = 10.0**9


class MalformedWork(ValueError):
    """Raised when an annotation for the simulator can't be read; names it, its value and what is allowed."""


def is_reservation(pod: Pod) -> bool:
    """Whether the pod's image is the reservation process."""
    labels = pod.metadata.labels or {}
    in_place = pod.metadata.namespace == names.RESERVATION_NAMESPACE
    return in_place and labels.get(names.APP_LABEL) == names.RESERVATION_APP


def work_of(pod: Pod) -> tuple[float | None, int]:
    """Return how long the pod's containers run (None: until they are stopped) and with what code they end."""
    annotations = pod.metadata.annotations or {}
    return _seconds(annotations.get(RUN_S)), _code(annotations.get(EXIT_CODE, "0"))


async def work(run_s: float | None, exit_code: int) -> int:
    """Run a user's container."""
    if run_s is None:
        await anyio.sleep_forever()
    else:
        await anyio.sleep(run_s)
    return exit_code


async def reserve(
    env: Mapping[str, str], devices: Sequence[Device], *, transport: Transport, fault: Callable[[], ReservationFault]
) -> int:
    """Run the real reservation process (reservation/steps.py) on the devices that its container sees."""
    state, action = steps.start(env)
    while not isinstance(action, steps.Exit):
        state, action = steps.step(state, await _carry_out(action, devices, transport, fault()))
    return action.code


async def _carry_out(
    action: steps.Action, devices: Sequence[Device], transport: Transport, fault: ReservationFault
) -> steps.Event:
    match action:
        case steps.Call():
            return await _call(action, transport)
        case steps.ReadDevice():
            return await _read(devices, fault)
        case steps.Wait(seconds=seconds):
            await anyio.sleep(seconds)
            return steps.Waited()
        case steps.Hold():
            await anyio.sleep_forever()
        case steps.Exit():
            pass
    raise AssertionError("nothing to carry out after Exit")


async def _call(call: steps.Call, transport: Transport) -> steps.Event:
    content_type = steps.MERGE_PATCH if call.body is not None else "application/json"
    try:
        with anyio.fail_after(_CALL_TIMEOUT_S):
            response = await transport.request(
                call.method,
                call.path,
                query=call.query,
                body=call.body,
                content_type=content_type,
                timeout_s=_CALL_TIMEOUT_S,
            )
    except (errors.Unreachable, TimeoutError) as error:
        return steps.NoAnswer(str(error))
    retry_after = response.headers.get("retry-after", "")
    return steps.Answer(response.status, response.body, float(retry_after) if retry_after.isdigit() else 0.0)


async def _read(
    devices: Sequence[Device], fault: ReservationFault
) -> reservation_device.Device | reservation_device.Unreadable:
    """Play NVML: it shows the devices that the runtime let into the container."""
    if fault.silent:
        await anyio.sleep_forever()
    await anyio.sleep(fault.delay_s)
    if fault.broken:
        return reservation_device.Unreadable(fault.broken)
    if len(devices) != 1:
        return reservation_device.Unreadable(f"found {len(devices)} devices, 1 was expected")
    (device,) = devices
    minor = None if device.is_slice else device.index
    return reservation_device.Device(uuid=fault.lie or device.uuid, minor=minor, mem_mib=device.mem_mib)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_RUN_S:
        raise MalformedWork(f"annotation {RUN_S}: {text!r} is not a number of seconds from 0 to {_LONGEST_RUN_S:.0e}")
    return seconds


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 256):
        raise MalformedWork(f"annotation {EXIT_CODE}: {text!r} is not a whole number from 0 to 255")
    return int(text)
