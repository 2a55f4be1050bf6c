"""A grammar of queries, with a second opinion on each: plain Python on the same rows.

Every node renders itself as BigQuery SQL and evaluates itself over one row, by the rules
of BigQuery's reference: three-valued logic, NaN unequal to everything, NULLs first,
NUMERIC rounded half away from zero. Nothing here knows of DuckDB or of Arrow.
"""

import dataclasses
import datetime
import decimal
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tests.unit.emulator.sql_rows import ORDERED, SCHEMA, TEXTS, VALUES, Row, literal_text

# --- expressions ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Expr:
    """An expression: its text, its type, and its value over a row."""

    sql: str
    kind: str
    value: Callable[[Row], Any]


def column(name: str) -> Expr:
    field = SCHEMA.field(name)
    return Expr(name, field.type, lambda row: row[name])


def _both(a: Any, b: Any, run: Callable[[Any, Any], Any]) -> Any:
    return None if a is None or b is None else run(a, b)


def compare(operator: str, a: Any, b: Any) -> bool | None:
    """Three-valued comparison, NaN unordered."""
    if a is None or b is None:
        return None
    if any(isinstance(side, float) and math.isnan(side) for side in (a, b)):
        return operator == "<>"
    return {
        "=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
    }[operator]  # fmt: skip


def either(values: list[bool | None]) -> bool | None:
    if any(value is True for value in values):
        return True
    return None if any(value is None for value in values) else False


def every(values: list[bool | None]) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def like(text: str, pattern: str) -> bool:
    """LIKE with backslash escapes."""
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
            out += re.escape(pattern[at])
        else:
            out += {"%": ".*", "_": "."}.get(char, re.escape(char))
        at += 1
    return re.fullmatch(out, text, re.DOTALL) is not None


@st.composite
def operands(draw: Any, kind: str) -> Expr:
    """A column or literal of a type; STRUCT fields are among the columns."""
    names = [f.name for f in SCHEMA if f.type == kind and not f.repeated and f.name != "id"]
    choice = draw(st.integers(0, 3))
    if kind == "INT64" and choice == 0:
        return Expr("st.x", "INT64", lambda row: row["st"] and row["st"]["x"])
    if kind == "STRING" and choice == 0:
        return Expr("st.z", "STRING", lambda row: row["st"] and row["st"]["z"])
    if choice < 3 and names:
        return column(draw(st.sampled_from(names)))
    value = draw(st.none() | VALUES[kind])
    return Expr(literal_text(value, kind), kind, lambda row: value)


@st.composite
def scalars(draw: Any, kind: str, depth: int = 2) -> Expr:
    """An expression of a type."""
    options = _BY_KIND.get(kind, []) if depth > 0 else []
    if not options or draw(st.booleans()):
        return draw(operands(kind))
    return draw(draw(st.sampled_from([*options, _conditional, _coalesce]))(kind, depth - 1))


@st.composite
def _conditional(draw: Any, kind: str, depth: int) -> Expr:
    test, a, b = draw(predicates(depth)), draw(scalars(kind, depth)), draw(scalars(kind, depth))
    if draw(st.booleans()):
        sql = f"IF({test.sql}, {a.sql}, {b.sql})"
    else:
        sql = f"CASE WHEN {test.sql} THEN {a.sql} ELSE {b.sql} END"
    return Expr(sql, kind, lambda row: a.value(row) if test.value(row) else b.value(row))


@st.composite
def _coalesce(draw: Any, kind: str, depth: int) -> Expr:
    a, b = draw(scalars(kind, depth)), draw(scalars(kind, depth))
    word = draw(st.sampled_from(["COALESCE", "IFNULL"]))

    def value(row: Row) -> Any:
        first = a.value(row)
        return b.value(row) if first is None else first

    return Expr(f"{word}({a.sql}, {b.sql})", kind, value)


