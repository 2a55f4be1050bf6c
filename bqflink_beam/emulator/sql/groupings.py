"""GROUP BY ROLLUP, CUBE and GROUPING SETS: several groupings of the same rows."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql.expressions import Env, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import INT64
from bqflink_beam.emulator.sql.scope import Scalar, quote_text

_WORDS = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}
_NO_ROWS = unsupported("GROUP BY ROLLUP, CUBE or GROUPING SETS of no rows").message

TOTAL_OF_ROWS = (
    f"(CASE WHEN count(*) = 0 THEN CAST(error({quote_text(_NO_ROWS)}) AS BOOLEAN) ELSE TRUE END)"
)
"""A HAVING condition: whether no rows at all have a grand total is not known for the service."""


@dataclasses.dataclass(frozen=True)
class Groupings:
    """What stands behind GROUP BY; `total` says whether one group is all of the rows."""

    text: str
    total: bool


def is_groupings(node: Any) -> bool:
    """Whether an item of GROUP BY stands for several groupings."""
    return type(node) in _WORDS


def groupings(node: Any, key_of: Callable[[Any], str]) -> Groupings:
    """Compiles ROLLUP, CUBE or GROUPING SETS.

    Args:
        key_of: compiles one expression that is grouped by.

    Raises:
        InvalidQuery: an item is none that may be grouped by.
    """
    only(node, "expressions")
    if not node.expressions:
        raise InvalidQuery(f"Syntax error: {_WORDS[type(node)]} needs an expression")
    total = not isinstance(node, exp.GroupingSets)
    items = []
    for item in node.expressions:
        if is_groupings(item):
            if total or isinstance(item, exp.GroupingSets):
                raise InvalidQuery(f"{_WORDS[type(item)]} cannot stand in {_WORDS[type(node)]}")
            inner = groupings(item, key_of)
            items.append(inner.text)
            continue
        parts = item.expressions if isinstance(item, exp.Tuple) else [item]
        if isinstance(item, exp.Tuple) and not parts and total:
            raise InvalidQuery(f"Syntax error: () in {_WORDS[type(node)]}")
        while isinstance(item, exp.Paren):
            item = item.this
            parts = [item]
        items.append(f"({', '.join(key_of(part) for part in parts)})")
    has_total = total or any(
        is_groupings(item) or (isinstance(item, exp.Tuple) and not item.expressions)
        for item in node.expressions
    )
    return Groupings(f"{_WORDS[type(node)]} ({', '.join(items)})", has_total)


def _grouping(env: Env, node: Any) -> Scalar:
    only(node, "expressions")
    (item,) = node.expressions
    if env.grouped is None or item not in env.grouped:
        raise InvalidQuery("GROUPING must have an expression that is grouped by as its argument")
    return Scalar(f"CAST(grouping({env.grouped[item].sql}) AS BIGINT)", INT64)


register({exp.Grouping: _grouping})
