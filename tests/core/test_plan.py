"""The plan: the same records are printed and run."""

from __future__ import annotations

import json

import pytest

from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.explain import as_records, as_text
from anabranch.core.graph import build
from anabranch.core.plan import ApplyOutput, Decide, Plan, Publish, StageOutput, make_plan
from anabranch.core.where import Where
from anabranch.errors import ProjectErrors

pytestmark = pytest.mark.core


def example(**changed: object) -> Pipeline:
    view = Dataset("requests", Kind.TEMPORARY_VIEW, Where("p.py", 1))
    logs = Dataset("logs", Kind.STREAMING_TABLE, Where("p.py", 2), partition_by=("day",))
    errors = Dataset(**{"name": "errors", "kind": Kind.STREAMING_TABLE, "where": Where("p.py", 3), **changed})  # type: ignore[arg-type]
    flows = (
        Flow("requests", "requests", lambda: None, Where("p.py", 1)),
        Flow("logs", "logs", lambda: None, Where("p.py", 2), inputs=("requests",)),
        Flow(errors.name, errors.name, lambda: None, Where("p.py", 3), inputs=("requests",)),
    )
    return Pipeline("shop", (view, logs, errors), flows, Where("anabranch.yml"))


def plan() -> Plan:
    return make_plan(build(example()))


def test_every_output_is_staged_before_the_decision_and_applied_after_it() -> None:
    (channel,) = plan().channels
    kinds = [type(s) for s in channel.steps]
    decide = kinds.index(Decide)
    assert {d.name for d in channel.outputs} == {"logs", "errors"}
    assert kinds[decide - 2 : decide] == [StageOutput, StageOutput]
    assert kinds[decide + 1 :] == [ApplyOutput, ApplyOutput, Publish]


def test_the_text_is_what_a_person_reads() -> None:
    assert as_text(plan()) == (
        'channel "requests": 2 outputs, committed together\n'
        "  1. read     requests  (p.py:1)\n"
        "  2. flow     logs  from requests  (p.py:2)\n"
        "  3. flow     errors  from requests  (p.py:3)\n"
        "  4. stage    logs  (delta, partitioned by day)\n"
        "  5. stage    errors  (delta)\n"
        "  6. decide   one ledger transaction: from here on the epoch is kept, before it nothing is\n"
        "  7. apply    logs\n"
        "  8. apply    errors\n"
        "  9. publish  the cut: logs, errors"
    )


def test_the_records_are_json_and_name_every_step() -> None:
    records = json.loads(json.dumps(as_records(plan())))
    assert [r["action"] for r in records] == [
        "read",
        "flow",
        "flow",
        "stage",
        "stage",
        "decide",
        "apply",
        "apply",
        "publish",
    ]
    assert [r["step"] for r in records] == list(range(1, 10))
    assert records[1]["where"] == "p.py:2"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"kind": Kind.MATERIALIZED_VIEW}, "KIND_NOT_SUPPORTED"),
        ({"format": "csv"}, "FORMAT_NOT_SUPPORTED"),
        ({"name": "silver.errors"}, "NAME_NOT_SIMPLE"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_place(changed: dict[str, object], code: str) -> None:
    with pytest.raises(ProjectErrors) as raised:
        make_plan(build(example(**changed)))
    (problem,) = raised.value.problems
    assert (problem.code, str(problem.where)) == (code, "p.py:3")
    assert problem.hint


def test_a_channel_without_outputs_is_not_run() -> None:
    view = Dataset("v", Kind.TEMPORARY_VIEW, Where("p.py", 1))
    lone = Pipeline("p", (view,), (Flow("v", "v", lambda: None, Where("p.py", 1)),), Where("anabranch.yml"))
    empty = make_plan(build(lone))
    assert empty.channels == ()
    assert as_text(empty) == 'pipeline "p" writes nothing'
