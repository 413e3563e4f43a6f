"""A headless Chromium, driven through its debugging pipe: no driver, no port, nothing to install but the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
# The browser speaks on file descriptors 3 and 4; ours have other numbers.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
TIMEOUT_S = 180


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes
        self._rest = b""
        self._next_id = 0
        self.pages: dict[str, Page] = {}  # open ones, by session
        self.complaints: list[str] = []  # errors on the console, exceptions, what the content policy stopped

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._notice(answer)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._reads, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _notice(self, event: dict[str, Any]) -> None:
        if event.get("sessionId") not in self.pages:
            return  # of a page that is closed, and may have lost its server since
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str, width: int = 1280, height: int = 900, *, is_dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable", session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", session, **metrics)
        self.call("Page.navigate", session, url=url)
        return self.pages[session]


class Page:
    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def run(self, script: str) -> Any:
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Asks again and again; what cannot be asked yet, because the document is still empty, is not so yet."""
        attempt = f"() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }}"
        deadline = time.monotonic() + TIMEOUT_S
        while not self.run(f"new Promise(done => setTimeout(() => done(({attempt})()), 20))"):
            assert time.monotonic() < deadline, f"never came true: {condition}; page: {self.text()[:2000]}"

    def wait_until_shown(self, times: int = 2) -> None:
        self.wait_until(f"Number(document.documentElement.dataset.shown || 0) >= {times}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def screenshot(self, path: Path) -> None:
        shot = self._browser.call(
            "Page.captureScreenshot", self._session, format="png", captureBeyondViewport=True, clip=self._whole()
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self) -> dict[str, float]:
        size = self._browser.call("Page.getLayoutMetrics", self._session)["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def close(self) -> None:
        if self._browser.pages.pop(self._session, None) is not None:
            self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """`profile` is a fresh directory; nothing of a person's own browser is touched."""
    found = find_browser()
    assert found is not None
    theirs_in, ours_out = _pipe()
    ours_in, theirs_out = _pipe()
    command = [
        sys.executable,
        "-c",
        LAUNCH,
        str(theirs_in),
        str(theirs_out),
        found,
        *FLAGS,
        f"--user-data-dir={profile}",
    ]
    with (profile / "output").open("wb") as output:
        process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=output, stderr=output)
    os.close(theirs_in)
    os.close(theirs_out)
    made = Browser(ours_in, ours_out)
    try:
        yield made
        made.call("Browser.close")
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours_in)
        os.close(ours_out)


def _pipe() -> tuple[int, int]:
    """Both ends numbered above those that the browser wants for itself."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
