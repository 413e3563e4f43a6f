"""A counter that is the same everywhere, made by hand: the log orders the operations, every member applies them.

    python examples/replicated_counter.py

Three members add and double at the same time. Adding and doubling do not commute, so the results agree only because
all apply them in one order. A fourth member comes late and is given the state; then it hears exactly what follows.
(`motet.Counter` is the same thing ready made.)
"""

from __future__ import annotations

import asyncio

import motet


class ReplicatedCounter:
    def __init__(self) -> None:
        self.value = 0
        self.applied = 0  # position of the last operation
        self._changed = asyncio.Event()

    def apply(self, message: motet.Message) -> None:
        operation, number = message.payload.split()
        self.value = self.value * int(number) if operation == b"multiply" else self.value + int(number)
        self.value %= 1_000_000_007
        assert message.position is not None
        self._moved_to(message.position)

    def take_state(self) -> bytes:
        """Called when this member has applied every message before the joiner's first one, and none after it."""
        return b"%d %d" % (self.value, self.applied)

    def receive_state(self, state: bytes) -> None:
        self.value, applied = map(int, state.split())
        self._moved_to(applied)

    def _moved_to(self, position: int) -> None:
        self.applied = position
        self._changed.set()

    async def until(self, position: int) -> int:
        while self.applied < position:
            self._changed.clear()
            await self._changed.wait()
        return self.value


class CounterMember:
    """One member: a group, a counter, and the task that applies what comes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter = ReplicatedCounter()

    async def start(self, seeds: list[str]) -> None:
        self.group = await motet.join(
            "counter",
            name=self.name,
            seeds=seeds or None,
            state_provider=self.counter.take_state,
            state_receiver=self.counter.receive_state,
        )
        self._task = asyncio.create_task(self._apply_all())

    async def _apply_all(self) -> None:
        async for event in self.group:
            if isinstance(event, motet.Message):
                self.counter.apply(event)

    async def stop(self) -> None:
        await self.group.leave()
        await self._task


async def compute(member: CounterMember, rounds: int) -> int:
    """Send operations as fast as the windows allow. Returns the position of the last one."""
    for number in range(1, rounds + 1):
        operation = b"multiply 2" if number % 5 == 0 else b"add %d" % number
        receipt = await member.group.multicast(operation)
    return await receipt.stable()


async def main() -> None:
    members = [CounterMember(name) for name in ("ann", "bob", "cleo")]
    for number, member in enumerate(members):
        await member.start([str(other.group.address.endpoint) for other in members[:number]])
    last = max(await asyncio.gather(*(compute(member, 100) for member in members)))
    values = [await member.counter.until(last) for member in members]
    for member, value in zip(members, values, strict=True):
        print(f"{member.name:5} has applied {last} operations and counts {value}")
    assert len(set(values)) == 1

    late = CounterMember("late")
    await late.start([str(members[0].group.address.endpoint)])
    members.append(late)
    last = await compute(members[1], 10)
    values = [await member.counter.until(last) for member in members]
    print(f"late  came in, was given the state, and counts {values[-1]} after {last} operations")
    assert len(set(values)) == 1
    for member in members:
        await member.stop()
    print("All counted the same.")


if __name__ == "__main__":
    asyncio.run(main())
