"""The error tree. Every error says what happened and what to do; `retryable` says whether to try again."""

from __future__ import annotations


class MotetError(Exception):
    """The root of every error that Motet raises on purpose."""

    retryable = False


class ConfigError(MotetError, ValueError):
    """A configuration value is outside what is allowed; the message names the value and the allowed range."""


class BindError(MotetError):
    """An address cannot be listened on, or is none."""


class JoinError(MotetError):
    """The group was not found, or did not take us in, in the time given."""

    retryable = True


class GroupFailedError(MotetError):
    """This member cannot go on: its disk or its own code failed. The others go on without it; join again."""


class StateTransferError(GroupFailedError):
    """The group's state did not reach this member's application: every holder refused, or the receiver raised.

    The member has left the group, so that it does not go on without the state; join again.
    """

    retryable = True


class CallError(MotetError):
    """A call got no answer that can be used."""


class CallTimeoutError(CallError, TimeoutError):
    """No answer came in the time given; the call may have been carried out."""

    retryable = True


class RemoteError(CallError):
    """The handler of the other member raised; its text is in the message."""


class MisuseError(MotetError):
    """The caller broke the contract of a machine; nothing was changed."""


class UnsettledError(MotetError):
    """A machine did not come to rest in the stated number of steps: a bug, which would be an endless loop."""


class MessageTooLargeError(MotetError):
    """One message is larger than the protocol can carry."""


class BacklogFullError(MotetError):
    """Too much waits for window space already; wait for `Admitted`, then send again."""

    retryable = True


class TooManyPeersError(MotetError):
    """The stated bound on open connections is reached."""

    retryable = True


class SendFailedError(MotetError):
    """Messages that were accepted can no longer be confirmed."""


class PeerUnreachableError(SendFailedError):
    """The peer did not answer for the whole give-up time, or it left the group."""


class LeftGroupError(SendFailedError):
    """The member left the group while messages still waited."""


class SyncError(MotetError):
    """A unicast connection was not brought in step: the peer did not answer in time, left, or closed it."""

    retryable = True


class NotPrimaryError(MotetError):
    """The view is not primary, and the caller does not want to wait until one is."""


class SnapshotError(MotetError):
    """A snapshot could not be taken: a state provider raised, it held too much, or the time was over."""

    retryable = True


class SnapshotRunningError(MotetError):
    """A snapshot of this member is not finished yet."""

    retryable = True


class AdminUnreachableError(MotetError):
    """Nobody answers at a member's admin address."""

    retryable = True


class JournalError(MotetError):
    """The journal cannot do what is asked; what it holds is untouched. The message says what stands in the way."""


class JournalLockedError(JournalError):
    """Another process has this journal open."""

    retryable = True


class JournalFullError(JournalError):
    """The disk is full. What was acknowledged is safe; nothing more is taken until the journal is opened again."""


class JournalTrimmedError(JournalError):
    """What is asked for was in the log once, and retention took it away."""


class JournalDivergedError(JournalError):
    """Records from elsewhere do not continue the log that is here: the chained hash says so."""


class JournalCorruptError(JournalError):
    """A record that was safely on disk is damaged. Nothing was cut; the fields say where it stands."""

    def __init__(self, segment: str, offset: int, position: int, reason: str) -> None:
        self.segment = segment
        self.offset = offset  # of the record in the segment's file
        self.position = position  # the last one before the damage
        self.reason = reason
        super().__init__(
            f"{segment} is damaged at byte {offset}, after position {position}: {reason}. This is no torn tail, so "
            f"nothing was cut: take the journal's directory away and let the member fetch the log from the others, or "
            f"restore the file from a copy; `motet journal verify` lists what is still good"
        )


class AdminRefusedError(MotetError):
    """The admin token is missing or wrong."""


class NotAMemberError(MotetError):
    """Somebody answers, but it is no Motet member."""


class OperationRefusedError(MotetError):
    """A member could not do what it was asked to over its admin port; the text is its own."""


class LogError(MotetError):
    """The root of what a log service and its client have to say."""


class LogPositionError(LogError):
    """Positions were asked for that are not there; the fields say which are (positions count from 1)."""

    def __init__(self, text: str, *, asked: int = 0, first: int = 0, last: int = 0, stable: int = 0) -> None:
        super().__init__(text)
        self.asked = asked
        self.first = first
        self.last = last
        self.stable = stable


class LogTrimmedError(LogPositionError):
    """Retention removed the positions asked for: start at `first`, or read an older copy of the log."""


class LogBehindError(LogPositionError):
    """The positions asked for are not stable at this member yet: wait, or ask a member that is further."""

    retryable = True


class LogUnavailableError(LogError):
    """A member cannot serve now, or none of several could; the text says which were tried, and why each failed."""

    retryable = True


class LogBusyError(LogError):
    """A member serves as many calls as it is allowed to: ask another one, or this one later."""

    retryable = True


class LogBrokenError(LogError):
    """What a member sent is not the log: positions missing, repeated or out of order, or other columns."""


class LogRequestError(LogError):
    """A ticket, action or descriptor that makes no sense; nothing was done."""


class LogReadOnlyError(LogError):
    """The log service was started without an appender, so nothing can be appended through it."""


class RepeatedAppendError(MotetError):
    """The log has this append of its producer already, or a later one: nothing was added, and nothing is lost."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"the log has this append already, at position {position} or before; nothing was added. "
            "Go on with the next sequence number of this producer"
        )
        self.position = position  # it is no later than this


class TokenError(MotetError):
    """The token is missing or wrong."""


class BlockRefusedError(MotetError):
    """An operation on a building block was not done, at any member; the text says why."""


class BlockFailedError(MotetError):
    """A building block's `apply` raised an exception, which is the cause of this one; the operation is in the log."""


class LockLostError(MotetError):
    """A lock was lost while it was held, because this member was out of the primary view for a while."""

    retryable = True
