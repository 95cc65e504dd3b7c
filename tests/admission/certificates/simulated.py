"""Replicas, API servers and an etcd, in steps of a part of a second: who decides when, on what, is drawn by chance.

A replica sees the Secret and the configurations late, and each on its own; it may be stopped between its steps, so that
writes come long after the decision; it may crash after each of them and start anew. API servers follow configurations
late. ``World.failed`` tells of every handshake that failed at a replica that was ready once since its start.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from admission.certificates.pair import Authority, Bundle, Pair
from admission.certificates.steps import Held, Keep, Make, Publish, Serve, Step, View, WebhookState, decide, health
from tests.admission.certificates.worlds import NAMES, S, pair

T = TypeVar("T")

LIFE_S = 60
#: How many parts a second has.
TICKS = 4
CONFIGURATIONS = ("adoption", "mutating", "validating")
_SEEN_LATE_S = 6
_SKEW_S = 1


class Written(msgspec.Struct, frozen=True):
    at_s: float
    value: object


@dataclass
class History(Generic[T]):
    """All states that an object ever had: its version is the number of the last one."""

    states: list[tuple[float, T]]

    @property
    def version(self) -> int:
        return len(self.states) - 1

    @property
    def last(self) -> T:
        return self.states[-1][1]

    def write(self, at_s: float, value: T) -> None:
        self.states.append((at_s, value))

    def seen(self, before: int, now_s: float, *, within_s: float, rng: random.Random) -> int:
        """The version that somebody sees now who saw ``before`` and is never later than ``within_s``."""
        least = before
        while least < self.version and self.states[least + 1][0] <= now_s - within_s:
            least += 1
        return least if rng.random() < 0.7 else rng.randint(least, self.version)


Configuration = tuple[Bundle, ...]


@dataclass
class Replica:
    skew_s: int
    born_s: float
    secret: int
    seen: dict[str, int]
    since_s: dict[str, float]
    served: Pair | None = None
    proven: bool = False
    was_ready: bool = False
    todo: list[Step] = field(default_factory=list)


@dataclass
class World:
    rng: random.Random
    secret: History[Held | None]
    configurations: dict[str, History[Configuration | None]]
    #: Each API server sees changes of configurations so late at most.
    server_lag_s: float = 5.0
    now_s: float = 1_000_000.0
    replicas: list[Replica] = field(default_factory=list)
    made: int = 0
    failed: list[str] = field(default_factory=list)
    servers: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.servers = [dict.fromkeys(self.configurations, 0) for _ in range(2)]
        self.replicas = [self._started() for _ in range(3)]

    def _started(self) -> Replica:
        """A replica begins by listing, so it sees what is there."""
        return Replica(
            skew_s=self.rng.randint(-_SKEW_S, _SKEW_S),
            born_s=self.now_s,
            secret=self.secret.version,
            seen={name: one.version for name, one in self.configurations.items()},
            since_s=dict.fromkeys(self.configurations, self.now_s),
        )

    def run(self, seconds: int, *, crashes: float = 0.0) -> None:
        for _ in range(seconds * TICKS):
            self.now_s += 1 / TICKS
            for server in self.servers:
                for name, one in self.configurations.items():
                    server[name] = one.seen(server[name], self.now_s, within_s=self.server_lag_s, rng=self.rng)
            for number in self.rng.sample(range(len(self.replicas)), k=len(self.replicas)):
                self._turn(number, crashes)
            self._handshakes()

    def _turn(self, number: int, crashes: float) -> None:
        replica = self.replicas[number]
        self._look(replica)
        seen = self.view(replica)
        if replica.todo:
            self._do(replica, replica.todo.pop(0))
            if self.rng.random() < crashes:
                self.replicas[number] = self._started()
        elif self.rng.random() < 0.6:
            replica.todo = list(decide(seen).steps)
        if not health(self.view(replica)).unready:
            replica.proven = replica.was_ready = True

    def _look(self, replica: Replica) -> None:
        replica.secret = self.secret.seen(replica.secret, self.now_s, within_s=_SEEN_LATE_S, rng=self.rng)
        for name, one in self.configurations.items():
            now = one.seen(replica.seen[name], self.now_s, within_s=_SEEN_LATE_S, rng=self.rng)
            if now != replica.seen[name]:
                replica.seen[name], replica.since_s[name] = now, self.now_s

    def view(self, replica: Replica) -> View:
        held = self.secret.states[replica.secret][1]
        webhook_state = []
        for name, one in self.configurations.items():
            version = replica.seen[name]
            bundles = one.states[version][1]
            if bundles is not None:
                webhook_state.append(
                    WebhookState(
                        name=name, version=str(version), bundles=bundles, since_ns=round(replica.since_s[name] * S)
                    )
                )
        return View(
            held=None if held is None else msgspec.structs.replace(held, version=str(replica.secret)),
            webhooks=tuple(webhook_state),
            served=replica.served,
            proven=replica.proven,
            names=NAMES,
            now_s=int(self.now_s) + replica.skew_s,
            at_ns=round(self.now_s * S),
        )

    def _do(self, replica: Replica, step: Step) -> None:
        match step:
            case Serve():
                replica.served, replica.proven = step.pair, False
            case Keep() if step.version == str(self.secret.version):
                self.secret.write(self.now_s, Held("", step.current, step.next))
            case Make() if step.version == str(self.secret.version):
                made = self._made(replica)
                held = Held("", made, None) if step.is_first else Held("", step.current, made)
                self.secret.write(self.now_s, held)
            case Publish() if step.version == str(self.configurations[step.name].version):
                bundles = tuple(Bundle(authorities) for authorities in step.bundles)
                self.configurations[step.name].write(self.now_s, bundles)
            case _:  # somebody was faster
                pass

    def _made(self, replica: Replica) -> Pair:
        self.made += 1
        begins_s = int(self.now_s) + replica.skew_s - LIFE_S // 12
        return pair(f"made-{self.made}", begins_s=begins_s, life_s=LIFE_S + LIFE_S // 12)

    def _handshakes(self) -> None:
        for number, replica in enumerate(self.replicas):
            served = replica.served
            if not replica.was_ready or served is None:
                continue
            if not served.is_valid(int(self.now_s)):
                self.failed.append(f"{self.now_s}: replica {number} serves {served}, which is not valid")
            for server in self.servers:
                for name, version in server.items():
                    bundles = self.configurations[name].states[version][1]
                    if bundles is not None and not all(_holds(one, served.authority) for one in bundles):
                        self.failed.append(
                            f"{self.now_s}: {name} does not trust {served} of replica {number}: {bundles}"
                        )

    def unhealthy(self) -> list[str]:
        """Why replicas are not ready."""
        told = [health(self.view(replica)).unready for replica in self.replicas]
        return [text for text in told if text]


def _holds(bundle: Bundle, authority: Authority) -> bool:
    return any(each.id == authority.id for each in bundle.ours)


def world(
    seed: int, secret: Held | None, bundles: Sequence[Configuration | None], *, server_lag_s: float = 5.0
) -> World:
    """Begin with these states of the Secret and of each configuration."""
    begin_s = 1_000_000.0
    return World(
        rng=random.Random(seed),
        secret=History([(begin_s, secret)]),
        configurations={
            name: History([(begin_s - 100, each)]) for name, each in zip(CONFIGURATIONS, bundles, strict=True)
        },
        server_lag_s=server_lag_s,
    )
