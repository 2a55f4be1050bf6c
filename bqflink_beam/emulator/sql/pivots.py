"""PIVOT and UNPIVOT: written anew as the GROUP BY, or the UNION ALL, that they stand for."""

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql.expressions import Subselect
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_IGNORES_NULLS = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)


def rewritten(item: Any, pivot: Any, columns: Subselect) -> Any:
    """Returns the query that an item of a FROM clause and its PIVOT or UNPIVOT stand for.

    Args:
        item: the item without it.
        columns: ``SELECT * FROM item``, for its columns.

    Raises:
        InvalidQuery: it is wrong, or not supported.
    """
    names = [name for name, _ in columns.columns]
    if len({name.lower() for name in names}) != len(names) or "" in names:
        raise unsupported("PIVOT or UNPIVOT of columns without a name of their own")
    (field,) = pivot.args["fields"] if len(pivot.args["fields"]) == 1 else (None,)
    if not isinstance(field, exp.In):
        raise unsupported("PIVOT or UNPIVOT FOR several columns")
    only(field, "this", "expressions")
    if pivot.args.get("unpivot"):
        return _unpivoted(item, pivot, field, columns)
    return _pivoted(item, pivot, field, names)


def _column(name: str) -> Any:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _select(item: Any, columns: Sequence[Any]) -> Any:
    return exp.Select(expressions=list(columns), from_=exp.From(this=item.copy()))


def _alias(value: Any, name: str) -> Any:
    return exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=True))


# --- PIVOT --------------------------------------------------------------------------------


def _pivoted(item: Any, pivot: Any, field: Any, names: list[str]) -> Any:
    if not isinstance(field.this, exp.Column) or field.this.args.get("table"):
        raise unsupported("PIVOT FOR anything but a column")
    used = {field.this.name.lower()}
    for aggregate in pivot.expressions:
        used |= {column.name.lower() for column in aggregate.find_all(exp.Column)}
    kept = [_column(name) for name in names if name.lower() not in used]
    made = []
    for value in field.expressions:
        label, constant = _value(value)
        made += [
            _alias(_filtered(aggregate.unalias(), field.this, constant), _name(aggregate, label))
            for aggregate in pivot.expressions
        ]
    query = _select(item, [*(column.copy() for column in kept), *made])
    if kept:
        query.set("group", exp.Group(expressions=[column.copy() for column in kept]))
    return query


def _value(node: Any) -> tuple[str, Any]:
    """Returns what a value's columns are called, and the value."""
    if isinstance(node, exp.PivotAlias):
        return str(node.args["alias"].name), node.this
    if isinstance(node, exp.Literal) and node.is_string and _PLAIN_NAME.match(node.this):
        return str(node.this), node
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return f"_{node.this}", node
    raise unsupported(f"PIVOT IN {describe(node)} without an alias")


def _name(aggregate: Any, label: str) -> str:
    return f"{aggregate.alias}_{label}" if isinstance(aggregate, exp.Alias) else label


def _filtered(aggregate: Any, key: Any, value: Any) -> Any:
    """Returns an aggregate of the rows alone that have the value."""
    test = exp.NullSafeEQ(this=key.copy(), expression=value.copy())
    if isinstance(aggregate, exp.Count) and isinstance(aggregate.this, exp.Star):
        return exp.CountIf(this=test)
    if type(aggregate) not in _IGNORES_NULLS or not isinstance(aggregate.this, exp.Expression):
        raise unsupported(f"PIVOT with {describe(aggregate)}")
    more = [part for name, part in aggregate.args.items() if name not in ("this", "big_int")]
    if isinstance(aggregate.this, exp.Distinct | exp.Order | exp.Limit | exp.HavingMax) or any(
        more
    ):
        raise unsupported(f"PIVOT with {describe(aggregate)}")
    found = aggregate.copy()
    found.set("this", exp.If(this=test, true=aggregate.this.copy(), false=exp.Null()))
    return found


# --- UNPIVOT ------------------------------------------------------------------------------


def _unpivoted(item: Any, pivot: Any, field: Any, columns: Subselect) -> Any:
    if len(pivot.expressions) != 1 or not isinstance(pivot.expressions[0], exp.Identifier):
        raise unsupported("UNPIVOT into several columns")
    kinds = {name.lower(): kind for name, kind in columns.columns}
    taken: dict[str, str] = {}
    for entry in field.expressions:
        column = entry.this if isinstance(entry, exp.PivotAlias) else entry
        label = entry.args["alias"] if isinstance(entry, exp.PivotAlias) else None
        if not isinstance(column, exp.Column) or column.name.lower() not in kinds:
            raise InvalidQuery(f"UNPIVOT IN {describe(column)} is no column")
        if label is not None and not (isinstance(label, exp.Literal) and label.is_string):
            raise unsupported("UNPIVOT with labels that are no texts")
        taken[column.name.lower()] = column.name if label is None else label.this
    if len({kinds[name] for name in taken}) != 1 or len(taken) != len(field.expressions):
        raise InvalidQuery("UNPIVOT needs different columns of one type")
    kept = [name for name, _ in columns.columns if name.lower() not in taken]
    queries = []
    for name, label in taken.items():
        value = _alias(_column(name), pivot.expressions[0].name)
        key = _alias(exp.Literal.string(label), field.this.name)
        query = _select(item, [*map(_column, kept), value, key])
        if not pivot.args.get("include_nulls"):
            present = exp.Not(this=exp.Is(this=_column(name), expression=exp.Null()))
            query.set("where", exp.Where(this=present))
        queries.append(query)
    union = queries[0]
    for query in queries[1:]:
        union = exp.Union(this=union, expression=query, distinct=False)
    return union
