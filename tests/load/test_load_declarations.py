"""Every way of declaring, through our module and through Spark's, with and without pyspark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch import pipelines as dp
from anabranch.core.declarations import Dataset, Kind
from anabranch.errors import ProjectError, ProjectErrors
from anabranch.load.project import Project
from anabranch.load.python_files import Loaded, examine_pipeline, load_pipeline

ALL_FORMS = """
from {package} import pipelines as dp
from pyspark.sql import DataFrame

@dp.table
def bare() -> DataFrame:
    return spark.readStream.table("source")

@dp.table()
def called():
    return spark.readStream.table("bare")

@dp.table(
    name="db.named", comment="all of it", spark_conf={{"a": "b"}}, table_properties={{"quality": "silver"}},
    partition_cols=["day"], cluster_by=["id"], schema="id BIGINT, day DATE", format="parquet",
)

def any_name():
    return spark.readStream.table("called")

@dp.materialized_view
def view():
    return spark.read.table("called")

@dp.materialized_view(name="other_view", format="delta")
def _view():
    return spark.table("view")

@dp.temporary_view
def step():
    return spark.readStream.table("bare")

@dp.temporary_view(name="other_step", comment="c", spark_conf={{"x": "y"}})
def _step():
    return spark.readStream.table("step")

dp.create_streaming_table("target")
dp.create_streaming_table(
    name="full_target", comment="c", table_properties={{"p": "q"}}, partition_cols=["a"], schema="a INT", format="delta"
)
dp.create_sink("out", "kafka", {{"topic": "t", "kafka.bootstrap.servers": "h:1"}})
dp.create_sink(name="quiet", format="noop")

@dp.append_flow(target="target")
def first():
    return spark.readStream.table("step")

@dp.append_flow(target="target", name="second", spark_conf={{"c": "d"}})
def anything():
    return spark.readStream.table("other_step")

@dp.append_flow(target="out")
def to_kafka():
    return spark.readStream.table("bare")
"""

WAYS = pytest.mark.parametrize(
    ("package", "with_spark"),
    [("anabranch", False), ("pyspark", False), ("anabranch", True), ("pyspark", True)],
)
MakeProject = Callable[..., Project]


@WAYS
def test_every_form_gives_the_same_declarations(make_project: MakeProject, package: str, with_spark: bool) -> None:
    project = make_project({"pipelines/all.py": ALL_FORMS.format(package=package)})
    loaded = load_pipeline(project, with_spark=with_spark)
    assert loaded.notes == ()
    assert loaded.complete
    assert [(d.name, d.kind, d.where.line) for d in loaded.pipeline.datasets] == [
        ("bare", Kind.STREAMING_TABLE, 5),
        ("called", Kind.STREAMING_TABLE, 9),
        ("db.named", Kind.STREAMING_TABLE, 17),
        ("view", Kind.MATERIALIZED_VIEW, 21),
        ("other_view", Kind.MATERIALIZED_VIEW, 25),
        ("step", Kind.TEMPORARY_VIEW, 29),
        ("other_step", Kind.TEMPORARY_VIEW, 33),
        ("target", Kind.STREAMING_TABLE, 36),
        ("full_target", Kind.STREAMING_TABLE, 37),
        ("out", Kind.SINK, 40),
        ("quiet", Kind.SINK, 41),
    ]
    assert [(f.name, f.target, f.where.line, f.inputs, f.inputs_known) for f in loaded.pipeline.flows] == [
        ("bare", "bare", 5, ("source",), True),
        ("called", "called", 9, ("bare",), True),
        ("db.named", "db.named", 17, ("called",), True),
        ("view", "view", 21, ("called",), True),
        ("other_view", "other_view", 25, ("view",), True),
        ("step", "step", 29, ("bare",), True),
        ("other_step", "other_step", 33, ("step",), True),
        ("first", "target", 44, ("step",), True),
        ("second", "target", 48, ("other_step",), True),
        ("to_kafka", "out", 52, ("bare",), True),
    ]
    file = str(project.files[0])
    assert {d.where.file for d in loaded.pipeline.datasets} == {file}
    named = loaded.pipeline.datasets[2]
    assert named == Dataset(
        "db.named",
        Kind.STREAMING_TABLE,
        named.where,
        comment="all of it",
        schema="id BIGINT, day DATE",
        partition_by=("day",),
        cluster_by=("id",),
        format="parquet",
        properties={"quality": "silver"},
    )
    assert loaded.pipeline.datasets[0].format == "delta"
    assert loaded.pipeline.datasets[9].options == {"topic": "t", "kafka.bootstrap.servers": "h:1"}
    assert loaded.pipeline.flows[2].settings == {"a": "b"}
    assert loaded.pipeline.flows[8].settings == {"c": "d"}
    assert all(callable(flow.query) for flow in loaded.pipeline.flows)


def test_decorators_return_the_function(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp

    @dp.table
    def a():
        return 1

    @dp.temporary_view(name="x")
    def b():
        return 2

    dp.create_streaming_table("t")

    @dp.append_flow(target="t")
    def c():
        return 3

    assert (a(), b(), c()) == (1, 2, 3)
    """
    load_pipeline(make_project({"pipelines/a.py": text}), with_spark=False)


