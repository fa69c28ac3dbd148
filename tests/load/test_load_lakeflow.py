"""Names that Databricks' pipelines have: expectations, changes by key, sinks that are functions, `dlt`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.core import graph
from anabranch.core.declarations import Action, Dataset, Kind
from anabranch.core.plan import refused
from anabranch.load.project import Project
from anabranch.load.python_files import Loaded, examine_pipeline, load_pipeline

MakeProject = Callable[..., Project]
WAYS = pytest.mark.parametrize(
    ("imported", "with_spark"),
    [
        (text, with_spark)
        for text in ("from anabranch import pipelines as dp", "from pyspark import pipelines as dp", "import dlt as dp")
        for with_spark in (False, True)
    ],
)
RULES = """
{imported}

@dp.table
@dp.expect("first", "a > 0")
@dp.expect_or_drop("second", "b > 0")
def under():
    return spark.readStream.table("source.x")

@dp.expect_or_fail("first", "a > 0")
@dp.expect_all_or_drop({{"second": "b > 0", "third": "c > 0"}})
@dp.table(name="over")
def any_name():
    return spark.readStream.table("under")

@dp.expect("above", "a > 0")
@dp.materialized_view
@dp.expect_all_or_fail({{"below": "b > 0"}})
def both():
    return spark.read.table("over")

@dp.temporary_view
@dp.expect_or_quarantine("q", "a IS NOT NULL")
@dp.expect_unique("one", ["id", "at"])
@dp.expect_unique("two", "id", action="drop")
def step():
    return spark.readStream.table("under")

@dp.append_flow(target="target")
@dp.expect("of_flow", "x")
def flow():
    return spark.readStream.table("step")

dp.create_streaming_table(
    "target", expect_all={{"e": "1"}}, expect_all_or_drop={{"d": "2"}}, expect_all_or_fail={{"f": "3"}}
)
dp.create_sink("out", "delta", {{"path": "o"}}, expect_all_or_drop={{"s": "4"}})

@dp.append_flow(target="out")
def to_out():
    return spark.readStream.table("step")

assert dp.expect_all({{"m": "5"}})(dp.table(name="factory")(under)) is under
"""


def loaded(make_project: MakeProject, text: str, with_spark: bool = False) -> Loaded:
    return examine_pipeline(make_project({"pipelines/a.py": text}), with_spark=with_spark)


def told(found: Loaded) -> list[tuple[str, int, str]]:
    return [(p.code, p.where.line if p.where else 0, p.message) for p in found.problems]


def rules(dataset: Dataset) -> list[tuple[str, str, Action, int]]:
    return [(e.name, e.condition, e.action, e.where.line) for e in dataset.expectations]


@WAYS
def test_expectations_in_both_orders(make_project: MakeProject, imported: str, with_spark: bool) -> None:
    found = loaded(make_project, RULES.format(imported=imported), with_spark)
    assert (told(found), found.notes) == ([], ())
    by_name = {d.name: d for d in found.pipeline.datasets}
    assert rules(by_name["under"]) == [("first", "a > 0", Action.WARN, 4), ("second", "b > 0", Action.DROP, 5)]
    assert rules(by_name["over"]) == [
        ("first", "a > 0", Action.FAIL, 9),
        ("second", "b > 0", Action.DROP, 10),
        ("third", "c > 0", Action.DROP, 10),
    ]
    assert rules(by_name["both"]) == [("above", "a > 0", Action.WARN, 15), ("below", "b > 0", Action.FAIL, 17)]
    assert rules(by_name["step"]) == [("q", "a IS NOT NULL", Action.QUARANTINE, 22)]
    assert [(u.name, u.columns, u.action) for u in by_name["step"].unique] == [
        ("one", ("id", "at"), Action.FAIL),
        ("two", ("id",), Action.DROP),
    ]
    assert [(name, action) for name, _, action, _ in rules(by_name["target"])] == [
        ("e", Action.WARN),
        ("d", Action.DROP),
        ("f", Action.FAIL),
        ("of_flow", Action.WARN),
    ]
    assert rules(by_name["out"])[0][:3] == ("s", "4", Action.DROP)
    # The function is that of "under", and the rule that of the dataset declared with it just now.
    assert [name for name, *_ in rules(by_name["factory"])] == ["m", "first", "second"]
    assert [name for name, *_ in rules(by_name["under"])] == ["first", "second"]


def test_every_faulty_expectation_is_reported(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp

    @dp.table
    @dp.expect("a", 3)
    @dp.expect("b", "  ")
    @dp.expect("", "x")
    @dp.expect_all(["x"])
    @dp.expect_unique("u", [])
    @dp.expect_unique("u", ["x"], action="dorp")
    def faulty(): ...

    @dp.expect("alone", "x")
    def helper(): ...

    @dp.expect("none", "x")
    class Thing: ...

    @dp.table(name="no good")
    @dp.expect("x", "y")
    def misnamed(): ...
    """
    assert told(loaded(make_project, text)) == [
        ("PROJECT_BAD_ARGUMENT", 4, "dp.expect: the condition must be SQL text, not int"),
        ("PROJECT_BAD_ARGUMENT", 5, "dp.expect: the condition is empty"),
        ("PROJECT_BAD_ARGUMENT", 6, "dp.expect: the name of the rule is empty"),
        ("PROJECT_BAD_ARGUMENT", 7, "dp.expect_all: expectations must be a dict of names to conditions, not list"),
        ("PROJECT_MISSING_ARGUMENT", 8, "dp.expect_unique: columns is missing"),
        ("PROJECT_BAD_ARGUMENT", 9, "dp.expect_unique: there is no action 'dorp'"),
        ("EXPECTATION_ALONE", 15, "dp.expect: decorates type, which is no dataset"),
        ("PROJECT_BAD_NAME", 18, 'dp.table: "no good" is not a name for a dataset or flow'),
        ("EXPECTATION_ALONE", 12, "an expectation on a function that declares no dataset"),
    ]


