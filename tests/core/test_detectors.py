"""Every detector: it fires, it is silent where it must be, and it is over when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.detector_rules import evaluate, percentile
from anabranch.core.detectors import (
    Begun,
    Detector,
    Finding,
    Interruption,
    Judged,
    Lag,
    LagReading,
    Observed,
    PartitionSkew,
    Period,
    SeenEpoch,
    SeenRun,
    Skew,
    Sla,
)
from anabranch.core.where import Where

HERE = Where("anabranch.yml", 7)
MINUTE, HOUR = 60.0, 3600.0


def epoch(number: int, at: float, rows: int, read: int | None = None, **more: Any) -> SeenEpoch:
    """An epoch that took a second and gave `orders` its rows."""
    return SeenEpoch(1, number, at - 1, at, {"orders": rows}, {"orders": at}, read, **more)


def seen(*epochs: SeenEpoch, **more: Any) -> Observed:
    return Observed("orders", ("orders",), 10.0, epochs, **more)


def fired(detector: Detector, observed: Observed, now: float, note: Mapping[str, Any] | None = None) -> Finding:
    found = evaluate(detector, observed, now, note).finding
    assert found is not None
    return found


def silent(detector: Detector, observed: Observed, now: float, note: Mapping[str, Any] | None = None) -> Judged:
    judged = evaluate(detector, observed, now, note)
    assert judged.finding is None
    assert judged.unknown is None
    return judged


def running(since: float = 0.0) -> list[SeenRun]:
    return [SeenRun("r", since, None, "running")]


# Interruption

STOPPED = Interruption("i", "orders", HERE, within=10 * MINUTE)


def test_rows_are_read_and_a_filter_drops_them_all() -> None:
    epochs = [epoch(0, 0, 50, 50), *(epoch(n, n * MINUTE, 0, 50) for n in range(1, 20))]
    silent(STOPPED, seen(*epochs[:9], runs=running()), 9 * MINUTE)
    found = fired(STOPPED, seen(*epochs, runs=running()), 19 * MINUTE)
    assert found.facts["reason"] == "read_not_written"
    assert found.message == "950 rows were read and none written to orders for 18 minutes"
    silent(STOPPED, seen(*epochs, epoch(20, 20 * MINUTE, 1, 50), runs=running()), 20 * MINUTE)


def test_what_other_outputs_of_the_channel_were_given_was_read_too() -> None:
    others = [SeenEpoch(1, n, n, n, {"orders": 0, "all": 9}, {"orders": n, "all": n}) for n in range(1, 9)]
    assert fired(STOPPED, seen(*others), HOUR).facts["read_since"] == 72


def test_a_normal_lull_is_silent() -> None:
    silent(STOPPED, seen(epoch(0, 0, 50, 50), runs=running()), 9 * HOUR)
    at_rest = [SeenRun("r", 0, MINUTE, "done")]
    silent(STOPPED, seen(epoch(0, 0, 50, 50), runs=at_rest), 9 * HOUR)
    stopped_by_hand = [SeenRun("r", 0, MINUTE, "stopped")]
    silent(STOPPED, seen(epoch(0, 0, 50, 50), runs=stopped_by_hand), 9 * HOUR)


def test_epochs_that_read_nothing_are_a_lull() -> None:
    empty = [epoch(n, n * MINUTE, 0, 0) for n in range(1, 60)]
    silent(STOPPED, seen(epoch(0, 0, 50, 50), *empty, runs=running()), HOUR)


def test_the_first_rows_after_a_lull_have_their_time() -> None:
    observed = seen(epoch(0, 0, 50, 50), epoch(1, 5 * HOUR, 0, 3), runs=running())
    silent(STOPPED, observed, 5 * HOUR + MINUTE)
    fired(STOPPED, observed, 5 * HOUR + 11 * MINUTE)


def test_a_lull_is_an_interruption_where_none_is_allowed() -> None:
    always = Interruption("i", "orders", HERE, within=10 * MINUTE, lulls=False)
    silent(always, seen(epoch(0, 0, 50)), 10 * MINUTE)
    assert fired(always, seen(epoch(0, 0, 50)), 11 * MINUTE).facts["reason"] == "nothing_written"


@pytest.mark.parametrize("outcome", ["died", "failed"])
def test_a_process_that_is_gone(outcome: str) -> None:
    broken = [SeenRun("r", 0, HOUR, outcome)]
    silent(STOPPED, seen(epoch(0, MINUTE, 50), runs=broken), HOUR + 5 * MINUTE)
    assert fired(STOPPED, seen(epoch(0, MINUTE, 50), runs=broken), HOUR + 11 * MINUTE).facts["reason"] == outcome
    begun_again = [*broken, SeenRun("s", HOUR + 12 * MINUTE, None, "running")]
    silent(STOPPED, seen(epoch(0, MINUTE, 50), runs=begun_again), 2 * HOUR)


def test_an_epoch_that_is_not_finished_and_one_that_was_only_begun() -> None:
    stuck = SeenEpoch(1, 1, HOUR, None, {"orders": 5}, {})
    assert fired(STOPPED, seen(epoch(0, 0, 50), stuck, runs=running()), 2 * HOUR).facts["reason"] == "epoch_open"
    begun = seen(epoch(0, 0, 50), runs=running(), begun=Begun(1, HOUR))
    silent(STOPPED, begun, HOUR + 9 * MINUTE)
    fired(STOPPED, begun, HOUR + 11 * MINUTE)


def test_rows_that_wait_in_the_source() -> None:
    lags = [LagReading(MINUTE * n, "offsets", {"t 0": 5}) for n in range(3)]
    assert fired(STOPPED, seen(epoch(0, 0, 50), runs=running(), lags=lags), HOUR).facts["reason"] == "rows_wait"
    between_runs = [SeenRun("r", 0, 3 * MINUTE, "done")]
    silent(STOPPED, seen(epoch(0, 0, 50), runs=between_runs, lags=lags), HOUR)


def test_compaction_and_other_commits_without_rows_do_not_end_it() -> None:
    """They are no epochs; an epoch of no rows, which a table may note in its log, is none either."""
    read = [epoch(n, n * MINUTE, 0, 50) for n in range(1, 20)]
    noted = SeenEpoch(1, 20, 20 * MINUTE, 20 * MINUTE, {"orders": 0}, {"orders": 20 * MINUTE})
    fired(STOPPED, seen(epoch(0, 0, 50), *read, noted), 21 * MINUTE)


def test_epochs_may_be_too_many_to_be_seen_back_to_where_it_began() -> None:
    note: Mapping[str, Any] = {}
    findings = []
    for minute in range(1, 15):
        newest = [epoch(60 * minute + n, MINUTE * minute - 10 + n, 0, 5) for n in range(10)]
        judged = evaluate(STOPPED, seen(*newest, runs=running()), MINUTE * minute, note)
        note = judged.note
        findings.append(judged.finding is not None)
    assert findings == [False] * 10 + [True] * 4


def test_nothing_is_known_before_the_first_run() -> None:
    assert evaluate(STOPPED, seen(), HOUR).unknown == "nothing has been run yet"


def test_how_long_to_wait_follows_the_trigger() -> None:
    plain = Interruption("i", "orders", HERE, lulls=False)
    assert fired(plain, seen(epoch(0, 0, 5)), HOUR).limit == 600
    assert fired(plain, Observed("c", ("orders",), 900.0, [epoch(0, 0, 5)]), 10 * HOUR).limit == 9000


# Skew

SKEW = Skew("s", "orders", HERE, tolerance=0.5)


def run(day: int, rows: int | None, outcome: str = "done") -> SeenRun:
    return SeenRun(f"r{day}", day * 86400.0, day * 86400.0 + 60, outcome, {} if rows is None else {"orders": rows})


def looks(detector: Skew, *runs: SeenRun) -> list[bool]:
    """Whether it fires after each run, when it is looked at after each."""
    note: Mapping[str, Any] = {}
    found = []
    for count in range(1, len(runs) + 1):
        judged = evaluate(detector, seen(runs=runs[:count]), runs[count - 1].started + HOUR, note)
        note = note if judged.unknown else judged.note
        found.append(judged.finding is not None)
    return found


def test_a_bad_run_is_no_measure_for_the_next() -> None:
    assert looks(SKEW, run(1, 100), run(2, 33), run(3, 100)) == [False, True, False]
    assert looks(SKEW, run(1, 100), run(2, 33), run(3, 33), run(4, 34), run(5, 100)) == [False, True, True, True, False]


def test_the_first_run_has_no_measure_and_passes() -> None:
    assert looks(SKEW, run(1, 7)) == [False]


def test_both_sides_and_up_to_the_tolerance() -> None:
    assert looks(SKEW, run(1, 100), run(2, 150), run(3, 75), run(4, 113)) == [False, False, False, True]
    assert looks(SKEW, run(1, 100), run(2, 151)) == [False, True]


@pytest.mark.parametrize("outcome", ["failed", "died", "running"])
def test_a_run_that_broke_is_neither_judged_nor_a_measure(outcome: str) -> None:
    assert looks(SKEW, run(1, 100), run(2, 3, outcome), run(3, 100)) == [False, False, False]


def test_a_run_that_had_nothing_to_do_is_not_compared() -> None:
    assert looks(SKEW, run(1, 100), run(2, None), run(3, 100)) == [False, False, False]


def test_a_bad_run_is_noticed_though_a_good_one_came_before_anybody_looked() -> None:
    runs = [run(1, 100), run(2, 10), run(3, 100)]
    first = evaluate(SKEW, seen(runs=runs), 5 * 86400.0)
    assert first.finding is not None
    assert first.finding.facts == {"rows": 10, "last_good": 100}
    silent(SKEW, seen(runs=runs), 6 * 86400.0, first.note)


def test_a_look_without_anything_new_changes_nothing() -> None:
    runs = [run(1, 100), run(2, 33)]
    first = evaluate(SKEW, seen(runs=runs), 5 * 86400.0)
    again = evaluate(SKEW, seen(runs=runs), 6 * 86400.0, first.note)
    assert (again.finding, again.note) == (first.finding, first.note)


def test_a_campaign_has_its_own_tolerance_and_is_no_measure_for_after() -> None:
    sale = Skew("s", "orders", HERE, tolerance=0.5, periods=(Period(2 * 86400.0, 4 * 86400.0, 4.0),))
    assert looks(sale, run(1, 100), run(2, 400), run(3, 600), run(4, 100)) == [False, False, True, False]
    closed = Skew("s", "orders", HERE, periods=(Period(2 * 86400.0, 4 * 86400.0),))
    assert looks(closed, run(1, 100), run(2, 1), run(4, 100)) == [False, False, False]


def test_a_new_level_is_taken_when_somebody_says_so() -> None:
    runs = [run(1, 100), run(2, 300), run(3, 310)]
    assert looks(SKEW, *runs) == [False, True, True]
    assert looks(Skew("s", "orders", HERE, since=2 * 86400.0), *runs) == [False, False, False]


def test_few_rows_are_not_compared() -> None:
    assert looks(Skew("s", "orders", HERE, at_least=50), run(1, 10), run(2, 40)) == [False, False]


def test_epochs_and_hours_are_compared_as_runs_are() -> None:
    epochs = [epoch(n, n * HOUR + 60, rows) for n, rows in enumerate([9, 100, 100, 10])]
    by_epoch = Skew("s", "orders", HERE, over="epochs")
    assert fired(by_epoch, seen(*epochs[1:]), 4 * HOUR).facts["rows"] == 10
    by_hour = Skew("s", "orders", HERE, over=HOUR)
    silent(by_hour, seen(*epochs), 3 * HOUR + 59 * MINUTE)  # the hour is not over: it may still come
    assert fired(by_hour, seen(*epochs), 4 * HOUR).facts["rows"] == 10
    assert fired(by_hour, seen(*epochs[:3]), 5 * HOUR).facts["rows"] == 0  # an hour without an epoch


def moved(*ends: Mapping[str, int]) -> Observed:
    return seen(*(epoch(n, n * MINUTE, 1, offsets=end) for n, end in enumerate(ends)))


def test_a_hot_partition_of_a_topic() -> None:
    hot = PartitionSkew("s", "orders", HERE, of="source", ratio=0.5)
    even = {"t 0": 0, "t 1": 0, "t 2": 0, "t 3": 0}
    silent(hot, moved(even, dict.fromkeys(even, 100)), 2 * MINUTE)
    found = fired(hot, moved(even, {"t 0": 100, "t 1": 100, "t 2": 100, "t 3": 500}), 2 * MINUTE)
    assert found.value == pytest.approx(0.866, abs=0.001)
    assert found.facts["partitions"]["t 3"] == 500
    silent(hot, moved(even, {**even, "t 3": 50}), 2 * MINUTE)  # too few rows to say anything
    grown = {**dict.fromkeys(even, 100), "t 4": 100}
    silent(hot, moved(even, grown), 2 * MINUTE)  # a new partition was read from its start


def test_partitions_of_a_table() -> None:
    parts = PartitionSkew("s", "orders", HERE, ratio=0.5)
    lopsided = epoch(0, 0, 900, partitions={"orders": {"eu": 850, "us": 50}})
    assert fired(parts, seen(lopsided), MINUTE).facts["partitions"] == {"eu": 850, "us": 50}
    even = epoch(1, MINUTE, 900, partitions={"orders": {"us": 800}})
    silent(parts, seen(lopsided, even), 2 * MINUTE)
    assert evaluate(parts, seen(lopsided), 2 * HOUR).unknown  # all of it is long ago
    assert evaluate(parts, seen(epoch(0, 0, 9)), MINUTE).unknown  # not partitioned


# Lag


def readings(*behind: Mapping[str, int], apart: float = MINUTE) -> list[LagReading]:
    return [LagReading(n * apart, "offsets", each) for n, each in enumerate(behind)]


def test_the_worst_partition_counts_or_a_percentile_but_no_mean() -> None:
    behind = {f"t {n}": count for n, count in enumerate([2, 3, 3, 5, 5, 10, 30])}
    observed = seen(runs=running(), lags=readings(behind))
    worst = fired(Lag("l", "orders", HERE, unit="offsets", most=29), observed, MINUTE)
    assert worst.value == 30
    assert next(iter(worst.facts["partitions"].items())) == ("t 6", 30.0)
    assert worst.facts["behind"] == 58
    assert fired(Lag("l", "orders", HERE, unit="offsets", most=17, percentile=90), observed, MINUTE).value == 18
    silent(Lag("l", "orders", HERE, unit="offsets", most=18, percentile=90), observed, MINUTE)
    silent(Lag("l", "orders", HERE, unit="offsets", most=30), observed, MINUTE)


def test_a_new_partition_counts_and_one_that_is_gone_does_not() -> None:
    most = Lag("l", "orders", HERE, unit="offsets", most=100)
    assert fired(most, seen(runs=running(), lags=readings({"t 0": 0}, {"t 0": 0, "t 1": 500})), HOUR).value == 500
    silent(most, seen(runs=running(), lags=readings({"t 0": 0, "t 1": 500}, {"t 0": 0})), HOUR)


def test_behind_for_a_time_and_up_to_date_again() -> None:
    slow = Lag("l", "orders", HERE, most=10 * MINUTE)
    up, down = {"t 0": 0, "t 1": 0}, {"t 0": 0, "t 1": 7}
    silent(slow, seen(runs=running(), lags=readings(up, *[down] * 9)), 10 * MINUTE)
    assert fired(slow, seen(runs=running(), lags=readings(up, *[down] * 9)), 12 * MINUTE).value == 11 * MINUTE
    silent(slow, seen(runs=running(), lags=readings(up, *[down] * 9, up)), 12 * MINUTE)
    busy = readings(*[up, down] * 60)  # behind now and then is what a stream is
    silent(slow, seen(runs=running(), lags=busy), 2 * HOUR)


def test_how_long_is_remembered_beyond_what_is_seen() -> None:
    slow = Lag("l", "orders", HERE, most=10 * MINUTE)
    note: Mapping[str, Any] = {}
    findings = []
    for minute in range(20):
        lags = [LagReading(minute * MINUTE, "offsets", {"t 0": 5})]
        judged = evaluate(slow, seen(runs=running(), lags=lags), minute * MINUTE, note)
        note = judged.note
        findings.append(judged.finding is not None)
    assert findings == [False] * 11 + [True] * 9
    caught_up = [LagReading(1200, "offsets", {"t 0": 0}), LagReading(1210, "offsets", {"t 0": 5})]
    silent(slow, seen(runs=running(), lags=caught_up), 1220, note)


def test_nothing_is_known_of_a_flow_that_stands_still() -> None:
    most = Lag("l", "orders", HERE, unit="offsets", most=100)
    at_rest = [SeenRun("r", 0, MINUTE, "done")]
    assert evaluate(most, seen(runs=at_rest, lags=readings({"t 0": 0})), HOUR).unknown
    fired(most, seen(runs=at_rest, lags=readings({"t 0": 101})), HOUR)  # it can only have become more
    asked = LagReading(HOUR, "offsets", {"t 0": 500})
    assert fired(most, seen(runs=at_rest, lags=[*readings({"t 0": 0}), asked]), HOUR).value == 500
    silent(most, seen(runs=at_rest, lags=[LagReading(HOUR, "offsets", {"t 0": 0})]), HOUR)


def test_a_unit_that_no_source_tells() -> None:
    files = Lag("l", "orders", HERE, unit="files", most=3)
    assert "it tells offsets" in (evaluate(files, seen(lags=readings({"t 0": 9})), HOUR).unknown or "")


# SLA

TEN = Sla("sla", "orders", HERE, "processing", 10.0)
FRESH = Sla("sla", "orders", HERE, "event_time", 60.0)


def took(number: int, seconds: float, late: float | None = None) -> SeenEpoch:
    end = 1000.0 * (number + 1)
    times = {} if late is None else {"newest": end - late, "oldest": end - late - 500, "mean": end - late - 20}
    return SeenEpoch(1, number, end - seconds, end, {"orders": 5}, {"orders": end}, 5, event_times=times)


def test_one_miss_an_epoch_until_one_is_in_time() -> None:
    slow = [took(0, 5), took(1, 12), took(2, 14)]
    assert fired(TEN, seen(*slow), 3100).facts["misses"] == 2
    silent(TEN, seen(*slow, took(3, 9)), 4100, {"to": 3000.0})


def test_an_epoch_that_is_tried_again_is_one_miss() -> None:
    """The ledger has an epoch once, however often it was begun."""
    still = SeenEpoch(1, 1, 1990.0, None, {"orders": 5}, {})
    first = evaluate(TEN, seen(took(0, 5), still), 2005)
    assert first.finding is not None
    assert first.finding.facts == {"measure": "processing", "running": True, "misses": 1}
    assert fired(TEN, seen(took(0, 5), took(1, 60)), 2070, first.note).facts["misses"] == 1


def test_it_fires_while_it_still_runs() -> None:
    hangs = seen(took(0, 5), runs=running(), begun=Begun(1, 1500.0))
    silent(TEN, hangs, 1509)
    assert fired(TEN, hangs, 1511).message == "epoch 1 of orders took 11 seconds so far, 10 seconds are promised"


def test_a_miss_between_two_looks_is_noticed_once() -> None:
    first = silent(TEN, seen(took(0, 5)), 1100)
    second = evaluate(TEN, seen(took(0, 5), took(1, 40), took(2, 5)), 3100, first.note)
    assert second.finding is not None
    silent(TEN, seen(took(0, 5), took(1, 40), took(2, 5)), 3200, second.note)


def test_late_rows_miss_their_own_promise_only() -> None:
    late = seen(took(0, 5, 10), took(1, 5, 900))
    silent(TEN, late, 2100)
    assert fired(FRESH, late, 2100).value == 900
    silent(FRESH, seen(took(0, 5, 10), took(1, 500, 20)), 2100)  # a slow epoch of fresh rows
    oldest = Sla("sla", "orders", HERE, "event_time", 60.0, rows="oldest")
    assert fired(oldest, seen(took(0, 5, 10)), 1100).value == 510


def test_without_a_watermark_nobody_knows_how_old_rows_are() -> None:
    assert "watermark" in (evaluate(FRESH, seen(took(0, 5)), 1100).unknown or "")


def test_a_growing_lag_misses_no_promise_and_a_slow_epoch_is_no_lag() -> None:
    lags = readings({"t 0": 10}, {"t 0": 10_000})
    silent(TEN, seen(took(0, 5), runs=running(), lags=lags), 1100)
    most = Lag("l", "orders", HERE, unit="offsets", most=500)
    silent(most, seen(took(0, 500), runs=running(), lags=readings({"t 0": 3})), 1100)


def test_a_run_is_measured_from_its_own_start() -> None:
    daily = Sla("sla", "orders", HERE, "processing", HOUR, per="run")
    good, long = SeenRun("a", 0, 1800, "done"), SeenRun("b", 86400, 86400 + 2 * HOUR, "done")
    silent(daily, seen(runs=[good]), 80000)
    assert fired(daily, seen(runs=[good, long]), 180000).value == 2 * HOUR
    assert fired(daily, seen(runs=[good, SeenRun("b", 86400, None, "running")]), 86400 + 3 * HOUR).facts["running"]
    silent(daily, seen(runs=[good, SeenRun("b", 86400, 86400 + 2 * HOUR, "died")]), 180000)


def test_a_percentile_forgives_some() -> None:
    epochs = [took(n, 50 if n == 3 else 5) for n in range(40)]
    silent(Sla("sla", "orders", HERE, "processing", 10.0, percentile=95), seen(*epochs), 99999)
    many = [took(n, 50 if n % 5 == 3 else 5) for n in range(40)]
    assert fired(Sla("sla", "orders", HERE, "processing", 10.0, percentile=95), seen(*many), 99999).value == 50


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_between_the_least_and_the_most(values: Sequence[float], percent: float) -> None:
    found = percentile(values, percent)
    assert min(values) <= found <= max(values)
    assert percentile(values, 100) == max(values)
    assert found >= percentile(values, percent / 2) - 1e-6 * max(values)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30))
def test_looking_after_every_run_and_looking_once_agree(volumes: Sequence[int]) -> None:
    """What is taken for the last good one does not depend on when somebody looks."""
    runs = [run(day, rows) for day, rows in enumerate(volumes, 1)]
    note: Mapping[str, Any] = {}
    for count in range(1, len(runs) + 1):
        note = evaluate(SKEW, seen(runs=runs[:count]), 1e9, note).note
    assert note == evaluate(SKEW, seen(runs=runs), 1e9).note
