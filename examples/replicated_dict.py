"""A dict, a counter and a lock that all members share.

    python examples/replicated_dict.py

Three members sell tickets for the same seats. `set_default` lets exactly one of them sell each seat, the counter hands
out numbers that no two get, and the lock lets one at a time count the till.
"""

from __future__ import annotations

import asyncio

import motet

SEATS = [f"{row}{number}" for row in "ABC" for number in range(1, 9)]


class Box:
    """A ticket office."""

    def __init__(self, group: motet.Group) -> None:
        self.name = group.address.name
        self.seats = motet.ReplicatedDict(group, "seats")
        self.numbers = motet.Counter(group, "ticket numbers")
        self.till = motet.Lock(group, "till")
        self.sold: dict[str, int] = {}

    async def sell_all(self) -> None:
        for seat in SEATS:
            if await self.seats.set_default(seat, self.name):
                self.sold[seat] = await self.numbers.add()

    async def count_till(self) -> None:
        async with self.till:
            total = self.seats.get("till", 0)
            assert isinstance(total, int)
            await self.seats.set("till", total + len(self.sold))  # the lock excludes all other members


async def main() -> None:
    groups: list[motet.Group] = []
    for name in ("ann", "bob", "cleo"):
        seeds = [str(group.address.endpoint) for group in groups]
        groups.append(await motet.join("tickets", name=name, seeds=seeds or None, consume=False))
    boxes = [Box(group) for group in groups]
    await asyncio.gather(*(box.sell_all() for box in boxes))
    await asyncio.gather(*(box.count_till() for box in boxes))
    for box in boxes:
        print(f"{box.name:5} sold {len(box.sold):2} seats")
    tickets = sorted(number for box in boxes for number in box.sold.values())
    assert tickets == list(range(1, len(SEATS) + 1))
    await boxes[0].seats.sync()
    assert boxes[0].seats["till"] == len(SEATS)
    print(f"All {len(SEATS)} seats were sold, each once, under numbers 1 to {tickets[-1]}.")
    for group in groups:
        await group.leave()


if __name__ == "__main__":
    asyncio.run(main())
