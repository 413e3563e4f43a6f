"""The dashboard in a real browser: what it shows in each state, that it believes nothing, and that it operates."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import product

import pytest

from motet.admin.server import AdminConfig
from motet.protocol.core.counters import Count
from motet.protocol.core.identity import Endpoint
from tests.admin.browser import Browser, browser, find_browser
from tests.admin.fakes import NAMES, member_of, stats_of
from tests.admin.scenes import SCENES, healthy, served

TOKEN = "a-token-of-the-tests"
QUICK = AdminConfig(interval_s=0.05)
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

in_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium here: install one (apt-get install chromium) to test the dashboard"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Browser]:
    """Whatever the browser complains of, such as a script that failed or was stopped, fails the test."""
    chromium.complaints.clear()
    yield chromium
    for page in list(chromium.pages.values()):
        page.close()
    assert chromium.complaints == []


SEEN = {
    "healthy": ("all is well", "one primary view, one log", "120,500"),
    "loss": ("all is well", "of frames were retransmitted. Normal where datagrams are lost", "drop=0.2", "5 missing"),
    "partition": (
        "not well",
        "The group is in 2 parts: alto, bass, cello (primary) | drum, erhu",
        "view 9@000a, not primary",
    ),
    "merged": (
        "all is well",
        "merged several views",
        "merge of 8@000a + 9@000d",
        "fetched 6,330 positions",
    ),
}


@in_browser
@pytest.mark.parametrize("scene", SCENES)
def test_each_state_is_told(tab: Browser, scene: str) -> None:
    with served(SCENES[scene](), QUICK) as (server, members):
        if scene == "loss":
            members[0].grows = {Count.FRAME_SENT: 80, Count.FRAME_RESENT: 15}
            members[0].moves = 10
        page = tab.open(server.url)
        page.wait_until_shown(3)
        text = page.text()
        missing = [words for words in SEEN[scene] if words.lower() not in text.lower()]
        assert not missing, text
        assert page.run("document.querySelectorAll('.node').length") == 5
        assert page.run("document.querySelectorAll('.hull').length") == (2 if scene == "partition" else 1)
        assert page.run("document.querySelectorAll('.crown').length") == (2 if scene == "partition" else 1)
        page.close()


@in_browser
@pytest.mark.parametrize(("width", "is_dark"), [(360, False), (360, True), (1280, True)])
def test_it_fits_a_phone_and_the_dark(tab: Browser, width: int, is_dark: bool) -> None:
    with served(healthy(), QUICK) as (server, _):
        page = tab.open(server.url, width, 780, is_dark=is_dark)
        page.wait_until_shown()
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out to the right"
        background = page.run("getComputedStyle(document.documentElement).backgroundColor")
        assert background == ("rgb(18, 22, 27)" if is_dark else "rgb(244, 245, 242)")
        page.close()


@in_browser
def test_hostile_texts_are_shown_and_never_believed(tab: Browser) -> None:
    figures = healthy()
    for stats in figures:
        for row in stats["view"]["members"]:
            row["name"] = HOSTILE
        stats["name"] = stats["group"] = HOSTILE
        stats["faults"] = stats["suspects"] = [HOSTILE]
        stats["views"] = [{"at": 1, "id": HOSTILE, "members": [HOSTILE], "primary": True, "merged_from": [HOSTILE]}]
        stats["events"] = [{"at": 1, "kind": HOSTILE, "text": HOSTILE}]
        stats["counters"] = {HOSTILE: 1}
        stats["endpoint"] = stats["version"] = HOSTILE
    with served(figures, QUICK) as (server, _):
        page = tab.open(server.url, 360, 780)
        page.wait_until_shown(3)
        assert page.run("document.querySelectorAll('main img, main script, header img, header script').length") == 0
        assert "owned" not in page.run("document.title").replace(HOSTILE, "")
        assert page.run("document.querySelector('#group').textContent") == HOSTILE
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        page.close()


@in_browser
def test_figures_of_any_shape_break_nothing(tab: Browser) -> None:
    sparse = {"group": "orders", "member": member_of("alto"), "view": {}}
    odd = {
        **stats_of("bass"),
        "log": None,
        "rates": [],
        "latency": {"median_us": "soon"},
        "views": [{}],
        "events": [{}],
    }
    with served([stats_of(), odd], QUICK) as (server, members):
        page = tab.open(server.url)
        page.wait_until_shown()
        peers = members[0].figures["peers"]
        members[0].figures = {**sparse, "peers": peers}
        page.wait_until("document.querySelector('#words').innerText.includes('in no view yet')")
        page.close()


@in_browser
def test_faults_are_made_with_the_token(tab: Browser) -> None:
    with served(healthy(), AdminConfig(interval_s=0.05, token=TOKEN)) as (server, members):
        page = tab.open(server.url)
        page.wait_until_shown()
        page.run("document.querySelector('#operate').open = true")
        page.run("document.querySelector('#presets button').click()")
        page.wait_until("document.querySelector('#outcome').innerText.includes('token')")
        assert members[0].operated == []
        _complaints_of(tab, "401")
        page.run(f"document.querySelector('#token').value = {TOKEN!r}")
        page.run("document.querySelector('#peer').value = 'bass'")
        for place in range(page.run("document.querySelectorAll('#presets button').length")):
            page.run(f"document.querySelectorAll('#presets button')[{place}].click()")
            page.wait_until("document.querySelector('#outcome').className === 'good'")
            page.run("document.querySelector('#outcome').className = ''")
        page.run(
            "document.querySelector('#rule').value = 'reorder=0.5@erhu'; document.querySelector('#rule-go').click()"
        )
        page.wait_until("document.querySelector('#outcome').innerText.includes('reorder')")
        rules = [arguments["rule"] for _, arguments in members[0].operated]
        assert rules == [
            "drop=0.2@bass",
            "delay=50ms@bass",
            "duplicate=0.1@bass",
            "cut@bass",
            "clear",
            "reorder=0.5@erhu",
        ]
        page.close()


def _complaints_of(tab: Browser, expected: str) -> None:
    """The console tells of every answer above 399; this one was asked for."""
    assert all(expected in complaint for complaint in tab.complaints)
    tab.complaints.clear()


@in_browser
def test_a_choice_is_not_taken_away_by_the_next_overview(tab: Browser) -> None:
    with served(healthy(), QUICK) as (server, _):
        page = tab.open(server.url)
        page.wait_until_shown()
        page.run("document.querySelector('#peer').value = 'erhu'")
        page.wait_until_shown(20)
        assert page.run("document.querySelector('#peer').value") == "erhu"
        page.close()


@in_browser
def test_off_loopback_the_page_asks_for_the_token(tab: Browser) -> None:
    with served(healthy(), AdminConfig(bind="0.0.0.0:0", token=TOKEN, interval_s=0.05)) as (server, _):
        page = tab.open(server.url.replace("0.0.0.0", "127.0.0.1"))
        page.wait_until("!document.querySelector('#entry').hidden")
        assert page.run("document.querySelector('#main').hidden")
        _complaints_of(tab, "401")
        page.run(
            f"document.querySelector('#entry-token').value = {TOKEN!r}; document.querySelector('#entry button').click()"
        )
        page.wait_until_shown()
        page.wait_until("document.querySelectorAll('.node.reported').length === 0")
        page.close()


@in_browser
def test_a_member_that_goes_away_is_told_and_found_again(tab: Browser) -> None:
    with served(healthy(), QUICK) as (server, members):
        page = tab.open(server.url)
        page.wait_until_shown()
        bind = str(server.endpoint)
        server.close()
        page.wait_until("document.querySelector('#status').innerText.includes('not connected')")
        with served([members[0].figures], AdminConfig(bind=bind, interval_s=0.05)):
            page.wait_until("document.querySelector('#status').innerText.includes('all is well')")
            _complaints_of(tab, "ERR_")
            page.close()


class Proxy(BaseHTTPRequestHandler):
    """Shows a member under /motet/, as a web server in front of it would: another host name, another path."""

    behind: Endpoint

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass_on(self, body: bytes | None) -> None:
        if not self.path.startswith("/motet/"):
            self.send_error(404)
            return
        connection = http.client.HTTPConnection(*self.behind, timeout=30)
        wanted = {name: value for name, value in self.headers.items() if name not in ("Host", "Connection")}
        connection.request(self.command, self.path.removeprefix("/motet"), body, wanted)
        with connection.getresponse() as response:
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers["Content-Type"])
            self.end_headers()
            with suppress(OSError):
                while piece := response.read1():
                    self.wfile.write(piece)
        connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@in_browser
def test_it_works_under_a_path_of_a_proxy(tab: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    config = AdminConfig(interval_s=0.05, token=TOKEN, hosts=("localhost",))
    with served(healthy(), config) as (server, members), ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        monkeypatch.setattr(Proxy, "behind", server.endpoint, raising=False)
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        page = tab.open(f"http://localhost:{proxy.server_port}/motet/")
        page.wait_until_shown()
        page.run(f"document.querySelector('#token').value = {TOKEN!r}; document.querySelector('#snapshot').click()")
        page.wait_until("document.querySelector('#outcome').className === 'good'")
        page.close()
        proxy.shutdown()
        thread.join()
    assert members[0].operated == [("snapshot", {})]


@in_browser
def test_a_large_group_is_drawn(tab: Browser) -> None:
    names = [f"member-{number}" for number in range(60)]
    stats = stats_of()
    stats["view"]["members"] = [{"name": name, "member": f"{name}#1", "endpoint": ""} for name in [*NAMES[:1], *names]]
    with served([stats], QUICK) as (server, _):
        page = tab.open(server.url)
        page.wait_until_shown()
        assert page.run("document.querySelectorAll('.node').length") == 62  # the first is known by another incarnation
        assert page.run("document.querySelectorAll('.link').length") == 0
        page.close()


# Without a browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_far_enough_apart_to_read(scheme: str) -> None:
    """4.5 to 1, which is what the accessibility guidelines ask for text of this size."""
    css = files("motet.admin").joinpath("dashboard.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light if scheme == "light" else dark))
    levels = ("good", "note", "watch", "bad")
    pairs = [
        *product(("text", "muted", *levels), ("card", "back")),
        *((level, f"{level}-soft") for level in levels),
        *(("text", f"{level}-soft") for level in levels),
    ]
    poor = {
        pair: contrast(found[pair[0]], found[pair[1]])
        for pair in pairs
        if contrast(found[pair[0]], found[pair[1]]) < 4.5
    }
    assert not poor


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_script_never_makes_markup_of_text() -> None:
    script = files("motet.admin").joinpath("dashboard.js").read_text()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
