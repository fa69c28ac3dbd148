"""The contract of `connectors.contract`, tried with every sink against the real thing.

Where a sink does less than others, its format declares so in `core.formats`: that is what `plan` and the docs print,
and what these tests ask before they ask for less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from contract_case import (
    FOREIGN,
    SCHEMA,
    WIDER,
    Case,
    Row,
    Trial,
    apply_in_child,
    cases,
    changes,
    changes_schema,
    key,
    stage,
)

from anabranch.core import crash
from anabranch.core.changes import Merge
from anabranch.core.formats import formats
from anabranch.errors import AnabranchError

A, B, C, D = ({"id": i, "name": name} for i, name in enumerate("abcd"))


def times(rows: list[dict[str, object]], row: Row) -> int:
    return Counter(str(r) for r in rows)[str(dict(row))]


def test_every_format_has_a_case() -> None:
    ours = {name for name in formats() if name not in ("json", "csv")}  # those are the files sink, as parquet is
    assert ours <= {case.format for case in cases()}


def test_what_is_staged_is_not_seen(trial: Trial) -> None:
    receipt = stage(trial.sink, key(0), [A, B])
    assert trial.rows == []
    assert trial.sink.find(key(0)) is None
    assert trial.sink.damaged(receipt) is None
    assert trial.sink.latest(key(0)) is None


def test_apply_and_apply_again(trial: Trial) -> None:
    receipt = stage(trial.sink, key(0), [A, B])
    first = trial.sink.apply(key(0), receipt)
    again = trial.sink.apply(key(0), receipt)
    elsewhere = trial.reopened().apply(key(0), receipt)
    assert trial.rows == [A, B]
    assert (first.already, again.already, elsewhere.already) == (False, True, True)
    assert first.version == again.version == elsewhere.version
    assert trial.sink.has(first.version)


def test_epochs_come_one_after_the_other(trial: Trial) -> None:
    for epoch, rows in enumerate(([A], [B, C], [D])):
        trial.sink.apply(key(epoch), stage(trial.sink, key(epoch), rows))
    assert trial.rows == [A, B, C, D]
    assert trial.sink.latest(key(0)) == 2
    assert trial.sink.latest(key(0, channel="another")) is None
    assert trial.sink.latest(key(0, generation=7)) is None


def test_found_after_a_restart(trial: Trial) -> None:
    receipt = stage(trial.sink, key(0), [A])
    version = trial.sink.apply(key(0), receipt).version
    for sink in (trial.reopened(), trial.remembered()):
        found = sink.find(key(0))
        assert found is not None
        assert (found.version, found.already) == (version, True)
        assert sink.find(key(1)) is None
        assert sink.has(version)


def test_finished_by_whoever_comes_next(trial: Trial) -> None:
    receipt = stage(trial.sink, key(0), [A, B])
    sink = trial.remembered()
    assert sink.damaged(receipt) is None
    sink.apply(key(0), receipt)
    assert trial.rows == [A, B]


def test_the_answer_is_lost(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink has it, and whoever sent it does not know."""
    receipt = stage(trial.sink, key(0), [A, B])
    monkeypatch.setenv(crash.VARIABLE, f"committed({trial.spec.name}):raise")
    with pytest.raises(crash.CrashPointError):
        trial.sink.apply(key(0), receipt)
    monkeypatch.delenv(crash.VARIABLE)
    assert trial.rows == [A, B]
    assert trial.reopened().apply(key(0), receipt).already
    trial.sink.apply(key(1), stage(trial.sink, key(1), [C]))
    assert trial.rows == [A, B, C]


@pytest.mark.crash
def test_killed_after_its_commit(trial: Trial) -> None:
    """By SIGKILL, in a process of its own; the points before and after are the engine's, and tried with it."""
    if not trial.case.survives:
        pytest.skip("its rows are those of one process")
    receipt = stage(trial.sink, key(0), [A, B])
    assert apply_in_child(trial, key(0), receipt, f"committed({trial.spec.name})") == -9
    sink = trial.remembered()
    assert sink.find(key(0)) is not None
    assert sink.apply(key(0), receipt).already
    assert trial.rows == [A, B]


def test_refused(trial: Trial) -> None:
    """A target that takes nothing is told in our words; the rows are kept, and taken when it is back."""
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A]))
    receipt = stage(trial.sink, key(1), [B])
    refusing = trial.case.refusing(trial.spec)
    if refusing is None:
        pytest.skip("this target cannot be made to refuse")
    with refusing, pytest.raises((AnabranchError, OSError)) as refused:
        trial.sink.apply(key(1), receipt)
    if isinstance(refused.value, AnabranchError):
        assert refused.value.hint
    assert trial.remembered().damaged(receipt) is None
    trial.reopened().apply(key(1), receipt)
    assert trial.rows == [A, B]


def test_discarded(trial: Trial) -> None:
    """Staged rows of an attempt before this one go, those that an epoch waits for and those of this one stay."""
    waiting = stage(trial.sink, key(0), [A], token=1)
    stage(trial.sink, key(1), [B], token=1)
    mine = stage(trial.sink, key(1), [C], token=2)
    keep = frozenset(f.path for f in waiting.files)
    left = trial.remembered().leftovers(keep, 2)
    assert len(left) == 1
    assert all(size > 0 for _, size in left)
    trial.sink.discard(path for path, _ in left)
    trial.sink.discard(path for path, _ in left)  # gone already is no error
    assert trial.sink.leftovers(keep, 2) == []
    trial.sink.apply(key(0), waiting)
    trial.sink.apply(key(1), mine)
    assert trial.rows == [A, C]
    assert trial.sink.leftovers(frozenset(), 3) == []


