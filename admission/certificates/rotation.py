"""The webhooks' certificates, self-made: the Secret and configurations are followed, and what steps.py says is done.

Replicas do not agree on anything beside the API server: every write carries the version that it rests on, and the
second writer decides again.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec
from typing_extensions import override

from admission.certificates import steps, tls
from admission.certificates.pair import YEAR_S, Pair, read_pair, serving_certificate
from admission.certificates.steps import Keep, Make, Publish, Serve, Step, View, decide, health
from admission.manifests import ADOPTION_CONFIGURATION, PODS_CONFIGURATION, QUEUES_CONFIGURATION
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from kube.client.retry import Backoff, BackoffRange
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from wire import names
from wire.api_groups import WebhookConfiguration
from wire.core import Secret
from wire.units import SECOND_NS

log = logging.getLogger(__name__)

T = TypeVar("T", Secret, WebhookConfiguration)

#: Ours; those that are not there ask nobody.
CONFIGURATIONS: Final = (
    (MUTATING_WEBHOOKS, ADOPTION_CONFIGURATION),
    (MUTATING_WEBHOOKS, PODS_CONFIGURATION),
    (VALIDATING_WEBHOOKS, PODS_CONFIGURATION),
    (VALIDATING_WEBHOOKS, QUEUES_CONFIGURATION),
)
#: Between writes, so that a fight with another writer of these objects costs little. After a quiet time it is
#: forgotten.
_PACE: Final = BackoffRange(first_s=0.1, most_s=10.0)
_QUIET_S: Final = 10.0
#: A process that has no certificate yet must be reachable for kubelet, which trusts anything.
_THROW_AWAY_S: Final = 24 * 3600


class SelfMade(msgspec.Struct, frozen=True, kw_only=True):
    """``names``: DNS names and IP addresses by which the API server calls the webhooks."""

    names: frozenset[str] = frozenset({f"moorage-admission.{names.SYSTEM_NAMESPACE}.svc"})
    #: Of new certificates. All other times follow from it (view.py).
    lifetime_s: int = YEAR_S


class _Followed(Generic[T]):
    """The one object that a reflector follows, and since when it has its content."""

    def __init__(self, changed: Signal) -> None:
        self.object: T | None = None
        self.since_ns = 0
        self._changed = changed

    def keep(self, obj: T) -> T:
        """Keep it whole."""
        return obj

    async def replace(self, kept: Sequence[T]) -> None:
        """Take it, or that it is gone."""
        self._take(kept[0] if kept else None)

    def upsert(self, obj: T) -> None:
        """Take it."""
        self._take(obj)

    def delete(self, _: T) -> None:
        """Take that it is gone."""
        self._take(None)

    def _take(self, obj: T | None) -> None:
        if _generation(obj) != _generation(self.object):
            self.since_ns = monotonic_ns()
        self.object = obj
        self._changed.set()


def _generation(obj: Secret | WebhookConfiguration | None) -> tuple[str, int] | None:
    """What is another one whenever webhooks are changed, also if they were changed back meanwhile."""
    return None if obj is None else (obj.metadata.uid, obj.metadata.generation)


class Rotation(tls.Shown):
    """Shows what the Secret holds. ``clock`` is the API server's (kube/client/clock.py)."""

    def __init__(self, api: Api, settings: SelfMade, *, clock: Clock, rng: random.Random) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._context = tls.server_context()
        self._changed = Signal()
        self._secret = _Followed[Secret](self._changed)
        self._configurations = {
            _title(resource, name): _Followed[WebhookConfiguration](self._changed) for resource, name in CONFIGURATIONS
        }
        self._reflectors: dict[str, Reflector[Any]] = {
            _title(SECRETS, names.CERTIFICATES_SECRET): Reflector(
                api,
                SECRETS,
                self._secret,
                namespace=names.SYSTEM_NAMESPACE,
                field_selector=f"metadata.name={names.CERTIFICATES_SECRET}",
                rng=rng,
            ),
            **{
                _title(resource, name): Reflector(
                    api,
                    resource,
                    self._configurations[_title(resource, name)],
                    field_selector=f"metadata.name={name}",
                    rng=rng,
                )
                for resource, name in CONFIGURATIONS
            },
        }
        self._served: Pair | None = None
        self._proven = False
        self._pace = Backoff(_PACE, rng)
        self._not_before = 0.0
        #: What the API server said of a write that it refused, by step.
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()

    @property
    @override
    def context(self) -> ssl.SSLContext:
        return self._context

    @override
    async def begin(self) -> None:
        """Show something, so that the process is seen to live. Nobody trusts it, and it is not ready."""
        made = _made(self._settings.names, now_ns=self._clock.now_ns(), lifetime_s=_THROW_AWAY_S)
        tls.load(self._context, made.certificate, made.key)

    @override
    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for reflector in self._reflectors.values():
                tasks.start_soon(reflector.run)
            for reflector in self._reflectors.values():
                await reflector.synced.wait()
            while True:
                await self._turn()

    @override
    def unready(self) -> str:
        troubles = list(dict.fromkeys(each.trouble for each in self._reflectors.values() if each.trouble))
        unknown = [name for name, reflector in self._reflectors.items() if not reflector.synced.is_set()]
        if unknown:
            return ": ".join([f"{' and '.join(unknown)} not known yet", *troubles])
        unready = health(self._view()).unready
        refused = "; ".join([*self._refused.values(), *troubles])
        return f"{unready}: {refused}" if unready and refused else unready

    def warnings(self) -> tuple[str, ...]:
        """What an administrator should see to."""
        return (*health(self._view()).warnings, *self._refused.values())

    async def _turn(self) -> None:
        decision = decide(self._view())
        wanted = {_told(step) for step in decision.steps}
        self._refused = {what: why for what, why in self._refused.items() if what in wanted}
        wait_s: float = decision.again_in_s
        for step in decision.steps:
            if isinstance(step, Serve):
                self._serve(step.pair)
            elif anyio.current_time() >= self._not_before:
                await self._write(step)
        self._tell()
        if any(not isinstance(step, Serve) for step in decision.steps):
            self._slow_down()
            wait_s = max(0.0, self._not_before - anyio.current_time())
        with anyio.move_on_after(wait_s):
            await self._changed.wait()

    def _slow_down(self) -> None:
        """The next write is not made before a pause, which grows with each that follows soon."""
        now = anyio.current_time()
        if now > self._not_before + _QUIET_S:
            self._pace.succeed()
        if now >= self._not_before:
            self._not_before = now + self._pace.fail()

    def _view(self) -> View:
        secret = self._secret.object
        return View(
            held=None if secret is None else steps.held(secret),
            webhooks=tuple(
                steps.webhook_state(followed.object, name=name, since_ns=followed.since_ns)
                for name, followed in self._configurations.items()
                if followed.object is not None
            ),
            served=self._served,
            proven=self._proven,
            names=self._settings.names,
            now_s=self._clock.now_ns() // SECOND_NS,
            at_ns=monotonic_ns(),
        )

    def _serve(self, pair: Pair) -> None:
        try:
            tls.load(self._context, pair.certificate, pair.key)
        except ssl.SSLError:
            log.exception("the certificate %r can't be served, the one before is kept", pair)
            return
        log.info("serving the certificate %r", pair)
        self._served, self._proven = pair, False

    async def _write(self, step: Step) -> None:
        what = _told(step)
        try:
            await self._carry_out(step)
        except (errors.Conflict, errors.Invalid) as error:
            # Invalid is the answer to a JSON patch whose test fails.
            log.debug("%s: somebody was faster: %s", what, error)
        except errors.ApiError as error:
            self._refused[what] = f"{what}: {error}"
        else:
            self._refused.pop(what, None)
            log.info("done: %s", what)

    async def _carry_out(self, step: Step) -> None:
        match step:
            case Keep():
                await self._keep(step.version, step.current, step.next)
            case Make():
                made = _made(step.names, now_ns=self._clock.now_ns(), lifetime_s=self._settings.lifetime_s)
                current = made if step.is_first else step.current
                await self._keep(step.version, current, None if step.is_first else made)
            case Publish():
                resource, name = next(each for each in CONFIGURATIONS if _title(*each) == step.name)
                await self._api.patch(resource, name, steps.bundles_patch(step.version, step.bundles))
            case Serve():
                self._serve(step.pair)

    async def _keep(self, version: str, current: Pair | None, following: Pair | None) -> None:
        await self._api.patch(
            SECRETS,
            names.CERTIFICATES_SECRET,
            steps.pairs_patch(current, following),
            namespace=names.SYSTEM_NAMESPACE,
            resource_version=version,
        )

    def _tell(self) -> None:
        """Log what is new about the state, once."""
        state = health(self._view())
        self._proven = self._proven or not state.unready
        said = {*state.warnings, *self._refused.values(), *((f"not ready: {state.unready}",) if state.unready else ())}
        for text in sorted(said - self._told):
            log.warning("%s", text)
        self._told = said


def _title(resource: Resource[Any], name: str) -> str:
    return f"{resource.kind} {name}"


def _told(step: Step) -> str:
    match step:
        case Publish():
            return f"writing our CA into {step.name}"
        case Make():
            return "making a new certificate and keeping it in the Secret"
        case Keep():
            return "keeping the certificate in the Secret"
        case Serve():
            return "serving a certificate"


def _made(called: Iterable[str], *, now_ns: int, lifetime_s: int) -> Pair:
    sorts: Mapping[bool, list[str]] = {True: [], False: []}
    for name in sorted(called):
        sorts[_is_address(name)].append(name)
    made = serving_certificate(dns_names=sorts[False], addresses=sorts[True], now_ns=now_ns, lifetime_s=lifetime_s)
    pair = read_pair(made.ca, made.certificate, made.key)
    if isinstance(pair, str):
        raise TypeError(f"a certificate of our own making {pair}")
    return pair


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
