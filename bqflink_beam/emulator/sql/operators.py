"""Comparison, logic and arithmetic, with BigQuery's NaN, overflow and rounding rules."""

from collections.abc import Callable, Sequence

from bqflink_beam.emulator.sql.casts import cast, coerce, members, unify
from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BIGNUMERIC,
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    NUMERIC,
    ORDERED,
    STRING,
    Kind,
)
from bqflink_beam.emulator.sql.scope import Plan, Scalar

_NUMBERS = ("INT64", "NUMERIC", "BIGNUMERIC", "FLOAT64")


def boolean(plan: Plan, value: Scalar, what: str) -> str:
    """Returns the text of a condition.

    Raises:
        InvalidQuery: the value is no BOOL.
    """
    return coerce(plan, value, BOOL, what).sql


def compare(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns ``a operator b`` for one of = <> < <= > >=."""
    (left, right), kind = unify(plan, [a, b], f"operator {operator}")
    if kind.name == "STRUCT":
        return _compare_structs(plan, operator, left, right)
    if kind.name not in ORDERED:
        raise unsupported(f"Comparing values of type {kind}")
    plain = f"({left.sql} {operator} {right.sql})"
    if kind == FLOAT64:
        plain = _compare_floats(operator, left, right, plain)
    return Scalar(plain, BOOL)


def _compare_structs(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    """Compares field by field: false where one differs, else NULL where one is not known."""
    if operator not in ("=", "<>"):
        raise InvalidQuery(f"Operator {operator} is not defined for STRUCTs")
    tests = [
        compare(plan, "=", left, right).sql
        for left, right in zip(members(a), members(b), strict=True)
    ]
    nothing = f"{a.sql} IS NULL OR {b.sql} IS NULL"
    negated = "NOT " if operator == "<>" else ""
    return Scalar(
        f"(CASE WHEN {nothing} THEN NULL ELSE {negated}({' AND '.join(tests)}) END)", BOOL
    )


def _compare_floats(operator: str, a: Scalar, b: Scalar, plain: str) -> str:
    # DuckDB takes NaN for equal to itself and greater than all; for BigQuery it is
    # neither less, equal nor greater, and only <> is true of it.
    unequal = "TRUE" if operator == "<>" else "FALSE"
    not_numbers = [f"isnan({side.sql})" for side in (a, b) if not _finite_literal(side)]
    if not not_numbers:
        return plain
    return (
        f"(CASE WHEN {a.sql} IS NULL OR {b.sql} IS NULL THEN NULL "
        f"WHEN {' OR '.join(not_numbers)} THEN {unequal} ELSE {plain} END)"
    )


def _finite_literal(value: Scalar) -> bool:
    return value.is_literal and not value.is_null


def member(plan: Plan, value: Scalar, items: Sequence[Scalar]) -> Scalar:
    """Returns ``value IN (items)``: true, false, or NULL where a NULL might have matched."""
    tests = " OR ".join(compare(plan, "=", value, item).sql for item in items)
    return Scalar(f"({tests})", BOOL)


def distinct(plan: Plan, a: Scalar, b: Scalar, *, negate: bool) -> Scalar:
    """Returns ``a IS [NOT] DISTINCT FROM b``; NaN is not distinct from NaN."""
    (left, right), kind = unify(plan, [a, b], "operator IS DISTINCT FROM")
    if kind.name not in ORDERED:
        raise unsupported(f"Comparing values of type {kind}")
    keys = [group_key(side).sql for side in (left, right)]
    text = "IS NOT DISTINCT FROM" if negate else "IS DISTINCT FROM"
    return Scalar(f"({keys[0]} {text} {keys[1]})", BOOL)


def group_key(value: Scalar) -> Scalar:
    """Returns a value that may be grouped by. DuckDB, too, has one group for every NaN and
    one for both zeros.

    Raises:
        InvalidQuery: values of its type are not compared here.
    """
    if value.kind.name not in ORDERED:
        raise unsupported(f"Grouping by values of type {value.kind}")
    return Scalar(value.sql, value.kind)


def sort_keys(text: str, kind: Kind, *, descending: bool, nulls_first: bool | None) -> list[str]:
    """Returns ORDER BY items: NULLs first when ascending, NaN before every number."""
    if kind.name not in ORDERED:
        raise unsupported(f"Ordering by values of type {kind}")
    first = (not descending) if nulls_first is None else nulls_first
    nulls = "NULLS FIRST" if first else "NULLS LAST"
    direction = "DESC" if descending else "ASC"
    keys = [f"{text} {direction} {nulls}"]
    if kind == FLOAT64:
        keys.insert(0, f"isnan({text}) {'ASC' if descending else 'DESC'} {nulls}")
    return keys


# --- arithmetic -----------------------------------------------------------------------------


def arithmetic(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns ``a operator b`` for one of + - * /."""
    if operator in "+-" and DATE in (a.kind, b.kind):
        return _shift_date(operator, a, b)
    if operator == "*" and {a.kind, b.kind} == {NUMERIC, INT64} and not (a.is_null or b.is_null):
        # By a whole number the product is exact at nine digits, and DuckDB's own will do.
        factors = [f"CAST({v.sql} AS DECIMAL(19,0))" if v.kind == INT64 else v.sql for v in (a, b)]
        return Scalar(f"CAST({factors[0]} * {factors[1]} AS DECIMAL(38,9))", NUMERIC)
    if operator == "-" and a.kind == b.kind and a.kind.name in ("DATETIME", "TIMESTAMP", "TIME"):
        raise unsupported(f"{a.kind} - {b.kind}")  # it is an INTERVAL
    (left, right), kind = unify(plan, [a, b], f"operator {operator}")
    if kind.name not in _NUMBERS:
        raise InvalidQuery(
            f"No matching signature for operator {operator} for types {a.kind}, {b.kind}"
        )
    if operator == "/" and kind == INT64:
        left, right, kind = cast(plan, left, FLOAT64), cast(plan, right, FLOAT64), FLOAT64
    return _ARITHMETIC[kind](plan, operator, left, right)


def _integers(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    return Scalar(f"({a.sql} {operator} {b.sql})", INT64)


def _numerics(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    if operator in "+-":
        return Scalar(f"({a.sql} {operator} {b.sql})", NUMERIC)
    return Scalar(
        plan.call("numeric_mul" if operator == "*" else "numeric_div", a.sql, b.sql), NUMERIC
    )


def _bignumerics(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    name = {"+": "add", "-": "sub", "*": "mul", "/": "div"}[operator]
    return Scalar(plan.call(f"bignumeric_{name}", a.sql, b.sql), BIGNUMERIC)


def _floats(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    divisor = b
    if operator == "/":
        zero = f"CAST(error(printf('division by zero: %g / %g', {a.sql}, {b.sql})) AS DOUBLE)"
        divisor = Scalar(f"(CASE WHEN {b.sql} = 0 THEN {zero} ELSE {b.sql} END)", FLOAT64)
        # A value that overflowed must not become a finite quotient, so it is checked first.
        a = Scalar(a.sql, FLOAT64)
    raw = f"({a.raw} {operator} {divisor.raw})"
    overflow = f"(NOT isfinite({raw}) AND isfinite({a.raw}) AND isfinite({divisor.raw}))"
    return Scalar(raw, FLOAT64, guards=(*a.guards, *divisor.guards, overflow))


_ARITHMETIC: dict[Kind, Callable[[Plan, str, Scalar, Scalar], Scalar]] = {
    INT64: _integers,
    NUMERIC: _numerics,
    BIGNUMERIC: _bignumerics,
    FLOAT64: _floats,
}


def _shift_date(operator: str, a: Scalar, b: Scalar) -> Scalar:
    if operator == "+" and a.kind == INT64:
        a, b = b, a
    if a.kind != DATE or b.kind != INT64:  # DATE - DATE is an INTERVAL
        raise unsupported(f"{a.kind} {operator} {b.kind}")
    return Scalar(checked_date(f"({a.sql} {operator} CAST({b.sql} AS INTEGER))"), DATE)


def checked_date(text: str) -> str:
    """Returns a DATE expression that ends the query where it leaves the years 1 to 9999."""
    return (
        f"(CASE WHEN {text} < DATE '0001-01-01' OR {text} > DATE '9999-12-31' "
        f"THEN CAST(error('date out of range') AS DATE) ELSE {text} END)"
    )


def checked_timestamp(text: str, word: str) -> str:
    """Returns a TIMESTAMP expression that ends the query where it leaves the years 1 to 9999."""
    return (
        f"(CASE WHEN {text} < TIMESTAMP '0001-01-01 00:00:00' "
        f"OR {text} > TIMESTAMP '9999-12-31 23:59:59.999999' "
        f"THEN CAST(error('{word} out of range') AS TIMESTAMP) ELSE {text} END)"
    )


def negate(plan: Plan, value: Scalar) -> Scalar:
    """Returns ``-value``."""
    if value.kind == INT64:
        # Not a plain minus, which DuckDB widens for the least number.
        return Scalar(f"(CAST(0 AS BIGINT) - {value.sql})", INT64)
    if value.kind == FLOAT64:
        return Scalar(f"(- {value.raw})", FLOAT64, guards=value.guards)
    if value.kind == NUMERIC:
        return Scalar(f"(- {value.sql})", NUMERIC)
    if value.kind == BIGNUMERIC:
        return Scalar(plan.call("bignumeric_neg", value.sql), BIGNUMERIC)
    raise InvalidQuery(f"No matching signature for operator - for type {value.kind}")


def integer_division(plan: Plan, name: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns DIV or MOD."""
    (left, right), kind = unify(plan, [a, b], name)
    if kind == INT64:
        zero = f"CAST(error('division by zero: {name}') AS BIGINT)"
        divisor = f"(CASE WHEN {right.sql} = 0 THEN {zero} ELSE {right.sql} END)"
        if isinstance(right.literal, int) and right.literal:
            divisor = right.sql  # nothing can fail, and DuckDB may partition by it
        return Scalar(f"({left.sql} {'//' if name == 'DIV' else '%'} {divisor})", INT64)
    if name == "MOD" and kind in (NUMERIC, BIGNUMERIC):
        return Scalar(plan.call(f"{kind.name.lower()}_mod", left.sql, right.sql), kind)
    raise unsupported(f"{name} of type {kind}")


def bitwise(plan: Plan, operator: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns ``a operator b`` for one of & | ^ on integers."""
    left, right = (coerce(plan, side, INT64, f"operator {operator}") for side in (a, b))
    if operator == "^":
        return Scalar(f"xor({left.sql}, {right.sql})", INT64)
    return Scalar(f"({left.sql} {operator} {right.sql})", INT64)


def concatenate(plan: Plan, values: Sequence[Scalar]) -> Scalar:
    """Returns strings, blobs or arrays joined; NULL if any is NULL."""
    unified, kind = unify(plan, values, "CONCAT")
    if kind.name in ("STRING", "BYTES", "ARRAY"):
        return Scalar("(" + " || ".join(value.sql for value in unified) + ")", kind)
    if kind.name not in ORDERED:
        raise InvalidQuery(f"No matching signature for CONCAT for type {kind}")
    return Scalar(
        "(" + " || ".join(cast(plan, value, STRING).sql for value in values) + ")", STRING
    )
