"""Values of the replicated dict: what goes in comes out, equal values are equal bytes, the rest is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.api.blocks.values import MOST_DEPTH, Value, decode_value, encode_value
from motet.errors import MisuseError

KEYS = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["$", "$bytes", "$$bytes", "$x"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.binary(max_size=8)
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(VALUES)
def test_what_goes_in_comes_out(value: Value) -> None:
    back = decode_value(encode_value(value))
    assert back == value
    assert repr(_sorted(back)) == repr(_sorted(value))  # also True and 1, 1 and 1.0, b"" and "" are told apart


def _sorted(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(KEYS, LEAVES, max_size=5))
def test_equal_values_are_equal_bytes(value: dict[str, Value]) -> None:
    assert encode_value(value) == encode_value(dict(reversed(value.items())))


@given(VALUES)
def test_it_is_json(value: Value) -> None:
    json.loads(encode_value(value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2), "tuple (1, 2) cannot be replicated; allowed are bytes, str, int, float, bool, None, and lists and"),
        ({1, 2}, "set {1, 2} cannot be replicated"),
        (float("nan"), "float nan cannot be replicated"),
        (float("inf"), "float inf cannot be replicated"),
        (object, "type <class 'object'> cannot be replicated"),
        ({1: 2}, "the key an int of so many bits cannot be replicated; keys are str"),
        ({"a": [{"b": b"c", "d": {None: 1}}]}, "the key NoneType None cannot be replicated; keys are str"),
        (1 << 5_000, "an int of so many bits cannot be replicated"),
        ("\ud800", "a text with half a surrogate pair cannot be replicated"),
        ({"\ud800": 1}, "a text with half a surrogate pair cannot be replicated"),
    ],
)
def test_what_json_cannot_carry_is_refused_where_it_is_written(value: Value, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        encode_value(value)
    assert str(caught.value).startswith(message)


def test_nesting_has_a_bound() -> None:
    value: Value = 1
    for _ in range(MOST_DEPTH):
        value = [value]
    assert decode_value(encode_value(value)) == value
    with pytest.raises(MisuseError, match="nested deeper than 64"):
        encode_value([value])


@pytest.mark.parametrize(
    "data", [b"", b"nope", b"NaN", b"-Infinity", b'{"$bytes":5}', b'{"$bytes":"?"}', b"\xff", b"1 2", b"[" * 100_000]
)
def test_what_nobody_here_wrote_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_value(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_value_error(data: bytes) -> None:
    try:
        decode_value(data)
    except ValueError:
        return
