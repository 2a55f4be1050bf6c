"""Functions on strings, numbers, arrays and ranges."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import coerce, rounded, unify
from bqflink_beam.emulator.sql.expressions import Env, Reader, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    NUMERIC,
    ORDERED,
    STRING,
    Kind,
    array_of,
)
from bqflink_beam.emulator.sql.named import arity, register_named, typed
from bqflink_beam.emulator.sql.rounding import to_digits
from bqflink_beam.emulator.sql.scope import Scalar


def _texts(template: str, result: Kind, *parts: str) -> Reader:
    """A function whose arguments are all STRING, as a DuckDB template."""

    def read(env: Env, node: Any) -> Scalar:
        only(node, *parts)
        values = [env.typed(node.args[part], STRING, node.sql_name()).sql for part in parts]
        return Scalar(template.format(*values), result)

    return read


def _exact_text(function: str, result: Kind) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        value = env.typed(node.this, STRING, node.sql_name())
        return Scalar(env.plan.call(function, value.sql), result)

    return read


# --- strings ----------------------------------------------------------------------------


def _length(env: Env, node: Any) -> Scalar:
    only(node, "this", ignored=("binary", "encoding"))
    value = env.expr(node.this)
    if value.kind == BYTES:
        return Scalar(f"octet_length({value.sql})", INT64)
    return Scalar(f"length({coerce(env.plan, value, STRING, 'LENGTH').sql})", INT64)


def _byte_length(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value = env.expr(node.this)
    if value.kind == BYTES:
        return Scalar(f"octet_length({value.sql})", INT64)
    return Scalar(
        f"CAST(strlen({coerce(env.plan, value, STRING, 'BYTE_LENGTH').sql}) AS BIGINT)", INT64
    )


def _substring(env: Env, node: Any) -> Scalar:
    only(node, "this", "start", "length")
    if node.args.get("start") is None:
        raise InvalidQuery("No matching signature for function SUBSTR with one argument")
    text = env.typed(node.this, STRING, "SUBSTR").sql
    start = env.typed(node.args["start"], INT64, "SUBSTR").sql
    # Position 0 is 1, and one before the beginning is the beginning.
    size = f"length({text})"
    first = (
        f"(CASE WHEN {start} = 0 THEN 1 WHEN {start} > 0 THEN {_capped(start)} "
        f"WHEN {start} < -{size} THEN 1 ELSE {size} + {start} + 1 END)"
    )
    if node.args.get("length") is None:
        return Scalar(f"substring({text}, {first})", STRING)
    count = env.typed(node.args["length"], INT64, "SUBSTR").sql
    negative = "CAST(error('Third argument in SUBSTR() cannot be negative') AS BIGINT)"
    checked = f"(CASE WHEN {count} < 0 THEN {negative} ELSE {_capped(count)} END)"
    return Scalar(f"substring({text}, {first}, {checked})", STRING)


def _capped(count: str) -> str:
    # Not least(), which leaves NULLs out.
    return f"(CASE WHEN {count} > {_LENGTH_MAX} THEN {_LENGTH_MAX} ELSE {count} END)"


_LENGTH_MAX = (1 << 31) - 1
"""More than any text has, and no more than DuckDB counts to."""


def _trim(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", "position")
    if node.args.get("expression") is None:
        text = env.typed(node.this, STRING, "TRIM").sql
        side = {None: "BOTH", "LEADING": "LEFT", "TRAILING": "RIGHT"}[node.args.get("position")]
        return Scalar(env.plan.call("trimmed", text, f"'{side}'"), STRING)
    name = {None: "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[node.args.get("position")]
    text = env.typed(node.this, STRING, "TRIM").sql
    characters = env.typed(node.expression, STRING, "TRIM").sql
    return Scalar(f"{name}({text}, {characters})", STRING)


def _replace(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", "replacement")
    text, old, new = (
        env.typed(node.args[part], STRING, "REPLACE").sql
        for part in ("this", "expression", "replacement")
    )
    return Scalar(
        f"(CASE WHEN {old} = '' AND {new} IS NOT NULL THEN {text} "
        f"ELSE replace({text}, {old}, {new}) END)",
        STRING,
    )


def _side(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        text = env.typed(node.this, STRING, name).sql
        count = env.typed(node.expression, INT64, name).sql
        bad = f"CAST(error('{name} length must not be negative') AS BIGINT)"
        return Scalar(
            f"{name.lower()}({text}, CASE WHEN {count} < 0 THEN {bad} ELSE {_capped(count)} END)",
            STRING,
        )

    return read


def _repeat(env: Env, node: Any) -> Scalar:
    only(node, "this", "times")
    text = env.typed(node.this, STRING, "REPEAT").sql
    count = env.typed(node.args["times"], INT64, "REPEAT").sql
    bad = "CAST(error('REPEAT count must not be negative') AS BIGINT)"
    return Scalar(f"repeat({text}, CASE WHEN {count} < 0 THEN {bad} ELSE {count} END)", STRING)


def _pad(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", "fill_pattern", "is_left")
    name = "LPAD" if node.args.get("is_left") else "RPAD"
    text = env.typed(node.this, STRING, name).sql
    length = env.typed(node.expression, INT64, name).sql
    fill = node.args.get("fill_pattern")
    pattern = "' '" if fill is None else env.typed(fill, STRING, name).sql
    spec = f"('{name[0]}' || CAST({length} AS VARCHAR) || ' ' || {pattern})"
    return Scalar(env.plan.call("padded", text, spec), STRING)


def _hash(function: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "length")
        size = node.args.get("length")
        name = function if size is None else f"sha{size.name}"
        value = env.expr(node.this)
        if value.kind == BYTES:
            data = value.sql
        else:
            data = f"encode({coerce(env.plan, value, STRING, name.upper()).sql})"
        return Scalar(env.plan.call("digest", data, f"'{name}'"), BYTES)

    return read


def _hexadecimal_hash(env: Env, node: Any) -> Scalar:
    """``TO_HEX(MD5(x))``, which the parser has one name for."""
    digest = _hash("md5")(env, node)
    return Scalar(f"lower(hex({digest.sql}))", STRING)


def _position(env: Env, node: Any) -> Scalar:
    only(node, "this", "substr")
    text = env.typed(node.this, STRING, "STRPOS").sql
    part = env.typed(node.args["substr"], STRING, "STRPOS").sql
    return Scalar(f"CAST(instr({text}, {part}) AS BIGINT)", INT64)


def _split(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression")
    text = env.typed(node.this, STRING, "SPLIT").sql
    delimiter = env.typed(node.expression, STRING, "SPLIT").sql
    return Scalar(env.plan.call("string_split", text, delimiter), array_of(STRING))


def _hexadecimal(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(f"lower(hex({env.typed(node.this, BYTES, 'TO_HEX').sql}))", STRING)


def _base64(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(f"to_base64({env.typed(node.this, BYTES, 'TO_BASE64').sql})", STRING)


def _regexp(env: Env, node: Any) -> Scalar:
    # Both engines are RE2.
    only(node, "this", "expression")
    text = env.typed(node.this, STRING, "REGEXP_CONTAINS").sql
    pattern = env.typed(_raw(node.expression), STRING, "REGEXP_CONTAINS").sql
    return Scalar(f"regexp_matches({text}, {pattern})", BOOL)


def _raw(node: Any) -> Any:
    return exp.Literal.string(node.this) if isinstance(node, exp.RawString) else node


# --- numbers ----------------------------------------------------------------------------


def _absolute(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value = env.expr(node.this)
    if value.kind in (INT64, FLOAT64, NUMERIC):
        return Scalar(f"abs({value.sql})", value.kind)
    if value.kind == BIGNUMERIC:
        return Scalar(env.plan.call("bignumeric_abs", value.sql), BIGNUMERIC)
    raise InvalidQuery(f"No matching signature for ABS for type {value.kind}")


def _sign(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value = env.expr(node.this)
    if value.kind in (INT64, NUMERIC):
        return Scalar(f"CAST(sign({value.sql}) AS {_SIGN_TYPES[value.kind]})", value.kind)
    if value.kind == FLOAT64:
        return Scalar(
            f"(CASE WHEN isnan({value.sql}) THEN {value.sql} "
            f"ELSE CAST(sign({value.sql}) AS DOUBLE) END)",
            FLOAT64,
        )
    raise unsupported(f"SIGN of {value.kind}")


_SIGN_TYPES = {INT64: "BIGINT", NUMERIC: "DECIMAL(38,9)"}


def _rounding(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "decimals")
        value = env.expr(node.this)
        digits_node = node.args.get("decimals")
        if value.kind in (NUMERIC, BIGNUMERIC):
            digits = "0" if digits_node is None else env.typed(digits_node, INT64, name).sql
            function = f"{value.kind.name.lower()}_{name.lower()}"
            text = env.plan.call(function, value.sql, f"CAST({digits} AS BIGINT)")
            return Scalar(text, value.kind)
        if digits_node is not None:
            return to_digits(env, name, value, env.typed(digits_node, INT64, name).sql)
        value = coerce(env.plan, value, FLOAT64, name)
        if name == "ROUND":
            return Scalar(rounded(env.plan, value), FLOAT64)
        return Scalar(f"trunc({value.sql})", FLOAT64)

    return read


def _whole(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        value = env.expr(node.this)
        if value.kind == NUMERIC:
            return Scalar(f"CAST({name}({value.sql}) AS DECIMAL(38,9))", NUMERIC)
        if value.kind == BIGNUMERIC:
            return Scalar(env.plan.call(f"bignumeric_{name}", value.sql), BIGNUMERIC)
        return Scalar(f"{name}({coerce(env.plan, value, FLOAT64, name.upper()).sql})", FLOAT64)

    return read


def _square_root(env: Env, node: Any) -> Scalar:
    only(node, "this")
    argument = env.expr(node.this)
    if argument.kind in (NUMERIC, BIGNUMERIC):
        raise unsupported(f"SQRT of {argument.kind}")  # it has that type's result
    value = coerce(env.plan, argument, FLOAT64, "SQRT").sql
    bad = "CAST(error('Argument to SQRT cannot be negative') AS DOUBLE)"
    return Scalar(f"(CASE WHEN {value} < 0 THEN {bad} ELSE sqrt({value}) END)", FLOAT64)


def _division(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        a, b = env.exprs([node.this, node.expression])
        return operators.integer_division(env.plan, name, a, b)

    return read


def _extreme(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expressions", ignored=("ignore_nulls",))
        values, kind = unify(env.plan, env.exprs([node.this, *node.expressions]), name)
        if kind.name not in ORDERED:
            raise unsupported(f"{name} of {kind}")
        nulls = " OR ".join(f"{value.sql} IS NULL" for value in values)
        plain = f"{name.lower()}({', '.join(value.sql for value in values)})"
        nans = ""
        if kind == FLOAT64:
            any_nan = " OR ".join(f"isnan({value.sql})" for value in values)
            nans = f"WHEN {any_nan} THEN CAST('nan' AS DOUBLE) "
        return Scalar(f"(CASE WHEN {nulls} THEN NULL {nans}ELSE {plain} END)", kind)

    return read


def _float_test(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        return Scalar(f"{name}({env.typed(node.this, FLOAT64, name).sql})", BOOL)

    return read


# --- arrays -----------------------------------------------------------------------------


def _array_argument(env: Env, node: Any, what: str) -> Scalar:
    array = env.expr(node)
    if array.kind.element is None:
        raise InvalidQuery(f"{what} needs an ARRAY, got {array.kind}")
    return array


def _array_length(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(
        f"CAST(len({_array_argument(env, node.this, 'ARRAY_LENGTH').sql}) AS BIGINT)", INT64
    )


def _array_reverse(env: Env, node: Any) -> Scalar:
    only(node, "this")
    array = _array_argument(env, node.this, "ARRAY_REVERSE")
    return Scalar(f"list_reverse({array.sql})", array.kind)


def _array_concat(env: Env, node: Any) -> Scalar:
    only(node, "this", "expressions", ignored=("null_propagation",))
    values, kind = unify(env.plan, env.exprs([node.this, *node.expressions]), "ARRAY_CONCAT")
    if kind.element is None:
        raise InvalidQuery(f"ARRAY_CONCAT needs ARRAYs, got {kind}")
    nulls = " OR ".join(f"{value.sql} IS NULL" for value in values)
    joined = values[0].sql
    for value in values[1:]:
        joined = f"list_concat({joined}, {value.sql})"
    return Scalar(f"(CASE WHEN {nulls} THEN NULL ELSE {joined} END)", kind)


def _array_to_string(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", "null")
    array = _array_argument(env, node.this, "ARRAY_TO_STRING")
    if array.kind.element != STRING or node.args.get("null") is not None:
        raise unsupported("ARRAY_TO_STRING of anything but ARRAY<STRING> and a delimiter")
    delimiter = env.typed(node.expression, STRING, "ARRAY_TO_STRING").sql
    present = f"list_filter({array.sql}, lambda x: x IS NOT NULL)"
    # DuckDB joins by a comma where the delimiter is NULL.
    return Scalar(
        f"(CASE WHEN {delimiter} IS NULL THEN NULL "
        f"ELSE array_to_string({present}, {delimiter}) END)",
        STRING,
    )


def _generate_array(env: Env, node: Any) -> Scalar:
    only(node, "start", "end", "step")
    start, end = (env.typed(node.args[p], INT64, "GENERATE_ARRAY").sql for p in ("start", "end"))
    step_node = node.args.get("step")
    step = "1" if step_node is None else env.typed(step_node, INT64, "GENERATE_ARRAY").sql
    zero = "CAST(error('Sequence step cannot be 0') AS BIGINT)"
    checked = f"CASE WHEN {step} = 0 THEN {zero} ELSE {step} END"
    return Scalar(f"generate_series({start}, {end}, {checked})", array_of(INT64))


# --- ranges and the rest -------------------------------------------------------------------


def _bound(which: str) -> Callable[[Env, list[Scalar]], Scalar]:
    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        (value,) = arity(arguments, 1, f"RANGE_{which.upper()}")
        if value.kind.name != "RANGE" or value.kind.element is None:
            raise InvalidQuery(f"RANGE_{which.upper()} needs a RANGE, got {value.kind}")
        return Scalar(f"struct_extract({value.sql}, '{which}')", value.kind.element)

    return read


def _range_contains(env: Env, arguments: list[Scalar]) -> Scalar:
    value, item = arity(arguments, 2, "RANGE_CONTAINS")
    element = value.kind.element
    if value.kind.name != "RANGE" or element is None:
        raise InvalidQuery(f"RANGE_CONTAINS needs a RANGE, got {value.kind}")
    start, end = (f"struct_extract({value.sql}, '{which}')" for which in ("start", "end"))
    if item.kind == value.kind:
        inner = [f"struct_extract({item.sql}, '{which}')" for which in ("start", "end")]
        test = (
            f"({start} IS NULL OR coalesce({inner[0]} >= {start}, FALSE)) "
            f"AND ({end} IS NULL OR coalesce({inner[1]} <= {end}, FALSE))"
        )
        item_text = item.sql
    else:
        item_text = coerce(env.plan, item, element, "RANGE_CONTAINS").sql
        test = f"({start} IS NULL OR {item_text} >= {start}) AND ({end} IS NULL OR {item_text} < {end})"
    missing = f"{value.sql} IS NULL OR {item_text} IS NULL"
    return Scalar(f"(CASE WHEN {missing} THEN NULL ELSE {test} END)", BOOL)


def _ieee_divide(env: Env, arguments: list[Scalar]) -> Scalar:
    a, b = (coerce(env.plan, v, FLOAT64, "IEEE_DIVIDE") for v in arity(arguments, 2, "IEEE_DIVIDE"))
    zero = (
        f"CASE WHEN {a.sql} = 0 OR isnan({a.sql}) THEN CAST('nan' AS DOUBLE) "
        f"ELSE {a.sql} * CAST('inf' AS DOUBLE) * (CASE WHEN signbit({b.sql}) THEN -1 ELSE 1 END) END"
    )
    return Scalar(
        f"(CASE WHEN {a.sql} IS NULL OR {b.sql} IS NULL THEN NULL "
        f"WHEN {b.sql} = 0 THEN {zero} ELSE {a.sql} / {b.sql} END)",
        FLOAT64,
    )


def _bit_count(env: Env, arguments: list[Scalar]) -> Scalar:
    (value,) = typed(env, arguments, (INT64,), "BIT_COUNT")
    return Scalar(f"CAST(bit_count({value.sql}) AS BIGINT)", INT64)


def _error(env: Env, arguments: list[Scalar]) -> Scalar:
    (text,) = arity(arguments, 1, "ERROR")
    message = f"coalesce({coerce(env.plan, text, STRING, 'ERROR').sql}, 'NULL')"
    return Scalar(f"CAST(error({message}) AS BIGINT)", INT64)


register_named(
    {
        "RANGE_START": _bound("start"),
        "RANGE_END": _bound("end"),
        "RANGE_CONTAINS": _range_contains,
        "IEEE_DIVIDE": _ieee_divide,
        "BIT_COUNT": _bit_count,
        "ERROR": _error,
    }
)
register(
    {
        exp.Length: _length,
        exp.ByteLength: _byte_length,
        exp.Upper: _exact_text("upper_text", STRING),
        exp.Lower: _exact_text("lower_text", STRING),
        exp.Substring: _substring,
        exp.Trim: _trim,
        exp.Replace: _replace,
        exp.StartsWith: _texts("starts_with({0}, {1})", BOOL, "this", "expression"),
        exp.EndsWith: _texts("suffix({0}, {1})", BOOL, "this", "expression"),
        exp.StrPosition: _position,
        exp.Left: _side("LEFT"),
        exp.Right: _side("RIGHT"),
        exp.Repeat: _repeat,
        exp.Pad: _pad,
        exp.MD5Digest: _hash("md5"),
        exp.MD5: _hexadecimal_hash,
        exp.SHA1Digest: _hash("sha1"),
        exp.SHA2Digest: _hash("sha256"),
        exp.Reverse: _exact_text("reversed_text", STRING),
        exp.Split: _split,
        exp.LowerHex: _hexadecimal,
        exp.ToBase64: _base64,
        exp.RegexpLike: _regexp,
        exp.Abs: _absolute,
        exp.Sign: _sign,
        exp.Round: _rounding("ROUND"),
        exp.Trunc: _rounding("TRUNC"),
        exp.Ceil: _whole("ceil"),
        exp.Floor: _whole("floor"),
        exp.Sqrt: _square_root,
        exp.Mod: _division("MOD"),
        exp.IntDiv: _division("DIV"),
        exp.Greatest: _extreme("GREATEST"),
        exp.Least: _extreme("LEAST"),
        exp.IsNan: _float_test("isnan"),
        exp.IsInf: _float_test("isinf"),
        exp.ArraySize: _array_length,
        exp.ArrayReverse: _array_reverse,
        exp.ArrayConcat: _array_concat,
        exp.ArrayToString: _array_to_string,
        exp.GenerateSeries: _generate_array,
    }
)
