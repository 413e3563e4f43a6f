"""Blocks by name: whenever a member makes its block, and whoever gave it the state, all copies have heard the same."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.api import block_registry
from motet.api.block_registry import EVENT_BYTES, Blocks, message_of
from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId

A, B = Address("a", "h", 1, 1), Address("b", "h", 2, 2)


class Diary:
    """A block that writes down everything that it is told; its state is all that it knows."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> None:
        self.lines.append(f"{position} {sender.name}{request} {operation.decode()}")

    def on_view(self, view: View) -> None:
        self.lines.append(f"view {view.id.number}")

    def take(self) -> bytes:
        return "\n".join(self.lines).encode()

    def restore(self, data: bytes) -> None:
        self.lines = data.decode().split("\n") if data else []

    def made_in(self, table: Blocks, name: str = "d") -> "Diary":
        table.register(name, self.apply, self.on_view, self.take, self.restore)
        return self


def message(operation: str, name: str = "d") -> bytes:
    return message_of(name, 1, operation.encode())


def view(number: int, *, is_primary: bool = True) -> View:
    return View(ViewId(number, 1), (A, B), is_primary=is_primary)


def test_operations_go_to_the_block_that_they_name() -> None:
    table = Blocks()
    one, other = Diary().made_in(table, "one"), Diary().made_in(table, "ä")
    table.apply(1, A, (message("x", "one"),))
    table.apply(2, B, (message("y", "ä"),))
    table.apply(3, B, (message("z", "one"),))
    table.on_view(view(3))
    assert one.lines == ["1 a1 x", "3 b1 z", "view 3"]
    assert other.lines == ["2 b1 y", "view 3"]


def test_what_came_before_is_played_when_the_block_is_made() -> None:
    table = Blocks()
    table.on_view(view(1))  # of no interest: nobody has spoken of the block yet
    table.apply(1, A, (message("x"),))
    table.on_view(view(2))
    table.on_view(view(3, is_primary=False))
    table.apply(2, B, (message("y"),))
    table._check()
    assert Diary().made_in(table).lines == ["1 a1 x", "view 2", "2 b1 y"]
    table._check()
    table.apply(3, A, (message("z"),))


def test_the_state_replaces_everything_here_even_where_the_group_has_nothing() -> None:
    table = Blocks()
    known, unknown = Diary().made_in(table, "known"), Diary().made_in(table, "unknown")
    for name in ("known", "unknown", "early"):
        table.apply(1, A, (message("of a lost part", name),))
    group = Blocks()
    Diary().made_in(group, "known")
    group.apply(1, B, (message("x", "known"),))
    table.restore(group.take())
    assert (known.lines, unknown.lines) == (["1 b1 x"], [])
    assert Diary().made_in(table, "early").lines == []
    table._check()


def test_a_part_that_cannot_be_read_is_told_and_nothing_else_suffers(caplog: pytest.LogCaptureFixture) -> None:
    table = Blocks()
    one, other = Diary().made_in(table, "one"), Diary().made_in(table, "other")
    table.restore({"one": b"\x01\x05", "other": b"\x00fine", "third": b"", "fourth": b"\x09"})
    assert (one.lines, other.lines) == ([], ["fine"])
    assert "the state of block 'one' cannot be read" in caplog.text
    assert "its copy here is not to be trusted" in caplog.text
    for name in ("third", "fourth"):
        with pytest.raises(MisuseError, match="could not be kept; make blocks right after joining"):
            Diary().made_in(table, name)


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_registry, "MOST_EARLY_BYTES", 10 * (EVENT_BYTES + 1))
    table = Blocks()
    for position in range(1, 11):
        table.apply(position, A, (message("x", "much"),))
    table._check()
    table.apply(11, A, (message("x", "much"),))
    table.apply(12, A, (message("x", "little"),))
    table.on_view(view(2))
    table._check()
    with pytest.raises(MisuseError, match="so much was done with block 'much' before it was made here"):
        Diary().made_in(table, "much")
    assert Diary().made_in(table, "little").lines == ["12 a1 x", "view 2"]
    newcomer = Blocks()
    newcomer.restore(table.take())
    newcomer._check()
    with pytest.raises(MisuseError, match="make blocks right after joining"):
        Diary().made_in(newcomer, "much")


