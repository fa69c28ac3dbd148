"""The graph, the list of datasets, and the page of one: its schema, its rules, its neighbours and some rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from anabranch.core.column_lineage import in_words
from anabranch.store.lineage_versions import column_lineage_of
from anabranch.ui.declared import Declared, Node
from anabranch.ui.lanes import columns
from anabranch.ui.profiles import last_profile
from anabranch.ui.render import fragment, page, sight_of
from anabranch.ui.sight import Look, Standing, place_of, standing
from anabranch.ui.tables import facts

#: Epochs that counts of broken rules are from.
RECENT = 200


def graph(request: Request) -> Response:
    """The page with the graph: drawn in the browser, and there as a list for all who cannot see it."""
    look = Look(sight_of(request))
    found = standing(look, recent=0)
    nodes = known_nodes(look.declared, found)
    by_channel: dict[str, list[Node]] = {}
    for node in nodes:
        by_channel.setdefault(node.channel or "", []).append(node)
    return page(request, "graph.html", look, nav="graph", groups=by_channel, declared=look.declared, nodes=nodes)


def graph_data(request: Request) -> Response:
    """The graph for the browser to draw, with how each dataset stands."""
    look = Look(sight_of(request))
    found = standing(look, recent=1)
    nodes, edges = known_nodes(look.declared, found), look.declared.edges
    column_of, lanes = columns(nodes, edges)
    records = [{**_graph_node(node, found), "column": column_of[node.name]} for node in nodes]
    channels = {node.channel for node in nodes if node.channel}
    groups = [
        {"channel": c, "reads": [n.name for n in nodes if n.outside and n.channel == c], "flows": _flows(c, look)}
        for c in sorted(channels)
    ]
    return JSONResponse(
        {"nodes": records, "edges": [asdict(e) for e in edges], "lanes": [asdict(x) for x in lanes], "groups": groups}
    )


def _flows(channel: str, look: Look) -> int:
    inside = {n.name for n in look.declared.nodes if n.channel == channel}
    return len({e.flow for e in look.declared.edges if e.target in inside})


def _graph_node(node: Node, found: Standing) -> dict[str, Any]:
    newest = next(iter(found.recent.get(node.channel or "", ())), None)
    receipt = newest.receipts.get(node.name) if newest else None
    state = "none"
    if newest and receipt:
        state = "open" if node.name not in newest.applied else "published" if newest.published_at else "applied"
    return {
        "name": node.name,
        "kind": node.kind,
        "zone": node.zone,
        "channel": node.channel,
        "outside": node.outside,
        "aside": node.kind == "quarantine table",
        "state": state,
        "rows": receipt.rows if receipt else None,
        "epoch": newest.key.epoch if newest and receipt else None,
    }


def known_nodes(declared: Declared, found: Standing) -> tuple[Node, ...]:
    """What is declared, and the outputs that only the ledger knows."""
    only = [
        Node(o.name, "output that is not declared", channel=c.channel, format=o.format, zone=_zone(o.name))
        for c in found.channels
        for o in c.outputs
        if o.name not in declared.by_name
    ]
    return (*declared.nodes, *only)


def _zone(name: str) -> str:
    *before, _ = name.split(".")
    return before[-1] if before else ""


def datasets(request: Request) -> Response:
    """The list."""
    look = Look(sight_of(request))
    found = standing(look, recent=1)
    nodes = [node for node in known_nodes(look.declared, found) if not node.outside]
    rows = [(node, _graph_node(node, found), found.cut.tables.get(node.name) if found.cut else None) for node in nodes]
    return page(request, "datasets.html", look, nav="datasets", rows=rows)


def dataset(request: Request) -> Response:
    """One dataset."""
    name = request.path_params["name"]
    look = Look(sight_of(request))
    found = standing(look, recent=0)
    node = next((n for n in known_nodes(look.declared, found) if n.name == name), None)
    if node is None:
        problem = f'"{name}" is no table, view or sink of this pipeline'
        return page(request, "missing.html", look, status=404, nav="datasets", what=problem)
    broken: Counter[str] = Counter()
    judged = epochs = 0
    with look.forgiving():
        for event in look.sight.history.events(kinds=["epoch_published"], dataset=name, limit=RECENT):
            epochs += 1
            for flow in (q for q in event.details["quality"] if q["dataset"] == name):
                broken.update(flow["broken"])
                judged += flow["rows"] if flow["flow"] else 0
    lineage = None
    with look.forgiving():
        lineage = column_lineage_of(look.sight.history, name)
    declared = look.declared
    return page(
        request,
        "dataset.html",
        look,
        nav="datasets",
        node=node,
        table=found.cut.tables.get(name) if found.cut else None,
        channel=next((c.channel for c in found.channels for o in c.outputs if o.name == name), node.channel),
        inputs=[declared.by_name[n] for n in declared.inputs(name)],
        readers=[declared.by_name[n] for n in declared.readers(name)],
        broken=broken,
        judged=judged,
        epochs=epochs,
        lineage=lineage,
        profile=last_profile(look, name),
        origins={c: in_words(o) for c, o in lineage.lineage.columns.items()} if lineage else {},
    )


def preview(request: Request) -> Response:
    """Schema, size and some rows at the cut, fetched beside the page: opening a large table takes a moment."""
    name = request.path_params["name"]
    look = Look(sight_of(request))
    table, read = None, None
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        table = ledger.cut(pipeline).tables.get(name)
    if table is not None:
        with look.forgiving():
            read = facts(table, place_of(look.sight, table.location))
    given = {"name": name, "table": table, "facts": read}
    if "hx-request" in request.headers:
        return fragment("preview.html", look=look, **given)
    return page(request, "preview_page.html", look, nav="datasets", **given)  # without scripts it is a page of its own