@st.composite
def _arithmetic(draw: Any, kind: str, depth: int) -> Expr:
    operator = draw(st.sampled_from("+-*"))
    # One factor of a product is a small literal, so that depth cannot overflow 64 bits.
    a = draw(scalars(kind, depth))
    b = draw(scalars(kind, depth if operator != "*" else 0))
    if operator == "*":
        small = draw(st.integers(-3, 3))
        value = Decimal(small) if kind != "INT64" else small
        text = str(small) if kind == "INT64" else f"{kind} '{small}'"
        b = Expr(text, kind, lambda row: value)

    def run(x: Any, y: Any) -> Any:
        with decimal.localcontext(prec=200):
            return {"+": x + y, "-": x - y, "*": x * y}[operator]

    return Expr(
        f"({a.sql} {operator} {b.sql})", kind, lambda row: _both(a.value(row), b.value(row), run)
    )


@st.composite
def _integer_function(draw: Any, kind: str, depth: int) -> Expr:
    text = draw(scalars("STRING", depth))
    a = draw(scalars("INT64", depth))
    day = draw(scalars("DATE", 0))
    choices: list[tuple[str, Callable[[Row], Any]]] = [
        (f"LENGTH({text.sql})", lambda row: _map(text.value(row), len)),
        (f"BYTE_LENGTH({text.sql})", lambda row: _map(text.value(row), lambda t: len(t.encode()))),
        (f"ABS({a.sql})", lambda row: _map(a.value(row), abs)),
        (f"(-{a.sql})", lambda row: _map(a.value(row), lambda x: -x)),
        (f"MOD({a.sql}, 7)", lambda row: _map(a.value(row), lambda x: int(math.fmod(x, 7)))),
        (f"DIV({a.sql}, 7)", lambda row: _map(a.value(row), lambda x: abs(x) // 7 * (1 if x >= 0 else -1))),
        ("ARRAY_LENGTH(arr)", lambda row: len(row["arr"])),
        (f"EXTRACT(YEAR FROM {day.sql})", lambda row: _map(day.value(row), lambda d: d.year)),
        (f"EXTRACT(DAYOFWEEK FROM {day.sql})", lambda row: _map(day.value(row), lambda d: d.isoweekday() % 7 + 1)),
        (f"EXTRACT(ISOWEEK FROM {day.sql})", lambda row: _map(day.value(row), lambda d: d.isocalendar()[1])),
        (f"EXTRACT(WEEK FROM {day.sql})", lambda row: _map(day.value(row), lambda d: int(d.strftime("%U")))),
        (f"UNIX_DATE({day.sql})", lambda row: _map(day.value(row), lambda d: (d - datetime.date(1970, 1, 1)).days)),
        ("(SELECT SUM(e) FROM UNNEST(arr) AS e)", lambda row: sum(row["arr"]) if row["arr"] else None),
        ("(SELECT MAX(e.v) FROM UNNEST(sa) AS e)", lambda row: max((e["v"] for e in row["sa"] if e["v"] is not None), default=None)),
        ("arr[SAFE_OFFSET(1)]", lambda row: row["arr"][1] if len(row["arr"]) > 1 else None),
    ]  # fmt: skip
    sql, value = draw(st.sampled_from(choices))
    return Expr(sql, kind, value)


def _map(value: Any, run: Callable[[Any], Any]) -> Any:
    return None if value is None else run(value)


@st.composite
def _string_function(draw: Any, kind: str, depth: int) -> Expr:
    a, b = draw(scalars("STRING", depth)), draw(scalars("STRING", depth))
    start, count = draw(st.integers(-3, 3)), draw(st.integers(0, 3))
    number = draw(scalars("INT64", depth))

    def substr(text: str) -> str:
        begin = start - 1 if start > 0 else (0 if start == 0 else max(len(text) + start, 0))
        return text[begin : begin + count]

    choices: list[tuple[str, Callable[[Row], Any]]] = [
        (f"({a.sql} || {b.sql})", lambda row: _both(a.value(row), b.value(row), lambda x, y: x + y)),
        (f"CONCAT({a.sql}, {b.sql})", lambda row: _both(a.value(row), b.value(row), lambda x, y: x + y)),
        (f"SUBSTR({a.sql}, {start}, {count})", lambda row: _map(a.value(row), substr)),
        (f"UPPER({a.sql})", lambda row: _map(a.value(row), str.upper)),
        (f"REPLACE({a.sql}, 'a', 'bb')", lambda row: _map(a.value(row), lambda t: t.replace("a", "bb"))),
        (f"REVERSE({a.sql})", lambda row: _map(a.value(row), lambda t: t[::-1])),
        (f"CAST({number.sql} AS STRING)", lambda row: _map(number.value(row), str)),
    ]  # fmt: skip
    sql, value = draw(st.sampled_from(choices))
    return Expr(sql, kind, value)


_BY_KIND: dict[str, list[Any]] = {
    "INT64": [_arithmetic, _integer_function],
    "NUMERIC": [_arithmetic],
    "BIGNUMERIC": [_arithmetic],
    "STRING": [_string_function],
    "FLOAT64": [],
    "BOOL": [],
}


# --- predicates -----------------------------------------------------------------------------


@st.composite
def predicates(draw: Any, depth: int = 3) -> Expr:
    """A BOOL expression: what stands behind WHERE."""
    leaves = [_comparison, _null_test, _membership, _range_test, _pattern, _nested_test]
    branches = [_negation, _junction, _junction] if depth > 0 else []
    return draw(draw(st.sampled_from(leaves + branches))(max(depth - 1, 0)))


@st.composite
def _comparison(draw: Any, depth: int) -> Expr:
    kind = draw(st.sampled_from(ORDERED))
    operator = draw(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]))
    a, b = draw(scalars(kind, min(depth, 1))), draw(scalars(kind, min(depth, 1)))
    plain = "<>" if operator == "!=" else operator
    return Expr(
        f"({a.sql} {operator} {b.sql})",
        "BOOL",
        lambda row: compare(plain, a.value(row), b.value(row)),
    )


