"""The one documented list of counters. Invalid input from a peer never raises; it is dropped and counted here."""

from __future__ import annotations

from collections import Counter as _Tally
from enum import StrEnum, unique
from typing import Self


@unique
class Nature(StrEnum):
    """What it means for an operator when a counter grows."""

    WORK = "work"  # Grows with the traffic.
    REPAIR = "repair"  # Normal where datagrams are lost, duplicated or reordered.
    CHANGE = "change"  # Normal when members join, leave or merge.
    REJECTED = "rejected"  # A few around a restart are normal; one that keeps growing needs attention.


@unique
class Count(StrEnum):
    """A counter with its meaning. A counter that grows under loss is not a fault in itself.

    Metrics, dashboard and documentation all show `meaning`, so it is written down here only.
    """

    meaning: str
    nature: Nature

    def __new__(cls, name: str, nature: Nature = Nature.REJECTED, meaning: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.nature = nature
        member.meaning = meaning
        return member

    # Counters are looked up for every frame. The default hash of an enum is Python code; that of a string is C.
    __hash__ = str.__hash__

    DATAGRAM_REJECTED = (
        "datagram_rejected",
        Nature.REJECTED,
        "datagrams that are not a valid frame of this group: wrong magic, version, length, group or field",
    )
    SOURCE_UNKNOWN = (
        "source_unknown",
        Nature.REJECTED,
        "valid frames from an incarnation that this member does not know",
    )
    SOURCE_OURSELVES = (
        "source_ourselves",
        Nature.REJECTED,
        "datagrams that name this member as their source: forged, or reflected by the network; dropped",
    )
    FRAME_FAILED = (
        "frame_failed",
        Nature.REJECTED,
        "frames dropped because handling them raised an error inside Motet; the log has the error; report it as a bug",
    )
    NOT_FOR_US = "not_for_us", Nature.REJECTED, "datagrams addressed to an earlier incarnation of this process"
    FRAME_MISPLACED = "frame_misplaced", Nature.REJECTED, "valid frames that do not fit the member's current state"
    BODY_INCOHERENT = "body_incoherent", Nature.REJECTED, "fragments that do not continue the unfinished message"
    ORDER_MISMATCH = (
        "order_mismatch",
        Nature.REJECTED,
        "total-order frames for a member without total order, or of another dissemination strategy: settings differ",
    )

    SEAL_MISSING = "seal_missing", Nature.REJECTED, "unsealed datagrams received by a member that has a key"
    SEAL_TRUNCATED = (
        "seal_truncated",
        Nature.REJECTED,
        "datagrams with the magic of a sealed one that are too short to be one",
    )
    SEAL_OTHER_VERSION = (
        "seal_other_version",
        Nature.REJECTED,
        "datagrams sealed in a format version that is not known",
    )
    SEAL_KEY_UNKNOWN = (
        "seal_key_unknown",
        Nature.REJECTED,
        "datagrams sealed under a key id that is not in the keyring: an old key, or another group's",
    )
    SEAL_BROKEN = (
        "seal_broken",
        Nature.REJECTED,
        "datagrams that fail authentication: another key under the same id, or altered in transit",
    )
    SEAL_REPLAYED = (
        "seal_replayed",
        Nature.REJECTED,
        "sealed datagrams received again; normal where the network duplicates",
    )
    SEAL_TOO_OLD = (
        "seal_too_old",
        Nature.REJECTED,
        "sealed datagrams older than the replay window; normal for stragglers",
    )

    FAULT_DROPPED = "fault_dropped", Nature.CHANGE, "datagrams dropped by an injected fault"
    FAULT_DELAYED = "fault_delayed", Nature.CHANGE, "datagrams delayed by an injected fault"
    FAULT_DUPLICATED = "fault_duplicated", Nature.CHANGE, "datagrams duplicated by an injected fault"
    FAULT_OVERFLOWED = (
        "fault_overflowed",
        Nature.CHANGE,
        "datagrams dropped because an injected delay had reached the bound on delayed datagrams",
    )

    FRAME_DUPLICATE = "frame_duplicate", Nature.REPAIR, "frames received again; normal under loss and duplication"
    FRAME_OUTSIDE_WINDOW = (
        "frame_outside_window",
        Nature.REPAIR,
        "frames ahead of the receive window, which are dropped and requested later",
    )
    FRAME_OF_OLD_CONNECTION = (
        "frame_of_old_connection",
        Nature.CHANGE,
        "frames of a unicast connection id that was replaced",
    )
    FRAME_EARLY = "frame_early", Nature.CHANGE, "multicast frames of a later view, buffered until it is installed"
    FRAME_EARLY_DROPPED = (
        "frame_early_dropped",
        Nature.CHANGE,
        "multicast frames of a later view, dropped because the buffer for them is full",
    )

    ACK_OF_NON_MEMBER = (
        "ack_of_non_member",
        Nature.CHANGE,
        "acks ignored because their source is not in the view",
    )
    ACK_BEYOND_SENT = "ack_beyond_sent", Nature.REJECTED, "acks ignored because they name a seqno that was never sent"
    ACK_OF_OLD_CONNECTION = "ack_of_old_connection", Nature.CHANGE, "late acks of a replaced connection, ignored"
    ACK_DURING_SYNC = (
        "ack_during_sync",
        Nature.CHANGE,
        "acks discarded because the peer had not confirmed the new connection id of a SYNC",
    )

    DIGEST_OVERLAP = (
        "digest_overlap",
        Nature.CHANGE,
        "merges in which two parts reported the same stream, because their views overlapped; also logged as a warning",
    )
    MERGE_CANCELLED = (
        "merge_cancelled",
        Nature.CHANGE,
        "merges cancelled because a part was silent or failed; retried later",
    )
    MERGE_UNANSWERED = (
        "merge_unanswered",
        Nature.CHANGE,
        "cancelled merges in which a coordinator never answered: it has crashed or is unreachable",
    )
    MERGE_REFUSED = (
        "merge_refused",
        Nature.CHANGE,
        "merge requests that a busy coordinator refused; normal when several merge at once",
    )
    VIEW_CHANGED = "view_changed", Nature.CHANGE, "views installed"

    SNAPSHOT_REJECTED = (
        "snapshot_rejected",
        Nature.REJECTED,
        "snapshot messages that cannot be decoded, and reports that name members outside the view",
    )
    SNAPSHOT_ABANDONED = (
        "snapshot_abandoned",
        Nature.CHANGE,
        "snapshots discarded because their initiator gave up or timed out",
    )

    FRAME_SENT = "frame_sent", Nature.WORK, "data frames sent for the first time"
    FRAME_RESENT = "frame_resent", Nature.REPAIR, "data frames sent again; normal under loss"
    FRAME_DELIVERED = "frame_delivered", Nature.WORK, "frames delivered in the order of their sender"
    FRAME_ORDERED = "frame_ordered", Nature.WORK, "frames delivered in total order"
    APPEND_REPEATED = (
        "append_repeated",
        Nature.CHANGE,
        "appends dropped because the log already has them; normal where a producer retries",
    )
    ACK_SENT = "ack_sent", Nature.WORK, "acknowledgements sent"
    REPAIR_ASKED = "repair_asked", Nature.REPAIR, "retransmission requests sent"
    REPAIR_REFUSED = (
        "repair_refused",
        Nature.REPAIR,
        "requested frames not resent because the repair budget was spent; the peer asks again",
    )
    LAST_SEQNO_ANNOUNCED = (
        "last_seqno_announced",
        Nature.REPAIR,
        "last-seqno announcements sent, by which receivers detect that the end of a stream was lost",
    )
    PURGED_ANSWERED = "purged_answered", Nature.REJECTED, "requests for frames that were purged already"
    SYNC_SENT = "sync_sent", Nature.CHANGE, "attempts to resynchronize a unicast connection by SYNC"
    CONNECTION_REFUSED = "connection_refused", Nature.REJECTED, "connections refused because of max_peers"
    CONNECTION_GIVEN_UP = (
        "connection_given_up",
        Nature.REJECTED,
        "unicast connections closed because the peer did not answer within the give-up time",
    )


Counters = _Tally[Count]
