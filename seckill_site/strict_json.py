"""JSON from strangers, read strictly."""

import json
from typing import Any


def read_strict_json(body: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    :raises ValueError: it is not JSON, repeats a key, or is nested too deeply.
    """
    try:
        return _DECODER.decode(body.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return these fields.

    :raises ValueError: a key is repeated.
    """
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=without_repeats, parse_constant=_refuse)
