"""Sinks that are functions: what they are called with, in which epochs, and what a crash or an error does to that.

Every call is written down by the function itself, in a file beside the project; the model is the list of files fed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import read
from anabranch.cli.main import main
from anabranch.core import crash
from anabranch.core.selection import Selection
from anabranch.engine.run import run
from anabranch.errors import ProjectError, ProjectErrors, StateError, UserCodeError

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
import json
import os
import signal
from pathlib import Path

CALLS = Path(LANDING).parent / "calls.jsonl"
TROUBLE = Path(LANDING).parent / "trouble"

def note(sink, df, batch_id):
    rows = [list(row) for row in df.collect()]
    with CALLS.open("a") as file:
        file.write(json.dumps([sink, batch_id, rows]) + "\\n")

@dp.temporary_view
def landing():
    reader = spark.readStream.schema("id INT, kind STRING").option("maxFilesPerTrigger", 1)
    return reader.json(LANDING)

@dp.table
def everything():
    return spark.readStream.table("landing")
"""
ONE = """
@dp.foreach_batch_sink(name="out")
def out(df, batch_id):
    note("out", df, batch_id)
    trouble = TROUBLE.read_text() if TROUBLE.exists() else None
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "away" and len(CALLS.read_text().splitlines()) <= 2:
        raise ConnectionError("the other side is away")
    if trouble == "error":
        raise ValueError("this cannot be sent")

@dp.append_flow(target="out")
def odd():
    return spark.readStream.table("everything").where("id % 2 = 1")
"""
SECOND_FLOW = """
@dp.append_flow(target="out")
def large():
    return spark.readStream.table("landing").where("id > 100").select("id")
"""
SECOND_SINK = """
@dp.foreach_batch_sink
def copies(df, batch_id):
    note("copies", df, batch_id)
    for kind in ("a", "b"):  # one flow, two places
        note(f"copies_{kind}", df.where(df.kind == kind), batch_id)

@dp.append_flow(target="copies")
def all_of_them():
    return spark.readStream.table("landing")
"""

FILES = [[1, 2, 3], [4, 6], [5, 101, 102]]


def feed(made: Made, *files: list[int]) -> None:
    for numbers in files:
        made.feed({"id": n, "kind": kind(n)} for n in numbers)


def kind(number: int) -> str:
    return "a" if number % 3 else "b"


def calls(made: Made, sink: str = "out") -> list[tuple[int, list[Any]]]:
    file = made.root / "calls.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(epoch, sorted(rows, key=_order)) for name, epoch, rows in found if name == sink]


def _order(row: list[Any]) -> tuple[int, str]:
    return row[0], row[1] or ""


def odd(numbers: list[int]) -> list[list[Any]]:
    return sorted([n, kind(n)] for n in numbers if n % 2)


def ids(made: Made) -> list[int]:
    return sorted(row["id"] for row in made.rows("everything"))


def staged(made: Made) -> list[str]:
    return sorted(p.name for p in made.root.glob("lake/staged/**/*.parquet"))


@pytest.fixture
def begun(made: Made) -> Made:
    made.write(HEAD + ONE)
    feed(made, *FILES)
    return made


def test_each_epoch_is_handed_over_once_and_one_without_rows_is_not(begun: Made) -> None:
    begun.run()
    expected = [(0, odd([1, 2, 3])), (2, odd([5, 101, 102]))]  # 4 and 6 give no row
    assert calls(begun) == expected
    assert staged(begun) == []
    begun.run()
    assert calls(begun) == expected
    feed(begun, [7])
    begun.run()
    assert calls(begun) == [*expected, (3, odd([7]))]
    assert ids(begun) == [1, 2, 3, 4, 5, 6, 7, 101, 102]


def test_many_flows_into_one_sink_and_two_sinks(begun: Made) -> None:
    begun.write(HEAD + ONE + SECOND_FLOW + SECOND_SINK)
    begun.run()
    both = {n: sorted([*odd(rows), *([x, None] for x in rows if x > 100)], key=_order) for n, rows in enumerate(FILES)}
    assert calls(begun) == [(n, both[n]) for n in (0, 2)]
    assert calls(begun, "copies") == [(n, sorted([x, kind(x)] for x in rows)) for n, rows in enumerate(FILES)]
    for letter in "ab":
        wanted = [(n, sorted([x, letter] for x in rows if kind(x) == letter)) for n, rows in enumerate(FILES)]
        assert calls(begun, f"copies_{letter}") == wanted


