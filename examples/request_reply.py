"""Call one member, call all of them, and see how a missing answer is reported.

python examples/request_reply.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import motet

STOCK = {"ann": {"apples": 3}, "bob": {"apples": 4, "pears": 1}, "cleo": {"plums": 7}}


def warehouse(name: str) -> Callable[[motet.Address, bytes], Awaitable[bytes]]:
    """What one member answers. A handler is a plain or an async function; what it raises goes to the caller."""

    async def answer(caller: motet.Address, question: bytes) -> bytes:
        fruit = question.decode()
        if fruit == "the meaning of life":
            await asyncio.sleep(3600)
        if fruit not in STOCK[name]:
            raise KeyError(f"{name} has no {fruit}")
        return b"%d" % STOCK[name][fruit]

    return answer


async def main() -> None:
    groups: list[motet.Group] = []
    for name in STOCK:
        seeds = [str(group.address.endpoint) for group in groups]
        groups.append(await motet.join("stock", name=name, seeds=seeds or None, on_call=warehouse(name)))
    ann, bob, cleo = groups
    await ann.until(lambda view: len(view.members) == 3)

    print("bob has", (await ann.call(bob.address, b"apples")).decode(), "apples")

    # The result includes this member; for a member that cannot answer it has an error.
    answers = await cleo.call_all(b"apples")
    found = {member.name: int(answer) for member, answer in answers.items() if isinstance(answer, bytes)}
    print("apples in all:", sum(found.values()), "at", " and ".join(sorted(found)))

    try:
        await ann.call(cleo.address, b"pears")
    except motet.RemoteError as error:
        print("refused:", error)

    try:
        await ann.call(bob.address, b"the meaning of life", timeout=0.3)
    except motet.CallTimeoutError as error:
        print("no answer:", error)

    for group in groups:
        await group.leave()


if __name__ == "__main__":
    asyncio.run(main())
