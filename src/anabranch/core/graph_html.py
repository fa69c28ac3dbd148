"""The graph of a project as one page that needs nothing else: no script, nothing from outside, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import count
from typing import TYPE_CHECKING

from anabranch.core.where import shown_place

if TYPE_CHECKING:
    from anabranch.core.lineage import Edge, Lineage, Node

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN, HEAD = 220, 46, 90, 22, 24, 34

_STYLE = """
:root { color-scheme: light dark; --line: #8a94a6; --box: #ffffff; --text: #1b2330; --lane: #f1f4f9; --back: #ffffff;
  --edge: #2f6feb; }
@media (prefers-color-scheme: dark) { :root { --line: #6b7689; --box: #1d2430; --text: #e6eaf2; --lane: #161b24;
  --back: #0f131a; --edge: #6ea0ff; } }
body { margin: 0; padding: 1rem 1.5rem; background: var(--back); color: var(--text);
  font: 14px/1.4 system-ui, sans-serif; }
h1 { font-size: 1.2rem; } svg { max-width: none; } .scroll { overflow: auto; }
.lane { fill: var(--lane); } .lane-name { fill: var(--text); font-weight: 600; }
.box { fill: var(--box); stroke: var(--line); stroke-width: 1.2; } .outside .box { stroke-dasharray: 5 3; }
.view .box { stroke-dasharray: 2 2; } .name { fill: var(--text); } .kind { fill: var(--line); font-size: 11px; }
.edge { fill: none; stroke: var(--edge); stroke-width: 1.4; opacity: .75; } .unsure { stroke-dasharray: 4 4; }
table { border-collapse: collapse; margin-top: 1.5rem; } td, th { text-align: left; padding: .25rem .9rem .25rem 0; }
th { border-bottom: 1px solid var(--line); }
"""


def as_html(pipeline: str, found: Lineage) -> str:
    """The page: a picture, and the same as a table for whoever does not see it."""
    title = escape(pipeline)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<div class="scroll">{_picture(pipeline, found)}</div>\n{_table(found)}\n</body>\n</html>'
    )


def places(found: Lineage) -> Mapping[str, tuple[int, int]]:
    """The column and the line of each node: what is outside first, then zone after zone, each after what it reads.

    Among zones, what is in none of them stands below, so that nothing is in the way of what connects them.
    """
    column = {n.name: 0 for n in found.nodes if n.is_outside}
    first = start = 1 if column else 0
    zones = [zone for zone in dict.fromkeys(n.zone for n in found.nodes) if zone]
    for zone in zones:
        inside = [n.name for n in found.nodes if n.zone == zone]  # each after what it reads
        for name in inside:
            column[name] = max(
                (column[i] + 1 for i in found.inputs(name) if i in column and i in inside), default=start
            )
        start = max(column[name] for name in inside) + 1
    loose = [n.name for n in found.nodes if n.name not in column]
    for name in loose:
        column[name] = max((column[i] + 1 for i in found.inputs(name) if i in column), default=first)
    line: dict[str, int] = {}
    for name in (n.name for n in found.nodes if n.name not in loose):
        line[name] = _free_line(name, found, column, line, 0)
    below = max(line.values(), default=-1) + 1 if zones else 0
    for name in loose:
        line[name] = _free_line(name, found, column, line, below)
    return {n.name: (column[n.name], line[n.name]) for n in found.nodes}


def _free_line(name: str, found: Lineage, column: Mapping[str, int], line: Mapping[str, int], least: int) -> int:
    """The first line in the column of a node that has no other node, and that no edge to a later column goes along."""
    here = column[name]
    taken = {at for other, at in line.items() if column[other] == here}
    taken |= {line[e.source] for e in found.edges if e.source in line and column[e.source] < here < column[e.target]}
    return next(number for number in count(least) if number not in taken)


def _picture(pipeline: str, found: Lineage) -> str:
    at = places(found)
    columns, lines = (max((p[i] for p in at.values()), default=0) + 1 for i in (0, 1))
    width = 2 * MARGIN + columns * WIDTH + (columns - 1) * ACROSS
    height = 2 * MARGIN + HEAD + lines * (HEIGHT + DOWN)
    deepest = max((at[n.name][1] for n in found.nodes if n.zone), default=0)
    bottom = _corner((0, deepest))[1] + HEIGHT + DOWN // 2
    parts = [_lane(zone, found, at, bottom) for zone in dict.fromkeys(n.zone for n in found.nodes) if zone]
    parts += [_edge(edge, at) for edge in found.edges]
    parts += [_node(node, *_corner(at[node.name])) for node in found.nodes]
    label = escape(f"{pipeline}: {len(found.nodes)} datasets and sources; the table below says the same")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="var(--edge)"/></marker></defs>'
        f"{''.join(parts)}</svg>"
    )


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    column, line = place
    return MARGIN + column * (WIDTH + ACROSS), MARGIN + HEAD + line * (HEIGHT + DOWN)


def _lane(zone: str, found: Lineage, at: Mapping[str, tuple[int, int]], bottom: int) -> str:
    columns = [at[n.name][0] for n in found.nodes if n.zone == zone]
    left, right = _corner((min(columns), 0))[0] - 14, _corner((max(columns), 0))[0] + WIDTH + 14
    return (
        f'<rect class="lane" x="{left}" y="8" width="{right - left}" height="{bottom - 8}" rx="8"/>'
        f'<text class="lane-name" x="{left + 14}" y="{MARGIN + 8}">{escape(zone)}</text>'
    )


def _edge(edge: Edge, at: Mapping[str, tuple[int, int]]) -> str:
    (x1, y1), (x2, y2) = _corner(at[edge.source]), _corner(at[edge.target])
    x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
    bend = max(40, (x2 - x1) // 2)
    kind = "edge" if edge.sure else "edge unsure"
    said = escape(f"{edge.source} to {edge.target}, flow {edge.flow}")
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return f'<path class="{kind}" d="{path}" marker-end="url(#tip)"><title>{said}</title></path>'


def _node(node: Node, x: int, y: int) -> str:
    short = node.name if len(node.name) <= 30 else f"{node.name[:14]}…{node.name[-14:]}"
    kind = "outside" if node.is_outside else "view" if node.kind == "temporary view" else "table"
    about = "\n".join(filter(None, [node.name, node.comment, shown_place(node.where) if node.where else None]))
    return (
        f'<g class="{kind}"><title>{escape(about)}</title>'
        f'<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{22 if kind == "view" else 6}"/>'
        f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(short)}</text>'
        f'<text class="kind" x="{x + 12}" y="{y + 36}">{escape(node.kind)}</text></g>'
    )


def _table(found: Lineage) -> str:
    rows = "".join(
        f"<tr><td>{escape(n.name)}</td><td>{escape(n.kind)}</td><td>{escape(n.channel or '')}</td>"
        f"<td>{escape(', '.join(found.inputs(n.name)))}</td>"
        f"<td>{escape(shown_place(n.where)) if n.where else ''}</td></tr>"
        for n in found.nodes
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("name", "kind", "channel", "reads", "declared at"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
