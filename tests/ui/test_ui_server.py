"""Every page, without a browser: what it says, and what it refuses."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx import Client
from markupsafe import escape
from ui_served import PAGES, Reader, client
from ui_shop import CHANNEL, FAILED, HOSTILE

from anabranch.ui.guard import HEADERS
from anabranch.ui.render import STATIC

OF_THE_SHOP = (
    *PAGES,
    "/datasets/silver.orders",
    "/datasets/gold.conversion",
    "/datasets/orders_topic",
    f"/epochs/{CHANNEL}/1/7",
    "/events?level=warn&kind=run_failed",
    "/events?dataset=silver.orders&limit=500",
    "/epochs?channel=bronze.events&state=published&page=2",
    "/dead-letters?reason=has_customer&page=2",
)


@pytest.fixture(scope="module")
def page(shop: Path) -> Iterator[Client]:
    with client(shop) as found:
        yield found


@pytest.mark.parametrize("address", OF_THE_SHOP)
def test_every_page_can_be_read_and_leads_nowhere_else(page: Client, address: str) -> None:
    answer = page.get(address)
    assert answer.status_code == 200
    assert "notice-bad" not in answer.text
    found = Reader(answer.text)
    assert found.faults == []
    assert found.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(found.headings, found.headings[1:], strict=False)), found.headings
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in found.links), found.links
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers


def test_the_profile_of_a_dataset_and_how_its_nulls_moved(page: Client) -> None:
    text = page.get("/datasets/silver.orders").text
    assert "Profile of its columns" in text
    assert "bronze.events epoch 47" in text
    assert "lines[].sku" in text
    found = page.get("/plots/nulls.json?dataset=silver.orders").json()
    assert (found["unit"], found["names"], len(found["data"][0])) == ("% null", ["note"], 48)
    assert "Profile of its columns" not in page.get("/datasets/silver.clicks").text
    assert page.get("/plots/nulls.json?dataset=silver.clicks").json()["names"] == []


def test_every_link_of_every_page_leads_to_a_page(page: Client) -> None:
    seen, waiting = set(OF_THE_SHOP), list(OF_THE_SHOP)
    while waiting and len(seen) < 120:
        answer = page.get(html.unescape(waiting.pop(0)))
        assert answer.status_code in (200, 204), answer.url
        if "html" in answer.headers.get("content-type", ""):
            new = [
                link for link in dict.fromkeys(Reader(answer.text).links) if link.startswith("/") and link not in seen
            ]
            seen.update(new[:12])
            waiting += new[:12]


def test_the_overview_says_how_the_pipeline_stands(page: Client) -> None:
    text = page.get("/").text
    assert "failed" in text
    assert FAILED in text
    assert 'href="/epochs?channel=bronze.events"' in text
    assert "offsets not read yet" in text
    total = page.get("/dead-letters/total").text
    assert int(re.sub(r"\D", "", total)) > 100


def test_a_live_part_is_sent_only_when_it_has_changed(page: Client) -> None:
    for address in ("/", "/datasets", "/epochs", "/runs"):
        whole = page.get(address).text
        part = html.unescape(next(link for link in Reader(whole).links if "part=live" in link))
        assert page.get(part).status_code == 204
        other = re.sub("seen=[0-9a-f]+", "seen=0", part)
        answer = page.get(other)
        assert answer.status_code == 200
        assert "<html" not in answer.text
        assert re.search(r"seen=[0-9a-f]{16}", answer.text)


def test_the_graph_has_lanes_and_what_is_read_once_together(page: Client) -> None:
    found = page.get("/graph.json").json()
    assert [lane["zone"] for lane in found["lanes"]] == ["bronze", "silver", "gold", "other outputs"]
    columns = {node["name"]: node["column"] for node in found["nodes"]}
    assert columns["kafka shop-events"] == 0
    assert columns["silver.orders"] == columns["silver.orders_quarantine"] == 2
    assert all(columns[e["source"]] < columns[e["target"]] for e in found["edges"] if "quarantine" not in e["target"])
    group = next(g for g in found["groups"] if g["channel"] == CHANNEL)
    assert group["reads"] == ["kafka shop-events"]
    state = {node["name"]: node["state"] for node in found["nodes"]}
    assert (state["silver.orders"], state["gold.conversion"]) == ("published", "none")


def test_a_dataset_with_its_rules_neighbours_and_place(page: Client) -> None:
    text = page.get("/datasets/silver.orders").text
    for words in ("transformations/shop.py:", "customer IS NOT NULL", "go to quarantine", "positive_amount"):
        assert words in text
    assert 'href="/datasets/bronze.events"' in text
    assert 'href="/datasets/gold.revenue_by_day"' in text


def test_hostile_values_are_shown_and_do_nothing(page: Client) -> None:
    text = page.get("/datasets/silver.orders/preview", headers={"hx-request": "true"}).text
    assert "<script" not in text
    assert str(escape(HOSTILE)) in text
    assert "20,000 characters" in text
    assert len(text) < 60_000
    assert "\\u202e" in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "40 bytes" in text
    assert 'class="cell-null">null' in text
    assert "<script" not in page.get("/dead-letters").text.replace('<script src="/static/', "")


def test_an_epoch_with_steps_sinks_and_receipts(page: Client) -> None:
    text = page.get(f"/epochs/{CHANNEL}/1/7").text
    for words in ("staged", "decided", "applied", "published", "5 of 5 sinks", "Checksum", "shop-events", ".parquet"):
        assert words in text
    assert f"/epochs/{CHANNEL}/1/6" in text
    assert page.get(f"/epochs/{CHANNEL}/1/4711").status_code == 404


def test_dead_letters_by_reason(page: Client) -> None:
    text = page.get("/dead-letters?reason=positive_amount").text
    shown = re.findall(r'<span class="reasons">(.*?)</summary>', text)
    assert shown
    assert all("positive_amount" in one for one in shown)
    assert "No record is like that" in page.get("/dead-letters?reason=%3Cb%3E").text


def test_events_are_filtered_and_followed(page: Client) -> None:
    text = page.get("/events?level=error").text
    assert text.count('class="event ') == 1
    last = int(re.search(r"after=(\d+)", text)[1])  # type: ignore[index]
    assert page.get(f"/events/tail?after={last}").status_code == 204
    tail = page.get(f"/events/tail?after={last - 3}").text
    assert tail.count('class="event ') == 3
    assert f"after={last}" in tail
    assert 'hx-swap-oob="true"' in tail
    assert page.get("/events/tail?after=no&level=nonsense&kind=x").status_code == 200


def test_plots_have_numbers(page: Client) -> None:
    for name, unit in (("throughput", "rows/s"), ("steps", "ms"), ("lag", "offsets"), ("quality", "% of rows")):
        found = page.get(f"/plots/{name}.json").json()
        assert found["unit"] == unit
        assert len(found["data"]) == len(found["names"]) + 1
        assert len({len(column) for column in found["data"]}) == 1
        assert len(found["data"][0]) == 48
    assert page.get("/plots/steps.json").json()["names"] == ["stage", "decide", "apply"]
    assert page.get("/plots/rows.json?dataset=silver.orders").json()["names"] == ["written", "kept out"]
    assert page.get("/plots/size.json?dataset=silver.orders").json()["data"][1][0] > 0
    assert page.get("/plots/other.json").status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4040", "127.0.0.1.evil.example", "192.168.0.9", "", "[::"]
)
def test_a_name_that_is_not_ours_is_refused(page: Client, host: str) -> None:
    answer = page.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "shop" not in answer.text
    assert answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["127.0.0.1:4040", "localhost", "[::1]:4040", "127.8.9.1"])
def test_names_of_this_machine_are_taken(page: Client, host: str) -> None:
    assert page.get("/", headers={"host": host}).status_code == 200


def test_other_sites_may_link_here_and_nothing_more(page: Client) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert page.get("/", headers=link).status_code == 200
    assert page.get("/plots/lag.json", headers={**link, "sec-fetch-mode": "cors"}).status_code == 403
    assert page.get("/plots/lag.json", headers={**link, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert page.post("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert page.post("/", headers={"origin": "null"}).status_code == 403
    assert page.post("/", headers=link).status_code == 403


def test_nothing_can_be_written(page: Client) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for address in ("/", "/epochs", "/dead-letters", "/static/page.css"):
            assert page.request(method, address).status_code == 405


def test_an_address_that_leads_nowhere(page: Client) -> None:
    for address in (
        "/nothing",
        "/datasets/no%3Cb%3Esuch",
        "/epochs/a/b/c",
        "/static/../server.py",
        "/static/%2e%2e/guard.py",
    ):
        answer = page.get(address)
        assert answer.status_code == 404
        assert "<b>" not in answer.text
        assert answer.headers["content-security-policy"]
    assert "Not found" in page.get("/nothing").text


def test_what_others_made_is_as_they_made_it() -> None:
    folder = STATIC / "vendor"
    listed = [line.split() for line in (folder / "CHECKSUMS").read_text().splitlines() if not line.startswith("#")]
    assert {file for _, _, file, _ in listed} == {p.name for p in folder.iterdir()} - {"CHECKSUMS", "README.md"}
    for package, version, file, digest in listed:
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
        assert f"{package} {version}" in (folder / "README.md").read_text()
