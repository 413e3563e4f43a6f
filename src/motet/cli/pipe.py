"""End a command quietly when the reader of its output has exited, as in `motet run | head -1`.

The exit code is the one that a shell shows for a process ended by SIGPIPE, so it cannot pass for a result. The signal
itself stays ignored, because it would also end a member whose admin client hangs up. `rich` and `typer` each answer
BrokenPipeError with exit code 1, so the stream raises an error of its own, which neither of them knows.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from motet.errors import MotetError

EXIT_CODE = 141  # 128 + SIGPIPE


class OutputClosedError(Exception):
    """The reader of the output has exited. Not an OSError, because libraries would handle that themselves."""


class PipeOutput:
    """A text stream that raises OutputClosedError when its reader has exited."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        """Discard buffered output: the interpreter would report a failing flush at its exit."""
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError from None
        raise MotetError(f"the output cannot be written: {error.strerror}; what follows is lost") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_when_closed() -> Iterator[None]:
    try:
        with contextlib.redirect_stdout(cast(TextIO, PipeOutput(_stdout()))):
            try:
                yield
            finally:
                sys.stdout.flush()
    except OutputClosedError:
        sys.exit(EXIT_CODE)


def _stdout() -> TextIO:
    """Standard output; nowhere, where the process was started without one (`motet ... >&-`)."""
    return sys.stdout if sys.stdout is not None else Path(os.devnull).open("w", encoding="utf-8")
