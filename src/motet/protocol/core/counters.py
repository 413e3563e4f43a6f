"""The documented list of all counters. Invalid input from a peer raises no exception: it is dropped and counted."""

from __future__ import annotations

from collections import Counter as _Tally
from enum import StrEnum, unique
from typing import Self


@unique
class Nature(StrEnum):
    """How an operator should read it when a counter grows."""

    WORK = "work"  # grows with the traffic
    REPAIR = "repair"  # normal where datagrams are lost, duplicated or reordered
    CHANGE = "change"  # normal when members join, leave or merge, and while faults are injected
    REJECTED = "rejected"  # a few around a restart are normal; investigate one that keeps growing


@unique
class Count(StrEnum):
    """All counters. One that grows while datagrams are lost is not an error in itself.

    `meaning` is the only description of a counter: metrics, dashboard, `motet probe` and the guide show this text.
    """

    meaning: str
    nature: Nature

    def __new__(cls, name: str, nature: Nature = Nature.REJECTED, meaning: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.nature = nature
        member.meaning = meaning
        return member

    __hash__ = str.__hash__  # counters are keyed by it once per frame, and a hash in Python would cost too much

    DATAGRAM_REJECTED = (
        "datagram_rejected",
        Nature.REJECTED,
        "Datagrams that are no frame of this group: wrong magic, version, length or group name.",
    )
    SOURCE_UNKNOWN = (
        "source_unknown",
        Nature.REJECTED,
        "Well-formed frames from an incarnation that never introduced itself to this member.",
    )
    SOURCE_OURSELVES = (
        "source_ourselves",
        Nature.REJECTED,
        ("Datagrams dropped because they name this member as their source: forged, or reflected by the network."),
    )
    FRAME_FAILED = (
        "frame_failed",
        Nature.REJECTED,
        (
            "Frames dropped because handling them raised an error inside Motet. The log has the traceback; "
            "please report it."
        ),
    )
    NOT_FOR_US = "not_for_us", Nature.REJECTED, "Datagrams addressed to an earlier incarnation of this process."
    FRAME_MISPLACED = (
        "frame_misplaced",
        Nature.REJECTED,
        "Frames dropped because they are not valid in the current state of this member.",
    )
    BODY_INCOHERENT = (
        "body_incoherent",
        Nature.REJECTED,
        "Fragments dropped because they do not continue the message before them.",
    )
    ORDER_MISMATCH = (
        "order_mismatch",
        Nature.REJECTED,
        (
            "Frames of total order from a member with another dissemination strategy, or where this member has "
            "none. All members need the same settings."
        ),
    )

    SEAL_MISSING = (
        "seal_missing",
        Nature.REJECTED,
        "Datagrams dropped because they are not sealed although this member has keys.",
    )
    SEAL_TRUNCATED = (
        "seal_truncated",
        Nature.REJECTED,
        "Datagrams that start like a sealed datagram but are too short to be one.",
    )
    SEAL_OTHER_VERSION = (
        "seal_other_version",
        Nature.REJECTED,
        "Datagrams sealed by a version of Motet that this one does not know.",
    )
    SEAL_KEY_UNKNOWN = (
        "seal_key_unknown",
        Nature.REJECTED,
        "Datagrams sealed with a key that this member does not have: an old key, or another group's.",
    )
    SEAL_BROKEN = (
        "seal_broken",
        Nature.REJECTED,
        ("Datagrams that fail authentication: altered on the way, or sealed with a different key under the same id."),
    )
    SEAL_REPLAYED = (
        "seal_replayed",
        Nature.REJECTED,
        "Datagrams dropped because they were received before; normal where the network duplicates.",
    )
    SEAL_TOO_OLD = (
        "seal_too_old",
        Nature.REJECTED,
        "Datagrams dropped because they are older than the replay window; normal for stragglers.",
    )

    FAULT_DROPPED = "fault_dropped", Nature.CHANGE, "Datagrams that an injected fault dropped."
    FAULT_DELAYED = "fault_delayed", Nature.CHANGE, "Datagrams that an injected fault delayed."
    FAULT_DUPLICATED = "fault_duplicated", Nature.CHANGE, "Datagrams that an injected fault duplicated."
    FAULT_OVERFLOWED = (
        "fault_overflowed",
        Nature.CHANGE,
        "Datagrams dropped because the delay buffer of fault injection was full.",
    )

    FRAME_DUPLICATE = (
        "frame_duplicate",
        Nature.REPAIR,
        "Frames received again; normal where the network loses or duplicates.",
    )
    FRAME_OUTSIDE_WINDOW = (
        "frame_outside_window",
        Nature.REPAIR,
        "Frames dropped because they are ahead of the receive window; they are requested again later.",
    )
    FRAME_OF_OLD_CONNECTION = (
        "frame_of_old_connection",
        Nature.CHANGE,
        "Frames dropped because they carry a connection id that was replaced since.",
    )
    FRAME_EARLY = "frame_early", Nature.CHANGE, "Frames buffered because their sender is not in the view yet."
    FRAME_EARLY_DROPPED = (
        "frame_early_dropped",
        Nature.CHANGE,
        "Frames dropped because their sender is not in the view yet and the buffer for such frames was full.",
    )

    ACK_OF_NON_MEMBER = (
        "ack_of_non_member",
        Nature.CHANGE,
        "Acks ignored because only members of the view decide what may be purged.",
    )
    ACK_BEYOND_SENT = (
        "ack_beyond_sent",
        Nature.REJECTED,
        "Acks ignored because they acknowledge frames that were never sent.",
    )
    ACK_OF_OLD_CONNECTION = (
        "ack_of_old_connection",
        Nature.CHANGE,
        "Acks ignored because they carry a connection id that was replaced since.",
    )
    ACK_DURING_SYNC = (
        "ack_during_sync",
        Nature.CHANGE,
        "Acks discarded because the peer has not confirmed the new connection id yet.",
    )

    DIGEST_OVERLAP = (
        "digest_overlap",
        Nature.CHANGE,
        "Merges in which two views reported digests for the same stream because their memberships overlapped.",
    )
    MERGE_CANCELLED = (
        "merge_cancelled",
        Nature.CHANGE,
        "Merges cancelled because a participating view did not answer or failed; they are tried again.",
    )
    MERGE_UNANSWERED = (
        "merge_unanswered",
        Nature.CHANGE,
        "Cancelled merges in which another coordinator did not answer at all: it crashed or is unreachable.",
    )
    MERGE_REFUSED = (
        "merge_refused",
        Nature.CHANGE,
        "Merges that another coordinator refused because it was busy; normal when several merge at once.",
    )
    VIEW_CHANGED = "view_changed", Nature.CHANGE, "Views installed."

    SNAPSHOT_REJECTED = (
        "snapshot_rejected",
        Nature.REJECTED,
        "Snapshot messages dropped because they cannot be decoded or contradict themselves.",
    )
    SNAPSHOT_ABANDONED = (
        "snapshot_abandoned",
        Nature.CHANGE,
        "Snapshot recordings discarded because the initiator gave up or was silent for too long.",
    )

    FRAME_SENT = "frame_sent", Nature.WORK, "Frames sent for the first time."
    FRAME_RESENT = "frame_resent", Nature.REPAIR, "Frames retransmitted; normal where datagrams are lost."
    FRAME_DELIVERED = "frame_delivered", Nature.WORK, "Frames delivered by the channels."
    FRAME_ORDERED = "frame_ordered", Nature.WORK, "Frames delivered in total order."
    APPEND_REPEATED = (
        "append_repeated",
        Nature.CHANGE,
        ("Appends dropped because the log had them already; normal when a producer repeats after an unclear outcome."),
    )
    ACK_SENT = "ack_sent", Nature.WORK, "Acks sent."
    REPAIR_ASKED = "repair_asked", Nature.REPAIR, "Retransmission requests sent."
    REPAIR_REFUSED = (
        "repair_refused",
        Nature.REPAIR,
        ("Frames not retransmitted because the peer exceeded its retransmission budget; it requests them again later."),
    )
    LAST_SEQNO_ANNOUNCED = (
        "last_seqno_announced",
        Nature.REPAIR,
        "Last-seqno announcements sent, so that receivers notice when the last frames of a stream were lost.",
    )
    PURGED_ANSWERED = "purged_answered", Nature.REJECTED, "Retransmission requests for frames that were already purged."
    SYNC_SENT = "sync_sent", Nature.CHANGE, "Attempts to resynchronise a unicast connection."
    CONNECTION_REFUSED = (
        "connection_refused",
        Nature.REJECTED,
        "Unicast connections refused because the maximum number of peers was reached.",
    )
    CONNECTION_GIVEN_UP = (
        "connection_given_up",
        Nature.REJECTED,
        "Unicast connections failed because the peer was silent for the whole give_up time.",
    )


Counters = _Tally[Count]