def test_nothing_of_what_was_taken_is_left_over(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A, B]))
    assert trial.remembered().leftovers(frozenset(), 9) == []
    assert trial.rows == [A, B]


def test_an_epoch_without_rows(trial: Trial) -> None:
    empty = stage(trial.sink, key(0), [])
    assert empty.files == ()
    trial.sink.apply(key(0), empty)
    trial.sink.apply(key(1), stage(trial.sink, key(1), [A]))
    trial.sink.apply(key(2), stage(trial.sink, key(2), []))
    trial.reopened().apply(key(2), stage(trial.sink, key(2), []))
    assert trial.rows == [A]


def test_a_column_more(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A]))
    if trial.sink.capabilities.schema_evolution == "none":
        with pytest.raises(AnabranchError):
            trial.reopened(WIDER)
        return
    wider = trial.reopened(WIDER)
    rows = [{**B, "more": 1.5}]
    wider.apply(key(1), stage(wider, key(1), rows, schema=WIDER))
    assert trial.rows == [A, *rows]
    narrow = trial.reopened(SCHEMA)  # the code was put back
    narrow.apply(key(2), stage(narrow, key(2), [C]))
    assert trial.rows == [A, *rows, C]


def test_a_foreign_writer(trial: Trial) -> None:
    """Rows of others stay, and do not keep ours from coming in once."""
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A]))
    receipt = stage(trial.sink, key(1), [B])
    if not trial.case.foreign(trial.spec):
        pytest.skip("nobody else writes there")
    trial.sink.apply(key(1), receipt)
    trial.case.foreign(trial.spec)
    assert trial.reopened().apply(key(1), receipt).already
    assert [times(trial.rows, row) for row in (A, B, FOREIGN)] == [1, 1, 2]


def test_rows_in_the_place_of_all_others(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A, B]))
    again = key(0, generation=2)
    receipt = stage(trial.sink, again, [B, C], token=2, replace=True)
    trial.sink.apply(again, receipt)
    assert trial.reopened().apply(again, receipt).already
    kept = [B, C] if trial.sink.capabilities.replaces else [A, B, B, C]
    assert trial.rows == kept


def test_all_rows_give_way_to_none(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A, B]))
    if not trial.sink.capabilities.replaces:
        pytest.skip("it cannot take rows back")
    again = key(0, generation=2)
    trial.sink.apply(again, stage(trial.sink, again, [], replace=True))
    assert trial.rows == []


def test_damage_is_seen(trial: Trial) -> None:
    receipt = stage(trial.sink, key(0), [A, B])
    staging = trial.sink.staging(key(0), 1)
    file = Path(staging.folder.removeprefix("file://")) / receipt.files[0].path
    file.write_bytes(file.read_bytes()[:-3])
    assert trial.remembered().damaged(receipt)


def test_changes_by_key(case: Case, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Newest wins, whatever the order; a delete stays when an older change comes late."""
    spec = replace(case.target(request, tmp_path), merge=Merge(("id",)))
    if not formats()[case.format].capabilities.merges:
        pytest.skip("it does not take changes by key")
    schema = changes_schema()
    sink = case.open(spec)
    sink.prepare(schema)
    trial = Trial(case, spec, sink)
    epochs = [
        changes((1, "old", 1, False), (2, "two", 1, False), (3, "three", 5, False)),
        changes((1, "new", 3, False), (2, "two", 4, True)),
        changes((1, "late", 2, False), (2, "late", 3, False), (4, "four", 1, False)),
    ]
    for number, rows in enumerate(epochs):
        receipt = stage(sink, key(number), rows, schema=schema)
        sink.apply(key(number), receipt)
        assert trial.reopened(schema).apply(key(number), receipt).already
    assert [(row["id"], row["name"]) for row in trial.rows] == [(1, "new"), (3, "three"), (4, "four")]


def test_rows_that_it_cannot_take_are_refused_before_anything_is_read(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A]))
    if trial.sink.capabilities.schema_evolution == "any":
        pytest.skip("it keeps no schema")
    with pytest.raises(AnabranchError) as refused:
        trial.case.open(trial.spec).prepare(pa.schema([("id", pa.string()), ("name", pa.string())]))
    assert refused.value.hint
    assert trial.rows == [A]


def test_its_promises_are_those_of_its_format(trial: Trial) -> None:
    assert trial.sink.capabilities == formats()[trial.sink.format].capabilities
    assert trial.sink.name == trial.spec.name
    if not trial.sink.capabilities.exactly_once:
        assert trial.sink.capabilities.exceptions, "what is not promised is said in words"


def test_removed(trial: Trial) -> None:
    trial.sink.apply(key(0), stage(trial.sink, key(0), [A]))
    stage(trial.sink, key(1), [B])
    trial.remembered().remove()
    assert trial.case.open(trial.spec).leftovers(frozenset(), 9) == []
