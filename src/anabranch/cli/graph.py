"""`anabranch graph`: what a project declares, as a picture in the form that is asked for."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.lineage import as_records, declared
from anabranch.cli.show_errors import plain_text
from anabranch.cli.verb import Invocation

if TYPE_CHECKING:
    from anabranch.core.lineage import Lineage, Node


class Form(StrEnum):
    """How it is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"
    HTML = "html"


def graph(
    at: Invocation,
    form: Annotated[Form, typer.Option("--format", help="How it is written.")] = Form.TEXT,
) -> None:
    """Show what feeds what, zones as lanes. From the files alone, without Java."""
    from anabranch.core.graph_html import as_html
    from anabranch.load.project import read_project

    project = read_project(at.project)
    _, found = declared(at, project)
    document = {"pipeline": project.name, **as_records(found)}
    match form:
        case Form.TEXT:
            text = as_text(project.name, found)
        case Form.MERMAID:
            text = as_mermaid(found)
        case Form.DOT:
            text = as_dot(found)
        case Form.JSON:
            text = json.dumps(document, indent=2, ensure_ascii=False)
        case Form.HTML:
            text = as_html(project.name, found)
    at.out.show(document, text)


def as_text(pipeline: str, found: Lineage) -> str:
    """Every dataset under its channel, with what it reads."""
    own = [node for node in found.nodes if not node.is_outside]
    width = max((len(node.name) for node in own), default=0)
    kinds = max((len(node.kind) for node in own), default=0)
    lines = [pipeline]
    for channel in dict.fromkeys(node.channel for node in own):
        lines += ["", f"channel {channel}"]
        for node in own:
            if node.channel == channel:
                reads = ", ".join(found.inputs(node.name))
                line = f"  {node.name:<{width}}  {node.kind:<{kinds}}{f'  <- {reads}' if reads else ''}"
                lines.append(plain_text(line.rstrip()))
    return "\n".join(lines)


def as_mermaid(found: Lineage) -> str:
    """A Mermaid flowchart.

    >>> from anabranch.core.lineage import Edge, Lineage, Node
    >>> both = (Node("a", "source"), Node("silver.b", "streaming table"))
    >>> print(as_mermaid(Lineage(both, (Edge("a", "silver.b", "b"),))))
    flowchart LR
      n0[/"a"/]
      subgraph z1["silver"]
        n1["silver.b"]
      end
      n0 --> n1
    """
    ids = {node.name: f"n{number}" for number, node in enumerate(found.nodes)}
    lines = ["flowchart LR"]
    for number, (zone, nodes) in enumerate(_lanes(found).items()):
        inside = [f"{ids[node.name]}{_mermaid_shape(node)}" for node in nodes]
        if zone:
            lines += [f'  subgraph z{number}["{_mermaid_text(zone)}"]']
            lines += [*(f"    {line}" for line in inside), "  end"]
        else:
            lines += [f"  {line}" for line in inside]
    return "\n".join(
        [*lines, *(f"  {ids[e.source]} {'-->' if e.sure else '-.->'} {ids[e.target]}" for e in found.edges)]
    )


def as_dot(found: Lineage) -> str:
    """A Graphviz graph.

    >>> from anabranch.core.lineage import Lineage, Node
    >>> print(as_dot(Lineage((Node('a"b', "sink"),), ())))
    digraph {
      rankdir=LR
      node [shape=box, style=rounded, fontname="sans-serif"]
      "a\\"b" [shape=cds, tooltip="sink"]
    }
    """
    lines = ["digraph {", "  rankdir=LR", '  node [shape=box, style=rounded, fontname="sans-serif"]']
    for number, (zone, nodes) in enumerate(_lanes(found).items()):
        inside = [f"{_quoted(n.name)} [{_dot_shape(n)}tooltip={_quoted(n.kind)}]" for n in nodes]
        if zone:
            lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(zone)}"]
            lines += [*(f"    {line}" for line in inside), "  }"]
        else:
            lines += [f"  {line}" for line in inside]
    for edge in found.edges:
        style = "" if edge.sure else " [style=dashed]"
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)}{style}")
    return "\n".join([*lines, "}"])


def _lanes(found: Lineage) -> dict[str, list[Node]]:
    """Nodes by zone; those without one first."""
    lanes: dict[str, list[Node]] = {"": []} if any(not node.zone for node in found.nodes) else {}
    for node in found.nodes:
        lanes.setdefault(node.zone, []).append(node)
    return lanes


def _mermaid_shape(node: Node) -> str:
    text = _mermaid_text(node.name)
    if node.is_outside:
        return f'[/"{text}"/]'
    shapes = {"materialized view": ('[["', '"]]'), "temporary view": ('("', '")'), "sink": ('>"', '"]')}
    before, after = shapes.get(node.kind, ('["', '"]'))
    return f"{before}{text}{after}"


def _mermaid_text(text: str) -> str:
    signs = {ord("#"): "#35;", ord('"'): "#quot;", ord("<"): "#lt;", ord(">"): "#gt;"}
    return plain_text(text).translate(signs)


def _dot_shape(node: Node) -> str:
    shape = "folder" if node.is_outside else {"sink": "cds", "temporary view": "ellipse"}.get(node.kind)
    return f"shape={shape}, " if shape else ""


def _quoted(text: str) -> str:
    return '"' + plain_text(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
