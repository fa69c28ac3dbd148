"""What became of a flow's rows: how many broke which expectation, and what was done with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from anabranch.core.declarations import Action, Dataset, Expectation, Kind

#: Rows that an error shows of those that broke a rule.
SAMPLES = 3

#: The columns of a quarantine table; `payload` is the row as JSON, `reasons` every rule it broke.
QUARANTINE_COLUMNS = "reasons array<string>, payload string, flow string, generation bigint, epoch bigint"


@dataclass(frozen=True, slots=True)
class FlowQuality:
    """One flow's rows in one epoch, judged by the expectations of the dataset it feeds.

    `broken` has a count for every rule, also for those that all rows kept. A row that breaks several counts for each of
    them, and once in `dropped` or `quarantined`. `samples` are rows that broke a rule that fails the epoch.
    """

    dataset: str
    flow: str
    rows: int
    broken: Mapping[str, int]
    dropped: int = 0
    quarantined: int = 0
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
    found = (FlowQuality(**raw) for raw in json.loads(text))
    return tuple(
        FlowQuality(q.dataset, q.flow, q.rows, q.broken, q.dropped, q.quarantined, _tuples(q.samples)) for q in found
    )


def _tuples(samples: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {rule: tuple(rows) for rule, rows in samples.items()}


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
        quarantine_name(dataset.name),
        Kind.STREAMING_TABLE,
        rules[0].where,
        comment=comment,
        schema=QUARANTINE_COLUMNS,
    )


def with_action(rules: Iterable[Expectation], *actions: Action) -> tuple[Expectation, ...]:
    """The rules that ask for one of these."""
    return tuple(rule for rule in rules if rule.action in actions)
