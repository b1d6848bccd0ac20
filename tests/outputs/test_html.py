"""The page of a map: what its file holds, and what a real browser makes of it, where one is installed."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspect_embed.errors import OutputError
from inspect_embed.outputs import html
from inspect_embed.report import Heatmap, Report, Scatter

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_SECONDS = 120
EVIL = (
    "</script><script>window.hacked = 1</script>",
    "<img src=http://unreachable.invalid/x onerror='window.hacked = 2'>",
    "<!--data-->",
    "<!--title-->",
    "\u2028\u2029",
    "\ud800",
    "&lt;b&gt;",
    "'\"`${1}\\",
)
LABELS = ("·girl", "·boy", "·king", "girl", "·red", "·blue", "·zero", *EVIL)


def scatter(labels: tuple[str, ...] = LABELS, **more: Any) -> Scatter:
    n = len(labels)
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    block = Scatter(
        np.cos(angles).tolist(),
        np.sin(angles).tolist(),
        labels,
        "PC 1 (60.0 % of variance)",
        "PC 2",
        "A map of <b>tokens</b> & others",
        groups=["people"] * 4 + ["<i>colours</i>"] * 2 + [""] * (n - 6),
        ids=list(range(100, 100 + n)),
        caption="checkpoint · 62 % kept",
        neighbors=[[((place + step) % n, 0.5 * step) for step in (1, 2, 3)] for place in range(n)],
    )
    return replace(block, **more)


def page_of(block: Scatter) -> str:
    return html.render(Report("A report", None, (), None, {"map": block}))


def data_in(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_the_page_holds_every_point_its_id_group_and_neighbours() -> None:
    data = data_in(page_of(scatter()))
    assert data["labels"] == list(LABELS)
    assert data["ids"] == list(range(100, 100 + len(LABELS)))
    assert [data["groups"][g] if g >= 0 else "" for g in data["group"]][:7] == ["people"] * 4 + [
        "<i>colours</i>"
    ] * 2 + [""]
    assert data["neighbors"][0] == [1, 2, 3]
    assert data["distances"][0] == [0.5, 1.0, 1.5]
    np.testing.assert_allclose(data["coordinates"], [scatter().x, scatter().y], rtol=1e-4, atol=1e-12)


def test_no_token_can_leave_the_data_and_nothing_is_fetched() -> None:
    page = page_of(scatter())
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert page.split('id="data">')[1].split("</script>")[0].isascii()
    assert "<title>A map of &lt;b&gt;tokens&lt;/b&gt; &amp; others</title>" in page
    assert "default-src 'none'" in page
    for address in re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page):
        assert address == "data:,"
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", page)


def test_bare_points_make_a_page_too() -> None:
    data = data_in(page_of(Scatter([1.0, 2.0], [3.0, 4.0], [], "x", "y")))
    assert (data["labels"], data["ids"], data["groups"], data["neighbors"]) == (["0", "1"], [], [], [])


def test_what_is_no_map_is_refused() -> None:
    with pytest.raises(OutputError, match="no map of points"):
        html.render(Report("t", None, (), None, {"grid": Heatmap([[1.0]], ["a"], ["a"], "cosine")}))


class Browser:
    """A page in a headless browser, spoken to over a pair of pipes (the DevTools protocol)."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        our_read, their_write = os.pipe()
        their_read, our_write = os.pipe()

        def give_pipes() -> None:
            ends = os.dup(their_read), os.dup(their_write)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [
                BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1280,720",
            ],
            preexec_fn=give_pipes, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(their_read)
        os.close(their_write)
        self.incoming = os.fdopen(our_read, "rb")
        self.outgoing = os.fdopen(our_write, "wb")
        self.sent = 0
        self.session = ""
        self.events: list[dict[str, Any]] = []
        self.buffer = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.incoming], [], [], PATIENCE_SECONDS)
            assert ready, "the browser does not answer"
            more = os.read(self.incoming.fileno(), 1 << 20)
            assert more, "the browser has gone"
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def call(self, method: str, **parameters: Any) -> Any:
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.outgoing.write(json.dumps(message).encode() + b"\0")
        self.outgoing.flush()
        while True:
            answer = self.receive()
            if answer.get("id") == self.sent:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())
        self.settle()

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Until what was asked for is painted."""
        self.run(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"
        )

    def place_of(self, point: int) -> tuple[float, float]:
        x, y = self.run(
            f"(() => {{ const box = document.getElementById('map').getBoundingClientRect();"
            f" const [x, y] = tokenMap.at({point}); return [x + box.left, y + box.top]; }})()"
        )
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def fetched(self) -> list[str]:
        requests = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in requests]

    def complaints(self) -> list[str]:
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def close(self) -> None:
        self.session = ""
        self.call("Browser.close")
        self.process.wait(timeout=30)
        self.incoming.close()
        self.outgoing.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("no chromium is installed")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def show(browser: Browser, folder: Path, block: Scatter) -> str:
    path = folder / "map.html"
    path.write_text(page_of(block), encoding="utf-8")
    browser.open(path)
    return path.as_uri()


@pytest.mark.browser
def test_the_browser_draws_every_point_and_asks_the_network_for_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    address = show(browser, tmp_path, scatter())
    assert browser.run("tokenMap.count") == len(LABELS)
    assert int(browser.run("document.body.dataset.labels")) >= len(LABELS) - 2
    assert browser.complaints() == []
    painted = browser.run(
        "(() => { const c = document.getElementById('map'), pen = c.getContext('2d'), r = window.devicePixelRatio;"
        " return [...Array(tokenMap.count).keys()].map((i) => { const [x, y] = tokenMap.at(i);"
        " return pen.getImageData(Math.round(x * r), Math.round(y * r), 1, 1).data[3]; }); })()"
    )
    assert min(painted) > 100
    assert [url for url in browser.fetched() if url not in (address, "data:,")] == []
    assert browser.run("window.hacked") is None


@pytest.mark.browser
def test_pointing_at_a_point_tells_its_token_id_and_group(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, scatter())
    for point, said in ((1, ("·boy", "id 101", "people")), (7, (EVIL[0], "id 107"))):
        browser.mouse("mouseMoved", *browser.place_of(point))
        browser.settle()
        assert browser.run("tokenMap.hovered") == point
        tip = browser.run("document.getElementById('tip').textContent")
        assert all(part in tip for part in said)
    assert browser.run("window.hacked") is None


@pytest.mark.browser
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("girl", "girl"),
        ("·girl", "·girl"),
        (" girl", "·girl"),
        ("kin", "·king"),
        ("id:105", "·blue"),
        ("</scr", EVIL[0]),
    ],
)
def test_searching_finds_a_token_and_lists_its_true_neighbours(
    browser: Browser, tmp_path: Path, typed: str, found: str
) -> None:
    show(browser, tmp_path, scatter())
    browser.run("document.getElementById('search').focus()")
    browser.call("Input.insertText", text=typed)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)
    browser.settle()
    place = LABELS.index(found)
    assert browser.run("document.getElementById('chosen-name').textContent") == found
    names = browser.run(
        "[...document.querySelectorAll('#neighbors button span:nth-child(2)')].map((n) => n.textContent)"
    )
    expected = [LABELS[(place + step) % len(LABELS)] for step in (1, 2, 3)]
    assert [n.encode("utf-16", "surrogatepass") for n in names if "\ufffd" not in n] == [
        n.encode("utf-16", "surrogatepass") for n in expected if "\ud800" not in n
    ]
    assert browser.run("document.querySelector('#neighbors .number').textContent") == "0.500"
    assert browser.run("window.hacked") is None


@pytest.mark.browser
def test_the_map_is_zoomed_dragged_and_brought_back(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, scatter())
    before, far = browser.place_of(0), browser.place_of(5)
    browser.mouse("mouseWheel", *before, deltaX=0, deltaY=-400)
    browser.settle()
    zoomed, far_zoomed = browser.place_of(0), browser.place_of(5)
    assert np.hypot(*np.subtract(zoomed, before)) < 2  # the point under the pointer stays
    assert np.hypot(*np.subtract(far_zoomed, zoomed)) > 1.5 * np.hypot(*np.subtract(far, before))
    x, y = 300, 300
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + 70, y + 40, button="left", buttons=1)
    browser.mouse("mouseReleased", x + 70, y + 40, button="left", clickCount=1)
    browser.settle()
    np.testing.assert_allclose(np.subtract(browser.place_of(0), zoomed), (70, 40), atol=1)
    browser.run("document.getElementById('reset').click()")
    browser.settle()
    np.testing.assert_allclose(browser.place_of(0), before, atol=1)


@pytest.mark.browser
def test_groups_are_hidden_by_their_legend(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, scatter())
    browser.run("document.querySelector('#legend button').click()")
    browser.mouse("mouseMoved", *browser.place_of(1))
    browser.settle()
    assert browser.run("tokenMap.hovered") != 1
    assert browser.run("[...document.querySelectorAll('#legend .number')].map((n) => n.textContent)") == [
        "4",
        "2",
    ]


@pytest.mark.browser
def test_light_and_dark_go_by_preference_and_by_button(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, scatter())
    seen = []
    for scheme in ("light", "dark"):
        browser.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        seen.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    browser.run("document.getElementById('theme').click()")
    seen.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert seen[0] == seen[2] == "rgb(255, 255, 255)"
    assert seen[1] != seen[0]


@pytest.mark.browser
def test_a_map_of_three_dimensions_turns(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, scatter(z=[0.1 * n for n in range(len(LABELS))], z_label="PC 3"))
    before = browser.place_of(0)
    browser.mouse("mousePressed", 300, 300, button="left", clickCount=1)
    browser.mouse("mouseMoved", 400, 300, button="left", buttons=1)
    browser.mouse("mouseReleased", 400, 300, button="left", clickCount=1)
    browser.settle()
    assert abs(browser.place_of(0)[0] - before[0]) > 5
    assert browser.complaints() == []


@pytest.mark.browser
def test_fifty_thousand_points_are_drawn_and_pointed_at(browser: Browser, tmp_path: Path) -> None:
    n = 50_000
    x, y = np.random.default_rng(0).normal(size=(2, n)).tolist()
    x[123], y[123] = 9.0, 9.0  # away from all others
    block = Scatter(x, y, [f"·t{place}" for place in range(n)], "x", "y", ids=list(range(n)))
    show(browser, tmp_path, block)
    browser.mouse("mouseMoved", *browser.place_of(123))
    browser.settle()
    assert browser.run("tokenMap.hovered") == 123
    assert browser.run("tokenMap.search('t123')[0]") == 123
    assert browser.complaints() == []
