"""Every row of the translation table through both webhooks."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.mutate import Mutated, mutated
from admission.review import PodAdmission
from admission.settings import Choices, Guard, HandOver, Settings
from admission.validate import refusal_of_new
from gpu import record
from gpu.dialects.settings import DialectSettings
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine, registry
from gpu.translate.asked import needs_record
from gpu.translation import GivenDevice, Refusal, Translation, told
from tests.admission.pods import Raw, env, patched, review
from tests.gpu.dialects.everyrow import Case, every_row
from tests.gpu.dialects.pods import asking
from tests.gpu.translate import test_combine
from tests.values import of_kind
from wire import names
from wire.core import Pod

CASES = every_row()


def raw(pod: Pod) -> Raw:
    """The pod as the API server sends it, of our scheduler."""
    made: Raw = msgspec.to_builtins(pod)
    made["spec"]["schedulerName"] = names.SCHEDULER_NAME
    return made


def admission(case: Case, hand_over: HandOver = HandOver.ANNOTATIONS) -> PodAdmission:
    settings = Settings(choices=Choices(dialects=case.settings), hand_over=hand_over)
    return PodAdmission(settings, rng=random.Random(1))


#: The last number of each letter of the table.
TABLE = {"C": 14, "A": 13, "M": 9, "K": 13, "I": 9, "N": 7, "X": 6, "H": 18, "V": 16, "O": 16, "F": 14, "T": 5}
#: The pods of F1, X6 and O6 say these as well.
ELSEWHERE = {"F14", "I2", "T1"}


def test_all_rows_of_the_table_are_here() -> None:
    ids = {f"{letter}{number}" for letter, most in TABLE.items() for number in range(1, most + 1)}
    assert ids - {case.row for case in CASES} == ELSEWHERE


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_row_is_admitted_as_it_is_translated_offline_or_refused_in_the_same_words(case: Case) -> None:
    new, offline = raw(case.pod), combine.translate(case.pod, case.settings)
    answer = admission(case).mutating(review(new))
    if isinstance(offline, Refusal):
        assert answer["response"]["status"]["message"] == told(offline)
        assert admission(case).validating(review(new))["response"]["allowed"] is False
        return
    made = patched(new, answer)
    annotations = made["metadata"].get("annotations") or {}
    assert annotations.get(names.GPU_RECORD) == (record.render(offline) if needs_record(offline) else None)
    assert len(answer["response"].get("warnings", ())) == len(offline.notes)
    assert admission(case).validating(review(made))["response"] == {
        "uid": review(new)["request"]["uid"],
        "allowed": True,
    }
    assert not registry.is_spoken(_resources_of(made))
    _shares_are_handed_over(made, offline)
    _what_the_binding_says_is_read(made, offline)
    again = admission(case).mutating(review(made))
    assert "patch" not in again["response"]


def _resources_of(made: Raw) -> Pod:
    """The pod without its labels and annotations: what is left of a dialect's own resources."""
    return msgspec.convert({"spec": made["spec"]}, Pod)


def _shares_are_handed_over(made: Raw, offline: Translation) -> None:
    """Who gets a part reads it from the Binding; who gets nothing sees nothing."""
    asks = {asked.container.key: asked for asked in offline.request.containers}
    for kind, prefix in (("containers", "c"), ("initContainers", "i")):
        for index in range(len(made["spec"].get(kind) or ())):
            said = env(made, kind=kind, index=index).get(names.ENV_VISIBLE_DEVICES)
            asked = asks.get(key := f"{prefix}{index}")
            if asked is None:
                assert said == "void"
            elif asked.whole < len(asked.asks) and not _is_of_the_plugin(made["spec"][kind][index]):
                assert said == {
                    "fieldRef": {
                        "apiVersion": "v1",
                        "fieldPath": f"metadata.annotations['moorage.dev/visible-devices.{key}']",
                    }
                }


def _what_the_binding_says_is_read(made: Raw, offline: Translation) -> None:
    """Whichever alternative is taken: all variables that the Binding says of a container are read by it, first of all.

    One that only another alternative would say is read as well, and is then empty.
    """
    for request in (offline.request, *offline.alternatives):
        taken = msgspec.structs.replace(offline, request=request)
        devices = [GivenDevice(f"GPU-{n}", n, 15109, NANO_PER_DEVICE) for n in range(len(request.shared))]
        for key, variables in combine.written_back(taken, devices, node="n", at_ns=1).env.items():
            container = made["spec"]["containers" if key[0] == "c" else "initContainers"][int(key[1:])]
            entries = [entry["name"] for entry in container["env"]]
            for name in variables:
                assert container["env"][entries.index(name)] == {
                    "name": name,
                    "valueFrom": {
                        "fieldRef": {
                            "apiVersion": "v1",
                            "fieldPath": f"metadata.annotations['env.moorage.dev/{key}.{name}']",
                        }
                    },
                }


