"""Records: what machines say to one another. Nobody changes one after it was made, and they are made by the million.

The type checker forbids to change them. At run time nothing does: a dataclass that is frozen at run time takes six
times as long to make, because each field is set by a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    return dataclass(slots=True, unsafe_hash=True)(cls)