def examined(make_project: MakeProject, text: str, with_spark: bool = False) -> Loaded:
    return examine_pipeline(make_project({"pipelines/a.py": text}), with_spark=with_spark)


def told(loaded: Loaded) -> list[tuple[str, int, str, str | None]]:
    return [(p.code, p.where.line if p.where else 0, p.message, p.hint) for p in loaded.problems]


def test_every_faulty_argument_is_reported_with_its_line(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp

    @dp.table(nam="x")
    def a(): ...

    @dp.table(name=3, partition_cols="day", table_properties=["x"], schema=5)
    def b(): ...

    @dp.temporary_view(schema="a INT")
    def c(): ...

    @dp.append_flow(name="x")
    def d(): ...

    @dp.append_flow
    def e(): ...

    dp.create_sink("s", "kafka")
    dp.create_sink("s2")
    dp.create_streaming_table()
    dp.create_streaming_table("a/../b")

    @dp.table("named")
    def f(): ...

    @dp.table
    def g(spark): ...

    dp.materialized_view()(lambda: None)

    @dp.table
    class H: ...

    @dp.table(spark_conf={"a": None})
    def i(): ...
    """
    loaded = examined(make_project, text)
    assert [(code, line, message) for code, line, message, _ in told(loaded)] == [
        ("PROJECT_UNKNOWN_ARGUMENT", 3, 'dp.table: unknown argument "nam"'),
        ("PROJECT_BAD_ARGUMENT", 6, "dp.table: name must be text, not int"),
        ("PROJECT_BAD_ARGUMENT", 6, "dp.table: schema must be DDL text or a StructType, not int"),
        ("PROJECT_BAD_ARGUMENT", 6, "dp.table: partition_cols must be a list of column names, not str"),
        ("PROJECT_BAD_ARGUMENT", 6, "dp.table: table_properties must be a dict of text to text, not list"),
        ("PROJECT_UNKNOWN_ARGUMENT", 9, 'dp.temporary_view: unknown argument "schema"'),
        ("PROJECT_MISSING_ARGUMENT", 12, "dp.append_flow: target is missing"),
        ("PROJECT_MISSING_ARGUMENT", 15, "dp.append_flow: target is missing"),
        ("PROJECT_MISSING_ARGUMENT", 18, 'dp.create_sink: a sink of format "kafka" needs options'),
        ("PROJECT_MISSING_ARGUMENT", 19, "dp.create_sink: format is missing"),
        ("PROJECT_MISSING_ARGUMENT", 20, "dp.create_streaming_table: name is missing"),
        ("PROJECT_BAD_NAME", 21, 'dp.create_streaming_table: "a/../b" is not a name for a dataset or flow'),
        ("PROJECT_BAD_ARGUMENT", 23, "dp.table: the arguments are given by name only"),
        ("PROJECT_BAD_ARGUMENT", 26, "dp.table: the function needs an argument, spark"),
        ("PROJECT_MISSING_ARGUMENT", 29, "dp.materialized_view: name is missing"),
        ("PROJECT_BAD_ARGUMENT", 31, "dp.table: the decorated object must be a function, not type"),
        ("PROJECT_BAD_ARGUMENT", 34, "dp.table: spark_conf['a'] must be text, not NoneType"),
    ]
    assert loaded.complete, "a faulty declaration does not stop its file"
    assert all(problem.hint for problem in loaded.problems)
    assert told(loaded)[0][3] == 'did you mean "name"?'
    assert {d.name for d in loaded.pipeline.datasets} >= {"a", "named"}, "what else is right is still declared"


def test_values_as_users_write_them_become_text(make_project: MakeProject) -> None:
    text = """
    from anabranch import pipelines as dp
    dp.create_sink("s", "x", {"retries": 3, "flag": True, "rate": 0.5})
    dp.create_streaming_table("t", partition_cols=("a", "b"))
    """
    sink, table = examined(make_project, text).pipeline.datasets
    assert sink.options == {"retries": "3", "flag": "true", "rate": "0.5"}
    assert table.partition_by == ("a", "b")


@pytest.mark.parametrize("package", ["anabranch", "pyspark"])
def test_faults_found_through_the_real_pyspark(make_project: MakeProject, package: str) -> None:
    text = f"""
    from {package} import pipelines as dp

    dp.create_sink("s", "kafka")

    @dp.table(name="no good")
    def a(): ...
    """
    assert [(code, line) for code, line, *_ in told(examined(make_project, text, with_spark=True))] == [
        ("PROJECT_MISSING_ARGUMENT", 3),
        ("PROJECT_BAD_NAME", 5),
    ]


@WAYS
def test_names_that_do_not_exist(make_project: MakeProject, package: str, with_spark: bool) -> None:
    taken = examined(make_project, f"from {package} import pipelines as dp\n@dp.tabel\ndef a(): ...\n", with_spark)
    assert told(taken) == [("PROJECT_UNKNOWN_NAME", 2, 'pipelines has no "tabel"', 'did you mean "table"?')]
    text = f"from {package}.pipelines import tables\n"
    assert told(examined(make_project, text, with_spark)) == [
        ("PROJECT_UNKNOWN_NAME", 1, 'pipelines has no "tables"', 'did you mean "table"?')
    ]


def test_schemas_as_struct_types(make_project: MakeProject) -> None:
    text = """
    from pyspark import pipelines as dp
    from pyspark.sql import types as T
    schema = T.StructType([
        T.StructField("id", T.LongType(), False),
        T.StructField("a b", T.ArrayType(T.DecimalType(10, 2)), True, {"comment": "it's"}),
        T.StructField("deep", T.StructType([T.StructField("x", T.MapType(T.StringType(), T.DateType()))])),
    ])
    dp.create_streaming_table("t", schema=schema)
    """
    real = examined(make_project, text, with_spark=True).pipeline.datasets[0]
    assert real.schema == (
        "`id` BIGINT NOT NULL, `a b` ARRAY<DECIMAL(10,2)> COMMENT 'it\\'s', `deep` STRUCT<`x`: MAP<STRING, DATE>>"
    )
    loaded = examined(make_project, text)
    assert loaded.pipeline.datasets[0].schema is None, "not known without Spark, and no fault"
    assert (loaded.notes, loaded.problems) == ((), ())


def test_outside_a_load_the_way_out_is_told() -> None:
    with pytest.raises(ProjectError) as raised:
        dp.create_streaming_table("x")
    assert raised.value.code == "NOT_LOADING"
    assert "anabranch run" in str(raised.value.hint)
    assert raised.value.where is not None
    assert Path(raised.value.where.file).name == Path(__file__).name


def test_load_pipeline_raises_all_of_it(make_project: MakeProject) -> None:
    files = {
        "pipelines/a.py": "from anabranch import pipelines as dp\ndp.create_sink()\n",
        "pipelines/b.py": "import nothing_like_it\n",
        "pipelines/c.py": "def f(:\n",
    }
    with pytest.raises(ProjectErrors) as raised:
        load_pipeline(make_project(files), with_spark=False)
    assert [p.code for p in raised.value.problems] == [
        "PROJECT_MISSING_ARGUMENT",
        "PROJECT_MISSING_ARGUMENT",
        "PROJECT_IMPORT_FAILED",
        "PROJECT_PYTHON_SYNTAX",
    ]
