"""The benchmark's own measuring, and the shape of what it writes down. No Spark here."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

FIELDS = {"case", "way", "outputs", "events", "cpu_s", "wall_s", "peak_mb"}

#: Burns a known amount of CPU in a process of its own, or in one below that.
BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"
BURN_BELOW = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}], check=True)"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmark as `make bench` does."""
    monkeypatch.syspath_prepend(str(BENCH))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cpu_of_children_that_have_ended_is_counted(bench: Any) -> None:
    measure = bench("measure")
    nothing = measure.cost_of(lambda: None)
    child = measure.cost_of(lambda: run_python(BURN.format(seconds=0.6)))
    below = measure.cost_of(lambda: run_python(BURN_BELOW.format(code=BURN.format(seconds=0.6))))
    assert nothing.cpu_s < 0.5
    assert child.cpu_s >= 0.6
    assert below.cpu_s >= 0.6


def test_cpu_of_a_child_that_still_runs_is_counted(bench: Any) -> None:
    measure = bench("measure")
    wait = "import sys; sys.stdin.readline()\n"
    code = wait + BURN.format(seconds=0.3) + "\nprint(flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None
        cost = measure.cost_of(lambda: (stdin.write(b"\n"), stdout.readline()))  # answers when it has burnt its share
        stdin.close()
    assert cost.cpu["workers"] > 0.2
    assert cost.worker_mb > 1
    assert cost.peak_mb > cost.worker_mb


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans over")
def test_cpu_of_a_grandchild_whose_parent_died_is_counted(bench: Any) -> None:
    leave = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {code!r}])"
    code = f"""
import subprocess, sys, psutil
sys.path.insert(0, {str(BENCH)!r})
import measure

def orphaned():
    subprocess.run([sys.executable, "-c", {leave.format(code=BURN.format(seconds=0.3))!r}], check=True)
    psutil.wait_procs(psutil.Process().children())  # the orphan is a child by now, and is not waited for by others

measure.adopt_orphans()
sys.exit(measure.cost_of(orphaned).cpu_s < 0.2)
"""
    run_python(code)


def test_what_a_child_spent_before_the_measuring_is_not_counted_when_it_ends(bench: Any) -> None:
    measure = bench("measure")
    code = BURN.format(seconds=1.0) + "\nprint(flush=True)\nimport sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        cost = measure.cost_of(lambda: child.communicate(b""))
    assert 0 <= cost.cpu_s < 0.8


def test_a_record_has_the_best_of_its_rounds(bench: Any) -> None:
    measure = bench("measure")
    rounds = [
        measure.Cost(wall_s=2.0, cpu={"driver": 1.0, "jvm": 2.0, "workers": 0.0}, peak_mb=10.0),
        measure.Cost(wall_s=3.0, cpu={"driver": 0.5, "jvm": 1.0, "workers": 0.0}, peak_mb=20.0),
    ]
    record = measure.best("3 outputs", "ours", 3, 1000, rounds).as_json()
    assert record.keys() >= FIELDS
    assert (record["cpu_s"], record["wall_s"], record["peak_mb"], record["rounds"]) == (1.5, 2.0, 20.0, 2)


def test_goals_compare_ours_with_others_of_the_same_case(bench: Any) -> None:
    measure, report, ways = bench("measure"), bench("report"), bench("ways")
    records = [
        measure.Record("3 outputs", ways.OURS, 3, 1000, cpu_s=4.0, wall_s=1.0, peak_mb=1.0),
        measure.Record("3 outputs", ways.PARQUET, 3, 1000, cpu_s=5.0, wall_s=1.0, peak_mb=1.0),
        measure.Record("3 outputs", ways.DELTA, 3, 1000, cpu_s=6.0, wall_s=1.0, peak_mb=1.0),
    ]
    found = [(round(value, 3), limit) for _what, value, limit in report.checked(records)]
    assert found == [(0.8, 0.85), (0.667, 0.5)]
    text = report.goals(records)
    assert text.count("met") == 1
    assert text.count("MISSED") == 1


def test_thirty_outputs_differ_and_three_are_the_main_ones(bench: Any) -> None:
    shape = bench("shape")
    names = [output.name for output in shape.routed(30)]
    assert len(set(names)) == 30
    assert names[:3] == ["request_logs", "error_events", "performance_metrics"]
    assert shape.routed(5)[4].condition(shape.SPARK) == "request.status_code >= 400"


def test_a_name_chooses_the_cases_that_begin_with_it(bench: Any) -> None:
    cases = bench("cases")
    assert cases.chosen("three,native") == ["three", *bench("native_cases").CASES]
    assert cases.chosen("native-small") == ["native-small"]
    with pytest.raises(SystemExit, match="no such case: nativ;"):
        cases.chosen("nativ,three")


def test_every_native_case_is_held_against_the_general_way(bench: Any) -> None:
    measure, report, native = bench("measure"), bench("report"), bench("native_cases")
    costs = {native.OURS: 2.2, native.GENERAL: 2.0}
    records = [
        measure.Record(case, way, 3, 1000, cpu_s=cpu, wall_s=1.0, peak_mb=1.0)
        for case in native.COMPARED
        for way, cpu in costs.items()
    ]
    found = [(what, round(value, 3)) for what, value, limit in report.checked(records) if value > limit]
    assert found == [(f"{case}, CPU, of all by Spark", 1.1) for case in native.COMPARED]


def test_one_event_in_twenty_has_a_fault(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, events = bench("shape"), bench("native_events")
    monkeypatch.setattr(shape, "DATA", tmp_path)
    clean = shape.event_files("clean", 80, 2)

    def lines(folder: Path) -> list[str]:
        return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]

    for how in (events.truncated, events.mistyped):
        changed = [(a, b) for a, b in zip(lines(clean), lines(how(clean)), strict=True) if a != b]
        assert len(changed) == 4  # two of the forty events in each file
    old, new = (json.loads(line) for line in changed[0])
    assert str(old["request"].pop("latency_ms")) == new["request"].pop("latency_ms")
    assert old == new


@pytest.mark.parametrize(("kind", "fields", "least", "most"), [("WIDE", 200, 4000, 6000), ("HUGE", 5, 45_000, 55_000)])
def test_kinds_of_events_are_as_large_as_they_say(bench: Any, kind: str, fields: int, least: int, most: int) -> None:
    found = getattr(bench("native_events"), kind)
    record = found.record(123_456)
    assert least < len(record) < most
    assert len(json.loads(record)) == fields == len(re.findall(r"(?:^|, )\w+ ", found.schema))
