"""Where the time of the native pass goes: CPU-seconds by part, in one process that does what the workers do.

    python bench/native_profile.py three,wide,huge,truncated [--functions]

What a run with Spark sends to its workers is kept; then this process does all of it, twice, and the second time counts.
A part has what is spent in it and not in another part that it calls. `--functions` adds
what `cProfile` says.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import native_events
import shape
from measure import adopt_orphans
from run import SETTINGS
from ways import Task, project

from anabranch.connectors import parquet_files
from anabranch.engine import native_files, native_pass, rows, stage
from anabranch.engine.session import open_session
from anabranch.native import parse, parse_regular, run

Parts = dict[str, float]


class Parted:
    """Counts the CPU time of functions, each time of a part only once."""

    def __init__(self) -> None:
        self.parts: Parts = {}
        self._stack = ["the rest"]
        self._since = time.process_time()

    def enter(self, part: str) -> None:
        self._book()
        self._stack.append(part)

    def leave(self) -> None:
        self._book()
        self._stack.pop()

    def _book(self) -> None:
        now = time.process_time()
        part = self._stack[-1]
        self.parts[part] = self.parts.get(part, 0.0) + now - self._since
        self._since = now

    def wrapped(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*given: Any, **named: Any) -> Any:
            self.enter(part)
            try:
                return call(*given, **named)
            finally:
                self.leave()

        return counted

    def stepped(self, part: str, call: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same for a function whose answer is taken step by step."""

        @functools.wraps(call)
        def counted(*given: Any, **named: Any) -> Iterator[Any]:
            steps = call(*given, **named)
            while True:
                self.enter(part)
                try:
                    found = next(steps)
                except StopIteration:
                    return
                finally:
                    self.leave()
                yield found

        return counted


#: Where a part begins. Those of the reader and of the queries are methods.
PLACES: list[tuple[Any, str, str]] = [
    (parse, "text_of", "guard: UTF-8"),
    (parse, "sure_objects", "guard: sure objects"),
    (parse, "plain_documents", "guard: plain documents"),
    (parse, "lines", "parse: documents as lines"),
    (parse_regular.Regular, "read", "parse: documents of one form"),
    (parse.JsonParser, "_read_together", "parse: Arrow's reader"),
    (parse.JsonParser, "_fitting", "parse: look for misfits"),
    (parse, "finish", "parse: times, doubles"),
    (parse, "_joined", "parse: pieces joined"),
    (parse.JsonParser, "_carefully", "parse: records in place"),
    (parse.JsonParser, "_parse", "parse: the rest"),
    (run, "_rows", "flows: columns taken"),
    (run, "_doubted", "flows: doubts"),
    (run.NativeRun, "take", "flows: the rest"),
    (rows.Rows, "give", "write: rows to writers"),
    (parquet_files.pq.ParquetWriter, "write_table", "write: encode Parquet"),
    (parquet_files.pq.ParquetWriter, "write_batch", "write: encode Parquet"),
    (rows.Rows, "close", "write: finish files"),
]


def kept(task: Task) -> tuple[Any, Any, Any]:
    """What a run of a task sends to its workers: the work, how files are read, and the parts of files."""
    from anabranch.engine.run import run as run_project

    works: list[Any] = []
    feeds: list[tuple[Any, Any]] = []
    by_workers, reading = native_pass.by_workers, native_pass.reading

    def keep_work(wanted: Any, *given: Any) -> Any:
        works.append(wanted)
        return by_workers(wanted, *given)

    def keep_feed(feed: Any, tasks: Any) -> Any:
        feeds.append((feed, tasks))
        return reading(feed, tasks)

    native_pass.by_workers, native_pass.reading = keep_work, keep_feed
    try:
        run_project(project(task), once=True, listener=lambda _: None)
    finally:
        native_pass.by_workers, native_pass.reading = by_workers, reading
    return works[-1], *feeds[-1]


def parted() -> Parted:
    """From now on all parts are counted."""
    counting = Parted()
    for owner, name, part in PLACES:
        setattr(owner, name, counting.wrapped(part, getattr(owner, name)))
    native_files.read_split = counting.stepped("lines", native_files.read_split)
    computed = run.NativeRun._computed

    def query(self: Any, flow: Any, records: Any) -> Any:
        counting.enter("shared query" if flow is self._program.shared else "flows: queries")
        try:
            return computed(self, flow, records)
        finally:
            counting.leave()

    run.NativeRun._computed = query  # type: ignore[method-assign]
    return counting


def main() -> None:
    """Profile the named kinds of events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", help=", ".join(KINDS))
    parser.add_argument("--functions", action="store_true")
    said = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="profile-", dir=shape.DATA) as name:
        spark = open_session(app_name="profile", log_folder=Path(name) / "log", settings=SETTINGS)
        sent = {}
        for kind in said.kinds.split(","):
            outputs, events, code = KINDS[kind]()
            task = Task(spark, outputs, Path(name) / kind, events)
            task.code = code(task.source) if code else None
            task.land(events, 0)
            sent[kind] = kept(task)
        spark.stop()
        counting = parted()
        for kind, (wanted, feed, tasks) in sent.items():
            splits = [split for own in tasks for split in own]
            for turn in ("cold", "warm"):
                counting.parts.clear()
                wall = time.perf_counter()
                passed = stage.written(wanted, turn, feed.batches(splits))
                wall = time.perf_counter() - wall
                counting.enter("")
                counting.leave()
            _show(kind, passed, counting.parts, wall)
            if said.functions:
                with cProfile.Profile() as profile:
                    stage.written(wanted, "functions", feed.batches(splits))
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        shutil.rmtree(name, ignore_errors=True)


def _show(kind: str, passed: Any, parts: Parts, wall: float) -> None:
    total = sum(parts.values())
    left = sum(len(rest) for rest in passed.rest if rest is not None)
    print(f"\n{kind}: {passed.records:,} records, {left:,} of them left to Spark: {total:.2f} CPU-s, {wall:.2f} s")
    for part, seconds in sorted(parts.items(), key=lambda item: -item[1]):
        if seconds >= 0.005:
            print(f"  {part:32}{seconds:8.2f}{seconds / total:8.0%}")


def _requests(events: Path) -> Any:
    return shape.routed(3), events, None


def _of_kind(kind: native_events.Kind, rows: int) -> Any:
    return kind.outputs, kind.files(rows, 4), kind.code


def _million() -> Path:
    return shape.event_files("events-1000000", 1_000_000, 4)


KINDS: dict[str, Callable[[], Any]] = {
    "three": lambda: _requests(_million()),
    "ten": lambda: (shape.routed(10), _million(), None),
    "truncated": lambda: _requests(native_events.truncated(_million())),
    "mistyped": lambda: _requests(native_events.mistyped(_million())),
    "wide": lambda: _of_kind(native_events.WIDE, 40_000),
    "tiny": lambda: _of_kind(native_events.TINY, 2_000_000),
    "huge": lambda: _of_kind(native_events.HUGE, 3_000),
    "huge-quoted": lambda: _of_kind(native_events.QUOTED, 3_000),
}

if __name__ == "__main__":
    main()