@st.composite
def _null_test(draw: Any, depth: int) -> Expr:
    name = draw(st.sampled_from([f.name for f in SCHEMA if not f.repeated]))
    negate = draw(st.booleans())
    return Expr(
        f"({name} IS {'NOT ' if negate else ''}NULL)",
        "BOOL",
        lambda row: (row[name] is None) != negate,
    )


@st.composite
def _membership(draw: Any, depth: int) -> Expr:
    kind = draw(st.sampled_from(ORDERED))
    a = draw(scalars(kind, 0))
    items = draw(st.lists(operands(kind), min_size=1, max_size=3))
    negate = draw(st.booleans())

    def value(row: Row) -> bool | None:
        found = either([compare("=", a.value(row), item.value(row)) for item in items])
        return found if found is None or not negate else not found

    inside = ", ".join(item.sql for item in items)
    return Expr(f"({a.sql} {'NOT ' if negate else ''}IN ({inside}))", "BOOL", value)


@st.composite
def _range_test(draw: Any, depth: int) -> Expr:
    kind = draw(st.sampled_from(ORDERED))
    a, low, high = (draw(operands(kind)) for _ in range(3))
    negate = draw(st.booleans())

    def value(row: Row) -> bool | None:
        inside = every(
            [
                compare(">=", a.value(row), low.value(row)),
                compare("<=", a.value(row), high.value(row)),
            ]
        )
        return inside if inside is None or not negate else not inside

    word = "NOT BETWEEN" if negate else "BETWEEN"
    return Expr(f"({a.sql} {word} {low.sql} AND {high.sql})", "BOOL", value)


@st.composite
def _pattern(draw: Any, depth: int) -> Expr:
    a = draw(scalars("STRING", 1))
    pieces = st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "é", "'", "\n"])
    pattern = "".join(draw(st.lists(pieces, max_size=4)))
    negate = draw(st.booleans())

    def value(row: Row) -> bool | None:
        text = a.value(row)
        return None if text is None else like(text, pattern) != negate

    return Expr(
        f"({a.sql} {'NOT ' if negate else ''}LIKE {literal_text(pattern, 'STRING')})", "BOOL", value
    )


