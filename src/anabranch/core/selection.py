"""Which datasets a run is about: all of them, or some, and which of these are rebuilt from nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.core.declarations import Dataset, Pipeline
from anabranch.errors import ProjectError, ProjectErrors, did_you_mean

#: The property by which a table says that it is never to be rebuilt.
RESET_ALLOWED = "pipelines.reset.allowed"


@dataclass(frozen=True, slots=True)
class Selection:
    """What was asked for on the command line; nothing said means every dataset, brought up to date.

    >>> Selection().takes(["orders"]), Selection(refresh=frozenset({"orders"})).takes(["people"])
    (True, False)
    """

    refresh: frozenset[str] = frozenset()
    full_refresh: frozenset[str] = frozenset()
    full_refresh_all: bool = False

    def in_words(self) -> str:
        """What was asked for, in the words of the command line.

        >>> Selection(refresh=frozenset({"orders"}), full_refresh=frozenset({"people"})).in_words()
        '--refresh orders --full-refresh people'
        """
        said = {"--refresh": self.refresh, "--full-refresh": self.full_refresh}
        parts = [f"{option} {','.join(sorted(names))}" for option, names in said.items() if names]
        return " ".join([*parts, *(["--full-refresh-all"] if self.full_refresh_all else [])])

    def takes(self, names: Iterable[str]) -> bool:
        """Whether a channel or view with these outputs is run."""
        chosen = self.refresh | self.full_refresh
        return not chosen or bool(chosen & set(names))

    def rebuilds(self, datasets: Iterable[Dataset]) -> frozenset[str]:
        """Those of the outputs that are rebuilt; a protected one never is."""
        return frozenset(
            d.name for d in datasets if (self.full_refresh_all or d.name in self.full_refresh) and may_reset(d)
        )

    def check(self, pipeline: Pipeline) -> None:
        """Refuse names that nothing has, and tables that are protected."""
        known = {d.name: d for d in pipeline.datasets if d.is_output}
        problems = [
            ProjectError(
                "DATASET_UNKNOWN",
                f'"{name}" is no table, view or sink of this pipeline',
                hint=did_you_mean(name, known) or f"there are: {', '.join(known)}",
            )
            for name in sorted((self.refresh | self.full_refresh) - set(known))
        ]
        problems += [
            ProjectError(
                "RESET_NOT_ALLOWED",
                f'"{name}" is not to be rebuilt: it is declared with {RESET_ALLOWED}=false',
                where=known[name].where,
                hint="leave it out, or take the property away",
            )
            for name in sorted(self.full_refresh & set(known))
            if not may_reset(known[name])
        ]
        if problems:
            raise ProjectErrors(problems)


def may_reset(dataset: Dataset) -> bool:
    """Whether a table may be emptied and rebuilt."""
    return dataset.properties.get(RESET_ALLOWED, "true").lower() != "false"
