"""The page in real Chromium: clicked through during a live run and after a crash, by mouse and by keyboard.

Every test also checks that no request leaves this machine and that the browser has nothing to complain about. With
ANABRANCH_SCREENSHOTS=1 the pictures of the documentation are taken again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from ui_served import serving
from ui_shop import CHANNEL, FAILED, make_files

from anabranch.cli.main import main
from anabranch.load.project import read_project
from anabranch.watch.detect import look_once, watched

if TYPE_CHECKING:
    from crash_harness import Lake
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the web page is not tried in a browser: there is no chromium (apt install chromium)"
)

NAV = ("Overview", "Graph", "Datasets", "Epochs", "Runs", "Events", "Dead letters")
PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"
PICTURES_ASKED = bool(os.environ.get("ANABRANCH_SCREENSHOTS"))
SIZE = {"width": 1200, "height": 800}
PATIENCE = 120_000.0  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(shop: Path) -> Iterator[str]:
    with serving(shop) as found:
        yield found


Open = Callable[..., "Page"]


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves the page of a project, at the address it returns, until every browser has gone: one that asks for news of
    a server that is not there any more complains of it.
    """
    with contextlib.ExitStack() as servers:
        yield lambda folder: servers.enter_context(serving(folder))


@pytest.fixture
def opened(browser: Browser, serve: Callable[[Path], str]) -> Iterator[Open]:
    """Opens pages; at the end nothing was asked of anybody else, and the browser complained of nothing."""
    contexts: list[Any] = []
    outside: list[str] = []
    complaints: list[str] = []

    def watch(page: Page, host: str) -> None:
        page.on("request", lambda r: None if urlsplit(r.url).netloc == host else outside.append(r.url))
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("response", lambda r: complaints.append(f"{r.status} {r.url}") if r.status >= 400 else None)

    def make(url: str, **how: Any) -> Page:
        context = browser.new_context(**{"viewport": SIZE, "color_scheme": "light", **how})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        watch(page, urlsplit(url).netloc)
        page.goto(url)
        return page

    yield make
    for context in contexts:
        context.close()
    assert outside == []
    assert complaints == []


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A project that the real engine runs, with Spark played by Python."""
    from crash_harness import Lake

    made = Lake(tmp_path / "project")
    yield made
    made.end()


def click_through(page: Page) -> None:
    """Every page by its link in the head."""
    for name in NAV:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
        page.locator('nav a[aria-current="page"]', has_text=name).wait_for()
        assert page.locator("h1").count() == 1
        assert page.locator(".notice-bad").count() == 0


def shown(page: Page, selector: str, text: str | re.Pattern[str]) -> None:
    page.locator(selector, has_text=text).first.wait_for()


def test_every_page_of_a_project_at_rest(opened: Open, address: str) -> None:
    page = opened(address)
    shown(page, ".status", "failed")
    shown(page, "#tile-letters .value", re.compile(r"\d\d"))
    page.locator("figure[data-plot] canvas").nth(3).wait_for()
    incidents = page.get_by_role("region", name="Open incidents").locator("tbody tr")
    assert [row.locator(".status").inner_text() for row in incidents.all()] == ["error", "warn"]
    incidents.last.get_by_role("link", name="silver.orders").click()
    page.locator("h1", has_text="silver.orders").wait_for()
    page.get_by_role("link", name="Metrics for Prometheus").click()
    page.get_by_text(f'anabranch_lag_offsets{{channel="{CHANNEL}"').wait_for()
    page.go_back()
    page.goto(address)
    page.locator("figure[data-plot] canvas").nth(3).wait_for()
    assert "rows/s" in (page.locator(".canvas").first.get_attribute("aria-label") or "")
    click_through(page)
    page.goto(f"{address}/graph")
    page.locator("#graph[data-drawn]").wait_for()
    assert page.locator("#graph .group").count() == 1
    assert page.locator("#graph .lane text").all_text_contents() == ["bronze", "silver", "gold", "other outputs"]
    page.locator("#graph a", has_text="silver.orders").first.click()
    page.locator("h1", has_text="silver.orders").wait_for()
    page.locator("table.rows").wait_for()
    page.get_by_text("orders team", exact=True).wait_for()
    columns = page.get_by_role("region", name="Where its columns come from")
    assert columns.get_by_role("row", name="note bronze.events.value unknown").count() == 1
    assert columns.get_by_role("row", name='unknown: the Python function "clean"').count() == 1
    profile = page.get_by_role("region", name="Profile of its columns")
    assert profile.get_by_role("row").count() == 11
    assert profile.locator("script, img").count() == 0
    assert page.locator("figure[data-plot^='/plots/nulls'] canvas").count() == 1
    assert page.title().startswith("silver.orders")  # and not what a script in a row would have made of it
    assert page.locator("table.rows script, table.rows img").count() == 0
    page.get_by_role("link", name="bronze.events", exact=True).first.click()
    page.locator("h1", has_text="Epochs").wait_for()
    page.get_by_role("link", name="12", exact=True).click()
    page.locator("h1", has_text="Epoch 12").wait_for()
    page.locator("summary").first.click()
    shown(page, "details[open] th", ".parquet")
    page.goto(f"{address}/dead-letters")
    page.get_by_role("link", name="positive_amount").click()
    page.locator(".letters summary").first.click()
    shown(page, ".letters details[open] pre", '"amount": -1.0')


def test_during_a_live_run(opened: Open, serve: Callable[[Path], str], lake: Lake) -> None:
    lake.land(2)
    child = lake.start("run", "--follow")
    child.until(lambda: lake.published() >= 1)
    address = serve(lake.folder)
    page = opened(address)
    shown(page, ".status", re.compile("running, process"))
    shown(page, "tbody td.n a", re.compile("^1$"))
    lake.land(3)
    shown(page, "tbody td.n a", re.compile("^4$"))  # without loading the page again
    click_through(page)
    page.goto(f"{address}/events")
    page.locator("#tail").wait_for(state="attached")
    before = page.locator(".event").count()
    lake.land(2)
    shown(page, ".event .message", "epoch 6")
    assert page.locator(".event").count() > before
    numbers = page.locator(".event").evaluate_all("all => all.map(e => e.id)")
    assert len(set(numbers)) == len(numbers)
    page.goto(f"{address}/graph")
    page.locator("#graph[data-drawn]").wait_for()
    lake.land(1)
    shown(page, "#graph .kind", "epoch 7")
    page.goto(f"{address}/datasets/everything")
    page.locator("table.rows").wait_for()
    assert page.get_by_role("heading", name="Profile of its columns").count() == 0
    assert main(["profile", "everything", "--project", str(lake.folder)]) == 0
    page.reload()
    page.get_by_role("region", name="Profile of its columns").get_by_role("row", name="ms number").wait_for()
    page.goto(f"{address}/metrics")
    page.get_by_text('anabranch_run_up{pipeline="crash"} 1.0').wait_for()
    child.kill()


def test_after_a_crash_and_while_it_is_mended(opened: Open, serve: Callable[[Path], str], lake: Lake) -> None:
    with (lake.folder / "anabranch.yml").open("a") as file:
        file.write("detectors:\n  - {kind: interruption, on: everything, within: 30 seconds, severity: error}\n")
    lake.land(2)
    lake.finish()
    lake.land(1)
    lake.die("applied(errors),applying(slow):hang,applying(everything):hang")
    address = serve(lake.folder)
    page = opened(address)
    shown(page, ".tile .status", "died")
    shown(page, ".status", "epoch 2 decided, not finished")
    click_through(page)
    page.goto(f"{address}/runs")
    shown(page, "td", "the next run recovers what it left")
    page.goto(f"{address}/epochs/events/1/2")
    shown(page, ".status", "not taken yet")
    shown(page, ".steps li", "1 of 3 sinks")
    picture(page, "epoch-after-a-crash")
    watcher = opened(address)
    project = watched(read_project(lake.folder))
    look_once(project, _unheard, time.time() + 60)
    shown(watcher, "section:has(#h-incidents) td", "everything")  # both pages notice by themselves
    watcher.goto(f"{address}/metrics")
    watcher.get_by_text('anabranch_open_epochs{channel="events",pipeline="crash"} 1.0').wait_for()
    watcher.goto(address)
    lake.finish()
    shown(page, ".steps .did", "published")
    assert page.locator(".status", has_text="not taken yet").count() == 0
    look_once(project, _unheard, time.time() + 61)
    watcher.locator("#h-incidents").wait_for(state="detached")


def _unheard(_: dict[str, Any]) -> None:
    """Nobody sits at the terminal."""


def test_nothing_run_yet(opened: Open, serve: Callable[[Path], str], tmp_path: Path) -> None:
    make_files(tmp_path)
    address = serve(tmp_path)
    page = opened(address)
    shown(page, ".empty", "Nothing has been run yet")
    assert page.get_by_role("heading", name="Over time").count() == 0
    click_through(page)


def test_by_keyboard_alone(opened: Open, address: str) -> None:
    page = opened(address)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_url("**/#content")
    assert page.evaluate("document.activeElement.id") == "content"
    page.goto(address)
    reach(page, "silver.orders")  # of an incident
    page.keyboard.press("Enter")
    page.locator("h1", has_text="silver.orders").wait_for()
    page.goto(address)
    reach(page, "Graph")
    page.keyboard.press("Enter")
    page.locator("#graph[data-drawn]").wait_for()
    reach(page, "silver.orders, streaming table", most=30)
    assert page.evaluate("getComputedStyle(document.activeElement.querySelector('.shape')).strokeWidth") == "4px"
    page.keyboard.press("Enter")
    page.locator("h1", has_text="silver.orders").wait_for()
    reach(page, "Events")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Events").wait_for()
    reach(page, "run failed", most=40)
    page.keyboard.press("Enter")
    page.locator("details[open] pre", has_text=FAILED).wait_for()


def focused(page: Page) -> str:
    found = """() => {
      const e = document.activeElement;
      const by = document.getElementById(e.getAttribute("aria-labelledby"));
      return (e.getAttribute("aria-label") || (by || e).textContent).trim();
    }"""
    return str(page.evaluate(found))


def reach(page: Page, text: str, most: int = 15) -> None:
    """Press Tab until what has the focus says this, and can be seen to have it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page).startswith(text):
            return
    raise AssertionError(f"{text} is not reached by Tab")


