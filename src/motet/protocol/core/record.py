"""Records: immutable values that machines exchange, created for every frame.

Only the type checker enforces that they are immutable. A dataclass that is frozen at run time takes six times as long
to create, because it sets each field through `object.__setattr__`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    return dataclass(slots=True, unsafe_hash=True)(cls)
