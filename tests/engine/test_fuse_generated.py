"""Flows and data that nobody thought of: in one pass they give what Spark gives for each alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))

from together import same

pytestmark = pytest.mark.spark

#: Every column, with the kind of value that tells where it may be used.
COLUMNS = {
    "i": "INT",
    "j": "INT",
    "x": "DOUBLE",
    "s": "STRING",
    "w": "STRUCT<name: STRING, n: INT>",
    "tags": "ARRAY<STRING>",
    "nums": "ARRAY<INT>",
    "grid": "ARRAY<ARRAY<INT>>",
    "items": "ARRAY<STRUCT<name: STRING, n: INT>>",
    "props": "MAP<STRING, INT>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
NUMBERS = st.sampled_from([None, 0, 1, 2, 3, -1, 2**31 - 1, -(2**31)])
TEXTS = st.sampled_from([None, "", "a", "B b", "1", "12", "é"])
STRUCTS = st.one_of(st.none(), st.tuples(TEXTS, NUMBERS))


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.lists(of, max_size=3))


ROW = st.tuples(
    NUMBERS,
    st.integers(0, 3),
    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300]),
    TEXTS,
    STRUCTS,
    lists(TEXTS),
    lists(NUMBERS),
    lists(lists(NUMBERS)),
    lists(STRUCTS),
    st.one_of(st.none(), st.dictionaries(st.sampled_from("kl"), NUMBERS, max_size=2)),
)

#: Expressions by the kind of their value; {INT} is any expression of that kind. The last few may raise; not if they
#: are constant, as that Spark finds out when it plans.
GRAMMAR: dict[str, list[str]] = {
    "INT": [
        *(
            "1",
            "2",
            "size({ARRAY<INT>})",
            "length({STRING})",
            "({STRUCT<name: STRING, n: INT>}).n",
            "coalesce({INT}, {INT})",
        ),
        *("if({BOOLEAN}, {INT}, {INT})", "({MAP<STRING, INT>})['k']", "try_add({INT}, {INT})"),
        *("{INT} + 1", "{INT} * {INT}", "{INT} DIV {INT}", "({ARRAY<INT>})[1]", "cast({STRING} AS INT)"),
    ],
    "DOUBLE": ["0.5D", "cast({INT} AS DOUBLE)", "try_divide({INT}, {INT})", "{DOUBLE} * 2", "{INT} / {INT}"],
    "STRING": [
        *("'7'", "upper({STRING})", "concat({STRING}, {STRING})", "cast({INT} AS STRING)", "nullif({STRING}, 'a')"),
        *("({STRUCT<name: STRING, n: INT>}).name", "case when {BOOLEAN} then {STRING} end", "({ARRAY<STRING>})[0]"),
    ],
    "BOOLEAN": [
        *("{INT} > 0", "{INT} = {INT}", "{STRING} = 'a'", "{INT} IS NULL", "NOT {BOOLEAN}", "{INT} IN (1, 2, NULL)"),
        *("{BOOLEAN} AND {BOOLEAN}", "{BOOLEAN} OR {BOOLEAN}", "{STRING} RLIKE '^[0-9]+$'", "isnan({DOUBLE})"),
        *("{ARRAY<STRING>} IS NOT NULL", "1 / {INT} > 0.4"),
    ],
    "ARRAY<INT>": ["array(1, {INT})", "({ARRAY<ARRAY<INT>>})[0]", "map_values({MAP<STRING, INT>})", "sequence(1, 2)"],
    "ARRAY<STRING>": [
        "split({STRING}, ' ')",
        "map_keys({MAP<STRING, INT>})",
        "{ARRAY<STRUCT<name: STRING, n: INT>>}.name",
    ],
    "STRUCT<name: STRING, n: INT>": ["named_struct('name', {STRING}, 'n', {INT})"],
}
GENERATORS = {
    "ARRAY<STRING>": ("STRING",),
    "ARRAY<INT>": ("INT",),
    "ARRAY<ARRAY<INT>>": ("ARRAY<INT>",),
    "ARRAY<STRUCT<name: STRING, n: INT>>": ("STRUCT<name: STRING, n: INT>",),
    "MAP<STRING, INT>": ("STRING", "INT"),
}


STEPS = [
    "add",
    "where",
    "explode",
    "explode",
    "select",
    "rename",
    "drop",
    "view",
    "replace",
    "divide",
    "guard",
    "guard",
]


@dataclass(frozen=True)
class Flow:
    """A frame and the kinds of its columns."""

    frame: DataFrame
    kinds: dict[str, str]

    def of(self, kind: str) -> list[str]:
        return [name for name, its in self.kinds.items() if its == kind]


def expression(draw: st.DrawFn, flow: Flow, kind: str, depth: int = 2) -> str:
    columns = [f"`{name}`" for name in flow.of(kind)]
    made = GRAMMAR.get(kind, [])
    simple = [text for text in made if "{" not in text]
    if depth == 0 or not made or (columns and draw(st.booleans())):
        choices = columns or simple or [f"cast(null AS {kind})"]
        return draw(st.sampled_from(choices))
    text = draw(st.sampled_from(made))
    while "{" in text:
        start = text.index("{")
        end = text.index("}", start)
        text = text[:start] + expression(draw, flow, text[start + 1 : end], depth - 1) + text[end + 1 :]
    return f"({text})"


def step(draw: st.DrawFn, flow: Flow) -> Flow:
    """A flow with one more step."""
    frame, kinds = flow.frame, dict(flow.kinds)
    what = draw(st.sampled_from(STEPS))
    if what == "union" and len(flow.of("INT")) > 1 and draw(st.booleans()):
        one, other = (F.col(f"`{name}`") for name in flow.of("INT")[:2])
        chosen = frame.where(expression(draw, flow, "BOOLEAN", 1))
        return Flow(frame.select(one, other).union(chosen.select(other, one)), dict.fromkeys(flow.of("INT")[:2], "INT"))
    if what == "union":
        return Flow(frame.union(frame.where(expression(draw, flow, "BOOLEAN", 1))), kinds)
    if what in ("divide", "guard"):
        # What raises, and what keeps it from raising, in whatever order.
        number = draw(st.sampled_from(flow.of("INT") or ["j"]))
        if number not in kinds:
            return flow
        if what == "guard":
            return Flow(
                frame.where(draw(st.sampled_from([f"`{number}` != 0", f"`{number}` > 1", f"10 / `{number}` > 4"]))),
                kinds,
            )
        name = f"c{len(kinds)}"
        return Flow(frame.withColumn(name, F.expr(f"10 / `{number}`")), kinds | {name: "DOUBLE"})
    if what in ("add", "replace"):
        kind = draw(st.sampled_from(list(GRAMMAR)))
        own = flow.of(kind)
        name = draw(st.sampled_from(own)) if what == "replace" and own else f"c{len(kinds)}"
        return Flow(frame.withColumn(name, F.expr(expression(draw, flow, kind))), kinds | {name: kind})
    if what == "where":
        return Flow(frame.where(expression(draw, flow, "BOOLEAN")), kinds)
    if what == "explode":
        return exploded(draw, flow)
    if what == "select":
        names = draw(st.lists(st.sampled_from(list(kinds)), min_size=1, unique=True))
        return Flow(frame.select(*(F.col(f"`{n}`") for n in names)), {n: kinds[n] for n in names})
    if what == "rename":
        old, new = draw(st.sampled_from(list(kinds))), draw(st.sampled_from(["r e n", "a.b", "Ü", "x#1"]))
        return Flow(frame, kinds) if new in kinds else Flow(frame.withColumnRenamed(old, new), renamed(kinds, old, new))
    if what == "drop" and len(kinds) > 1:
        gone = draw(st.sampled_from(list(kinds)))
        return Flow(frame.drop(F.col(f"`{gone}`")), {n: k for n, k in kinds.items() if n != gone})
    frame.createOrReplaceTempView("generated")
    condition = expression(draw, flow, "BOOLEAN", 1)
    return Flow(frame.sparkSession.sql(f"SELECT g.* FROM generated AS g WHERE {condition}"), kinds)


def renamed(kinds: dict[str, str], old: str, new: str) -> dict[str, str]:
    return {(new if n == old else n): k for n, k in kinds.items()}


def exploded(draw: st.DrawFn, flow: Flow) -> Flow:
    found = [(name, kind) for name, kind in flow.kinds.items() if kind in GENERATORS]
    if not found:
        return flow
    name, kind = draw(st.sampled_from(found))
    how = draw(st.sampled_from(["explode", "explode_outer", "posexplode", "posexplode_outer"]))
    if "STRUCT" in kind and draw(st.booleans()):
        how, given = draw(st.sampled_from(["inline", "inline_outer"])), ("STRING", "INT")
    else:
        given = (*(("INT",) if how.startswith("pos") else ()), *GENERATORS[kind])
    new = [f"e{len(flow.kinds)}_{i}" for i in range(len(given))]
    kept = draw(st.sampled_from(["*", "j"])) if "j" in flow.kinds else "*"
    frame = flow.frame.select(kept, getattr(F, how)(F.col(f"`{name}`")).alias(*new))
    kinds = flow.kinds if kept == "*" else {"j": flow.kinds["j"]}
    return Flow(frame, kinds | dict(zip(new, given, strict=True)))


@st.composite
def flows(draw: st.DrawFn, base: DataFrame, most: int) -> dict[str, DataFrame]:
    """Flows that stand on the base or on each other."""
    made = [Flow(base, COLUMNS)]
    for _ in range(draw(st.integers(2, most))):
        flow = draw(st.sampled_from(made))
        for _ in range(draw(st.integers(1, 5))):
            flow = step(draw, flow)
        made.append(flow)
    return {f"f{number}": flow.frame for number, flow in enumerate(made[1:])}


def check(spark: Any, data: st.DataObject, most: int) -> None:
    rows = data.draw(st.lists(ROW, max_size=5), label="rows")
    frames = data.draw(flows(spark.createDataFrame(rows, SCHEMA), most))
    program = same(frames)
    assert set(program.how.values()) == {"fused"}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_generated_flows_equal_each_alone(spark: Any, data: st.DataObject) -> None:
    check(spark, data, most=5)
