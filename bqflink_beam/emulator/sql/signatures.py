"""Which functions BigQuery has, of those known here, and how many arguments they take.

The parser knows the functions of thirty databases and takes any number of arguments, so
names and counts are checked before anything else looks at them.
"""

from collections.abc import Sequence
from typing import Any

from sqlglot.tokens import Token, TokenType

from bqflink_beam.emulator.sql.invalid import InvalidQuery

_MANY = 1 << 30
_ONE = (
    "ABS BYTE_LENGTH CEIL CEILING CHAR_LENGTH CHARACTER_LENGTH COUNTIF DATE_FROM_UNIX_DATE ERROR "
    "FLOOR FROM_HEX IS_INF IS_NAN LENGTH LOWER OCTET_LENGTH RANGE_END RANGE_START "
    "REVERSE SIGN SQRT TIMESTAMP_MICROS TIMESTAMP_MILLIS TIMESTAMP_SECONDS TO_BASE64 TO_HEX "
    "UNIX_DATE UNIX_MICROS UNIX_MILLIS UNIX_SECONDS UPPER ARRAY_LENGTH ARRAY_REVERSE"
)
_TWO = (
    "DIV ENDS_WITH IEEE_DIVIDE IFNULL LEFT MOD NULLIF RANGE_CONTAINS REGEXP_CONTAINS REPEAT "
    "RIGHT SAFE_DIVIDE STARTS_WITH STRPOS DATE_ADD DATE_SUB DATETIME_ADD DATETIME_SUB "
    "TIMESTAMP_ADD TIMESTAMP_SUB TIME_ADD TIME_SUB"
)
_COUNTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_ONE.split(), (1, 1)),
    **dict.fromkeys(_TWO.split(), (2, 2)),
    **dict.fromkeys(
        ["DATE_DIFF", "DATETIME_DIFF", "TIMESTAMP_DIFF", "TIME_DIFF", "REPLACE", "IF"], (3, 3)
    ),
    **dict.fromkeys(
        ["ROUND", "TRUNC", "TRIM", "LTRIM", "RTRIM", "SPLIT", "LAST_DAY", "TIMESTAMP"], (1, 2)
    ),
    **dict.fromkeys(["DATE", "TIME"], (1, 3)),
    **dict.fromkeys(["CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME"], (0, 1)),
    **dict.fromkeys(
        ["DATE_TRUNC", "DATETIME_TRUNC", "TIMESTAMP_TRUNC", "SUBSTR", "SUBSTRING"], (2, 3)
    ),
    **dict.fromkeys(["FORMAT_DATE", "FORMAT_DATETIME", "FORMAT_TIME"], (2, 2)),
    **dict.fromkeys(["GENERATE_ARRAY", "GENERATE_DATE_ARRAY", "ARRAY_TO_STRING"], (2, 3)),
    **dict.fromkeys(["COALESCE", "CONCAT", "GREATEST", "LEAST", "ARRAY_CONCAT"], (1, _MANY)),
    "CURRENT_TIMESTAMP": (0, 0),
    "GENERATE_TIMESTAMP_ARRAY": (3, 3),
    "GROUPING": (1, 1),
    "NTILE": (1, 1),
    **dict.fromkeys(["MD5", "SHA1", "SHA256", "SHA512"], (1, 1)),
    **dict.fromkeys(["LPAD", "RPAD"], (2, 3)),
    "DATETIME": (1, 6),
    "FORMAT_TIMESTAMP": (2, 3),
    "PARSE_JSON": (1, 2),
    "TIME_TRUNC": (2, 2),
    # What stands in their parentheses is more than arguments.
    **dict.fromkeys(
        [
            "ANY_VALUE",
            "APPROX_COUNT_DISTINCT",
            "ARRAY",
            "ARRAY_AGG",
            "AVG",
            "COUNT",
            "FIRST_VALUE",
            "LAG",
            "LAST_VALUE",
            "LEAD",
            "LOGICAL_AND",
            "LOGICAL_OR",
            "MAX",
            "MIN",
            "STRING_AGG",
            "SUM",
        ],
        (1, _MANY),
    ),
    **dict.fromkeys(["DENSE_RANK", "RANK", "ROW_NUMBER"], (0, 0)),
}
_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
_SYNTAX = frozenset({"STRUCT"})
# Behind these a name in front of a parenthesis is a table's, an alias or a member; behind a
# star or the list of its EXCEPT it is the word REPLACE.
_NO_CALL = frozenset(
    {
        TokenType.INSERT, TokenType.INTO, TokenType.TABLE, TokenType.EXISTS, TokenType.ALIAS, TokenType.DOT, TokenType.STAR,
        TokenType.R_PAREN,
    }
)  # fmt: skip


def check_name(node: Any) -> None:
    """Refuses a function that the parser has from another database.

    Raises:
        InvalidQuery: BigQuery has no function of that name.
    """
    name = called(node)
    if name is not None and name.upper() not in _COUNTS and name.upper() not in _SYNTAX:
        raise InvalidQuery(f"Function not found: {name}")


def called(node: Any) -> str | None:
    """Returns the name that a query calls a function by; None if it is written otherwise."""
    name = node.meta.get("bigquery_name")
    return name if isinstance(name, str) else None


def check_counts(tokens: Sequence[Token]) -> None:
    """Refuses calls with too few or too many arguments.

    Raises:
        InvalidQuery: one call of the text has.
    """
    for at in range(len(tokens) - 1):
        limits = _COUNTS.get(tokens[at].text.upper())
        if limits is None or tokens[at + 1].token_type != TokenType.L_PAREN:
            continue
        quoted = tokens[at].token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if quoted or (at and tokens[at - 1].token_type in _NO_CALL):
            continue
        count = _arguments(tokens, at + 2)
        if not limits[0] <= count <= limits[1]:
            raise InvalidQuery(
                f"No matching signature for function {tokens[at].text.upper()} "
                f"with {count} argument{'' if count == 1 else 's'}"
            )


def _arguments(tokens: Sequence[Token], at: int) -> int:
    """Returns how many arguments stand between the parenthesis before `at` and its end."""
    if at < len(tokens) and tokens[at].token_type == TokenType.R_PAREN:
        return 0
    depth, count = 0, 1
    for token in tokens[at:]:
        if token.token_type in _CLOSING:
            depth += 1
        elif token.token_type in _CLOSING.values():
            if depth == 0:
                break
            depth -= 1
        elif token.token_type == TokenType.COMMA and depth == 0:
            count += 1
    return count
