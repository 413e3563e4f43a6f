"""Merging digests: the maximum of what both know (JGroups note MERGE)."""

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.window.digest import DigestEntry, merge_digests

ENTRIES = st.lists(st.integers(0, 6), min_size=3, max_size=3).map(sorted).map(lambda numbers: DigestEntry(*numbers))
DIGESTS = st.dictionaries(st.sampled_from("ABCD"), ENTRIES)
Digest = dict[str, DigestEntry]


def test_overlapping_entries_take_the_maximum_as_in_the_note() -> None:
    ours = {"A": DigestEntry(7, 20, 20)}
    theirs = {"A": DigestEntry(2, 10, 10), "B": DigestEntry(5, 25, 25)}
    merged = merge_digests(ours, theirs)
    assert {member: str(entry) for member, entry in merged.items()} == {"A": "7 20 (20)", "B": "5 25 (25)"}
    assert merge_digests(theirs, ours) == merged


def test_a_message_sent_meanwhile_makes_the_newer_entry_win() -> None:
    older, newer = DigestEntry(7, 20, 20), DigestEntry(7, 21, 21)
    assert merge_digests({"A": older}, {"A": newer}) == {"A": newer}


def test_a_sender_that_is_behind_in_delivering_its_own_stream_has_still_sent_all_of_it() -> None:
    """Membership seed 1272, with other timing: 74 were sent, one who had delivered 71 of them was believed, and
    whoever came in waited for ever for what all others had let go."""
    own, other = DigestEntry(70, 70, 74), DigestEntry(69, 71, 71)
    assert merge_digests({"A": own}, {"A": other}) == {"A": DigestEntry(70, 71, 74)}


@given(ours=DIGESTS, theirs=DIGESTS)
def test_every_seqno_is_the_maximum_of_what_is_known(ours: Digest, theirs: Digest) -> None:
    merged = merge_digests(ours, theirs)
    assert merged.keys() == ours.keys() | theirs.keys()
    for member, entry in merged.items():
        known = [digest[member] for digest in (ours, theirs) if member in digest]
        for name in ("low", "delivered", "received"):
            assert getattr(entry, name) == max(getattr(one, name) for one in known)


@given(ours=DIGESTS, theirs=DIGESTS, others=DIGESTS)
def test_the_order_of_merging_does_not_matter(ours: Digest, theirs: Digest, others: Digest) -> None:
    assert merge_digests(ours, theirs) == merge_digests(theirs, ours)
    assert merge_digests(merge_digests(ours, theirs), others) == merge_digests(ours, merge_digests(theirs, others))


@given(ours=DIGESTS, theirs=DIGESTS)
def test_merging_changes_neither_input(ours: Digest, theirs: Digest) -> None:
    before = (dict(ours), dict(theirs))
    merge_digests(ours, theirs)
    assert (ours, theirs) == before
