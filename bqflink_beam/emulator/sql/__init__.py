"""The SQL of the embedded BigQuery: BigQuery's dialect in, exact results or a refusal out.

sqlglot parses; the modules here give every expression its BigQuery type and write DuckDB
text for the constructs they know, one by one. What they do not know is refused by name.

    query = compile_text("SELECT name FROM d.t", catalog, now_s=0.0)
    table = query.run()                               # Arrow, with query.schema
    kept = filter_rows(schema, batch, "id > 10")      # a row restriction
"""

from bqflink_beam.emulator.sql.invalid import InvalidQuery
from bqflink_beam.emulator.sql.run import Query, RowFilter, compile_text, filter_rows
from bqflink_beam.emulator.sql.scope import Catalog, TableInput, ViewInput

__all__ = [
    "Catalog",
    "InvalidQuery",
    "Query",
    "RowFilter",
    "TableInput",
    "ViewInput",
    "compile_text",
    "filter_rows",
]
