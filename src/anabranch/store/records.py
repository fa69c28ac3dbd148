"""What the ledger hands out: plain records of pipelines, channels and epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.core.epoch import Applied, EpochKey, Receipt, State
from anabranch.core.quality import FlowQuality


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A pipeline as the ledger knows it; `pipeline_id` is made once and never changes."""

    pipeline_id: str
    name: str
    storage: str
    created_at: float


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One output of a channel."""

    name: str
    format: str
    location: str


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A channel, the generation its epochs are counted in and the outputs that share them."""

    channel: str
    generation: int
    outputs: tuple[OutputRecord, ...]


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Everything the ledger knows about one epoch.

    `outputs` says where each sink was when the epoch was decided; `restaging` names the sinks whose staged files were
    found damaged (`reason`), whose receipts are therefore not to be applied.
    """

    key: EpochKey
    state: State
    offsets: str
    token: int
    decided_at: float
    published_at: float | None = None
    times: Mapping[str, float] = field(default_factory=dict)
    window: float = 0.0
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    outputs: Mapping[str, OutputRecord] = field(default_factory=dict)
    applied: Mapping[str, Applied] = field(default_factory=dict)
    applied_at: Mapping[str, float] = field(default_factory=dict)
    restaging: tuple[str, ...] = ()
    reason: str | None = None
    quality: tuple[FlowQuality, ...] = ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """The sinks that have not taken the epoch yet, in the order of their names."""
        return tuple(sink for sink in sorted(self.receipts) if sink not in self.applied)