@st.composite
def _nested_test(draw: Any, depth: int) -> Expr:
    number, text = draw(VALUES["INT64"]), draw(TEXTS)
    choices: list[tuple[str, Callable[[Row], Any]]] = [
        (f"({number} IN UNNEST(arr))", lambda row: number in row["arr"]),
        (
            f"EXISTS(SELECT 1 FROM UNNEST(arr) AS e WHERE e > {number})",
            lambda row: any(e > number for e in row["arr"]),
        ),
        (
            f"EXISTS(SELECT 1 FROM UNNEST(sa) AS e WHERE e.k = {literal_text(text, 'STRING')})",
            lambda row: any(e["k"] == text for e in row["sa"]),
        ),
        ("(b IS TRUE)", lambda row: row["b"] is True),
        ("(b IS NOT FALSE)", lambda row: row["b"] is not False),
        ("b", lambda row: row["b"]),
        ("IS_NAN(f)", lambda row: _map(row["f"], math.isnan)),
        (
            f"STARTS_WITH(s, {literal_text(text, 'STRING')})",
            lambda row: _map(row["s"], lambda t: t.startswith(text)),
        ),
        (
            f"(i IS DISTINCT FROM {number})",
            lambda row: row["i"] != number,
        ),
    ]
    sql, value = draw(st.sampled_from(choices))
    return Expr(sql, "BOOL", value)


@st.composite
def _negation(draw: Any, depth: int) -> Expr:
    inner = draw(predicates(depth))

    def value(row: Row) -> bool | None:
        found = inner.value(row)
        return None if found is None else not found

    return Expr(f"(NOT {inner.sql})", "BOOL", value)


@st.composite
def _junction(draw: Any, depth: int) -> Expr:
    word, run = draw(st.sampled_from([("AND", every), ("OR", either)]))
    parts = [draw(predicates(depth)) for _ in range(draw(st.integers(2, 3)))]
    sql = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    return Expr(sql, "BOOL", lambda row: run([part.value(row) for part in parts]))


# --- queries --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Select:
    """A query: its text, and its rows as tuples. `ordered` says whether their order is fixed."""

    sql: str
    rows: Callable[[list[Row]], list[tuple[Any, ...]]]
    ordered: bool = False


@st.composite
def projections(draw: Any) -> Select:
    """SELECT expressions FROM t WHERE predicate ORDER BY a column, id LIMIT n."""
    kinds = draw(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=3))
    items = [draw(scalars(kind)) for kind in kinds]
    items += draw(st.lists(predicates(1), min_size=3, max_size=5))
    where = draw(st.just(Expr("TRUE", "BOOL", lambda row: True)) | predicates())
    names = [f.name for f in SCHEMA if f.type in ORDERED and not f.repeated]
    key, descending = draw(st.sampled_from(names)), draw(st.booleans())
    limit = draw(st.none() | st.integers(0, 4))
    columns = ", ".join(f"{item.sql} AS c{n}" for n, item in enumerate(items))
    sql = f"SELECT {columns} FROM d.t WHERE {where.sql} ORDER BY {key}{' DESC' if descending else ''}, id"
    sql += f" LIMIT {limit}" if limit is not None else ""

    def rows(table: list[Row]) -> list[tuple[Any, ...]]:
        kept = [row for row in table if where.value(row) is True]
        kept.sort(key=lambda row: order_key(row[key]), reverse=descending)
        return [tuple(item.value(row) for item in items) for row in kept[:limit]]

    return Select(sql, rows, ordered=True)


