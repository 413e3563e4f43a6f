"""One documented list of everything that is counted. A peer's nonsense is never an exception; it is a number here."""

from __future__ import annotations

from collections import Counter as _Tally
from enum import StrEnum, unique


@unique
class Count(StrEnum):
    """What is counted, with what it means. A number that grows under loss is not a fault in itself."""

    DATAGRAM_REJECTED = "datagram_rejected"  # bytes that are no frame of ours: wrong magic, version, length, group
    SOURCE_UNKNOWN = "source_unknown"  # a well-formed frame of an incarnation that nobody introduced
    NOT_FOR_US = "not_for_us"  # addressed to an earlier life of this process
    FRAME_MISPLACED = "frame_misplaced"  # a frame that makes no sense in the state we are in
    BODY_INCOHERENT = "body_incoherent"  # a fragment that does not continue the message before it

    SEAL_MISSING = "seal_missing"  # a datagram without a seal, where a key is asked for
    SEAL_TRUNCATED = "seal_truncated"  # begins like a sealed datagram, and is too short to be one
    SEAL_OTHER_VERSION = "seal_other_version"  # sealed by a version of Motet that we do not know
    SEAL_KEY_UNKNOWN = "seal_key_unknown"  # sealed with a key that is not in our ring: old, or of another group
    SEAL_BROKEN = "seal_broken"  # does not authenticate: another key under the same id, or altered on its way
    SEAL_REPLAYED = "seal_replayed"  # came before; normal where the network duplicates
    SEAL_TOO_OLD = "seal_too_old"  # older than the replay window; normal for a straggler

    FAULT_DROPPED = "fault_dropped"  # datagrams that an injected fault dropped or cut off
    FAULT_DELAYED = "fault_delayed"  # that it held back for a while
    FAULT_DUPLICATED = "fault_duplicated"  # that it let through twice
    FAULT_OVERFLOWED = "fault_overflowed"  # that it wanted to hold back beyond its bound, and so dropped

    FRAME_DUPLICATE = "frame_duplicate"  # received again; normal under loss and duplication
    FRAME_OUTSIDE_WINDOW = "frame_outside_window"  # ahead of the receive window; dropped, asked for later
    FRAME_OF_OLD_CONNECTION = "frame_of_old_connection"  # a connection id that was replaced since
    FRAME_EARLY = "frame_early"  # of a sender that is not in the view yet; kept
    FRAME_EARLY_DROPPED = "frame_early_dropped"  # the same, beyond the bound on what is kept

    ACK_OF_NON_MEMBER = "ack_of_non_member"  # ignored: only members of the view hold back the purge
    ACK_BEYOND_SENT = "ack_beyond_sent"  # acknowledges what was never sent; ignored
    ACK_OF_OLD_CONNECTION = "ack_of_old_connection"  # late; ignored
    ACK_DURING_SYNC = "ack_during_sync"  # discarded until the peer confirmed the new connection id

    DIGEST_OVERLAP = "digest_overlap"  # two parts of a merge spoke of one stream: their views overlapped; warned of
    MERGE_CANCELLED = "merge_cancelled"  # a part was silent or failed; it is tried again
    MERGE_REFUSED = "merge_refused"  # a coordinator said that it is busy; normal when several merge at once
    VIEW_CHANGED = "view_changed"  # views installed

    SNAPSHOT_REJECTED = "snapshot_rejected"  # bytes that are no message of a snapshot, or a report that makes no sense
    SNAPSHOT_ABANDONED = "snapshot_abandoned"  # recorded for somebody who gave up, or was silent for too long

    FRAME_SENT = "frame_sent"  # first transmissions
    FRAME_RESENT = "frame_resent"  # repairs; normal under loss
    FRAME_DELIVERED = "frame_delivered"  # frames handed up
    FRAME_ORDERED = "frame_ordered"  # frames delivered in total order
    ACK_SENT = "ack_sent"
    REPAIR_ASKED = "repair_asked"  # requests for retransmission sent
    TAIL_NOTICE_SENT = "tail_notice_sent"  # "this was my highest", for a tail that may be lost
    PURGED_ANSWERED = "purged_answered"  # somebody asked for what is gone
    SYNC_SENT = "sync_sent"
    CONNECTION_REFUSED = "connection_refused"  # the bound on peers was reached
    CONNECTION_GIVEN_UP = "connection_given_up"  # the peer was silent for the whole give-up time


Counters = _Tally[Count]
