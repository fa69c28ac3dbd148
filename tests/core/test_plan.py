"""The plan: the same records are printed and run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anabranch.core.changes import Changes
from anabranch.core.declarations import Action, Dataset, Expectation, Flow, Kind, Pipeline, Unique
from anabranch.core.explain import as_records, as_text
from anabranch.core.graph import Graph, build
from anabranch.core.plan import ApplyOutput, Decide, Plan, Publish, StageOutput, make_plan
from anabranch.core.where import Where
from anabranch.errors import ProjectErrors

pytestmark = pytest.mark.core

HERE = Where("p.py")

#: What is said below each output.
PROMISE = "              exactly once, by transaction marker in the table's log; read at the cut\n"


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
        f"{PROMISE}"
        "  5. stage    errors  (delta)\n"
        f"{PROMISE}"
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
        ({"format": "xml"}, "FORMAT_NOT_SUPPORTED"),
        ({"format": "foreach_batch"}, "FORMAT_NOT_SUPPORTED"),  # without its function
        ({"name": "my-errors"}, "NAME_NOT_SIMPLE"),
        ({"name": "a.b.c.errors"}, "NAME_NOT_SIMPLE"),
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


def test_outputs_show_their_rules_and_their_keys() -> None:
    where = Where("p.py", 3)
    rules = (Expectation("has_id", "id IS NOT NULL", Action.DROP, where), Expectation("e", "e", Action.WARN, where))
    made = example(expectations=rules, unique=(Unique("one", ("id",), Action.FAIL, where),))
    people = Dataset("people", Kind.STREAMING_TABLE, where)
    changes = Changes("requests", keys=("id", "at"), sequence_by="at", deletes="op = 'd'", scd_type=2)
    flow = Flow("people", "people", lambda: None, where, inputs=("requests",), changes=changes)
    pipeline = replace(made, datasets=(*made.datasets, people), flows=(*made.flows, flow))
    plan = make_plan(build(pipeline))
    text = as_text(plan)
    promise = PROMISE.replace("  exactly", "   exactly")  # there are more than nine steps
    assert f"stage    errors  (delta)\n{promise}               3 rules: drop has_id, warn e, fail one\n" in text
    assert "\n               changes by id, at, newest by at, deleted when op = 'd', keeps history\n" in text
    staged = {r["output"]: r for r in json.loads(json.dumps(as_records(plan))) if r["action"] == "stage"}
    assert staged["logs"]["rules"] == []
    assert staged["logs"]["changes"] is None
    assert staged["errors"]["rules"] == [
        {"name": "has_id", "action": "drop", "condition": "id IS NOT NULL"},
        {"name": "e", "action": "warn", "condition": "e"},
        {"name": "one", "action": "fail", "unique": ["id"]},
    ]
    assert staged["people"]["changes"] == {
        "keys": ["id", "at"],
        "sequence_by": "at",
        "deletes": "op = 'd'",
        "history": True,
        "snapshot": False,
    }


def test_a_function_says_what_it_does_not_promise() -> None:
    made = example(kind=Kind.SINK, format="foreach_batch", handler=lambda df, batch_id: None)
    planned = make_plan(build(made))
    assert "stage    errors  (foreach_batch)\n" in as_text(planned)
    assert as_text(planned).count("not promised: ") == 2
    assert "at least once, by a marker in the sink's folder" in as_text(planned)
    staged = {r["output"]: r["not_promised"] for r in as_records(planned) if r["action"] == "stage"}
    assert [len(staged["errors"]), len(staged["logs"])] == [2, 0]


def test_rows_that_change_are_for_sinks() -> None:
    made = example()
    flows = tuple(replace(f, mode="update") if f.target == "errors" else f for f in made.flows)
    with pytest.raises(ProjectErrors) as raised:
        make_plan(build(replace(made, flows=flows)))
    assert [p.code for p in raised.value.problems] == ["UPDATE_NOT_SUPPORTED"]
    sinks = tuple(replace(d, kind=Kind.SINK) if d.name == "errors" else d for d in made.datasets)
    text = as_text(make_plan(build(replace(made, datasets=sinks, flows=flows))))
    assert "rows again whenever they change" in text


def test_a_table_that_becomes_a_view_leaves_its_channel() -> None:
    def made(kind: Kind) -> Graph:
        datasets = (
            Dataset("events", Kind.STREAMING_TABLE, HERE),
            Dataset("errors", Kind.STREAMING_TABLE, HERE),
            Dataset("totals", kind, HERE),
        )
        flows = (
            Flow("events", "events", lambda: None, HERE),
            Flow("errors", "errors", lambda: None, HERE, inputs=("events",)),
            Flow("totals", "totals", lambda: None, HERE, inputs=("events",)),
        )
        return build(Pipeline("p", datasets, flows, HERE))

    known = dict.fromkeys(("events", "errors", "totals"), "events")
    before = make_plan(made(Kind.STREAMING_TABLE), known)
    assert [(c.channel.name, len(c.outputs)) for c in before.channels] == [("events", 3)]
    after = make_plan(made(Kind.MATERIALIZED_VIEW), known)
    assert [(c.channel.name, len(c.outputs)) for c in after.channels] == [("events", 2)]
    assert [(c.channel.name, len(c.outputs)) for c in after.views] == [("totals", 1)]