def order_key(value: Any) -> tuple[int, Any]:
    """Sorts as ascending ORDER BY does: NULL, NaN, then values."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (2, value)


@st.composite
def unnestings(draw: Any) -> Select:
    """SELECT id, element FROM t, UNNEST(array) AS e WITH OFFSET WHERE ..."""
    number = draw(VALUES["INT64"])
    where = draw(predicates(1))
    outer = draw(st.booleans())
    if draw(st.booleans()):
        join = f"LEFT JOIN UNNEST(arr) AS e WITH OFFSET AS o WHERE {where.sql}"
        if not outer:
            join = (
                f"CROSS JOIN UNNEST(arr) AS e WITH OFFSET AS o WHERE e <> {number} AND {where.sql}"
            )

        def flat(table: list[Row]) -> list[tuple[Any, ...]]:
            out = []
            for row in table:
                if where.value(row) is not True:
                    continue
                pairs = [
                    (row["id"], e, o) for o, e in enumerate(row["arr"]) if outer or e != number
                ]
                out += pairs or ([(row["id"], None, None)] if outer else [])
            return out

        return Select(f"SELECT id, e, o FROM d.t {join}", flat)

    def nested(table: list[Row]) -> list[tuple[Any, ...]]:
        return [
            (row["id"], e["k"], e["v"])
            for row in table
            if where.value(row) is True
            for e in row["sa"]
        ]

    return Select(f"SELECT id, e.k, e.v FROM d.t, UNNEST(sa) AS e WHERE {where.sql}", nested)


@st.composite
def aggregations(draw: Any) -> Select:
    """SELECT key, aggregates FROM t WHERE ... GROUP BY key HAVING COUNT(*) > n."""
    names = [f.name for f in SCHEMA if f.type in ORDERED and not f.repeated and f.name != "id"]
    key = draw(st.sampled_from(["", *names]))
    everything = st.just(Expr("TRUE", "BOOL", lambda row: True))
    where, test = draw(everything | predicates(1)), draw(predicates(1))
    least = draw(st.integers(0, 2))
    value = draw(st.sampled_from(names))
    aggregates: list[tuple[str, Callable[[list[Row]], Any]]] = [
        ("COUNT(*)", len),
        (f"COUNT({value})", lambda rows: len(_present(rows, value))),
        (f"COUNT(DISTINCT {value})", lambda rows: len({_group(v) for v in _present(rows, value)})),
        (f"MIN({value})", lambda rows: _extreme(_present(rows, value), min)),
        (f"MAX({value})", lambda rows: _extreme(_present(rows, value), max)),
        ("SUM(i)", lambda rows: _total(_present(rows, "i"))),
        ("SUM(n)", lambda rows: _total(_present(rows, "n"))),
        ("SUM(g)", lambda rows: _total(_present(rows, "g"))),
        ("AVG(n)", lambda rows: _mean(_present(rows, "n"))),
        ("AVG(i)", lambda rows: _float_mean(_present(rows, "i"))),
        (f"COUNTIF({test.sql})", lambda rows: sum(test.value(row) is True for row in rows)),
        ("LOGICAL_OR(b)", lambda rows: any(_present(rows, "b")) if _present(rows, "b") else None),
        ("LOGICAL_AND(b)", lambda rows: all(_present(rows, "b")) if _present(rows, "b") else None),
    ]
    chosen = draw(st.lists(st.sampled_from(aggregates), min_size=3, max_size=6))
    columns = ", ".join(f"{sql} AS c{n}" for n, (sql, _) in enumerate(chosen))
    sql = f"SELECT {key + ', ' if key else ''}{columns} FROM d.t WHERE {where.sql}"
    sql += f" GROUP BY {key}" if key else ""
    sql += f" HAVING COUNT(*) > {least}" if least else ""

    def rows(table: list[Row]) -> list[tuple[Any, ...]]:
        kept = [row for row in table if where.value(row) is True]
        groups: dict[Any, list[Row]] = {} if key else {(): kept}
        for row in kept if key else ():
            groups.setdefault(_group(row[key]), []).append(row)
        return [
            (*([members[0][key]] if key else []), *(run(members) for _, run in chosen))
            for members in groups.values()
            if not least or len(members) > least
        ]

    return Select(sql, rows)


def _group(value: Any) -> Any:
    """One key for all NaNs, and one for both zeros."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return (type(value).__name__, value)


def _present(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def _extreme(values: list[Any], pick: Any) -> Any:
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return math.nan
    return pick(values) if values else None


def _total(values: list[Any]) -> Any:
    with decimal.localcontext(prec=200):
        return sum(values[1:], values[0]) if values else None


def _mean(values: list[Decimal]) -> Decimal | None:
    if not values:
        return None
    with decimal.localcontext(prec=200):
        mean = _total(values) / len(values)
        return mean.quantize(Decimal("1e-9"), decimal.ROUND_HALF_UP)


def _float_mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


def plain(value: Any) -> Any:
    """Returns a value so that equal ones compare equal: NaN too, and zeros of either sign."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize(decimal.Context(prec=100)) + 0
    return value
