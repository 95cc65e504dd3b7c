"""Stories of affinity and anti-affinity between pods."""

from __future__ import annotations

from typing import Final

from tests.e2e.placing.story import OTHER, Story, apart, expression, matching, near, nodes, pod, pods, term
from wire import names

_NEAR: Final = "node(s) didn't match pod affinity rules"
_APART: Final = "node(s) didn't match pod anti-affinity rules"
_OTHERS: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
_A: Final = {"app": "a"}
_IS_A: Final = matching("app", "In", "a")
_IS_B: Final = matching("app", "In", "b")
_TWO: Final = nodes("n m", zone="z1 z2")

NEAR: Final = (
    Story("a pod waits for pods that are nowhere", _TWO, pod(affinity=near(term(_IS_A))), says=f"2 {_NEAR}"),
    Story(
        "a pod goes into the zone of the pods that it asks for",
        _TWO,
        pod(affinity=near(term(_IS_A))),
        running=pods("m", labels=_A),
        goes="m",
    ),
    Story(
        "a pod asks for pods without a label value",
        _TWO,
        pod(affinity=near(term(matching("app", "NotIn", "b", "c")))),
        running=pods("n", labels=_A),
        goes="n",
    ),
    Story(
        "pods of other namespaces are not those that it asks for",
        _TWO,
        pod(affinity=near(term(_IS_A))),
        running=pods("n", labels=_A, namespace=OTHER),
        says=f"2 {_NEAR}",
    ),
    Story(
        "a term names other namespaces",
        _TWO,
        pod(affinity=near(term(_IS_A, namespaces=[OTHER]))),
        running=pods("m", labels=_A, namespace=OTHER),
        goes="m",
    ),
    Story(
        "a term selects namespaces by their labels",
        _TWO,
        pod(affinity=near(term(_IS_A, namespaceSelector={"matchLabels": {"team": "theirs"}}))),
        running=pods("m", labels=_A, namespace=OTHER),
        goes="m",
    ),
    Story(
        "a term selects namespaces of which none has such pods",
        _TWO,
        pod(affinity=near(term(_IS_A, namespaceSelector={"matchLabels": {"team": "nobody"}}))),
        running=pods("m", labels=_A, namespace=OTHER),
        says=f"2 {_NEAR}",
    ),
    Story(
        "several terms of one pod hold by one pod",
        _TWO,
        pod(affinity=near(term(matching("app", "Exists")), term(matching("app", "NotIn", "b")))),
        running=pods("n", labels=_A),
        goes="n",
    ),
    Story(
        "all expressions of a term have to take the same pod",
        _TWO,
        pod(affinity=near(term({"matchExpressions": [expression("app", "In", "a"), expression("tier", "In", "x")]}))),
        running=[*pods("n", labels=_A), pod("tiered", on="n", labels={"tier": "x"})],
        says=f"2 {_NEAR}",
    ),
    Story(
        "the first of pods that ask for each other goes anywhere",
        _TWO,
        pod(labels=_A, affinity=near(term(_IS_A))),
        goes=["n", "m"],
    ),
    Story(
        "the second of pods that ask for each other goes to the first",
        _TWO,
        pod(labels=_A, affinity=near(term(_IS_A))),
        running=pods("m", labels=_A),
        goes="m",
    ),
    Story(
        "keys of labels are matched by the pod's own values",
        _TWO,
        pod(labels={"app": "a", "version": "2"}, affinity=near(term(_IS_A, matchLabelKeys=["version"]))),
        running=[
            pod("old", on="n", labels={"app": "a", "version": "1"}),
            pod("same", on="m", labels={"app": "a", "version": "2"}),
        ],
        goes="m",
    ),
    Story(
        "keys of labels that must not match leave out the pod's own values",
        _TWO,
        pod(labels={"app": "a", "version": "2"}, affinity=near(term(_IS_A, mismatchLabelKeys=["version"]))),
        running=[
            pod("other", on="n", labels={"app": "a", "version": "1"}),
            pod("same", on="m", labels={"app": "a", "version": "2"}),
        ],
        goes="n",
    ),
    Story(
        "a node without the label is in no zone",
        nodes("n m", zone="z1 -"),
        pod(affinity=near(term(_IS_A))),
        running=pods("m", labels=_A),
        says=f"2 {_NEAR}",
    ),
)
APART: Final = (
    Story(
        "a pod goes beside one and not beside the other",
        _TWO,
        pod(affinity={**near(term(_IS_A)), **apart(term(_IS_B))}),
        running=[*pods("n m", labels=_A), pod("kept-off", on="n", labels={"app": "b"})],
        goes="m",
    ),
    Story(
        "a pod finds those that it asks for beside those that it avoids",
        nodes("n m", zone="z1"),
        pod(affinity={**near(term(_IS_A)), **apart(term(_IS_A, names.HOSTNAME_LABEL))}),
        running=pods("n m", labels=_A),
        says=f"2 {_APART}",
    ),
    Story(
        "a running pod keeps others off its zone",
        _TWO,
        pod(labels=_A),
        running=pods("n m", affinity=apart(term(_IS_A))),
        says=f"2 {_OTHERS}",
    ),
    Story(
        "a running pod keeps others off its zone and leaves the next",
        _TWO,
        pod(labels=_A),
        running=pods("n", affinity=apart(term(_IS_A))),
        goes="m",
    ),
    Story(
        "a pod that agrees with the others is kept off by one of them",
        nodes("n", zone="z1"),
        pod(labels=_A, affinity={**near(term(_IS_A)), **apart(term(_IS_B))}),
        running=pods("n", labels=_A, affinity=apart(term(_IS_A, names.HOSTNAME_LABEL))),
        says=f"1 {_OTHERS}",
    ),
    Story(
        "nodes of one zone are out together",
        nodes("n m", zone="z1"),
        pod(affinity=apart(term(_IS_A))),
        running=pods("n", labels=_A),
        says=f"2 {_APART}",
    ),
    Story(
        "replicas go to hosts of their own",
        _TWO,
        pod(labels=_A, affinity=apart(term(_IS_A, names.HOSTNAME_LABEL))),
        running=pods("n", labels=_A, affinity=apart(term(_IS_A, names.HOSTNAME_LABEL))),
        goes="m",
    ),
    Story(
        "replicas of another version may be beside",
        nodes("n", zone="z1"),
        pod(labels={"app": "a", "version": "2"}, affinity=apart(term(_IS_A, matchLabelKeys=["version"]))),
        running=pods("n", labels={"app": "a", "version": "1"}),
        goes="n",
    ),
    Story(
        "a pod keeps away from the other tenants",
        _TWO,
        pod(labels={"tenant": "x"}, affinity=apart(term(matching("tenant", "Exists"), mismatchLabelKeys=["tenant"]))),
        running=[pod("mine", on="n", labels={"tenant": "x"}), pod("yours", on="m", labels={"tenant": "y"})],
        goes="n",
    ),
    Story(
        "a pod of another namespace may be beside",
        nodes("n", zone="z1"),
        pod(affinity=apart(term(_IS_A))),
        running=pods("n", labels=_A, namespace=OTHER),
        goes="n",
    ),
)