def _is_of_the_plugin(container: Raw) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(name.startswith((names.GPU_RESOURCE, names.MIG_RESOURCE_PREFIX)) for name in limits)


# --- pods of all dialects, at random ------------------------------------------------------------------------------


@st.composite
def _pods(draw: st.DrawFn) -> Raw:
    labels = draw(st.sampled_from([{}, {}, *({test_combine.LABEL: text} for text in ("0.5", "0.0625", "1", "2", "x"))]))
    annotations: dict[str, str] = draw(st.just({}) | test_combine.KAI_ANNOTATIONS)
    if draw(st.integers(0, 3)) == 0:
        annotations = {**annotations, names.GPU_RECORD: _record_of(draw(st.sampled_from(CASES)))}
    limits = draw(st.lists(test_combine.ALL_LIMITS, min_size=1, max_size=3))
    init = draw(st.lists(test_combine.ALL_LIMITS, max_size=1))
    new = raw(asking(*limits, init=init, labels=labels, annotations=annotations))
    variables = [{"name": name, "value": "all"} for name in draw(st.sets(st.sampled_from(VARIABLES)))]
    new["spec"]["containers"][0]["env"] = variables
    return new


VARIABLES = (
    names.ENV_VISIBLE_DEVICES,
    "CLEARML_AGENT_GPU_FRACTIONS",
    "CUDA_TASK_PRIORITY",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
    "ALIYUN_COM_GPU_MEM_IDX",
    "A",
)


def _record_of(case: Case) -> str:
    translation = combine.translate(case.pod, case.settings)
    return "{}" if isinstance(translation, Refusal) else record.render(translation)


@given(_pods(), test_combine.CHOICES, st.sampled_from(HandOver), st.sampled_from(Guard))
def test_admitting_twice_is_admitting_once_and_passes_validation(
    new: Raw, dialects: DialectSettings, hand_over: HandOver, guard: Guard
) -> None:
    choices, settings = Choices(guard=guard, dialects=dialects), Settings(hand_over=hand_over)

    def admit(pod: Raw) -> Mutated | Refusal:
        return mutated(pod, choices=choices, settings=settings, rng=random.Random(1))

    once = admit(new)
    if isinstance(once, Refusal):
        return
    again = admit(once.pod)
    assert isinstance(again, Mutated), again
    assert again.pod == once.pod
    refusal = refusal_of_new(once.pod, choices=choices)
    assert refusal is None or "NVIDIA_VISIBLE_DEVICES" in refusal


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES if case.row.startswith(("K", "N"))]
)
def test_pods_of_kai_and_plain_ones_bear_no_record(case: Case) -> None:
    made = mutated(raw(case.pod), choices=Choices(), settings=Settings(), rng=random.Random(1))
    assert isinstance(made, Refusal) or names.GPU_RECORD not in (made.pod["metadata"].get("annotations") or {})


def test_variables_of_the_origin_stand_before_the_users_and_replace_theirs() -> None:
    new = raw(asking({"nvidia.com/gpumem": 3000}))
    users = [
        {"name": "LIMITS", "value": "$(CUDA_DEVICE_MEMORY_LIMIT_0)"},
        {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "99999m"},
    ]
    new["spec"]["containers"][0]["env"] = users
    made = of_kind(Mutated, mutated(new, choices=Choices(), settings=Settings(), rng=random.Random(1)))
    listed = [entry["name"] for entry in made.pod["spec"]["containers"][0]["env"]]
    assert listed[-3:] == ["CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT", "LIMITS"]


def test_a_copied_spec_keeps_no_variable_that_its_binding_does_not_say() -> None:
    new = raw(asking({"nvidia.com/gpumem": 3000}))
    stale = {"fieldRef": {"fieldPath": "metadata.annotations['env.moorage.dev/c0.VOLCANO_GPU_TOTAL']"}}
    new["spec"]["containers"][0]["env"] = [{"name": "VOLCANO_GPU_TOTAL", "valueFrom": stale}]
    new["metadata"]["annotations"] = {"env.moorage.dev/c0.VOLCANO_GPU_TOTAL": "1"}
    made = of_kind(Mutated, mutated(new, choices=Choices(), settings=Settings(), rng=random.Random(1)))
    assert "VOLCANO_GPU_TOTAL" not in env(made.pod)
    assert "env.moorage.dev/c0.VOLCANO_GPU_TOTAL" not in made.pod["metadata"]["annotations"]
