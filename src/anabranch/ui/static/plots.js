// Plots, drawn by uPlot from the numbers of /plots/*.json, in the colours of the page.
(function () {
  "use strict";

  const drawn = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function shown(value) {
    if (value === null || value === undefined) return "–";
    const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  }

  function short(value) {
    return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  }

  function summary(found) {
    return found.names
      .map((name, i) => {
        const values = found.data[i + 1].filter((v) => v !== null);
        const last = values[values.length - 1];
        return `${name} ${shown(last)}, between ${shown(Math.min(...values))} and ${shown(Math.max(...values))}`;
      })
      .join("; ");
  }

  function options(found, box) {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px " + getComputedStyle(document.body).fontFamily };
    return {
      width: Math.max(240, box.clientWidth),
      height: 170,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      scales: { y: { range: (_, least, most) => [Math.min(0, least), most > 0 ? most * 1.12 : 1] } },
      axes: [
        { ...axis, space: 80, size: 30, values: (_, times) => times.map(clock(found.data[0])) },
        { ...axis, size: 54, values: (_, values) => values.map(short) },
      ],
      series: [
        {},
        ...found.names.map((name, i) => ({
          label: name,
          stroke: colour(`--series-${i % 6}`),
          width: 2,
          dash: [[], [6, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 4]][i % 6],
          spanGaps: true,
          points: { show: found.data[0].length < 25, size: 6, fill: colour(`--series-${i % 6}`) },
        })),
      ],
    };
  }

  function clock(times) {
    const long = times[times.length - 1] - times[0] > 2 * 86400;
    return (t) => {
      const text = new Date(t * 1000).toISOString();
      return long ? text.slice(5, 10) : text.slice(11, times[times.length - 1] - times[0] > 600 ? 16 : 19);
    };
  }

  function legend(figure, found, at) {
    const place = figure.querySelector(".legend");
    place.replaceChildren(
      ...found.names.map((name, i) => {
        const item = document.createElement("span");
        item.className = `series series-${i % 6}`;
        const values = found.data[i + 1];
        let index = at ?? values.length - 1;
        while (at === null && index > 0 && values[index] === null) index -= 1;
        item.textContent = found.names.length > 1 || name.length < 24 ? `${name} ` : "";
        const number = document.createElement("strong");
        number.textContent = `${shown(values[index])}${found.unit ? " " + found.unit : ""}`;
        item.append(number);
        return item;
      }),
    );
  }

  function draw(figure, found) {
    const box = figure.querySelector(".canvas");
    const title = figure.querySelector("h3").textContent;
    drawn.get(figure)?.plot?.destroy();
    box.replaceChildren();
    if (!found.names.length) {
      box.classList.add("none");
      box.textContent = found.problem || figure.dataset.none;
      box.setAttribute("aria-label", `${title}: ${box.textContent}`);
      drawn.set(figure, { found, text: JSON.stringify(found) });
      return;
    }
    box.classList.remove("none");
    box.setAttribute("aria-label", `${title}${found.unit ? ", " + found.unit : ""}: ${summary(found)}`);
    const given = options(found, box);
    given.hooks = { setCursor: [(u) => legend(figure, found, u.cursor.idx ?? null)] };
    const plot = new uPlot(given, found.data, box);
    legend(figure, found, null);
    drawn.set(figure, { plot, found, text: JSON.stringify(found) });
  }

  async function refresh(figure) {
    try {
      const answer = await fetch(figure.dataset.plot);
      if (!answer.ok) return;
      const found = await answer.json();
      if (drawn.get(figure)?.text !== JSON.stringify(found)) draw(figure, found);
    } catch {
      // The server is gone; what is drawn stays.
    }
  }

  function all(work) {
    for (const figure of document.querySelectorAll("figure[data-plot]")) work(figure);
  }

  all(refresh);
  setInterval(() => {
    if (!window.anabranch.isQuiet()) all(refresh);
  }, 4000);
  const again = () => all((figure) => drawn.has(figure) && draw(figure, drawn.get(figure).found));
  document.addEventListener("anabranch:theme", again);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(again, 150);
  });
})();
