"""Typed errors across the wire: a Flight error carries a Motet error as JSON, and the client raises that class again.

Any Flight client sees an ordinary Flight error with our sentence as its message; the JSON in its `extra_info` is
`{"error": class name, "text": ..., "retryable": ...}` with the positions for errors that have them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from motet import errors
from motet.errors import LogPositionError, LogRequestError, LogUnavailableError, MotetError, TokenError
from motet.log.service.validated_json import from_json

MOST_TEXT = 1500  # gRPC sends it in the trailers of a call, which hold a few thousand bytes
POSITIONS = ("asked", "first", "last", "stable")

_log = logging.getLogger("motet.log.service")


def to_flight(error: MotetError) -> flight.FlightError:
    text = str(error)[:MOST_TEXT].encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair; gRPC not
    document: dict[str, Any] = {"error": type(error).__name__, "text": text, "retryable": error.retryable}
    if isinstance(error, LogPositionError):
        document |= {name: getattr(error, name) for name in POSITIONS}
    return _kind_of(error)(text, json.dumps(document).encode())


def _kind_of(error: MotetError) -> Any:
    kind = flight.FlightUnavailableError if error.retryable else flight.FlightServerError
    return flight.FlightUnauthenticatedError if isinstance(error, TokenError) else kind


def from_flight(error: Exception) -> MotetError:
    """The error that the service raised, or the one that a failed call means."""
    document = _document_of(error)
    if document is None:
        return LogUnavailableError(_in_short(error))
    text = str(document.get("text", "no reason given"))
    known = getattr(errors, str(document.get("error")), None)
    if isinstance(known, type) and issubclass(known, LogPositionError):
        return known(text, **{name: _integer(document.get(name)) for name in POSITIONS})
    if isinstance(known, type) and issubclass(known, MotetError):
        return known.__new__(known, text)  # bypasses the constructor, because only class and text were sent
    return LogUnavailableError(text) if document.get("retryable") else MotetError(text)


def _document_of(error: Exception) -> dict[str, Any] | None:
    try:
        document = from_json(getattr(error, "extra_info", b""))
    except ValueError:
        return None
    return document if isinstance(document, dict) and "error" in document else None


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _in_short(error: Exception) -> str:
    """Shorten gRPC's message, which repeats itself after the first sentence."""
    if isinstance(error, flight.FlightTimedOutError):
        return "no answer in time"
    text = str(error).partition(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ")[:300] or type(error).__name__


@contextmanager
def flight_errors(what: str) -> Iterator[None]:
    """Convert whatever a handler raises to a Flight error that a client can distinguish."""
    try:
        yield
    except flight.FlightError:
        raise
    except MotetError as error:
        raise to_flight(error) from error
    except pa.ArrowInvalid as error:
        raise to_flight(LogRequestError(f"{what}: the Arrow data cannot be read: {error}")) from error
    except Exception as error:
        # The client gets only the class of the error, because its text may have paths and values of this process.
        _log.exception("%s failed", what)
        text = f"{what} failed at this member ({type(error).__name__}); its log has the details; try another member"
        raise to_flight(LogUnavailableError(text)) from error
