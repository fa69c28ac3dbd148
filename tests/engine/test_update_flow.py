"""Aggregations without a watermark: each epoch gives the groups that it changed, over restarts and crashes.

The model counts in plain Python what has been fed up to each file.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.core import crash
from anabranch.errors import AnabranchError, ProjectErrors

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
import json
from pathlib import Path

CALLS = Path(LANDING).parent / "calls.jsonl"

@dp.temporary_view
def landing():
    reader = spark.readStream.schema("user STRING, amount INT, at TIMESTAMP").option("maxFilesPerTrigger", 1)
    return reader.json(LANDING)

@dp.table
def log():
    return spark.readStream.table("landing").select("user", "amount")

@dp.foreach_batch_sink(name="totals")
def totals(df, batch_id):
    with CALLS.open("a") as file:
        file.write(json.dumps([batch_id, {r.user: [r.n, r.sum] for r in df.collect()}]) + "\\n")

@dp.update_flow(target="totals")
def per_user():
    return spark.readStream.table("landing").groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("sum"))
"""
SECOND = """
dp.create_sink("sizes", "delta", {"path": "sizes"})

@dp.update_flow(target="sizes")
def by_amount():
    return spark.readStream.table("log").groupBy("amount").count()
"""

FILES: list[list[tuple[str, int]]] = [
    [("ann", 1), ("bob", 2), ("ann", 3)],
    [("bob", 5)],
    [("cyd", 1), ("ann", 1)],
    [("bob", 2), ("dee", 2), ("dee", 2)],
]


def feed(made: Made, *files: list[tuple[str, int]]) -> None:
    for rows in files:
        made.feed({"user": user, "amount": n, "at": "2024-01-01T00:00:00Z"} for user, n in rows)


def changed(files: list[list[tuple[str, int]]]) -> list[tuple[int, dict[str, list[int]]]]:
    """What each epoch changes, and to what."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    found = []
    for number, rows in enumerate(files):
        for user, amount in rows:
            counts[user] += 1
            sums[user] += amount
        found.append((number, {user: [counts[user], sums[user]] for user, _ in rows}))
    return found


def calls(made: Made) -> list[tuple[int, Any]]:
    return [tuple(json.loads(line)) for line in (made.root / "calls.jsonl").read_text().splitlines()]


def sizes(files: list[list[tuple[str, int]]]) -> Counter[tuple[int, int]]:
    """Every row that was ever given: one for each amount and epoch that changed it."""
    counts: Counter[int] = Counter()
    given: Counter[tuple[int, int]] = Counter()
    for rows in files:
        counts.update(n for _, n in rows)
        given.update({(n, counts[n]) for _, n in rows})
    return given


def test_every_epoch_gives_the_groups_it_changed(made: Made) -> None:
    made.write(HEAD)
    for number, rows in enumerate(FILES):  # each run starts anew from the checkpoint
        feed(made, rows)
        made.run()
        assert calls(made) == changed(FILES[: number + 1])
    assert Counter((r["user"], r["amount"]) for r in made.rows("log")) == Counter(r for rows in FILES for r in rows)


def test_two_update_flows_and_a_table_in_one_channel(made: Made) -> None:
    made.write(HEAD + SECOND)
    feed(made, *FILES[:2])
    made.run()
    feed(made, *FILES[2:])
    made.run()
    assert calls(made) == changed(FILES)
    assert Counter((r["amount"], r["count"]) for r in made.rows("sizes")) == sizes(FILES)


@pytest.mark.parametrize("point", ["staged", "decided", "committed(totals)", "published"])
def test_state_goes_with_the_epochs_over_crashes(made: Made, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    made.write(HEAD + SECOND)
    feed(made, *FILES[:3])
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise@2")
        with pytest.raises(Exception, match="crash point"):
            made.run()
    feed(made, *FILES[3:])
    made.run()
    assert calls(made) == changed(FILES)
    assert Counter((r["amount"], r["count"]) for r in made.rows("sizes")) == sizes(FILES)


def problem(made: Made, code: str) -> AnabranchError:
    made.write(code)
    feed(made, *FILES)
    with pytest.raises(AnabranchError) as caught:
        made.run()
    if isinstance(caught.value, ProjectErrors):
        (found,) = caught.value.problems
        return found
    return caught.value


def test_beside_state_that_appends_it_is_refused(made: Made) -> None:
    users = '@dp.table\ndef users():\n    return spark.readStream.table("landing").dropDuplicates(["user"])\n'
    found = problem(made, HEAD + users)
    assert found.code == "UPDATE_BESIDE_APPEND"
    assert '"users"' in found.message
    assert "second project" in (found.hint or "")


def test_a_table_keeps_every_row_so_it_is_refused(made: Made) -> None:
    table = 'dp.create_streaming_table("kept")\n@dp.update_flow(target="kept")\ndef f():\n'
    found = problem(made, HEAD + table + '    return spark.readStream.table("landing").groupBy("user").count()\n')
    assert found.code == "UPDATE_NOT_SUPPORTED"
    assert "foreach_batch_sink" in (found.hint or "")


def test_an_append_flow_is_told_of_update_flows(made: Made) -> None:
    found = problem(made, HEAD.replace("@dp.update_flow", "@dp.append_flow"))
    assert found.code == "AGGREGATE_WITHOUT_WATERMARK"
    assert "update_flow" in (found.hint or "")
