"""The border around flows: errors of ours that cross it from a worker, and settings that stay on their side of it."""

from __future__ import annotations

import errno
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.engine import epoch
from anabranch.engine.worker_errors import from_worker, marked
from anabranch.errors import DataError, SinkError, UserCodeError

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

TABLE = """
@dp.table(partition_cols=["day"])
def days():
    numbers = spark.readStream.schema("id INT, year INT").json(LANDING)
    return numbers.select("id", F.make_date("year", F.lit(1), F.lit(1)).alias("day"))
"""


@pytest.mark.parametrize("small", [1 << 20, -1], ids=["driver", "workers"])
def test_an_error_of_ours_is_itself_wherever_it_was_raised(
    made: Made, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(epoch, "SMALL_BYTES", small)
    made.write(TABLE)
    made.feed([{"id": 1, "year": 2024}, {"id": 2, "year": 10_000}])
    with pytest.raises(DataError) as caught:
        made.run()
    assert caught.value.code == "PARTITION_VALUE_UNSUPPORTED"
    assert caught.value.message == "a partition value of type date32[day] is outside the years 1 to 9999"
    assert "partition by a column whose dates lie in that range" in (caught.value.hint or "")
    assert caught.value.exit_code == 4


def test_a_full_disk_under_a_worker_is_told_as_that() -> None:
    with pytest.raises(SinkError) as caught, marked():
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/x")
    again = from_worker("".join(traceback.format_exception(caught.value)))
    assert again is not None
    assert (type(again), again.code, again.retryable) == (SinkError, "DISK_FAILED", True)
    with pytest.raises(FileNotFoundError), marked():
        raise FileNotFoundError(errno.ENOENT, "No such file", "/lake/x")


def test_an_error_of_the_users_own_in_a_worker_is_told_with_its_line(made: Made) -> None:
    made.write(
        """
        @F.udf("INT")
        def half(number):
            return 1 // (number - 1)

        @dp.table
        def halves():
            return spark.readStream.schema("id INT").json(LANDING).select(half("id").alias("half"))
        """
    )
    made.feed([{"id": 1}])
    with pytest.raises(UserCodeError) as caught:
        made.run()
    assert caught.value.code == "FLOW_FAILED"
    assert "ZeroDivisionError" in caught.value.message
    text = (made.root / "transformations" / "pipeline.py").read_text().splitlines()
    assert caught.value.where is not None
    assert "1 // (number - 1)" in text[caught.value.where.line - 1]


def test_the_settings_of_a_flow_hold_while_it_is_called_and_no_longer(made: Made, spark: Any) -> None:
    seen, unset, known = "spark.anabranch.test.seen", "spark.anabranch.test.unset", "spark.sql.ansi.enabled"
    ansi = spark.conf.get(known)
    spark.conf.set(seen, "before")
    try:
        made.write(
            f"""
            def told(key, name):
                return F.lit(spark.conf.get(key, "none")).alias(name)

            @dp.temporary_view
            def numbers():
                return spark.readStream.schema("id STRING").json(LANDING)

            @dp.table(spark_conf={{{seen!r}: "inside", {unset!r}: "inside", {known!r}: "false"}})
            def lenient():
                numbers = spark.readStream.table("numbers").select(F.col("id").cast("INT").alias("id"))
                return numbers.select("id", told({seen!r}, "seen"), told({unset!r}, "unset"))

            @dp.table
            def other():
                return spark.readStream.table("numbers").select(told({seen!r}, "seen"), told({unset!r}, "unset"))
            """
        )
        made.feed([{"id": "seven"}])
        made.run()
        assert made.rows("lenient") == [{"id": None, "seen": "inside", "unset": "inside"}]
        assert made.rows("other") == [{"seen": "before", "unset": "none"}]
        assert (spark.conf.get(seen), spark.conf.get(unset, None), spark.conf.get(known)) == ("before", None, ansi)
    finally:
        spark.conf.unset(seen)


def test_settings_are_put_back_when_the_flow_fails(made: Made, spark: Any) -> None:
    made.write(
        """
        @dp.table(spark_conf={"spark.anabranch.test.failing": "inside"})
        def failing():
            raise ValueError("no")
        """
    )
    with pytest.raises(Exception, match="1 problem"):
        made.run()
    assert spark.conf.get("spark.anabranch.test.failing", None) is None
