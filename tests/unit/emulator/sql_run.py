"""One query without tables, for tests of what expressions answer."""

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import compile_text


class _NoTables:
    def table(self, path, at_s):
        raise Refused(f"Not found: Table {'.'.join(path)}", code="NOT_FOUND")


def rows(sql):
    """Returns a query's rows as tuples."""
    return [tuple(row.values()) for row in _run(sql)]


def named_rows(sql):
    """Returns a query's rows as dicts."""
    return _run(sql)


def column(sql):
    """Returns the values of a query's first column."""
    return [row[0] for row in rows(sql)]


def value(expression):
    """Returns what one expression is."""
    (found,) = column(f"SELECT {expression}")
    return found


def _run(sql):
    return compile_text(sql, _NoTables(), now_s=1_600_000_000.25).run().to_pylist()
