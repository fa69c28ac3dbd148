"""Who may read a table that is changed by key: views of the cut, and no stream, its name plain or computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch.errors import ProjectErrors

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
@dp.temporary_view
def changes():
    return spark.readStream.schema("id INT, city STRING, at INT").json(LANDING)

dp.create_streaming_table("people")
dp.create_auto_cdc_flow(target="people", source="changes", keys=["id"], sequence_by="at")
"""
VIEW = """
@dp.temporary_view
def cities():
    return spark.read.table("people").select("city")

@dp.materialized_view
def counted():
    return spark.read.table("cities").groupBy("city").count()
"""


@pytest.mark.parametrize("name", ['"people"', '"".join(["peo", "ple"])'], ids=["plain", "computed"])
@pytest.mark.parametrize("reader", ["spark.readStream", "spark.read"])
def test_a_stream_over_it_is_refused(made: Made, name: str, reader: str) -> None:
    made.write(HEAD + f"\n@dp.table\ndef copied():\n    return {reader}.table({name})\n")
    made.feed([{"id": 1, "city": "Rome", "at": 1}])
    with pytest.raises(ProjectErrors) as caught:
        made.run()
    (problem,) = caught.value.problems
    assert problem.code == "CHANGES_READ_AS_STREAM"
    assert '"copied" reads "people"' in problem.message
    assert "materialized view" in (problem.hint or "")
    assert problem.where is not None


def test_a_view_of_the_cut_over_it_runs(made: Made) -> None:
    made.write(HEAD + VIEW)
    made.feed({"id": n, "city": "Rome" if n % 2 else "Oslo", "at": n} for n in range(1, 6))
    made.feed([{"id": 1, "city": "Oslo", "at": 9}])
    made.run()
    assert {row["city"]: row["count"] for row in made.rows("counted")} == {"Rome": 2, "Oslo": 3}
