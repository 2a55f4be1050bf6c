"""TO_JSON_STRING: a value of any type as JSON text, put together in DuckDB."""

from bqflink_beam.emulator.sql.casts import cast
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.jsontexts import quoted
from bqflink_beam.emulator.sql.kinds import NUMERIC, STRING, Kind
from bqflink_beam.emulator.sql.named import arity, register_named
from bqflink_beam.emulator.sql.scope import Plan, Scalar, quote_text

_LOSSLESS = 1 << 53
"""The largest integer that a JSON reader is sure to keep; larger ones are written as texts."""


def json_text(plan: Plan, value: Scalar) -> str:
    """Returns DuckDB text of a value's JSON, never NULL.

    Raises:
        InvalidQuery: values of its type are not written exactly here.
    """
    text = _text(plan, value)
    return f"(CASE WHEN {value.sql} IS NULL THEN 'null' ELSE {text} END)"


def _text(plan: Plan, value: Scalar) -> str:
    sql, kind = value.sql, value.kind
    if kind.name == "BOOL":
        return f"CAST({sql} AS VARCHAR)"
    if kind.name == "INT64":
        return _checked_number(f"CAST({sql} AS VARCHAR)", sql)
    if kind.name in ("NUMERIC", "BIGNUMERIC"):
        whole = Scalar(cast(plan, value, STRING).sql, STRING).sql
        limit = cast(plan, Scalar(f"CAST('{_LOSSLESS}' AS DECIMAL(38,9))", NUMERIC), kind).sql
        least = cast(plan, Scalar(f"CAST('-{_LOSSLESS}' AS DECIMAL(38,9))", NUMERIC), kind).sql
        return (
            f"(CASE WHEN {sql} BETWEEN {least} AND {limit} AND NOT contains({whole}, '.') "
            f"THEN {whole} ELSE '\"' || {whole} || '\"' END)"
        )
    if kind.name == "FLOAT64":
        return _float_text(plan, value)
    if kind.name == "STRING":
        return plan.call("json_quoted", sql)
    if kind.name == "JSON":
        return plan.call("json_normal", sql)
    if kind.name == "BYTES":
        return f"('\"' || to_base64({sql}) || '\"')"
    if kind.name in ("DATE", "TIME", "DATETIME", "TIMESTAMP"):
        zone = "Z" if kind.name == "TIMESTAMP" else ""
        plain = cast(plan, value, STRING).sql
        return f"('\"' || replace(replace({plain}, '+00', ''), ' ', 'T') || '{zone}\"')"
    return _nested(plan, value, kind)


def _checked_number(text: str, sql: str) -> str:
    return (
        f"(CASE WHEN {sql} BETWEEN -{_LOSSLESS} AND {_LOSSLESS} "
        f"THEN {text} ELSE '\"' || {text} || '\"' END)"
    )


def _float_text(plan: Plan, value: Scalar) -> str:
    sql = value.sql
    zero = quote_text(unsupported("TO_JSON_STRING of a negative zero").message)
    return (
        f"(CASE WHEN isnan({sql}) THEN '\"NaN\"' WHEN isinf({sql}) AND {sql} > 0 THEN '\"Infinity\"' "
        f"WHEN isinf({sql}) THEN '\"-Infinity\"' "
        f"WHEN {sql} = 0 AND signbit({sql}) THEN CAST(error({zero}) AS VARCHAR) "
        f"ELSE {cast(plan, value, STRING).sql} END)"
    )


def _nested(plan: Plan, value: Scalar, kind: Kind) -> str:
    if kind.name == "ARRAY" and kind.element:
        name = plan.name("x")
        items = f"list_transform({value.sql}, lambda {name}: {json_text(plan, Scalar(name, kind.element))})"
        return f"('[' || array_to_string({items}, ',') || ']')"
    if kind.name != "STRUCT":
        raise unsupported(f"TO_JSON_STRING of {kind}")
    names = [name.lower() for name, _ in kind.fields]
    if len(set(names)) != len(names) or "" in names:
        raise unsupported("TO_JSON_STRING of a STRUCT without a name for each field")
    pieces = []
    for name, inner in kind.fields:
        member = Scalar(f"struct_extract({value.sql}, {quote_text(name)})", inner)
        pieces.append(f"{quote_text(quoted(name) + ':')} || {json_text(plan, member)}")
    return "('{' || " + " || ',' || ".join(pieces) + " || '}')"


def _to_json_string(env: Env, arguments: list[Scalar]) -> Scalar:
    arity(arguments, range(1, 3), "TO_JSON_STRING")
    if len(arguments) == 2 and arguments[1].literal is not False:
        if arguments[1].kind.name != "BOOL":
            raise InvalidQuery("TO_JSON_STRING's second argument must be BOOL")
        raise unsupported("TO_JSON_STRING with pretty_print")
    return Scalar(json_text(env.plan, arguments[0]), STRING)


register_named({"TO_JSON_STRING": _to_json_string})
