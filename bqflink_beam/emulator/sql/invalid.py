"""`InvalidQuery`: SQL that is wrong, or that this BigQuery cannot run exactly."""

from collections.abc import Collection
from typing import Any

from bqflink_beam.emulator.refused import Refused

_NOT_HERE = " is not supported by the embedded BigQuery"


class InvalidQuery(Refused):
    """A query, statement or predicate that is refused; the message names the construct."""

    def __init__(self, message: str, **about: Any) -> None:
        super().__init__(message, reason="invalidQuery", **about)


class Unsupported(InvalidQuery):
    """SQL, or a value in it, that BigQuery may have an answer for and this one has not."""


STUMBLES = (AttributeError, LookupError, TypeError, ValueError)
"""What the parser's library raises for calls that it takes in a form it does not expect."""


def unsupported(construct: str) -> Unsupported:
    """Returns the error for SQL that may be right but is not run here."""
    return Unsupported(f"{construct}{_NOT_HERE}")


def is_refusal(message: str) -> bool:
    """Whether the message of an error is one of `unsupported`."""
    return message.endswith(_NOT_HERE)


def only(node: Any, *known: str, ignored: Collection[str] = ()) -> None:
    """Refuses a parsed node that carries anything but the `known` parts.

    The parser keeps every clause as a part of its node. A part that is not looked at
    would be a clause that is not obeyed, so each reader of a node names what it reads.
    """
    for name, part in node.args.items():
        if part in (None, False) or part == [] or name in known or name in ignored:
            continue
        raise unsupported(f"{name.strip('_').upper()} in {describe(node)}")


def describe(node: Any) -> str:
    """Returns a parsed node's SQL, shortened, for a message."""
    try:
        text: str = node.sql(dialect="bigquery", comments=False)
    except STUMBLES:
        return str(node.key).upper()
    return f"{text[:117]}…" if len(text) > 120 else text
