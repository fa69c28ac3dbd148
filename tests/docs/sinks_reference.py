"""Write docs/reference/sinks.md from the formats themselves: `python tests/docs/sinks_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anabranch.core.formats import OURS, Format

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "sinks.md"
HEAD = """# Formats of outputs

<!-- Written by tests/docs/sinks_reference.py from the formats themselves. -->

An output has a format: `@dp.table(format="...")`, or `dp.create_sink("name", "format", {"option": "value"})`. Each
declares what it promises; `anabranch plan` prints it for every output. All formats commit with the epoch: what is not
decided is in none of them. Other packages can add formats, see [Write a sink](../how-to/write-a-sink.md).

Values of options may refer to secrets, see [Secrets](../how-to/secrets.md).
"""
TAIL = """
- **exactly once**: no row lost, no row twice, whatever crashes. Otherwise at least once.
- **at the cut**: [`read.cut`](../how-to/read-a-cut.md) reads it at any kept epoch, together with the others.
- **new columns**: *additive*: a column that a flow adds is added; *any*: it keeps no schema; *none*: refused.
- **replaces**: a full refresh takes the place of all rows. Otherwise they come again, beside those that are there.
- **changes by key**: it can be the target of `create_auto_cdc_flow`.
"""


def render() -> str:
    """The whole page."""
    head = "| format | exactly once | at the cut | new columns | replaces | changes by key |\n|---|---|---|---|---|---|"
    rows = "\n".join(_row(form) for form in OURS.values())
    return "\n".join([HEAD, head, f"{rows}\n{TAIL}", *(text for form in OURS.values() for text in _section(form))])


def _row(form: Format) -> str:
    can = form.capabilities
    cells = [_yes(can.exactly_once), _yes(can.pinned_reads), can.schema_evolution, _yes(can.replaces), _yes(can.merges)]
    return f"| {' | '.join([f'[{form.name}](#{form.name})', *cells])} |"


def _section(form: Format) -> Iterator[str]:
    can = form.capabilities
    yield f"## {form.name}\n"
    yield f"{'Exactly' if can.exactly_once else 'At least'} once, by {can.idempotent_by}.\n"
    if can.exceptions:
        yield "\n".join(["Not promised:\n", *(f"- {text}" for text in can.exceptions), ""])
    said = [*(f"`{name}` (required)" for name in form.required), *(f"`{name}`" for name in form.options if name != "*")]
    if said:
        yield f"Options: {', '.join(said)}.\n"
    if form.spooled:
        yield "Its rows wait below the storage folder, in `staged`, until it has taken them.\n"


def _yes(so: bool) -> str:
    return "yes" if so else "no"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
