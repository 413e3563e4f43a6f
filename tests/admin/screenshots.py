"""Pictures of the dashboard for the documentation: python -m tests.admin.screenshots docs/guide/images"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from motet.admin.server import AdminConfig
from motet.protocol.core.counters import Count
from tests.admin.browser import Browser, browser
from tests.admin.scenes import SCENES, past, served

VARIANTS = (("", 1280, False), ("-dark", 1280, True), ("-phone", 390, False))


def main() -> None:
    directory = Path(sys.argv[1])
    wanted = sys.argv[2:] or list(SCENES)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as made:
        for scene in wanted:
            take(made, scene, directory)
    if made.complaints:
        raise SystemExit("\n".join(made.complaints))


def take(made: Browser, scene: str, directory: Path) -> None:
    with served(SCENES[scene](), AdminConfig(interval_s=1)) as (server, members):
        assert server._server is not None
        server._server.poller._history.extend(past(scene))
        for member in members:
            member.moves = 100 if member.figures["view"]["primary"] else 0
        if scene == "loss":
            for place, member in enumerate(members):
                member.grows = {Count.FRAME_SENT: 900, Count.FRAME_RESENT: 190 if place == 0 else 4}
        for suffix, width, is_dark in VARIANTS:
            page = made.open(server.url, width, is_dark=is_dark)
            page.wait_until_shown(2)
            page.screenshot(directory / f"dashboard-{scene}{suffix}.png")
            page.close()


if __name__ == "__main__":
    main()
