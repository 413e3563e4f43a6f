"""The error tree. Every error says what happened and what to do; `retryable` says whether to try again."""

from __future__ import annotations


class MotetError(Exception):
    """The root of every error that Motet raises on purpose."""

    retryable = False


class ConfigError(MotetError, ValueError):
    """A configuration value is outside what is allowed; the message names the value and the allowed range."""


class MisuseError(MotetError):
    """The caller broke the contract of a machine; nothing was changed."""


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


class NotPrimaryError(MotetError):
    """The view is not primary, and the caller does not want to wait until one is."""


class AdminUnreachableError(MotetError):
    """Nobody answers at a member's admin address."""

    retryable = True


class AdminRefusedError(MotetError):
    """The admin token is missing or wrong."""


class NotAMemberError(MotetError):
    """Somebody answers, but it is no Motet member."""


class OperationRefusedError(MotetError):
    """A member could not do what it was asked to over its admin port; the text is its own."""
