"""Changing the type of an expression: CAST, SAFE_CAST, and the coercions nobody writes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    GEOGRAPHY,
    INT64,
    INTERVAL,
    JSON,
    NUMERIC,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    array_of,
    quote_name,
)
from bqflink_beam.emulator.sql.literals import parsed_text, typed_of
from bqflink_beam.emulator.sql.scope import Plan, Scalar, quote_text, typed_null

_TYPES = {
    exp.DType.BIGINT: INT64,
    exp.DType.INT: INT64,
    exp.DType.SMALLINT: INT64,
    exp.DType.TINYINT: INT64,
    exp.DType.DOUBLE: FLOAT64,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.TEXT: STRING,
    exp.DType.BINARY: BYTES,
    exp.DType.DECIMAL: NUMERIC,
    exp.DType.BIGDECIMAL: BIGNUMERIC,
    exp.DType.DATE: DATE,
    exp.DType.TIME: TIME,
    exp.DType.TIMESTAMP: DATETIME,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.JSON: JSON,
    exp.DType.GEOGRAPHY: GEOGRAPHY,
    exp.DType.INTERVAL: INTERVAL,
}
_NUMBERS = ("INT64", "NUMERIC", "BIGNUMERIC", "FLOAT64")
_TEMPORAL = ("DATE", "TIME", "DATETIME", "TIMESTAMP")
# From STRING: the parser's name among the exact functions.
_PARSERS = {
    "INT64": "parse_int64",
    "FLOAT64": "float64_repr",
    "NUMERIC": "parse_numeric",
    "BIGNUMERIC": "parse_bignumeric",
    "BOOL": "parse_bool",
    "DATE": "parse_date",
    "TIME": "parse_time",
    "DATETIME": "parse_datetime",
    "TIMESTAMP": "parse_timestamp",
}
# (from, to): a DuckDB expression of the value, or the name of an exact function.
_DIRECT = {
    ("INT64", "FLOAT64"): "CAST({0} AS DOUBLE)",
    ("INT64", "NUMERIC"): "CAST({0} AS DECIMAL(38,9))",
    ("INT64", "BOOL"): "({0} <> 0)",
    ("INT64", "STRING"): "CAST({0} AS VARCHAR)",
    ("BOOL", "INT64"): "CAST({0} AS BIGINT)",
    ("BOOL", "STRING"): "CAST({0} AS VARCHAR)",
    ("NUMERIC", "INT64"): "CAST({0} AS BIGINT)",
    ("STRING", "BYTES"): "encode({0})",
    ("DATE", "STRING"): "CAST({0} AS VARCHAR)",
    ("DATE", "DATETIME"): "CAST({0} AS TIMESTAMP)",
    ("DATE", "TIMESTAMP"): "CAST({0} AS TIMESTAMP)",
    ("DATETIME", "DATE"): "CAST({0} AS DATE)",
    ("DATETIME", "TIME"): "CAST({0} AS TIME)",
    ("DATETIME", "TIMESTAMP"): "{0}",
    ("TIMESTAMP", "DATE"): "CAST({0} AS DATE)",
    ("TIMESTAMP", "TIME"): "CAST({0} AS TIME)",
    ("TIMESTAMP", "DATETIME"): "{0}",
}
_EXACT = {
    ("FLOAT64", "NUMERIC"): "float64_to_numeric",
    ("FLOAT64", "BIGNUMERIC"): "float64_to_bignumeric",
    ("FLOAT64", "STRING"): "float64_text",
    ("NUMERIC", "FLOAT64"): "numeric_to_float64",
    ("NUMERIC", "BIGNUMERIC"): "numeric_to_bignumeric",
    ("NUMERIC", "STRING"): "numeric_text",
    ("BIGNUMERIC", "INT64"): "bignumeric_to_int64",
    ("BIGNUMERIC", "FLOAT64"): "bignumeric_to_float64",
    ("BIGNUMERIC", "NUMERIC"): "bignumeric_to_numeric",
    ("BIGNUMERIC", "STRING"): "bignumeric_text",
    ("BYTES", "STRING"): "check_utf8",
    ("TIME", "STRING"): "time_text",
    ("DATETIME", "STRING"): "datetime_text",
    ("TIMESTAMP", "STRING"): "timestamp_text",
}


def kind_of_type(node: Any) -> Kind:
    """Returns the type that a query writes down; parameters such as (10, 2) are refused."""
    only(node, "this", "expressions", "nested")
    inner = node.expressions
    if node.this == exp.DType.ARRAY:
        return array_of(kind_of_type(inner[0]))
    if node.this == exp.DType.RANGE:
        return Kind("RANGE", kind_of_type(inner[0]))
    if node.this == exp.DType.STRUCT:
        fields = []
        for item in inner:
            if isinstance(item, exp.ColumnDef):
                only(item, "this", "kind")
                fields.append((item.name, kind_of_type(item.args["kind"])))
            else:
                fields.append(("", kind_of_type(item)))
        return Kind("STRUCT", None, tuple(fields))
    if node.this not in _TYPES:
        raise unsupported(f"Type {node.sql(dialect='bigquery')}")
    if inner:
        raise unsupported(f"A parameterized type ({node.sql(dialect='bigquery')}) in a query")
    return _TYPES[node.this]


def cast(plan: Plan, value: Scalar, kind: Kind, *, safe: bool = False) -> Scalar:
    """Returns the value as another type, in the way of CAST or SAFE_CAST.

    Raises:
        InvalidQuery: there is no such cast.
    """
    if value.is_null:
        return typed_null(kind)
    have, want = value.kind.name, kind.name
    if value.kind == kind:
        return Scalar(value.sql, kind)
    if isinstance(value.literal, Decimal) and want in ("NUMERIC", "BIGNUMERIC"):
        # The decimal that the query wrote, not the double nearest to it.
        number = exact.to_numeric(value.literal) if want == "NUMERIC" else value.literal
        return typed_of(number, kind)
    if isinstance(value.literal, str) and have == "STRING" and want in _PARSERS:
        try:
            return parsed_text(value.literal, kind)
        except InvalidQuery:
            if safe:
                return typed_null(kind)
            raise
    if have == "STRING" and want in _PARSERS:
        text = plan.call(_PARSERS[want], value.sql, safe=safe)
        return Scalar(f"CAST({text} AS DOUBLE)" if want == "FLOAT64" else text, kind)
    if (have, want) in _DIRECT:
        text = _DIRECT[have, want].format(value.sql)
        if safe and (have, want) == ("NUMERIC", "INT64"):
            text = f"TRY_CAST({value.sql} AS BIGINT)"
        return Scalar(text, kind)
    if (have, want) in _EXACT:
        return Scalar(plan.call(_EXACT[have, want], value.sql, safe=safe), kind)
    if (have, want) == ("INT64", "BIGNUMERIC"):
        numeric = cast(plan, value, NUMERIC)
        return Scalar(plan.call("numeric_to_bignumeric", numeric.sql), kind)
    if (have, want) == ("FLOAT64", "INT64"):
        return Scalar(f"{'TRY_CAST' if safe else 'CAST'}({rounded(plan, value)} AS BIGINT)", kind)
    if have == want == "ARRAY" or have == want == "STRUCT":
        return _cast_nested(plan, value, kind, safe)
    raise InvalidQuery(f"Invalid cast from {value.kind} to {kind}")


def rounded(plan: Plan, value: Scalar) -> str:
    """Returns a FLOAT64 rounded half away from zero. NaN would come back as NULL."""
    return (
        f"(CASE WHEN isfinite({value.sql}) THEN {plan.call('float64_round', value.sql)} "
        f"ELSE {value.sql} END)"
    )


def _cast_nested(plan: Plan, value: Scalar, kind: Kind, safe: bool) -> Scalar:
    if kind.element and value.kind.element:
        name = plan.name("x")
        item = cast(plan, Scalar(name, value.kind.element), kind.element, safe=safe)
        if item.sql == name:
            return Scalar(value.sql, kind)
        return Scalar(f"list_transform({value.sql}, lambda {name}: {item.sql})", kind)
    if len(kind.fields) != len(value.kind.fields):
        raise InvalidQuery(f"Invalid cast from {value.kind} to {kind}")
    # Fields of a STRUCT go by position; their names may differ.
    parts = tuple(
        cast(plan, member, want, safe=safe)
        for member, (_, want) in zip(members(value), kind.fields, strict=True)
    )
    inner = ", ".join(
        f"{quote_name(name or f'_field_{at}')} := {member.sql}"
        for at, ((name, _), member) in enumerate(zip(kind.fields, parts, strict=True), 1)
    )
    if value.parts:
        return Scalar(f"struct_pack({inner})", kind, parts=parts)
    return Scalar(f"(CASE WHEN {value.sql} IS NULL THEN NULL ELSE struct_pack({inner}) END)", kind)


def _member(value: Scalar, name: str, position: int, kind: Kind) -> Scalar:
    quoted = quote_text(name or f"_field_{position}")
    return Scalar(f"struct_extract({value.sql}, {quoted})", kind)


def coerce(plan: Plan, value: Scalar, kind: Kind, what: str) -> Scalar:
    """Returns the value as a type it turns into by itself.

    Raises:
        InvalidQuery: it does not; `what` says where.
    """
    if value.kind == kind:
        return value
    if value.is_null or _coerces(value, kind):
        return cast(plan, value, kind)
    raise InvalidQuery(f"Cannot coerce expression of type {value.kind} to type {kind} in {what}")


def _coerces(value: Scalar, kind: Kind) -> bool:
    have, want = value.kind.name, kind.name
    if have in _NUMBERS and want in _NUMBERS and _NUMBERS.index(have) < _NUMBERS.index(want):
        return True
    if (have, want) == ("DATE", "DATETIME"):
        return True
    if isinstance(value.literal, str) and have == "STRING":
        return want in _TEMPORAL or want == "BYTES"
    if have == "FLOAT64" and isinstance(value.literal, Decimal):
        return want in ("NUMERIC", "BIGNUMERIC")
    if have == want == "ARRAY" and value.kind.element and kind.element:
        return _kind_coerces(value.kind.element, kind.element)
    if have == want == "STRUCT" and len(value.kind.fields) == len(kind.fields):
        # By position; names may differ.
        return all(
            member.is_null or member.kind == inner or _coerces(member, inner)
            for member, (_, inner) in zip(members(value), kind.fields, strict=True)
        )
    return False


def _kind_coerces(have: Kind, want: Kind) -> bool:
    return have == want or _coerces(Scalar("", have), want)


def common_kind(values: Sequence[Scalar], what: str) -> Kind:
    """Returns the one type that all the values turn into.

    Raises:
        InvalidQuery: there is none.
    """
    present = [value for value in values if not value.is_null]
    candidates = [value.kind for value in present]
    if not candidates:
        return values[0].kind if values else INT64
    if (struct := _common_struct(present, what)) is not None:
        return struct
    firm = [value.kind for value in values if not value.is_literal] or candidates
    for kind in sorted(dict.fromkeys(firm + candidates), key=lambda kind: _rank(kind, firm)):
        if all(value.is_null or value.kind == kind or _coerces(value, kind) for value in values):
            return kind
    kinds = ", ".join(dict.fromkeys(str(kind) for kind in candidates))
    raise InvalidQuery(f"No matching signature for {what} for argument types: {kinds}")


def _common_struct(values: Sequence[Scalar], what: str) -> Kind | None:
    """Returns the STRUCT that all the STRUCTs turn into; the first one names the fields."""
    shapes = {(value.kind.name, len(value.kind.fields)) for value in values}
    if len(shapes) != 1 or values[0].kind.name != "STRUCT":
        return None
    rows = [members(value) for value in values]
    fields = []
    for at, (name, _) in enumerate(values[0].kind.fields):
        fields.append((name, common_kind([row[at] for row in rows], what)))
    return Kind("STRUCT", None, tuple(fields))


def members(value: Scalar) -> Sequence[Scalar]:
    """Returns the fields of a STRUCT: as the query wrote them, if it did right here."""
    if value.parts:
        return value.parts
    return [_member(value, name, at, kind) for at, (name, kind) in enumerate(value.kind.fields, 1)]


def _rank(kind: Kind, firm: Sequence[Kind]) -> tuple[bool, int]:
    # The narrowest number first; types of literals only where nothing else decides.
    order = _NUMBERS.index(kind.name) if kind.name in _NUMBERS else 0
    return kind not in firm, order


def unify(plan: Plan, values: Sequence[Scalar], what: str) -> tuple[list[Scalar], Kind]:
    """Returns the values, all of their common type, and that type."""
    kind = common_kind(values, what)
    return [coerce(plan, value, kind, what) for value in values], kind
