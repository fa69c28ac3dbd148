"""What became of a flow's rows: how many broke which expectation, and what was done with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from anabranch.core.declarations import Action, Dataset, Expectation, Kind
from anabranch.errors import DataError

#: Rows that an error shows of those that broke a rule.
SAMPLES = 3

#: The columns of a quarantine table; `payload` is the row as JSON, `reasons` every rule it broke.
QUARANTINE_COLUMNS = "reasons array<string>, payload string, flow string, generation bigint, epoch bigint"


@dataclass(frozen=True, slots=True)
class FlowQuality:
    """One flow's rows in one epoch, judged by the expectations of the dataset it feeds.

    `broken` has a count for every rule, also for those that all rows kept. A row that breaks several counts for each of
    them, and once in `dropped` or `quarantined`. `samples` are rows that broke a rule that fails the epoch. `flow` is
    empty for the rules on all rows of a table together: `rows` are then those that were new to it.
    """

    dataset: str
    flow: str
    rows: int
    broken: Mapping[str, int]
    dropped: int = 0
    quarantined: int = 0
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    breaking: int = 0  # rows that broke any rule, each once

    def __add__(self, other: FlowQuality) -> FlowQuality:
        return FlowQuality(
            self.dataset,
            self.flow,
            self.rows + other.rows,
            {rule: count + other.broken[rule] for rule, count in self.broken.items()},
            self.dropped + other.dropped,
            self.quarantined + other.quarantined,
            {
                rule: (*self.samples.get(rule, ()), *other.samples.get(rule, ()))[:SAMPLES]
                for rule in {**self.samples, **other.samples}
            },
            self.breaking + other.breaking,
        )


def total(found: Iterable[FlowQuality]) -> tuple[FlowQuality, ...]:
    """What several tasks counted, one for each flow.

    >>> one = FlowQuality("orders", "web", 5, {"has_id": 2}, dropped=2)
    >>> [(q.rows, q.broken, q.dropped) for q in total([one, one])]
    [(10, {'has_id': 4}, 4)]
    """
    by_flow: dict[str, FlowQuality] = {}
    for one in found:
        by_flow[one.flow] = by_flow[one.flow] + one if one.flow in by_flow else one
    return tuple(by_flow[name] for name in sorted(by_flow))


def to_json(found: Sequence[FlowQuality]) -> str:
    """One line of JSON that `from_json` turns back."""
    return json.dumps([asdict(one) for one in found], sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> tuple[FlowQuality, ...]:
    """What `to_json` wrote.

    >>> one = FlowQuality("orders", "web", 5, {"has_id": 2}, samples={"has_id": ("{}",)})
    >>> from_json(to_json([one])) == (one,)
    True
    """
    return tuple(FlowQuality(**{**raw, "samples": _tuples(raw["samples"])}) for raw in json.loads(text))


def _tuples(samples: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {rule: tuple(rows) for rule, rows in samples.items()}


@dataclass(frozen=True, slots=True)
class DatasetQuality:
    """The rows of a dataset, of all its flows and of one or several epochs together.

    `broken` has the rules that any row broke, most of them first; `repeated` those on all rows together.
    """

    dataset: str
    rows: int
    breaking: int
    broken: Mapping[str, int]
    dropped: int
    quarantined: int
    repeated: Mapping[str, int]

    @property
    def is_good(self) -> bool:
        """Whether every row kept every rule."""
        return not self.broken and not self.repeated

    def in_words(self) -> str:
        """What is worth saying, in one line.

        >>> found = [FlowQuality("orders", "web", 100, {"positive": 2, "has_id": 1}, 1, breaking=3)]
        >>> found += [FlowQuality("orders", "", 97, {"one_per_id": 4})]
        >>> by_dataset(found)[0].in_words()
        'orders: 3 of 100 rows broke a rule (positive 2, has_id 1), 1 dropped; 4 repeat a key (one_per_id 4)'
        """
        parts = []
        if self.broken:
            kept_out = {"dropped": self.dropped, "quarantined": self.quarantined}
            done = "".join(f", {count:,} {word}" for word, count in kept_out.items() if count)
            parts.append(f"{self.breaking:,} of {self.rows:,} rows broke a rule ({_counts(self.broken)}){done}")
        if self.repeated:
            parts.append(f"{max(self.repeated.values()):,} repeat a key ({_counts(self.repeated)})")
        return f"{self.dataset}: {'; '.join(parts) or 'every row kept every rule'}"


def by_dataset(found: Iterable[FlowQuality]) -> tuple[DatasetQuality, ...]:
    """What was found, one for each dataset in the order of their names."""
    by_name: dict[str, list[FlowQuality]] = {}
    for one in found:
        by_name.setdefault(one.dataset, []).append(one)
    return tuple(_together(name, by_name[name]) for name in sorted(by_name))


def _together(dataset: str, found: Sequence[FlowQuality]) -> DatasetQuality:
    judged, whole = [q for q in found if q.flow], [q for q in found if not q.flow]
    return DatasetQuality(
        dataset,
        sum(q.rows for q in judged or whole),
        sum(q.breaking for q in judged),
        _sums(judged),
        sum(q.dropped for q in judged),
        sum(q.quarantined for q in judged),
        _sums(whole),
    )


def _sums(found: Iterable[FlowQuality]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for one in found:
        sums.update(one.broken)
    return {rule: count for rule, count in sorted(sums.items(), key=lambda pair: (-pair[1], pair[0])) if count}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in counts.items())


def quarantine_name(dataset: str) -> str:
    """The table that a dataset's quarantined rows go to.

    >>> quarantine_name("orders")
    'orders_quarantine'
    """
    return f"{dataset}_quarantine"


def quarantine_of(dataset: Dataset) -> Dataset | None:
    """The table for rows that break a rule of a dataset, if it has a rule that asks for one."""
    rules = with_action(dataset.expectations, Action.QUARANTINE)
    if not rules:
        return None
    comment = f'rows that "{dataset.name}" did not take: ' + ", ".join(rule.name for rule in rules)
    return Dataset(
        dataset.quarantine or quarantine_name(dataset.name),
        Kind.STREAMING_TABLE,
        rules[0].where,
        comment=comment,
        schema=QUARANTINE_COLUMNS,
    )


def with_action(rules: Iterable[Expectation], *actions: Action) -> tuple[Expectation, ...]:
    """The rules that ask for one of these."""
    return tuple(rule for rule in rules if rule.action in actions)


def check(quality: Sequence[FlowQuality]) -> None:
    """Give the epoch up when a row broke a rule that says so; only such rules have samples."""
    for found in quality:
        for rule, rows in found.samples.items():
            raise DataError(
                "EXPECTATION_FAILED",
                f'{found.broken[rule]} of {found.rows} rows of flow "{found.flow}" break "{rule}" of '
                f'"{found.dataset}"; nothing of the epoch was written. The first: {"; ".join(rows)}',
                hint="mend the source or the rule and run again; expect_or_drop or expect_or_quarantine would go on",
                details={"dataset": found.dataset, "flow": found.flow, "rule": rule, "rows": list(rows)},
            )