#: What is wrong with a page for who cannot see it well: checked in the page itself.
FAULTS = """() => {
  const faults = [];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.documentElement.lang !== "en") faults.push("no language");
  for (const mark of ["header", "nav", "main", "footer"]) if (!document.querySelector(mark)) faults.push("no " + mark);
  for (const e of document.querySelectorAll("svg, img, canvas"))
    if (!e.closest("[aria-hidden=true], [role=img][aria-label], [aria-label]") && !e.alt)
      faults.push("no label: " + e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll("th")) if (!e.scope) faults.push("th without scope");
  for (const e of document.querySelectorAll("select, input")) if (!e.labels.length) faults.push("no label: " + e.name);
  for (const e of document.querySelectorAll("a, button, summary"))
    if (shown(e) && !(e.textContent.trim() || e.getAttribute("aria-label"))) faults.push("mute: " + e.outerHTML);
  const dot = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    dot.clearRect(0, 0, 1, 1);
    dot.fillStyle = colour;
    dot.fillRect(0, 0, 1, 1);
    return [...dot.getImageData(0, 0, 1, 1).data];
  };
  const ground = (e) => {
    let found = [255, 255, 255];
    const chain = [];
    for (let at = e; at; at = at.parentElement) chain.unshift(at);
    for (const at of chain) {
      const [r, g, b, a] = rgba(getComputedStyle(at).backgroundColor);
      found = found.map((old, i) => ([r, g, b][i] * a) / 255 + old * (1 - a / 255));
    }
    return found;
  };
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const e of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !shown(e) || e.closest("noscript, .skip, .visually-hidden, option")) continue;
    const [one, other] = [light(rgba(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${e.outerHTML.slice(0, 90)}`);
  }
  return [...new Set(faults)];
}"""