def test_names_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_registry, "MOST_EARLY_NAMES", 3)
    table = Blocks()
    for number in range(5):
        table.apply(number + 1, A, (message("x", f"n{number}"),))
    table._check()
    assert len(table.take()) == 3


@pytest.mark.parametrize("nonsense", [b"", b"\x00", b"\x05ab", b"\xff", b"\x01\xff"])
def test_nonsense_of_a_peer_is_kept_for_nobody_who_exists(nonsense: bytes) -> None:
    table = Blocks()
    table.apply(1, A, (nonsense,))
    table._check()
    assert set(table.take()) <= {"\ufffd"}


def test_a_name_is_taken_once_and_has_a_length() -> None:
    table = Blocks()
    Diary().made_in(table)
    with pytest.raises(MisuseError, match="there is a block 'd' in this group already; choose another name"):
        Diary().made_in(table)
    for name in ("", "n" * 256):
        with pytest.raises(MisuseError, match="the name of a block has 1 to 255 bytes"):
            Diary().made_in(table, name)


def test_a_block_that_cannot_take_its_snapshot_is_not_made_and_what_came_for_it_is_kept() -> None:
    group = Blocks()
    Diary().made_in(group)
    group.apply(1, A, (message("x"),))
    table = Blocks()
    table.restore(group.take())
    broken = Diary()

    def restore(data: bytes) -> None:
        raise ValueError("of another version")

    with pytest.raises(ValueError, match="of another version"):
        table.register("d", broken.apply, broken.on_view, broken.take, restore)
    table._check()
    assert Diary().made_in(table).lines == ["1 a1 x"]


def test_what_one_block_raises_concerns_no_other() -> None:
    failures: list[tuple[str, int | None, str]] = []
    table = Blocks(lambda name, position, sender, error: failures.append((name, position, str(error))))
    diary = Diary().made_in(table, "fine")

    def apply(position: int, sender: Address, request: int, operation: bytes) -> None:
        raise ValueError("no")

    def on_view(view: View) -> None:
        raise ValueError("who?")

    for early in ("before", "bad"):
        table.apply(1, A, (message(early, "bad"),))
    table.register("bad", apply, on_view, diary.take, diary.restore)
    table.apply(2, B, (message("x", "bad"), message("y", "fine")))
    table.on_view(view(4))
    assert failures == [("bad", 1, "no"), ("bad", 1, "no"), ("bad", 2, "no"), ("bad", None, "who?")]
    assert diary.lines == ["3 b1 y", "view 4"]


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_all_copies_have_heard_the_same(seed: int) -> None:
    """Members come in with the state of any other, make the block whenever they like, and never part."""
    rng = Random(seed)
    tables: list[Blocks] = [Blocks()]
    diaries: dict[int, Diary] = {}
    truth: list[str] = []
    for step in range(1, 40):
        what = rng.random()
        if what < 0.15 and len(tables) < 6:
            tables.append(Blocks())
            tables[-1].restore(rng.choice(tables[:-1]).take())
        elif what < 0.3:
            late = [number for number in range(len(tables)) if number not in diaries]
            if late:
                number = rng.choice(late)
                diaries[number] = Diary().made_in(tables[number])
        elif what < 0.4 and truth:  # before the first operation a view means nothing to a block
            for table in tables:
                table.on_view(view(step))
            truth.append(f"view {step}")
        elif what >= 0.4:
            for table in tables:
                table.apply(step, A, (message("x"),))
            truth.append(f"{step} a1 x")
        for table in tables:
            table._check()
    for number, table in enumerate(tables):
        diary = diaries.get(number) or Diary().made_in(table)
        assert diary.lines == truth
