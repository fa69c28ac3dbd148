"""Files with names that look like globs: Spark's file source reads their neighbours twice."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import DataError
from native.native_project import native

pytestmark = pytest.mark.spark

CODE = """
@dp.temporary_view
def landing():
    return spark.readStream.schema("id INT").json(LANDING).select("id", "_metadata.file_name")

@dp.table
def everything():
    return spark.readStream.table("landing").select("*", F.current_timestamp().alias("at"))

@dp.table
def odd():
    return spark.readStream.table("landing").where("id % 2 = 1")
"""
STATEFUL = """
@dp.table
def once():
    return spark.readStream.table("landing").dropDuplicates(["id"])
"""


@pytest.fixture
def odd_names(made: Any) -> Any:
    for number in range(4):
        made.feed([{"id": number}, {"id": 10 + number}])
    for old, new in {"0001": "a [1]", "0002": "{b}"}.items():
        (made.landing / f"{old}.json").rename(made.landing / f"{new}.json")
    return made


@pytest.mark.parametrize("mode", ["false", "true"])
def test_each_row_is_there_once(odd_names: Any, spark: Any, mode: str) -> None:
    odd_names.write(CODE)
    with native(spark, mode):
        odd_names.run()
        odd_names.feed([{"id": 21}])
        odd_names.run()
    rows = odd_names.rows("everything")
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3, 10, 11, 12, 13, 21]
    assert len({row["file_name"] for row in rows}) == 5
    assert sorted(row["id"] for row in odd_names.rows("odd")) == [1, 3, 11, 13, 21]
    assert len({row["at"] for row in rows if row["id"] != 21}) == 1, "an epoch has one time"


def test_beside_state_it_is_refused_before_anything_is_written(odd_names: Any) -> None:
    odd_names.write(CODE + STATEFUL)
    with pytest.raises(DataError) as refused:
        odd_names.run()
    assert refused.value.code == "SOURCE_NAMES_LIKE_GLOBS"