def test_two_rules_of_a_name_are_a_problem_and_the_same_rule_over_two_flows_is_one(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp

    @dp.table
    @dp.expect("a", "x > 0")
    @dp.expect_or_drop("a", "y > 0")
    @dp.expect_unique("a", ["x"])
    def twice(): ...

    dp.create_streaming_table("target")
    for name in ["one", "two"]:
        @dp.append_flow(target="target", name=name)
        @dp.expect("same", "x > 0")
        def flow(): ...
    """
    found = loaded(make_project, text)
    problems = [p for p in graph.problems(found.pipeline) if p.code == "EXPECTATION_TWICE"]
    assert [p.where.line for p in problems if p.where] == [5, 6]
    assert [e.name for e in found.pipeline.datasets[1].expectations] == ["same"]


CHANGES = """
{imported}
from pyspark.sql.functions import col, expr, struct

dp.create_streaming_table("people")
dp.create_auto_cdc_flow(
    target="people", source="feed", keys=["id"], sequence_by=col("at"), apply_as_deletes=expr("op = 'D'"),
    except_column_list=["op", col("at")], stored_as_scd_type="2", track_history_except_column_list=["seen"],
    ignore_null_updates=True,
)
dp.create_streaming_table("names")
dp.create_auto_cdc_flow("names", "LIVE.feed", [col("id")], "at", apply_as_truncates="op = 'T'", name="other", once=True)

dp.create_streaming_table("states")
dp.create_auto_cdc_from_snapshot_flow(target="states", source="feed", keys=["id"], stored_as_scd_type=2)

dp.create_streaming_table("versions")

def next_version(latest):
    return (spark.read.table("feed"), 1)

dp.create_auto_cdc_from_snapshot_flow("versions", next_version, ["id"], "SCD_TYPE_1")

@dp.temporary_view
def feed():
    return spark.readStream.format("rate").load()
"""


@WAYS
def test_changes_by_key(make_project: MakeProject, imported: str, with_spark: bool) -> None:
    if with_spark:  # Columns are made by a JVM, which none of these tests needs otherwise
        text = CHANGES.replace("from pyspark.sql.functions import col, expr, struct", "col = expr = lambda text: text")
    else:
        text = CHANGES
    found = loaded(make_project, text.format(imported=imported), with_spark)
    assert (told(found), found.notes) == ([], ())
    people, names, states, versions, _ = found.pipeline.flows
    assert (people.name, people.target, people.inputs, people.inputs_known) == ("people", "people", ("feed",), True)
    assert people.where.line == 5
    changes = people.changes
    assert changes is not None
    assert (changes.keys, changes.scd_type, changes.snapshot, changes.ignore_null_updates) == (("id",), 2, False, True)
    assert changes.columns is None
    assert len(changes.except_columns) == 2
    assert changes.deletes is not None
    assert changes.track_history_except == ("seen",)
    assert names.changes is not None
    assert (names.name, names.once, names.inputs, names.changes.sequence_by) == ("other", True, ("feed",), "at")
    assert states.changes is not None
    assert (states.changes.snapshot, states.changes.sequence_by, states.inputs) == (True, None, ("feed",))
    assert versions.changes is not None
    assert callable(versions.changes.source)
    assert versions.inputs == ("feed",), "what the function reads"
    assert graph.problems(found.pipeline) == []
    codes = {p.code for p in refused(found.pipeline)}
    assert codes <= {"CHANGES_NOT_SUPPORTED", "ONCE_NOT_SUPPORTED"}


def test_faulty_changes(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp
    dp.create_auto_cdc_flow(target="t", source="s", keys=[], sequence_by="a")
    dp.create_auto_cdc_flow(target="t", source="s", keys=["a"])
    dp.create_auto_cdc_flow(target="t", keys=["a"], sequence_by="a")
    dp.create_auto_cdc_flow("t", "s", ["a"], "a", stored_as_scd_type=3)
    dp.create_auto_cdc_flow("t", "s", ["a"], "a", column_list=["a"], except_column_list=["b"])
    dp.create_auto_cdc_flow("t", "s", ["a"], "a", track_history_column_list=["a"])
    dp.create_auto_cdc_flow("t", "s", ["a"], 3)
    dp.create_auto_cdc_flow("t", "s", ["a"], "a", where="x > 0")
    dp.create_auto_cdc_flow("t", "s", ["a"], "a", apply_as_delete="x")
    dp.create_auto_cdc_from_snapshot_flow("t", 3, ["a"])
    dp.create_auto_cdc_flow("t", lambda v: v, ["a"], "a")
    """
    assert told(loaded(make_project, text)) == [
        ("PROJECT_MISSING_ARGUMENT", 2, "dp.create_auto_cdc_flow: keys is missing"),
        ("PROJECT_MISSING_ARGUMENT", 3, "dp.create_auto_cdc_flow: sequence_by is missing"),
        ("PROJECT_MISSING_ARGUMENT", 4, "dp.create_auto_cdc_flow: source is missing"),
        ("PROJECT_BAD_ARGUMENT", 5, "dp.create_auto_cdc_flow: stored_as_scd_type is 1 or 2, not 3"),
        (
            "PROJECT_BAD_ARGUMENT",
            6,
            "dp.create_auto_cdc_flow: column_list and except_column_list cannot both be given",
        ),
        ("PROJECT_BAD_ARGUMENT", 7, "dp.create_auto_cdc_flow: only a table of SCD type 2 has a history to track"),
        ("PROJECT_BAD_ARGUMENT", 8, "dp.create_auto_cdc_flow: sequence_by must be SQL text or a Column, not int"),
        ("PROJECT_BAD_ARGUMENT", 9, "dp.create_auto_cdc_flow: where is not supported"),
        ("PROJECT_UNKNOWN_ARGUMENT", 10, 'dp.create_auto_cdc_flow: unknown argument "apply_as_delete"'),
        (
            "PROJECT_BAD_ARGUMENT",
            11,
            "dp.create_auto_cdc_from_snapshot_flow: source must be the name of a dataset, or a function that gives "
            "snapshots, not int",
        ),
        ("PROJECT_BAD_ARGUMENT", 12, "dp.create_auto_cdc_flow: source must be the name of a dataset, not function"),
    ]


def test_changes_where_they_cannot_go(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp
    dp.create_streaming_table("t")
    @dp.foreach_batch_sink(name="s")
    def function(df, batch_id):
        pass
    dp.create_auto_cdc_flow("t", "s3.feed", ["a"], "a", name="by_key")
    dp.create_auto_cdc_flow("s", "s3.feed", ["a"], "a")
    @dp.append_flow(target="t")
    def rows():
        return spark.readStream.table("s3.feed")
    """
    found = loaded(make_project, text)
    assert told(found) == []
    problems = [*graph.problems(found.pipeline), *refused(found.pipeline)]
    assert [(p.code, p.where.line) for p in problems if p.where] == [("CHANGES_AND_ROWS", 9), ("CHANGES_INTO_SINK", 7)]


@WAYS
def test_flows_and_sinks(make_project: MakeProject, imported: str, with_spark: bool) -> None:
    text = f"""
    {imported}

    @dp.append_flow(target="t", once=True, comment="old rows")
    def history():
        return spark.read.format("parquet").load("old")

    @dp.update_flow(target="out", name="totals")
    def counted():
        return spark.readStream.table("t").groupBy("a").count()

    for region in ["eu", "us"]:
        @dp.foreach_batch_sink(name=f"out_{{region}}")
        def send(df, batch_id):
            return region

    @dp.foreach_batch_sink()
    def out(df, batch_id): ...

    @dp.foreach_batch_sink
    def bare(df, batch_id): ...

    dp.create_streaming_table("t")
    """
    found = loaded(make_project, text, with_spark)
    assert told(found) == []
    history, counted = found.pipeline.flows
    assert (history.once, history.mode, history.comment) == (True, "append", "old rows")
    assert (counted.once, counted.mode, counted.name, counted.inputs) == (False, "update", "totals", ("t",))
    sinks = [d for d in found.pipeline.datasets if d.kind is Kind.SINK]
    assert [(d.name, d.format) for d in sinks] == [
        (name, "foreach_batch") for name in ("out_eu", "out_us", "out", "bare")
    ]
    handlers: list[Any] = [d.handler for d in sinks]
    assert [handler(None, 0) for handler in handlers[:2]] == ["eu", "us"], "each with its own value of the loop"
    assert refused(found.pipeline) == []


def test_a_batch_sink_takes_two_arguments(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp
    @dp.foreach_batch_sink(name="x")
    def out(df): ...
    """
    assert told(loaded(make_project, text)) == [
        ("PROJECT_BAD_ARGUMENT", 2, "dp.foreach_batch_sink: the function must take a DataFrame and a number")
    ]


@pytest.mark.parametrize("with_spark", [False, True])
def test_the_earlier_names_of_dlt(make_project: MakeProject, with_spark: bool) -> None:
    text = """
    import dlt
    from dlt import read_stream

    @dlt.view
    def raw():
        return spark.readStream.format("rate").load()

    @dlt.table(comment="c", temporary=True, path="/x", row_filter="f", cluster_by_auto=False)
    @dlt.expect_or_drop("valid", "value > 0")
    def clean():
        return dlt.read_stream("raw").join(dlt.read("LIVE.lookup"), "id")

    @dlt.table(name="LIVE.lookup")
    def _():
        return spark.readStream.table("LIVE.raw").union(spark.sql("SELECT * FROM STREAM(live.raw)"))

    dlt.create_target_table("a")
    dlt.create_streaming_live_table("b")
    dlt.apply_changes(target="a", source="clean", keys=["id"], sequence_by="at")
    dlt.apply_changes_from_snapshot(target="b", source="clean", keys=["id"], stored_as_scd_type=1)
    """
    found = loaded(make_project, text, with_spark)
    assert told(found) == []
    datasets = {d.name: d for d in found.pipeline.datasets}
    assert [(name, d.kind) for name, d in datasets.items()] == [
        ("raw", Kind.TEMPORARY_VIEW),
        ("clean", Kind.STREAMING_TABLE),
        ("lookup", Kind.STREAMING_TABLE),
        ("a", Kind.STREAMING_TABLE),
        ("b", Kind.STREAMING_TABLE),
    ]
    assert datasets["clean"].options == {"path": "/x"}
    assert [f.inputs for f in found.pipeline.flows] == [(), ("raw", "lookup"), ("raw",), ("clean",), ("clean",)]
    (warning,) = [w for w in graph.warnings(found.pipeline) if w.code == "SETTING_IGNORED"]
    assert warning.message.startswith('"clean": ignored: temporary (')
    assert "row_filter" in warning.message
    assert "cluster_by_auto" not in warning.message


def test_nothing_stays_behind(make_project: MakeProject) -> None:
    from pyspark import pipelines

    before = dict(vars(pipelines))
    installed = sys.modules.get("dlt")
    load_pipeline(make_project({"pipelines/a.py": RULES.format(imported="import dlt as dp")}), with_spark=True)
    assert dict(vars(pipelines)) == before
    assert sys.modules.get("dlt") is installed


def test_a_module_of_the_project_called_dlt_is_its_own(make_project: MakeProject) -> None:
    project = make_project({"pipelines/a.py": "import dlt\nassert dlt.MINE == 1\n", "dlt.py": "MINE = 1\n"})
    load_pipeline(project, with_spark=False)


def test_names_that_dlt_does_not_have(make_project: MakeProject) -> None:
    found = loaded(make_project, "import dlt\n@dlt.tabel\ndef a(): ...\n")
    assert [(p.code, p.hint) for p in found.problems] == [("PROJECT_UNKNOWN_NAME", 'did you mean "table"?')]


@pytest.mark.parametrize("with_spark", [False, True])
def test_arguments_of_databricks_are_taken(make_project: MakeProject, with_spark: bool) -> None:
    text = """
    from pyspark import pipelines as dp

    @dp.materialized_view(private=True, refresh_policy="auto", schema="a INT", path="/lake/x")
    def a():
        return spark.read.table("s.t")

    dp.create_streaming_table("b", spark_conf={"x": "y"}, row_filter="f")

    @dp.temporary_view(private=True)
    def c(): ...
    """
    found = loaded(make_project, text, with_spark)
    assert told(found) == [("PROJECT_UNKNOWN_ARGUMENT", 9, 'dp.temporary_view: unknown argument "private"')]
    a, b, _ = found.pipeline.datasets
    assert [text.partition(" ")[0] for text in a.ignored] == ["private", "refresh_policy"]
    assert [text.partition(" ")[0] for text in b.ignored] == ["row_filter", "spark_conf"]
    assert a.options == {"path": "/lake/x"}


def test_decorators_of_the_user_may_stand_between(make_project: MakeProject) -> None:
    text = """
    import functools
    import dlt

    def mine(function):
        @functools.wraps(function)
        def wrapped():
            return function()
        return wrapped

    @dlt.table
    @mine
    @dlt.expect("below", "a")
    def one(): ...

    @dlt.expect("above", "a")
    @mine
    @dlt.table
    def two(): ...

    @dlt.table
    @dlt.expect("own", "a")
    @functools.wraps(one)
    def three(): ...
    """
    found = loaded(make_project, text.replace("wraps(one)", "wraps(one, assigned=[])"))
    assert told(found) == []
    assert [[e.name for e in d.expectations] for d in found.pipeline.datasets] == [["below"], ["above"], ["own"]]


def test_declared_by_calls_over_methods(make_project: MakeProject) -> None:
    text = """
    import dlt

    class Spec:
        def __init__(self, name):
            self.name = name

        def read(self):
            return spark.readStream.table("landing.raw")

        def declare(self):
            table = dlt.table(self.read, name=self.name, comment="c", path=None)
            dlt.expect_all_or_drop({"rule_of_" + self.name: "x > 0"})(table)
            dlt.append_flow(name=self.name + "_more", target=self.name)(self.read)

    for name in ("a", "b"):
        Spec(name).declare()
    """
    found = loaded(make_project, text)
    assert told(found) == []
    assert [(d.name, [e.name for e in d.expectations]) for d in found.pipeline.datasets] == [
        ("a", ["rule_of_a"]),
        ("b", ["rule_of_b"]),
    ]
    assert [f.inputs for f in found.pipeline.flows] == [("landing.raw",)] * 4


@pytest.mark.parametrize("with_spark", [False, True])
def test_a_table_of_dlt_over_a_batch_query_is_a_materialized_view(make_project: MakeProject, with_spark: bool) -> None:
    code = """
        import dlt
        from pyspark.sql.functions import col, sum as total

        @dlt.table
        def events():
            return spark.readStream.format("json").schema("id INT").load("/landing")

        @dlt.table(name="totals", comment="by id")
        @dlt.expect_or_drop("has_id", "id IS NOT NULL")
        def made():
            return dlt.read("events").groupBy("id").agg(total(col("id")).alias("n"))

        @dlt.table
        def recent():
            return dlt.read_stream("events").where("id > 1")

        def helper():
            return dlt.read_stream("events")

        @dlt.table
        def unknown():
            return helper().select("id")
    """
    loaded = load_pipeline(make_project({"pipelines/a.py": code}), with_spark=with_spark)
    kinds = {d.name: d.kind.value for d in loaded.pipeline.datasets}
    assert kinds == {
        "events": "streaming table",
        "totals": "materialized view",
        "recent": "streaming table",
        "unknown": "streaming table",
    }
    assert [e.name for d in loaded.pipeline.datasets if d.name == "totals" for e in d.expectations] == ["has_id"]
