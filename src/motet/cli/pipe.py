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
from typing import Any, NoReturn, TextIO, cast

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
        except BrokenPipeError:
            self._end()

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._end()

    def _end(self) -> NoReturn:
        """Discard buffered output: the interpreter would report a failing flush at its exit."""
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        raise OutputClosedError from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_when_closed() -> Iterator[None]:
    try:
        with contextlib.redirect_stdout(cast(TextIO, PipeOutput(sys.stdout))):
            try:
                yield
            finally:
                sys.stdout.flush()
    except OutputClosedError:
        sys.exit(EXIT_CODE)
