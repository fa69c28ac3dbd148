"""Whether a batch is worth a try of the native pass: what went before decides."""

from __future__ import annotations

from dataclasses import dataclass

#: Batches that Spark computes alone after one of which the native pass could take too little, or cost too much: twice
#: as many each time, until it is worth it again.
_PAUSE = 20
_LONGEST_PAUSE = 320

#: CPU-milliseconds, measured (docs/decisions/0017): what Spark takes for records that are left to it, however few; what
#: a native batch saves, and each of its records.
_LEFT = 100.0
_SAVED = 35.0
_SAVED_RECORD = 0.005

#: What may be lost before the native pass is not tried for a while; and what is still lost when it is tried again.
_MOST_LOST = 150.0
_STILL_LOST = 100.0


@dataclass
class Turns:
    """Whose turn it is, for the native flows of a group.

    Small batches with some record for Spark in most of them cost less if Spark computes all of it:

    >>> turns = Turns()
    >>> for _ in range(3):
    ...     turns.passed(records=1000, left=True)
    >>> [turns.is_sparks() for _ in range(99)].count(True)
    20
    >>> turns.passed(records=1000, left=True)
    >>> [turns.is_sparks() for _ in range(99)].count(True)
    40
    """

    _pause: int = 0
    _next_pause: int = _PAUSE
    _lost: float = 0.0

    def is_sparks(self) -> bool:
        """Whether Spark computes the batch that is next."""
        if not self._pause:
            return False
        self._pause -= 1
        return True

    def too_much(self) -> None:
        """A batch was more than the native pass could take, or than it is worth."""
        self._pause = self._next_pause
        self._next_pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def passed(self, *, records: int, left: bool) -> None:
        """A batch went the native way; some of it was `left` to Spark, or nothing."""
        gain = _SAVED + _SAVED_RECORD * records - (_LEFT if left else 0)
        self._lost = max(0.0, self._lost - gain)
        if not self._lost:
            self._next_pause = _PAUSE
        if self._lost > _MOST_LOST:
            self._lost = _STILL_LOST
            self.too_much()
