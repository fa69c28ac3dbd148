"""Events on their way into the history: in order, and how a run ends is how it is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.core.events import EpochPublished, Event, Notice, RunFailed
from anabranch.core.events_data import ViewKept
from anabranch.core.where import Where
from anabranch.engine.event_log import recorded
from anabranch.errors import AnabranchError, Interrupted, UserCodeError
from anabranch.store.history import History


def test_events_are_handed_on_and_written_down(tmp_path: Path) -> None:
    heard: list[Event] = []
    history = History.of(tmp_path)
    with recorded(heard.append, history.path, "shop", keep_seconds=1e9, selection="--refresh a") as listen:
        listen(Notice("hello"))
        listen(EpochPublished("c", 1, 0, {"a": 3}))
    assert [e.kind for e in heard] == [e.kind for e in history.events()] == ["notice", "epoch_published"]
    (run,) = history.runs()
    assert (run.outcome, run.epochs, run.rows, run.selection) == ("done", 1, 3, "--refresh a")


def test_a_run_that_fails_says_so_to_everybody(tmp_path: Path) -> None:
    heard: list[Event] = []
    history = History.of(tmp_path)
    error = UserCodeError("FLOW_FAILED", "no such column", where=Where("a.py", 3), hint="mend it")

    def run() -> None:
        with recorded(heard.append, history.path, "shop", keep_seconds=1e9) as listen:
            listen(EpochPublished("c", 1, 0, {"a": 3}))
            raise error

    with pytest.raises(UserCodeError):
        run()
    failed = heard[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.code, failed.where, failed.hint, failed.epochs, failed.rows) == (
        "FLOW_FAILED",
        "a.py:3",
        "mend it",
        1,
        3,
    )
    (stored,) = history.events(level="error")
    assert (stored.kind, stored.place, stored.details["hint"]) == ("run_failed", "a.py:3", "mend it")
    (run,) = history.runs()
    assert (run.outcome, run.code, run.message) == ("failed", "FLOW_FAILED", "no such column")


@pytest.mark.parametrize("error", [Interrupted("INTERRUPTED", "stopped"), KeyboardInterrupt()])
def test_a_run_that_was_stopped_did_not_fail(tmp_path: Path, error: BaseException) -> None:
    heard: list[Event] = []
    history = History.of(tmp_path)
    with pytest.raises(type(error)), recorded(heard.append, history.path, "shop", keep_seconds=1e9):
        raise error
    assert heard == history.events() == []
    assert [r.outcome for r in history.runs()] == ["stopped"]


def test_a_disk_that_refuses_is_a_notice(tmp_path: Path) -> None:
    (tmp_path / "_anabranch").write_text("in the way")
    heard: list[Event] = []
    with recorded(heard.append, History.of(tmp_path).path, "shop", keep_seconds=1e9) as listen:
        listen(ViewKept("v", "why"))
        listen(ViewKept("v", "why"))
    assert sorted(type(e).__name__ for e in heard) == ["Notice", "ViewKept", "ViewKept"]


@pytest.mark.spark
def test_a_real_run_is_in_the_history_with_its_epochs_and_what_it_read(made: Any) -> None:
    project = made.write(
        """
        @dp.table
        def orders():
            return spark.readStream.schema("id INT").option("maxFilesPerTrigger", 1).json(LANDING)

        @dp.table
        def odd():
            return spark.readStream.table("orders").where("id % 2 = 1 AND 1 / (id - 7) IS NOT NULL")
        """
    )
    for first in (10, 20, 30):
        made.feed({"id": i} for i in range(first, first + 10))
    made.run()
    history = History.of(project.storage)
    (run,) = history.runs()
    assert (run.outcome, run.epochs, run.rows) == ("done", 3, 45)
    assert [e.kind for e in history.events()] == [e.kind for e in made.events]
    assert [p.rows for p in history.rows_over_time("odd")] == [5, 5, 5]
    assert sum(p.rows for p in history.progress_over_time("orders")) == 30
    assert all(set(p.times) == {"stage", "decide", "apply", "publish"} for p in history.steps_over_time("orders"))
    made.feed([{"id": 7}])  # divides by zero
    with pytest.raises(AnabranchError) as raised:
        made.run()
    failed, _ = history.runs()
    assert (failed.outcome, failed.code) == ("failed", raised.value.code)
    kinds = [e.kind for e in history.events(level="error", run=failed.run)]
    assert kinds == ["channel_failed", "run_failed"]
