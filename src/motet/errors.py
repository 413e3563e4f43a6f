"""The error tree. Every error says what happened and what to do; `retryable` says whether to try again."""

from __future__ import annotations


class MotetError(Exception):
    """The root of every error that Motet raises on purpose."""

    retryable = False


class ConfigError(MotetError, ValueError):
    """A configuration value is outside what is allowed; the message names the value and the allowed range."""


class BindError(MotetError):
    """An address cannot be bound, or is not an address."""


class JoinError(MotetError):
    """The group was not found, or did not admit this member, within the timeout."""

    retryable = True


class GroupFailedError(MotetError):
    """This member stopped because its disk or its own code failed. The others continue without it; join again."""


class StateTransferError(GroupFailedError):
    """The group's state did not reach this member's application: every holder refused, or the receiver raised.

    The member has left the group, because it must not continue without the state; join again.
    """

    retryable = True


class CallError(MotetError):
    """A call got no usable answer."""


class CallTimeoutError(CallError, TimeoutError):
    """No answer came within the timeout; the call may have been executed."""

    retryable = True


class RemoteError(CallError):
    """The handler at the other member raised; the message has its text."""


class MisuseError(MotetError):
    """The caller violated the contract of an API; nothing was changed."""


class UnsettledError(MotetError):
    """A state machine did not settle within the stated number of steps: a bug, which would be an endless loop."""


class MessageTooLargeError(MotetError):
    """One message is larger than the protocol can carry."""


class BacklogFullError(MotetError):
    """Too many bytes wait for space in the send window; wait for `Admitted`, then send again."""

    retryable = True


class TooManyPeersError(MotetError):
    """The maximum number of open connections is reached."""

    retryable = True


class SendFailedError(MotetError):
    """Messages that were accepted for sending can no longer be confirmed."""


class PeerUnreachableError(SendFailedError):
    """The peer was silent for the whole give_up time, or it left the group."""


class LeftGroupError(SendFailedError):
    """The member left the group while messages were not confirmed yet."""


class SyncError(MotetError):
    """A unicast connection was not resynchronised: the peer did not answer in time, left, or closed it."""

    retryable = True


class NotPrimaryError(MotetError):
    """The view is not primary, and the caller does not want to wait for a primary one."""


class SnapshotError(MotetError):
    """A snapshot failed: a state provider raised, it exceeded its size limit, or it timed out."""

    retryable = True


class SnapshotRunningError(MotetError):
    """A snapshot that this member started is still running."""

    retryable = True


class AdminUnreachableError(MotetError):
    """A member's admin address does not answer."""

    retryable = True


class JournalError(MotetError):
    """The journal cannot do what was requested; its contents are unchanged. The message says why."""


class JournalLockedError(JournalError):
    """Another process has this journal open."""

    retryable = True


class JournalFullError(JournalError):
    """The disk is full. Acknowledged data is safe; the journal accepts nothing more until it is opened again."""


class JournalTrimmedError(JournalError):
    """The requested positions were in the log once, and retention deleted them."""


class JournalDivergedError(JournalError):
    """Records from another member do not continue this log: the chained hash differs."""


class JournalCorruptError(JournalError):
    """A record that was safely on disk is damaged. Nothing was truncated; the fields say where the record is."""

    def __init__(self, segment: str, offset: int, position: int, reason: str) -> None:
        self.segment = segment
        self.offset = offset  # of the record in the segment's file
        self.position = position  # the last one before the damage
        self.reason = reason
        super().__init__(
            f"{segment} is damaged at byte {offset}, after position {position}: {reason}. This is no torn tail, so "
            "nothing was truncated. Move the journal's directory away and let the member fetch the log from the "
            "others, "
            f"or restore the file from a copy; `motet journal verify` lists what is intact"
        )


class AdminRefusedError(MotetError):
    """The admin token is missing or wrong."""


class NotAMemberError(MotetError):
    """The address answers, but not as a Motet member."""


class OperationRefusedError(MotetError):
    """A member refused an operation over its admin port; the text is the member's."""


class LogError(MotetError):
    """The root of the errors of a log service and its client."""


class LogPositionError(LogError):
    """The requested positions are not available; the fields say which are (positions count from 1)."""

    def __init__(self, text: str, *, asked: int = 0, first: int = 0, last: int = 0, stable: int = 0) -> None:
        super().__init__(text)
        self.asked = asked
        self.first = first
        self.last = last
        self.stable = stable


class LogTrimmedError(LogPositionError):
    """Retention deleted the requested positions: start at `first`, or read an older copy of the log."""


class LogBehindError(LogPositionError):
    """The requested positions are not stable at this member yet: wait, or ask a member that is ahead."""

    retryable = True


class LogUnavailableError(LogError):
    """No member could serve the request; the text says which were tried, and why each failed."""

    retryable = True


class LogBusyError(LogError):
    """The member already serves its maximum number of calls: ask another one, or retry later."""

    retryable = True


class LogBrokenError(LogError):
    """A member sent rows that are not a log: positions missing, repeated or out of order, or other columns."""


class LogRequestError(LogError):
    """A ticket, action or descriptor is invalid; nothing was done."""


class LogReadOnlyError(LogError):
    """The log service has no appender, so nothing can be appended through it."""


class RepeatedAppendError(MotetError):
    """The log already has this append, or a later one of its producer: nothing was added, and nothing is lost."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"the log already has this append, at position {position} or before; nothing was added. "
            "Continue with the next sequence number of this producer"
        )
        self.position = position  # it is no later than this


class TokenError(MotetError):
    """The token is missing or wrong."""


class BlockRefusedError(MotetError):
    """An operation on a building block was refused at every member; the text says why."""


class BlockFailedError(MotetError):
    """A building block's `apply` raised an exception, which is the cause of this one; the operation is in the log."""


class LockLostError(MotetError):
    """This member lost a lock that it held, because it was outside the primary view for a while."""

    retryable = True