EVERY = ("/", "/graph", "/datasets", "/datasets/silver.orders", "/epochs", "/epochs/bronze.events/1/12", "/runs")
EVERY += ("/events", "/dead-letters")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pages_can_be_seen_and_heard(opened: Open, address: str, colours: str) -> None:
    page = opened(address, color_scheme=colours)
    for path in EVERY:
        page.goto(f"{address}{path}")
        settled(page)
        assert page.evaluate(FAULTS) == [], path


def test_on_a_telephone_nothing_sticks_out(opened: Open, address: str) -> None:
    page = opened(address, viewport={"width": 390, "height": 800})
    for path in EVERY:
        page.goto(f"{address}{path}")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto(f"{address}/datasets/silver.orders")
    settled(page)
    reach(page, "Where its columns come from", most=30)  # what is too wide is scrolled by keyboard as well
    reach(page, "Profile of its columns")


def test_without_scripts_everything_is_there_in_words(opened: Open, address: str) -> None:
    page = opened(f"{address}/graph", java_script_enabled=False)
    assert page.locator(".graph-list a", has_text="silver.orders").count() >= 1
    page.goto(f"{address}/datasets/silver.orders")
    page.locator("noscript a", has_text="open it without a script").click()
    page.locator("table.rows").wait_for()
    page.goto(address)
    assert "UTC" in page.locator("footer").inner_text()
    assert page.locator("time").first.inner_text().startswith("20")


