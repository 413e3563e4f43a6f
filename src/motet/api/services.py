"""What a member serves beside its group: the log over Arrow Flight, and admin over HTTP. Both run in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from motet.admin.server import AdminConfig, AdminServer
from motet.api.group import Group
from motet.config import Config
from motet.errors import ConfigError, MisuseError, RepeatedAppendError
from motet.log.service.flight import LogService
from motet.protocol.core.identity import Address
from motet.runtime.journal_writer import PublishedProgress

logger = logging.getLogger("motet")
APPEND_S = 60.0
OPERATE_S = 60.0


class Appending:
    """Threads of the log service into the group (an `Appender`)."""

    def __init__(self, group: Group, loop: asyncio.AbstractEventLoop, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._group = group
        self._loop = loop

    def append(self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int) -> tuple[int, int]:
        appended = self._append(payloads, keys, producer, sequence)
        return asyncio.run_coroutine_threadsafe(appended, self._loop).result(APPEND_S)

    async def _append(
        self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int
    ) -> tuple[int, int]:
        receipt = await self._group.append(payloads, producer=producer, sequence=sequence, keys=keys)
        try:
            last = await receipt.stable()
        except RepeatedAppendError:
            return 0, 0
        return last - len(payloads) + 1, last


class AdminService:
    """Threads of the admin server into the group (an `Observed`)."""

    def __init__(self, group: Group, loop: asyncio.AbstractEventLoop) -> None:
        self._group = group
        self._loop = loop
        self._leaving: asyncio.Future[None] | None = None

    def stats(self) -> dict[str, Any]:
        return self._group.stats()

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "fault":
            rule = str(arguments["rule"])
            self._group.inject("clear" if rule == "none" else rule)
            return {"faults": self._group.stats()["faults"]}
        operations: dict[str, Callable[[], Any]] = {
            "sync": lambda: self._sync(str(arguments["member"])),
            "snapshot": self._snapshot,
            "leave": self._leave,
        }
        answer = asyncio.run_coroutine_threadsafe(operations[name](), self._loop).result(OPERATE_S)
        return dict(answer or {})

    async def _sync(self, name: str) -> dict[str, Any]:
        member = self._find(name)
        await self._group.sync(member)
        return {"synced": str(member)}

    def _find(self, name: str) -> Address:
        members = self._group.view.members
        for member in members:
            if name in (member.name, str(member), str(member.endpoint)):
                return member
        raise MisuseError(f"{name!r} is no member of the view; there are: {', '.join(m.name for m in members)}")

    async def _snapshot(self) -> dict[str, Any]:
        return (await self._group.snapshot()).as_dict()

    async def _leave(self) -> dict[str, Any]:
        self._leaving = asyncio.ensure_future(self._group.leave())
        return {"left": True}


def _admin_config(config: Config) -> AdminConfig:
    return AdminConfig(bind=config.admin_bind, token=config.token or None, insecure=config.insecure)


def start_services(group: Group, config: Config, log: PublishedProgress | None) -> None:
    """Start what the config asks for, and let the group close it."""
    loop = asyncio.get_running_loop()
    if config.log_bind:
        if log is None:
            raise ConfigError("the log can be served from a journal only; give the member a journal directory")
        appender = Appending(group, loop, group.append_bytes)
        service = LogService(log, appender, config.log_bind, config.token or None, group=group.name)
        group._serves("log", service.endpoint, service.close)
    if config.admin_bind:
        admin = AdminServer(AdminService(group, loop), _admin_config(config))
        admin.start()
        group._serves("admin", str(admin.endpoint), admin.close)
