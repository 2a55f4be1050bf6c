"""What a table's schema lacks for rows of another, and the schema that has it.

The service lets a table grow in two ways: new columns that may be NULL, and REQUIRED
columns that no longer are. All else needs another table. Parameters (lengths, digits)
are not compared: whether a value fits is seen value by value.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema


class ChangeKind(enum.Enum):
    """What would have to happen to a column."""

    ADD = "add"
    RELAX = "relax"
    IMPOSSIBLE = "impossible"


@dataclasses.dataclass(frozen=True)
class Change:
    """One step from a table's schema to one that holds certain rows.

    `column` is a dotted path in the table's own spelling; `field` the column to add;
    `reason` says why a change is impossible.
    """

    kind: ChangeKind
    column: str
    field: Field | None = None
    reason: str = ""


def diff(have: TableSchema, want: TableSchema) -> list[Change]:
    """Returns the changes that a table of schema `have` needs to hold rows of schema `want`."""
    return list(_diff(have.fields, want.fields, ""))


def merge(have: TableSchema, want: TableSchema) -> TableSchema:
    """Returns `have` with what `want` needs: new columns at the end, less REQUIRED.

    Raises:
        ConfigError: a change is impossible; names every such column.
    """
    changes = _possible(diff(have, want))
    return schema_json.from_json(widened(schema_json.to_json(have), changes))


def widened(fields: Sequence[Mapping[str, Any]], changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Applies changes to the REST fields of a table, and keeps all else these say.

    Args:
        fields: the table's own fields as the service gave them.
        changes: from `diff`.

    Raises:
        ConfigError: one of them is impossible.
    """
    out = [dict(field) for field in fields]
    for change in _possible(list(changes)):
        *owners, name = change.column.split(".")
        siblings = out
        for owner in owners:
            struct = _named(siblings, owner)
            struct["fields"] = [dict(field) for field in struct["fields"]]
            siblings = struct["fields"]
        if change.field is None:
            _named(siblings, name)["mode"] = "NULLABLE"
        else:
            siblings += schema_json.to_json(TableSchema((change.field,)))
    return out


def _possible(changes: list[Change]) -> list[Change]:
    wrong = [change for change in changes if change.kind is ChangeKind.IMPOSSIBLE]
    if wrong:
        reasons = "; ".join(f"{change.column} {change.reason}" for change in wrong)
        raise ConfigError(f"the table cannot hold these rows: {reasons}", column=wrong[0].column)
    return changes


def _named(fields: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(field for field in fields if field["name"].lower() == name.lower())


def _diff(have: Sequence[Field], want: Sequence[Field], owner: str) -> Iterable[Change]:
    wanted = {field.name.lower(): field for field in want}
    for field in have:
        other = wanted.pop(field.name.lower(), None)
        path = owner + field.name
        if other is not None and (reason := _conflict(field, other)):
            yield Change(ChangeKind.IMPOSSIBLE, path, reason=reason)
            continue
        if field.required and _may_miss(field, other):
            yield Change(ChangeKind.RELAX, path)
        if other is not None:
            yield from _diff(field.fields, other.fields, f"{path}.")
    for field in want:
        if field.name.lower() in wanted:
            yield Change(ChangeKind.ADD, owner + field.name, field=_nullable(field))


def _may_miss(have: Field, want: Field | None) -> bool:
    if want is None:
        return have.default_value_expression is None
    return not want.required


def _conflict(have: Field, want: Field) -> str:
    if have.repeated != want.repeated:
        return f"is {have.mode} in the table and {want.mode} in the rows"
    if _full_type(have) != _full_type(want):
        return f"is {_full_type(have)} in the table and {_full_type(want)} in the rows"
    return ""


def _full_type(field: Field) -> str:
    if field.type == "RANGE":
        return f"RANGE<{field.range_element_type}>"
    return "TIMESTAMP(12)" if field.timestamp_precision == 12 else field.type


def _nullable(field: Field) -> Field:
    """A table may have rows already, so that a new column has NULLs; one of a new STRUCT not."""
    return dataclasses.replace(field, mode="NULLABLE") if field.required else field
