"""DeviceTaintRules: wire objects in, slim records out."""

from __future__ import annotations

from scheduler.core.model.device_record import DeviceTaint, TaintRuleRecord
from wire.resource import DeviceTaintRule, DeviceTaintSelector


def taint_rule_record(written: DeviceTaintRule) -> TaintRuleRecord:
    """Read a rule. One without a selector selects all devices: kube-scheduler 1.36 takes it so.

    The comment of its API says that such a rule selects none, and the controller that evicts pods goes by that.
    """
    selector, taint = written.spec.device_selector or DeviceTaintSelector(), written.spec.taint
    return TaintRuleRecord(
        name=written.metadata.name,
        taint=DeviceTaint(taint.key, taint.value, taint.effect),
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
    )
