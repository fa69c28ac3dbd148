"""Names of files that must not be read yet, as a glob: Hadoop's globs can say what a name has, not what it lacks."""

from __future__ import annotations

from collections.abc import Iterable


def not_ending(endings: Iterable[str]) -> str:
    """A glob of all names that have none of these endings.

    A name is read from its end: as long as it could still become an ending, the next letter tells.

    >>> not_ending([".p"])
    '{*[!p],*[!.]p,p}'
    """
    wanted = sorted(set(endings))
    patterns: list[str] = []
    waiting = [""]
    while waiting:
        tail = waiting.pop(0)
        longer = [ending for ending in wanted if ending.endswith(tail) and ending != tail]
        letters = sorted({ending[-len(tail) - 1] for ending in longer})
        patterns.append(f"*[!{''.join(letters)}]{tail}")
        if tail:
            patterns.append(tail)  # a name that ends here
        waiting += [letter + tail for letter in letters if letter + tail not in wanted]
    return "{" + ",".join(patterns) + "}"
