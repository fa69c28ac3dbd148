"""What the names in a project's code mean: `orders`, `sales.orders` and `main.sales.orders` can be one dataset.

A dataset is known by its table, and in front of it a database and a catalogue. Parts that are left out are those of the
project file, in the declaration as in the code that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

#: The catalogue and the database of a project that names none: those that Spark starts with.
HOME = ("spark_catalog", "default")

MOST_PARTS = 3


def is_name(text: str) -> bool:
    """Whether a dataset can be called so: up to three parts, each of letters, digits and underscores.

    >>> is_name("orders"), is_name("main.sales.orders"), is_name("my-orders"), is_name("a.b.c.d"), is_name("a..b")
    (True, True, False, False, False)
    """
    parts = text.split(".")
    return len(parts) <= MOST_PARTS and all(part.isidentifier() for part in parts)


def resolve(text: str, datasets: Iterable[str], home: tuple[str, str] = HOME) -> str | None:
    """The dataset that a name in a flow's code means; None for a table from outside, or if it may be several.

    >>> resolve("main.sales.orders", ["orders"], ("main", "sales")), resolve("raw.orders", ["orders"])
    ('orders', None)
    """
    found = meanings(text, datasets, home)
    return found[0] if len(found) == 1 else None


def meanings(text: str, datasets: Iterable[str], home: tuple[str, str] = HOME) -> tuple[str, ...]:
    """The datasets that a name may mean. Spark takes no notice of capital letters, so neither does this.

    >>> meanings("Orders", ["silver.orders", "gold.orders"])
    ('silver.orders', 'gold.orders')
    >>> meanings("GOLD.`orders`", ["silver.orders", "gold.orders"])
    ('gold.orders',)
    """
    plain, names = text.replace("`", ""), list(datasets)
    if plain in names:
        return (plain,)
    whole, parts = whole_name(plain, home), _parts(plain)
    same = [name for name in names if whole_name(name, home) == whole]
    # What a name with parts left out means in the first place is there; else it is short for a longer one.
    return tuple(same or [name for name in names if _parts(name)[-len(parts) :] == parts])


def whole_name(name: str, home: tuple[str, str] = HOME) -> str:
    """A name with the parts that it leaves out, the same for all ways to write it.

    >>> whole_name("Orders", ("main", "sales")), whole_name("silver.orders")
    ('main.sales.orders', 'spark_catalog.silver.orders')
    """
    left_out = max(MOST_PARTS - 1 - name.count("."), 0)
    return ".".join([*home[:left_out], name]).lower()


def view_names(datasets: Iterable[str]) -> dict[str, str]:
    """What the temporary view of each dataset is called: a simple name, and no two alike, capital letters or not.

    >>> view_names(["orders", "silver.orders", "silver__orders"])
    {'orders': 'orders', 'silver.orders': 'silver__orders_2', 'silver__orders': 'silver__orders'}
    """
    names = list(datasets)
    # The last part may be read alone: a view of that name would be taken for what it is short for.
    taken = {_parts(name)[-1] for name in names}
    views: dict[str, str] = {}
    for name in names:
        view = joined = name.replace(".", "__")
        number = 1
        while "." in name and view.lower() in taken:
            number += 1
            view = f"{joined}_{number}"
        taken.add(view.lower())
        views[name] = view
    return views


def _parts(name: str) -> list[str]:
    return name.lower().split(".")


def quoted(name: str) -> str:
    """A name as standard SQL quotes it, for DuckDB.

    >>> quoted('two "words" here')
    '"two ""words"" here"'
    """
    return '"' + name.replace('"', '""') + '"'