def test_colours_are_chosen_and_kept(opened: Open, address: str) -> None:
    page = opened(address)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Dark colours")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    dark = page.evaluate(ground)
    assert dark != light
    page.goto(f"{address}/epochs")
    assert page.evaluate(ground) == dark


def test_news_can_be_paused(opened: Open, address: str) -> None:
    page = opened(f"{address}/runs")
    with page.expect_request(lambda r: "part=live" in r.url):
        pass
    button = page.get_by_role("button", name="Live")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.wait_for_timeout(2_500)  # longer than the time between two looks
    assert asked == []


def settled(page: Page) -> None:
    """Wait until what comes after the page itself has come."""
    for selector in ("figure[data-plot]", "#graph", "#preview"):
        if page.locator(selector).count():
            ready = {
                "figure[data-plot]": ".canvas canvas",
                "#graph": "#graph[data-drawn]",
                "#preview": "#preview table",
            }
            page.locator(ready[selector]).last.wait_for()
    page.wait_for_function("!document.body.textContent.includes('Reading the table …')")


def picture(page: Page, name: str) -> None:
    """A small picture for the documentation, if it is asked for: tests must not change the tree by themselves."""
    if not PICTURES_ASKED:
        return
    from PIL import Image

    PICTURES.mkdir(exist_ok=True)
    file = PICTURES / f"{name}.png"
    page.screenshot(path=file)
    few = Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


@pytest.mark.skipif(not PICTURES_ASKED, reason="asked for by ANABRANCH_SCREENSHOTS=1 only")
def test_take_the_pictures_of_the_documentation(opened: Open, address: str) -> None:
    names = ("overview", "graph", "datasets", "dataset", "epochs", "epoch", "runs", "events", "dead-letters")
    page, dark = opened(address), opened(address, color_scheme="dark")
    for name, path in zip(names, EVERY, strict=True):
        for on, file in ((page, name), (dark, f"{name}-dark")):
            if on is page or name in ("overview", "graph"):
                on.goto(f"{address}{path}")
                settled(on)
                if name == "dead-letters":
                    on.locator(".letters summary").nth(2).click()
                picture(on, file)
    for file, heading in (("dataset-columns", "#h-lineage"), ("dataset-profile", "#h-profile")):
        page.goto(f"{address}/datasets/silver.orders")
        settled(page)
        page.locator(heading).evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 80)")
        picture(page, file)
