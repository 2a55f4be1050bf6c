"""Paging: opaque tokens, and lists cut by ``maxResults``."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bqflink_beam.emulator.api_errors import invalid

_LIST_MAX = 1000


def token_of(position: int) -> str:
    """Returns the token of the page that begins at a position."""
    return base64.urlsafe_b64encode(f"p{position}".encode()).decode()


def position_of(token: str | None) -> int:
    """Returns where the page of a token begins; 0 without one.

    Raises:
        Refused: it is no token of this server.
    """
    if not token:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith("p") or not text[1:].isdigit():
        raise invalid(f"Invalid page token: {token}")
    return int(text[1:])


def integer_of(parameters: Mapping[str, str], name: str, default: int | None) -> int | None:
    """Returns a query parameter that must be a number and not negative.

    Raises:
        Refused: it is none.
    """
    text = parameters.get(name)
    if text is None or text == "":
        return default
    if not text.isdigit():
        raise invalid(f"Invalid value for {name}: {text}")
    return int(text)


def flag_of(parameters: Mapping[str, str], name: str) -> bool:
    """Returns a query parameter that is true or false, false if it is not there."""
    return parameters.get(name, "").lower() in ("true", "1")


def etag_of(answer: Any) -> str:
    """Returns the etag of a JSON answer: the same for as long as the answer is the same."""
    text = json.dumps(answer, sort_keys=True, default=str)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode()


def page(
    items: Sequence[dict[str, Any]], parameters: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str | None]:
    """Returns one page of a list, and the token of the next one if there is one."""
    start = position_of(parameters.get("pageToken"))
    size = integer_of(parameters, "maxResults", _LIST_MAX) or _LIST_MAX
    stop = start + min(size, _LIST_MAX)
    return list(items[start:stop]), token_of(stop) if stop < len(items) else None
