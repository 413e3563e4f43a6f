"""One documented list of everything that is counted. A peer's nonsense is never an exception; it is a number here."""

from __future__ import annotations

from collections import Counter as _Tally
from enum import StrEnum, unique
from typing import Self


@unique
class Nature(StrEnum):
    """What it means for a person when a number grows."""

    WORK = "work"  # grows with the traffic
    REPAIR = "repair"  # normal where datagrams are lost, doubled or overtake one another
    CHANGE = "change"  # normal when members come, go, or meet again
    REJECTED = "rejected"  # a few around a restart are normal; one that keeps growing is worth a look


@unique
class Count(StrEnum):
    """What is counted, with what it means. A number that grows under loss is not a fault in itself.

    `meaning` is what metrics, dashboard and documentation show of it: nowhere else is it written down.
    """

    meaning: str
    nature: Nature

    def __new__(cls, name: str, nature: Nature = Nature.REJECTED, meaning: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.nature = nature
        member.meaning = meaning
        return member

    __hash__ = str.__hash__  # it is a key of the counters, for every frame: no Python for that

    DATAGRAM_REJECTED = (
        "datagram_rejected",
        Nature.REJECTED,
        "bytes that are no frame of ours: wrong magic, version, length or group",
    )
    SOURCE_UNKNOWN = "source_unknown", Nature.REJECTED, "a well-formed frame of an incarnation that nobody introduced"
    SOURCE_OURSELVES = (
        "source_ourselves",
        Nature.REJECTED,
        "says that it is from this member itself: forged, or sent back to us; dropped",
    )
    FRAME_FAILED = (
        "frame_failed",
        Nature.REJECTED,
        "an error inside Motet while a frame of a peer was handled; the frame was logged and dropped: report it",
    )
    NOT_FOR_US = "not_for_us", Nature.REJECTED, "addressed to an earlier life of this process"
    FRAME_MISPLACED = "frame_misplaced", Nature.REJECTED, "a frame that makes no sense in the state we are in"
    BODY_INCOHERENT = "body_incoherent", Nature.REJECTED, "a fragment that does not continue the message before it"
    ORDER_MISMATCH = (
        "order_mismatch",
        Nature.REJECTED,
        "a frame of total order where this member has none, or of the other carrier: all need the same settings",
    )

    SEAL_MISSING = "seal_missing", Nature.REJECTED, "a datagram without a seal, where a key is asked for"
    SEAL_TRUNCATED = "seal_truncated", Nature.REJECTED, "begins like a sealed datagram, and is too short to be one"
    SEAL_OTHER_VERSION = "seal_other_version", Nature.REJECTED, "sealed by a version of Motet that we do not know"
    SEAL_KEY_UNKNOWN = (
        "seal_key_unknown",
        Nature.REJECTED,
        "sealed with a key that is not in our ring: an old one, or another group's",
    )
    SEAL_BROKEN = (
        "seal_broken",
        Nature.REJECTED,
        "does not authenticate: another key under the same id, or altered on its way",
    )
    SEAL_REPLAYED = "seal_replayed", Nature.REJECTED, "came before; normal where the network duplicates"
    SEAL_TOO_OLD = "seal_too_old", Nature.REJECTED, "older than the replay window; normal for a straggler"

    FAULT_DROPPED = "fault_dropped", Nature.CHANGE, "datagrams that an injected fault dropped or cut off"
    FAULT_DELAYED = "fault_delayed", Nature.CHANGE, "datagrams that an injected fault held back for a while"
    FAULT_DUPLICATED = "fault_duplicated", Nature.CHANGE, "datagrams that an injected fault let through twice"
    FAULT_OVERFLOWED = (
        "fault_overflowed",
        Nature.CHANGE,
        "datagrams that an injected fault wanted to hold back beyond its bound, and so dropped",
    )

    FRAME_DUPLICATE = "frame_duplicate", Nature.REPAIR, "received again; normal under loss and duplication"
    FRAME_OUTSIDE_WINDOW = (
        "frame_outside_window",
        Nature.REPAIR,
        "ahead of the receive window; dropped, asked for later",
    )
    FRAME_OF_OLD_CONNECTION = "frame_of_old_connection", Nature.CHANGE, "a connection id that was replaced since"
    FRAME_EARLY = "frame_early", Nature.CHANGE, "of a sender that is not in the view yet; kept"
    FRAME_EARLY_DROPPED = "frame_early_dropped", Nature.CHANGE, "the same, beyond the bound on what is kept"

    ACK_OF_NON_MEMBER = (
        "ack_of_non_member",
        Nature.CHANGE,
        "ignored: only members of the view hold back the purge",
    )
    ACK_BEYOND_SENT = "ack_beyond_sent", Nature.REJECTED, "acknowledges what was never sent; ignored"
    ACK_OF_OLD_CONNECTION = "ack_of_old_connection", Nature.CHANGE, "late; ignored"
    ACK_DURING_SYNC = (
        "ack_during_sync",
        Nature.CHANGE,
        "discarded until the peer confirmed the new connection id",
    )

    DIGEST_OVERLAP = (
        "digest_overlap",
        Nature.CHANGE,
        "two parts of a merge spoke of one stream: their views overlapped; warned of",
    )
    MERGE_CANCELLED = "merge_cancelled", Nature.CHANGE, "a part was silent or failed; it is tried again"
    MERGE_UNANSWERED = (
        "merge_unanswered",
        Nature.CHANGE,
        "of those, the ones in which a coordinator said nothing at all: it crashed, or is cut off",
    )
    MERGE_REFUSED = (
        "merge_refused",
        Nature.CHANGE,
        "a coordinator said that it is busy; normal when several merge at once",
    )
    VIEW_CHANGED = "view_changed", Nature.CHANGE, "views installed"

    SNAPSHOT_REJECTED = (
        "snapshot_rejected",
        Nature.REJECTED,
        "bytes that are no message of a snapshot, or a report that makes no sense",
    )
    SNAPSHOT_ABANDONED = (
        "snapshot_abandoned",
        Nature.CHANGE,
        "recorded for somebody who gave up, or was silent for too long",
    )

    FRAME_SENT = "frame_sent", Nature.WORK, "first transmissions"
    FRAME_RESENT = "frame_resent", Nature.REPAIR, "repairs; normal under loss"
    FRAME_DELIVERED = "frame_delivered", Nature.WORK, "frames handed up"
    FRAME_ORDERED = "frame_ordered", Nature.WORK, "frames delivered in total order"
    APPEND_REPEATED = (
        "append_repeated",
        Nature.CHANGE,
        "appends that the log had already, dropped at their turn; normal where a producer is not sure and repeats",
    )
    ACK_SENT = "ack_sent", Nature.WORK, "acknowledgements sent"
    REPAIR_ASKED = "repair_asked", Nature.REPAIR, "requests for retransmission sent"
    REPAIR_REFUSED = (
        "repair_refused",
        Nature.REPAIR,
        "frames that a peer asked for again beyond what it may cost for now; it asks again",
    )
    LAST_SEQNO_ANNOUNCED = "last_seqno_announced", Nature.REPAIR, '"this was my highest", for a tail that may be lost'
    PURGED_ANSWERED = "purged_answered", Nature.REJECTED, "somebody asked for what is gone"
    SYNC_SENT = "sync_sent", Nature.CHANGE, "attempts to bring a unicast connection in step again"
    CONNECTION_REFUSED = "connection_refused", Nature.REJECTED, "the bound on peers was reached"
    CONNECTION_GIVEN_UP = (
        "connection_given_up",
        Nature.REJECTED,
        "the peer was silent for the whole give-up time",
    )


Counters = _Tally[Count]