def test_an_error_in_the_function_keeps_the_epoch_for_the_next_run(begun: Made) -> None:
    (begun.root / "trouble").write_text("error")
    with pytest.raises(UserCodeError) as caught:
        begun.run()
    assert caught.value.code == "FLOW_FAILED"
    assert 'foreach_batch sink "out" in epoch 0: ValueError: this cannot be sent' in caught.value.message
    line = (begun.root / "transformations" / "pipeline.py").read_text().splitlines()[caught.value.where.line - 1]  # type: ignore[union-attr]
    assert line.strip() == 'raise ValueError("this cannot be sent")'
    assert read.cut(begun.root).epochs == {}  # decided, but not published: the other table waits for it
    with pytest.raises(UserCodeError):
        begun.run()  # it is finished first, and fails again
    (begun.root / "trouble").unlink()
    begun.run()
    first = (0, odd([1, 2, 3]))
    assert calls(begun) == [first, first, first, (2, odd([5, 101, 102]))]  # the same rows each time
    assert ids(begun) == sorted(n for rows in FILES for n in rows)
    assert {t.epoch for t in read.cut(begun.root).record.tables.values()} == {2}


@pytest.mark.parametrize("point", ["applying(out)", "committed(out)", "applied(out)", "staged", "decided"])
def test_killed_around_the_call(begun: Made, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise")
        with pytest.raises(Exception, match="crash point"):
            begun.run()
    begun.run()
    assert calls(begun) == [(0, odd([1, 2, 3])), (2, odd([5, 101, 102]))]
    assert staged(begun) == []
    assert ids(begun) == sorted(n for rows in FILES for n in rows)


def test_recovery_without_the_project_asks_for_a_run(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    (begun.root / "trouble").write_text("error")
    with pytest.raises(UserCodeError):
        begun.run()
    assert main(["recover", "--project", str(begun.root), "--json"]) != 0
    said = json.loads(capsys.readouterr().out)["error"]
    assert said["code"] == "HANDLER_NEEDED"
    assert said["hint"].startswith("anabranch run;")
    (begun.root / "trouble").unlink()
    begun.run()
    assert calls(begun)[1:] == [(0, odd([1, 2, 3])), (2, odd([5, 101, 102]))]


def test_damaged_files_are_staged_again(begun: Made) -> None:
    (begun.root / "trouble").write_text("error")
    with pytest.raises(UserCodeError):
        begun.run()
    (file,) = begun.root.glob("lake/staged/out/*.parquet")
    file.write_bytes(file.read_bytes()[:-7])
    (begun.root / "trouble").unlink()
    begun.run()
    assert calls(begun)[1:] == [(0, odd([1, 2, 3])), (2, odd([5, 101, 102]))]


def test_a_sink_that_joins_is_given_the_past_in_one_call_and_a_rebuild_hands_all_over_again(begun: Made) -> None:
    begun.write(HEAD)
    begun.run()
    begun.write(HEAD + ONE)
    begun.run()
    past = odd([n for rows in FILES for n in rows])
    assert calls(begun) == [(2, past)]
    feed(begun, [7])
    begun.run()
    assert calls(begun) == [(2, past), (3, odd([7]))]
    everything = frozenset({"everything", "out"})
    run(begun.project, once=True, listener=begun.events.append, selection=Selection(full_refresh=everything))
    assert calls(begun)[2:] == [(0, sorted([*past, *odd([7])]))]


def test_it_is_no_table_for_readers_and_upkeep(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    begun.run()
    cut = read.cut(begun.root)
    assert set(cut.versions) == {"everything"}
    with pytest.raises(ProjectError) as caught:
        cut.arrow("out")
    assert caught.value.code == "SINK_NOT_READABLE"
    assert cut.sql("SELECT count(*) AS n FROM everything").to_pylist() == [{"n": 8}]
    project = ["--project", str(begun.root)]
    capsys.readouterr()
    assert main(["status", "--json", *project]) == 0
    tables = {t["table"]: t for t in json.loads(capsys.readouterr().out)["tables"]}
    assert (tables["out"]["format"], tables["out"]["version"]) == ("foreach_batch", "1-2")
    assert main(["vacuum", "--apply", *project]) == 0
    capsys.readouterr()
    assert main(["show", "out", *project]) == 2
    assert "SINK_NOT_READABLE" in capsys.readouterr().err
    assert main(["sql", "SELECT max(id) AS m FROM everything", "--json", *project]) == 0
    assert json.loads(capsys.readouterr().out) == [{"m": 102}]
    assert main(["plan", *project]) == 0
    said = capsys.readouterr().out
    assert "stage    out  (foreach_batch)" in said
    assert "not promised: exactly once" in said
    assert main(["dry-run", "--json", *project]) == 0
    states = {row["output"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states == {"everything": "matches", "out": "rows are handed to a function"}


def test_what_a_name_stands_for_cannot_change(begun: Made) -> None:
    begun.run()
    as_table = '@dp.table\ndef out():\n    return spark.readStream.table("everything")\n'
    begun.write(HEAD + as_table)
    with pytest.raises(StateError) as caught:
        begun.run()
    assert caught.value.code == "FORMAT_CHANGED"


def test_types_survive_and_odd_folders_are_no_patterns(made: Made, tmp_path: Any) -> None:
    made.write(
        """
        import json
        from pathlib import Path

        @dp.foreach_batch_sink(name="out")
        def out(df, batch_id):
            text = json.dumps([df.dtypes, [r.asDict(True) for r in df.collect()]], default=str)
            (Path(LANDING).parent / "types.json").write_text(text)

        @dp.append_flow(target="out")
        def typed():
            rows = spark.readStream.schema("id INT").json(LANDING)
            return rows.selectExpr(
                "id", "CAST(1.25 AS DECIMAL(9, 2)) AS price", "TIMESTAMP'2024-01-01 10:00:00' AS at", "NULL AS nothing",
                "TIMESTAMP_NTZ'2024-01-01 10:00:00' AS local", "array(struct(id AS a)) AS nested", "map('k', id) AS m",
                "parse_json('{\\"a\\": 1}') AS v", "DATE'2024-02-03' AS day", "CAST('x' AS BINARY) AS raw",
            ).drop("nothing")
        """,
        storage="lake {a,b} [c]/day=1",
    )
    made.feed([{"id": 7}])
    made.run()
    types, (row,) = json.loads((made.root / "types.json").read_text())
    assert dict(types) == {
        "id": "int",
        "price": "decimal(9,2)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "nested": "array<struct<a:int>>",
        "m": "map<string,int>",
        "v": "variant",
        "day": "date",
        "raw": "binary",
    }
    assert row["nested"] == [{"a": 7}]
    assert (row["price"], row["local"], row["m"]) == ("1.25", "2024-01-01 10:00:00", {"k": 7})


def test_rules_for_all_rows_have_no_table_to_look_at(made: Made) -> None:
    made.write(
        HEAD
        + ONE.replace(
            '@dp.append_flow(target="out")', '@dp.expect_unique("one", ["id"])\n@dp.append_flow(target="out")'
        )
    )
    with pytest.raises(ProjectErrors) as caught:
        made.run()
    assert [p.code for p in caught.value.problems] == ["UNIQUE_NOT_SUPPORTED"]


def test_rows_that_break_a_rule_are_kept_from_the_function(made: Made) -> None:
    rule = '@dp.expect_or_quarantine("small", "id < 100")\n@dp.append_flow(target="out")'
    made.write(HEAD + ONE.replace('@dp.append_flow(target="out")', rule))
    feed(made, *FILES)
    made.run()
    assert calls(made) == [(0, odd([1, 2, 3])), (2, odd([5]))]
    assert len(made.rows("out_quarantine")) == 1


def test_a_connection_that_fails_for_a_while_is_tried_again_in_the_same_run(begun: Made) -> None:
    begun.write(HEAD + ONE, configuration={"spark.sql.pipelines.execution.watchdog.minRetryTime": "0.1"})
    (begun.root / "trouble").write_text("away")
    begun.run()
    assert calls(begun) == [(0, odd([1, 2, 3]))] * 3 + [(2, odd([5, 101, 102]))]
    feed(begun, [7])
    (begun.root / "calls.jsonl").write_text("")
    begun.write(
        HEAD + ONE,
        configuration={
            "spark.sql.pipelines.execution.watchdog.minRetryTime": "0.1",
            "spark.sql.pipelines.maxFlowRetryAttempts": "1",
        },
    )
    with pytest.raises(UserCodeError):
        begun.run()
    assert calls(begun) == [(3, odd([7]))] * 2  # it was started twice, and no more


def test_the_process_dies_inside_the_function(begun: Made) -> None:
    (begun.root / "trouble").write_text("kill")
    command = [sys.executable, "-m", "anabranch.cli.main", "run", "--project", str(begun.root)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert read.cut(begun.root).epochs == {}
    (begun.root / "trouble").unlink()
    begun.run()
    assert calls(begun) == [(0, odd([1, 2, 3]))] * 2 + [(2, odd([5, 101, 102]))]
    assert ids(begun) == sorted(n for rows in FILES for n in rows)
    assert staged(begun) == []
