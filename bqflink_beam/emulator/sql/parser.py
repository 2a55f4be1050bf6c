"""The parser of BigQuery's dialect, with some functions left as they are written.

For many functions the parser makes a node that fits thirty databases: formats are rewritten,
JSON paths taken apart, names that differ in meaning become one. Functions named here are
kept as a name and its arguments, for `named` to read.
"""

from typing import Any

import sqlglot
from sqlglot.tokens import Token

DIALECT = sqlglot.Dialect.get_or_raise("bigquery")
_Base: Any = type(DIALECT.parser())

PLAIN = frozenset({
    "ASCII", "BIT_COUNT", "BOOL", "CHR", "CODE_POINTS_TO_STRING", "FLOAT64", "FORMAT",
    "FORMAT_DATE", "FORMAT_DATETIME", "FORMAT_TIME", "FORMAT_TIMESTAMP", "FROM_BASE64",
    "FROM_HEX", "INITCAP", "INSTR", "INT64", "JSON_EXTRACT", "JSON_EXTRACT_ARRAY",
    "JSON_EXTRACT_SCALAR", "JSON_EXTRACT_STRING_ARRAY", "JSON_QUERY", "JSON_QUERY_ARRAY",
    "JSON_TYPE", "JSON_VALUE", "JSON_VALUE_ARRAY", "PARSE_DATE", "PARSE_DATETIME", "PARSE_TIME",
    "PARSE_TIMESTAMP", "REGEXP_EXTRACT", "REGEXP_EXTRACT_ALL", "REGEXP_INSTR", "REGEXP_REPLACE",
    "REGEXP_SUBSTR", "SAFE_ADD", "SAFE_CONVERT_BYTES_TO_STRING", "SAFE_DIVIDE", "SAFE_MULTIPLY",
    "SAFE_NEGATE", "SAFE_SUBTRACT", "STRING", "TO_CODE_POINTS", "TO_JSON_STRING", "TRANSLATE",
    "UNICODE",
})  # fmt: skip
"""Functions whose calls come out as `exp.Anonymous`."""


class _Parser(_Base):  # type: ignore[misc]  # the base is found at run time
    FUNCTIONS = {name: make for name, make in _Base.FUNCTIONS.items() if name not in PLAIN}
    FUNCTION_PARSERS = {
        name: read for name, read in _Base.FUNCTION_PARSERS.items() if name not in PLAIN
    }


def statements_of(tokens: list[Token], text: str) -> list[Any]:
    """Returns the parsed statements of a text's tokens."""
    found: list[Any] = _Parser(dialect=DIALECT).parse(tokens, text)
    return found
