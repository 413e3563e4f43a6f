"""A chat without a server: all members see the same lines in the same order.

python examples/chat.py                                              three people talk at once, in this process

python examples/chat.py --name ann --bind 127.0.0.1:7800             ann, who begins; type lines, end with ctrl-D
python examples/chat.py --name bob --seeds 127.0.0.1:7800            bob, in another terminal
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import motet

LINES = {
    "ann": ["Is anybody there?", "Shall we sing?", "From the top, then."],
    "bob": ["I am.", "Which key?", "Who leads?"],
    "cleo": ["Me too.", "I have no score.", "Nobody does. We all hear the same."],
}


async def show(group: motet.Group, transcript: list[str], *, is_printed: bool) -> None:
    async for event in group:
        match event:
            case motet.Message():
                transcript.append(f"{event.position:>3}  {event.sender.name}: {event.payload.decode()}")
            case motet.ViewInstalled():
                transcript.append(f"     here: {', '.join(member.name for member in event.view.members)}")
        if is_printed and isinstance(event, motet.Message | motet.ViewInstalled):
            print(transcript[-1], flush=True)


async def demo() -> None:
    """Three members in one process that all send at once."""
    transcripts: dict[str, list[str]] = {name: [] for name in LINES}
    groups: list[motet.Group] = []
    for name in LINES:
        seeds = [str(group.address.endpoint) for group in groups]
        groups.append(await motet.join("chat", name=name, seeds=seeds or None))
    await groups[0].until(lambda view: len(view.members) == len(LINES))
    shows = [asyncio.create_task(show(group, transcripts[group.address.name], is_printed=False)) for group in groups]

    async def talk(group: motet.Group) -> None:
        receipts = [await group.multicast(line.encode()) for line in LINES[group.address.name]]
        await receipts[-1].stable()  # all members have it

    await asyncio.gather(*map(talk, groups))
    for group in groups:
        await group.leave()
    await asyncio.gather(*shows)

    said = [[line for line in transcript if "here:" not in line] for transcript in transcripts.values()]
    print("\n".join(said[0]))
    assert said[0] == said[1] == said[2]
    print("All three saw this conversation.")


async def talk_from_keyboard(name: str, bind: str, seeds: list[str]) -> None:
    async with motet.join("chat", name=name, bind=bind, seeds=seeds or None) as group:
        print(f"{name} is at {group.address.endpoint}", flush=True)
        showing = asyncio.create_task(show(group, [], is_printed=True))
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            receipt = await group.multicast(line.rstrip(b"\n"))
            await receipt.stable()
        await group.leave()
        await showing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", help="take part as this one")
    parser.add_argument("--bind", default="127.0.0.1:0", help="HOST:PORT")
    parser.add_argument("--seeds", default="", help="HOST:PORT of one who is there already")
    options = parser.parse_args()
    if options.name:
        asyncio.run(talk_from_keyboard(options.name, options.bind, [seed for seed in options.seeds.split(",") if seed]))
    else:
        asyncio.run(demo())


if __name__ == "__main__":
    main()
