// The graph, drawn as SVG. The server says in which column a node stands; dagre finds the order inside each channel.
(function () {
  "use strict";

  const place = document.getElementById("graph");
  if (!place) return;

  const NODE = { width: 178, height: 54 };
  const GAP = { x: 62, y: 18 };
  const PAD = { x: 16, top: 30, bottom: 16 };
  const LANE = 34;
  const COLUMN = NODE.width + GAP.x;
  const SVG = "http://www.w3.org/2000/svg";

  function make(name, attributes, ...inside) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  }

  // The nodes of one channel, each at a height that keeps edges from crossing; columns are given.
  function block(all, edges) {
    const nodes = all.filter((n) => !n.aside);
    const asides = new Map();
    for (const node of all.filter((n) => n.aside)) {
      const above = edges.find((e) => e.target === node.name)?.source;
      if (all.some((n) => n.name === above)) asides.set(above, [...(asides.get(above) || []), node]);
      else nodes.push(node);
    }
    const first = Math.min(...nodes.map((n) => n.column));
    const last = Math.max(...nodes.map((n) => n.column));
    const own = new Map(nodes.map((n) => [n.name, n]));
    const inside = edges.filter((e) => own.has(e.source) && own.has(e.target));
    order(nodes, inside, first);
    const columns = [];
    for (let c = first; c <= last; c += 1) columns.push(nodes.filter((n) => n.column === c).sort((a, b) => a.y - b.y));
    // From left to right each node wants to be level with what it reads, then once back with what reads it.
    for (const column of columns) settle(column, asides, (n) => inside.filter((e) => e.target === n.name).map((e) => own.get(e.source)));
    for (const column of [...columns].reverse().slice(1)) settle(column, asides, (n) => inside.filter((e) => e.source === n.name).map((e) => own.get(e.target)));
    for (const [above, below] of asides) below.forEach((node, i) => { node.y = own.get(above).y + (i + 1) * (NODE.height + GAP.y); });
    const top = Math.min(...all.map((n) => n.y));
    for (const node of all) node.y -= top;
    return { nodes: all, first, last, height: Math.max(...all.map((n) => n.y)) + NODE.height };
  }

  // dagre's order of the nodes in each column.
  function order(nodes, edges, first) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "LR", nodesep: GAP.y, ranksep: GAP.x });
    graph.setDefaultEdgeLabel(() => ({}));
    graph.setNode(" root", { width: 1, height: 1 });
    for (const node of nodes) {
      graph.setNode(node.name, { ...NODE });
      // Holds the node in its column, whatever it reads.
      graph.setEdge(" root", node.name, { minlen: node.column - first + 1, weight: 100 });
    }
    const by = new Map(nodes.map((n) => [n.name, n]));
    for (const edge of edges) {
      graph.setEdge(edge.source, edge.target, { minlen: Math.max(1, by.get(edge.target).column - by.get(edge.source).column), weight: 2 });
    }
    dagre.layout(graph);
    for (const node of nodes) node.y = graph.node(node.name).y;
  }

  // The nodes of a column, in their order, as near to those they belong with as there is room.
  function settle(column, asides, near) {
    if (!column.length) return;
    const wanted = column.map((node) => {
      const found = near(node).map((n) => n.y);
      return found.length ? found.reduce((a, b) => a + b) / found.length : node.y;
    });
    let least = -Infinity;
    column.forEach((node, i) => {
      node.y = Math.max(wanted[i], least);
      least = node.y + (1 + (asides.get(node.name) || []).length) * (NODE.height + GAP.y);
    });
    const moved = column.reduce((sum, node, i) => sum + node.y - wanted[i], 0) / column.length;
    for (const node of column) node.y -= moved;
  }

  // Blocks below each other, each as high up as those that share a column with it let it stand.
  function stack(blocks) {
    const taken = [];
    for (const one of blocks) {
      let y = 0;
      const top = one.nodes.length > 1 ? PAD.top : PAD.bottom; // an outline has its name above
      for (let c = one.first; c <= one.last; c += 1) y = Math.max(y, taken[c] || 0);
      one.y = y;
      for (const node of one.nodes) {
        node.x = PAD.x + node.column * COLUMN;
        node.y += LANE + y + top;
      }
      one.height += top + PAD.bottom;
      for (let c = one.first; c <= one.last; c += 1) taken[c] = y + one.height + (one.nodes.length > 1 ? GAP.y : 0);
    }
    return Math.max(...taken.filter(Boolean));
  }

  function clip(text, most) {
    return text.length > most ? text.slice(0, most - 1) + "…" : text;
  }

  function shape(node) {
    if (node.outside) return "source";
    if (node.aside) return "aside";
    if (node.kind === "sink") return "sink";
    return node.kind.endsWith("view") ? "view" : "table";
  }

  function outline(kind) {
    const { width: w, height: h } = NODE;
    if (kind === "sink") return make("path", { class: "shape", d: `M6 0H${w - 16}L${w} ${h / 2}L${w - 16} ${h}H6Q0 ${h} 0 ${h - 6}V6Q0 0 6 0Z` });
    const radius = kind === "view" ? h / 2 : kind === "source" ? 2 : 8;
    return make("rect", { class: "shape", width: w, height: h, rx: radius });
  }

  const STATES = { published: "done", applied: "running", open: "open" };

  function symbol(state) {
    const one = make("g", { class: `mark mark-${STATES[state]}`, transform: `translate(${NODE.width - 26} 9)` });
    if (state === "published") one.append(make("circle", { cx: 7, cy: 7, r: 6 }), make("path", { class: "cut", d: "M4 7.3l2 2 4-4.4" }));
    else if (state === "applied") one.append(make("circle", { class: "ring", cx: 7, cy: 7, r: 5.5 }), make("circle", { cx: 7, cy: 7, r: 2.6 }));
    else one.append(make("path", { d: "M7 1l6.3 11.6H.7z" }), make("path", { class: "cut", d: "M7 5.2v3.6M7 10.4v.6" }));
    return one;
  }

  function below(node) {
    if (node.rows === null) return node.kind;
    const said = node.state === "open" ? "not taken yet" : `${node.rows.toLocaleString("en")} rows, epoch ${node.epoch}`;
    return said;
  }

  function drawNode(node) {
    const kind = shape(node);
    const label = [node.name, node.kind, node.rows === null ? "" : below(node)].filter(Boolean).join(", ");
    const inside = [
      outline(kind),
      make("text", { x: kind === "view" ? 22 : 14, y: 23, class: "name" }, clip(node.label, (kind === "view" ? 19 : 22) - (node.state === "none" ? 0 : 3))),
      make("text", { x: kind === "view" ? 22 : 14, y: 41, class: "kind" }, clip(below(node), 26)),
      make("title", {}, label),
    ];
    if (STATES[node.state]) inside.push(symbol(node.state));
    const at = { class: `node node-${kind}`, transform: `translate(${node.x} ${node.y})` };
    if (node.outside) return make("g", { ...at, role: "img", "aria-label": label }, ...inside);
    return make("a", { ...at, href: `/datasets/${encodeURIComponent(node.name)}`, "aria-label": label }, ...inside);
  }

  function drawEdge(edge, from, to) {
    if (from.column === to.column) {
      const x = from.x + NODE.width / 2;
      return make("path", { class: "edge", d: `M${x} ${from.y + NODE.height}V${to.y - 3}`, "marker-end": "url(#arrow)" });
    }
    const [x1, y1] = [from.x + NODE.width, from.y + NODE.height / 2];
    const [x2, y2] = [to.x - 3, to.y + NODE.height / 2];
    const bend = Math.max(30, Math.min(80, (x2 - x1) / 2));
    return make("path", { class: edge.sure ? "edge" : "edge unsure", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
  }

  function drawGroup(one, group) {
    const x = PAD.x + one.first * COLUMN - 12;
    const width = (one.last - one.first) * COLUMN + NODE.width + 24;
    const y = LANE + one.y + 2;
    return make(
      "g",
      { class: "group" },
      make("rect", { x, y, width, height: one.height - 4, rx: 12 }),
      make("text", { x: x + 12, y: y + 17 }, clip(`${group.channel}  ·  read once, committed together`, Math.floor(width / 6.6))),
    );
  }

  function draw(found) {
    const by = new Map(found.nodes.map((n) => [n.name, n]));
    // A lane says the zone already.
    for (const node of found.nodes) node.label = found.lanes.length && node.zone ? node.name.slice(node.name.indexOf(`${node.zone}.`) + node.zone.length + 1) : node.name;
    const names = [...new Set(found.nodes.map((n) => n.channel))];
    const blocks = names
      .map((channel) => ({ channel, ...block(found.nodes.filter((n) => n.channel === channel), found.edges) }))
      .sort((a, b) => (b.nodes.length > 1) - (a.nodes.length > 1));
    const height = LANE + stack(blocks) + 4;
    const last = Math.max(...found.nodes.map((n) => n.column));
    const width = 2 * PAD.x + last * COLUMN + NODE.width;
    // A graph that is a little too wide is drawn smaller; one that is much wider is scrolled.
    const scale = Math.max(0.75, Math.min(1, (place.clientWidth - 2) / width));
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width: width * scale, height: height * scale, role: "group", "aria-label": "Graph of the pipeline; the same is below as a list" });
    svg.append(
      make("defs", {}, make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, make("path", { d: "M0 .6L7 4L0 7.4z", class: "head" }))),
    );
    found.lanes.forEach((lane, i) => {
      const x = PAD.x + lane.first * COLUMN - GAP.x / 2;
      svg.append(
        make("g", { class: i % 2 ? "lane odd" : "lane" }, make("rect", { x, y: 0, width: (lane.last - lane.first + 1) * COLUMN, height }), make("text", { x: x + GAP.x / 2, y: 20 }, lane.zone)),
      );
    });
    for (const one of blocks) {
      const group = found.groups.find((g) => g.channel === one.channel);
      if (group && one.nodes.length > 1) svg.append(drawGroup(one, group));
    }
    for (const edge of found.edges) svg.append(drawEdge(edge, by.get(edge.source), by.get(edge.target)));
    // In reading order, which is the order in which Tab goes through them.
    for (const node of [...found.nodes].sort((a, b) => a.column - b.column || a.y - b.y)) svg.append(drawNode(node));
    const focused = document.activeElement?.closest?.("#graph a")?.getAttribute("href");
    place.replaceChildren(svg);
    if (focused) [...svg.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
    place.dataset.drawn = "yes";
  }

  let before = "";
  async function refresh() {
    try {
      const answer = await fetch(place.dataset.graph);
      if (!answer.ok) return;
      const text = await answer.text();
      if (text === before) return;
      before = text;
      draw(JSON.parse(text));
    } catch {
      // The server is gone; what is drawn stays.
    }
  }
  refresh();
  setInterval(() => {
    if (!window.anabranch.isQuiet()) refresh();
  }, 2000);
})();
