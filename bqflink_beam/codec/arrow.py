"""Rows <-> Arrow record batches, the fast way of both the read and the write API.

Work is done column by column: a column whose values are all of the type that Arrow
itself checks goes in at once, any other value by value through `values.converter`.
"""

import datetime
import decimal
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.codec import rows as _rows
from bqflink_beam.codec import temporals, values
from bqflink_beam.errors import ConfigError, RowError, shorten
from bqflink_beam.schema import arrow
from bqflink_beam.schema.model import Field, TableSchema

_Column = Sequence[Any]
_Values = list[Any]
_FAILURES = (*_rows.FAILURES, pa.ArrowException)


class BatchEncoder:
    """Encodes rows of one schema as record batches.

    It accepts and refuses what `codec.proto.RowEncoder` does, except that a batch is
    refused as a whole. An absent key and None are both NULL, since Arrow has no other.
    """

    def __init__(self, schema: TableSchema, *, rounding: str | None = None) -> None:
        values.check_rounding(rounding)
        self.arrow_schema = arrow.to_arrow(schema)
        self._fields = schema.fields
        self._rounding = rounding
        self._split = _Split(schema.fields)
        self._columns = [_column_encoder(field, rounding) for field in schema]

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Returns the rows as one batch of `arrow_schema`.

        Raises:
            RowError: a row that cannot be written; says which, where, what and why.
        """
        try:
            columns = [
                encode(column)
                for encode, column in zip(self._columns, self._split.columns(rows), strict=True)
            ]
            _check_required(self._fields, columns, self._split, rows)
            return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
        except _FAILURES as error:
            for index, row in enumerate(rows):
                _rows.explain_in_batch(self._fields, index, row, self._rounding)
            raise RowError(f"the rows cannot be encoded: {error}") from error


class BatchDecoder:
    """Decodes record batches of one Arrow schema to rows, about twice as fast as `to_pylist`."""

    def __init__(self, arrow_schema: pa.Schema, schema: TableSchema | None = None) -> None:
        """Plans the decoding.

        Args:
            arrow_schema: the schema of the batches, from a read session.
            schema: the table's schema, if known. Only it tells a RANGE from a STRUCT
                of `start` and `end`, unless the Arrow schema says so itself.
        """
        known = {field.name.lower(): field for field in schema or ()}
        self._names = list(arrow_schema.names)
        self._make = _dict_maker(self._names)
        self._columns = [
            _column_decoder(field, known.get(field.name.lower())) for field in arrow_schema
        ]

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Returns the rows of a batch, each a new dict with every column.

        Raises:
            RowError: a value that no Python type holds, which BigQuery does not send.
            ConfigError: the batch has other columns than the schema.
        """
        if batch.schema.names != self._names:
            raise ConfigError(
                f"the batch has the columns {shorten(batch.schema.names)}, "
                f"the schema {shorten(self._names)}"
            )
        columns = []
        for name, decode, column in zip(self._names, self._columns, batch.columns, strict=True):
            try:
                columns.append(decode(column))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise RowError(f"{name} cannot be read: {error}", column=name) from error
        return _dicts(self._make, columns, batch.num_rows)


# --- encoding --------------------------------------------------------------------------


class _Split:
    """Splits rows, or values of a STRUCT, into columns."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._names = _rows.Names(fields)
        self._keys = [field.name for field in fields]
        # Of one key it would return the bare value.
        self._get = operator.itemgetter(*self._keys, *self._keys[: len(self._keys) == 1])

    def columns(self, rows: Sequence[Any]) -> Sequence[_Column]:
        """Returns a column for each field: None where a row has no such key.

        Raises:
            RowError: a row is no mapping, or has a key that is no column.
        """
        count = len(self._keys)
        # Dicts with as many keys as there are columns, and each column's: nothing is
        # missing or unknown. All this runs outside of Python.
        if set(map(type, rows)) == {dict} and set(map(len, rows)) == {count}:
            try:
                return list(zip(*map(self._get, rows), strict=False))[:count]
            except KeyError:
                pass
        matched = [self._names.match(row) for row in rows]
        return [[row.get(key) for row in matched] for key in self._keys]

    def has_none(self, name: str, rows: Iterable[Any]) -> bool:
        """Says whether a row has the key with None, not only lacks it."""
        return any(self._names.match(row).get(name, _rows.ABSENT) is None for row in rows)


def _check_required(
    fields: Sequence[Field],
    columns: Sequence[pa.Array],
    split: _Split,
    rows: Sequence[Any],
    nulls: int = 0,
) -> None:
    """Refuses NULL in REQUIRED columns; `nulls` rows are NULL themselves."""
    for field, column in zip(fields, columns, strict=True):
        if not field.required or column.null_count == nulls:
            continue
        # Of a column with a default only None is wrong, not a missing key.
        if not _rows.never_null(field) or split.has_none(field.name, rows):
            raise RowError("NULL in a REQUIRED column")


def _column_encoder(field: Field, rounding: str | None) -> Callable[[_Column], pa.Array]:
    encode = value_encoder(field, rounding)
    if not field.repeated:
        return encode
    type_ = arrow.arrow_field(field).type

    def encode_lists(column: _Column) -> pa.Array:
        lists = [
            () if value is None else value if type(value) is list else _rows.items(value)
            for value in column
        ]
        items = encode(list(itertools.chain.from_iterable(lists)))
        if items.null_count:
            raise RowError("NULL in an ARRAY")
        offsets = np.zeros(len(lists) + 1, dtype=np.int32)
        np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_)

    return encode_lists


def value_encoder(field: Field, rounding: str | None) -> Callable[[_Column], pa.Array]:
    """Returns the function that makes an array of values, or of items; None among them is NULL."""
    if field.type == "STRUCT":
        return _struct_encoder(field, rounding)
    type_, read = arrow.arrow_type(field), values.converter(field, rounding)
    kind = "STRING" if type_ == pa.string() else field.type
    exact, fast = _FAST.get(field.type, (None, None))
    # Parameters, and timestamps that are text, are the converter's to check.
    if field.max_length or field.precision or kind != field.type:
        exact = None
    slow = _SLOW.get(kind, _from_plain)

    def encode(column: _Column) -> pa.Array:
        kinds = set(map(type, column))
        kinds.discard(type(None))
        if exact is not None and kinds <= {exact}:
            return (fast or _from_plain)(column, type_)
        return slow([None if value is None else read(value) for value in column], type_)

    return encode


def _from_plain(column: _Column, type_: pa.DataType) -> pa.Array:
    return pa.array(column, type_)


def _from_civil(column: _Column, type_: pa.DataType) -> pa.Array:
    epoch = temporals.EPOCH_CIVIL
    return _from_deltas([None if value is None else value - epoch for value in column], type_)


def _from_instants(column: _Column, type_: pa.DataType) -> pa.Array:
    epoch = temporals.EPOCH
    return _from_deltas([None if value is None else value - epoch for value in column], type_)


def _from_deltas(deltas: _Column, type_: pa.DataType) -> pa.Array:
    """Subtracting an epoch checks for the zone, and is faster than Arrow's own reading."""
    micros = pa.array(deltas, pa.duration("us")).view(pa.int64())
    check_bounds(micros, temporals.MICROS_MIN, temporals.MICROS_MAX)
    return micros.view(type_)


def _from_times(column: _Column, type_: pa.DataType) -> pa.Array:
    if any(value.tzinfo is not None for value in column if value is not None):
        raise RowError("has a zone")
    return pa.array(column, type_)


def _from_integers(column: _Column, type_: pa.DataType) -> pa.Array:
    return pa.array(column, pa.int32() if type_ == pa.date32() else pa.int64()).view(type_)


def _from_bignumerics(column: _Column, type_: pa.DataType) -> pa.Array:
    """Arrow's type has 76 digits, BigQuery's the 256 bits behind it, which hold a little more."""
    wide = decimal.Context(prec=100)
    data = b"".join(
        int(0 if value is None else value.scaleb(38, wide)).to_bytes(32, "little", signed=True)
        for value in column
    )
    valid = pa.array([value is not None for value in column], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(type_, len(column), [valid, pa.py_buffer(data)])


def _from_intervals(column: _Column, type_: pa.DataType) -> pa.Array:
    parts = [
        None if value is None else pa.MonthDayNano([value.months, value.days, value.micros * 1_000])
        for value in column
    ]
    return pa.array(parts, type_)


def _from_ranges(column: _Column, type_: pa.DataType) -> pa.Array:
    fields = [type_.field(index) for index in range(2)]
    bounds = [
        _from_integers([None if pair is None else pair[index] for pair in column], field.type)
        for index, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(bounds, fields=fields, mask=_mask(column))


def _struct_encoder(field: Field, rounding: str | None) -> Callable[[_Column], pa.Array]:
    type_ = arrow.arrow_type(field)
    inner = field.fields
    split = _Split(inner)
    nothing: dict[str, Any] = dict.fromkeys(each.name for each in inner)
    encoders = [_column_encoder(each, rounding) for each in inner]
    arrow_fields = [type_.field(index) for index in range(type_.num_fields)]

    def encode(column: _Column) -> pa.Array:
        structs = [nothing if value is None else value for value in column]
        children = [
            encoder(child) for encoder, child in zip(encoders, split.columns(structs), strict=True)
        ]
        present = [value for value in column if value is not None]
        _check_required(inner, children, split, present, len(column) - len(present))
        return pa.StructArray.from_arrays(children, fields=arrow_fields, mask=_mask(column))

    return encode


def _mask(column: _Column) -> pa.Array | None:
    """Returns what StructArray wants: True where there is NULL."""
    return pa.array([value is None for value in column], pa.bool_())


def check_bounds(numbers: pa.Array, least: int, greatest: int) -> None:
    """Refuses days or microseconds beyond what BigQuery has."""
    found = integers(numbers)
    if len(found) and not (least <= found.min() and found.max() <= greatest):
        raise ValueError("a value lies outside the years 1 to 9999")


_Build = Callable[[_Column, pa.DataType], pa.Array]

# The one Python type of which Arrow, or the function here, refuses all that BigQuery would.
_FAST: dict[str, tuple[type, _Build | None]] = {
    "STRING": (str, None),
    "BYTES": (bytes, None),
    "INT64": (int, None),
    "FLOAT64": (float, None),
    "BOOL": (bool, None),
    "NUMERIC": (decimal.Decimal, None),
    "DATE": (datetime.date, None),
    "TIME": (datetime.time, _from_times),
    "DATETIME": (datetime.datetime, _from_civil),
    "TIMESTAMP": (datetime.datetime, _from_instants),
    "GEOGRAPHY": (str, None),
}
# How an array is made of what `values.converter` returns.
_SLOW: dict[str, _Build] = {
    "BIGNUMERIC": _from_bignumerics,
    "DATE": _from_integers,
    "TIME": _from_integers,
    "DATETIME": _from_integers,
    "TIMESTAMP": _from_integers,
    "INTERVAL": _from_intervals,
    "RANGE": _from_ranges,
}


# --- decoding --------------------------------------------------------------------------


def _dict_maker(names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Returns the function of one value a name that makes a dict of them.

    Written out for the names, for a display is several times faster than `dict(zip())`.
    The text holds nothing of the schema but reprs of names.
    """
    values = [f"v{index}" for index in range(len(names))]
    members = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    make: Callable[..., dict[str, Any]] = eval(f"lambda {', '.join(values)}: {{{members}}}")
    return make


def _dicts(
    make: Callable[..., dict[str, Any]], columns: Sequence[_Values], count: int
) -> list[dict[str, Any]]:
    # `map` would stop at the shortest.
    assert all(len(column) == count for column in columns)
    return list(map(make, *columns)) if columns else [{} for _ in range(count)]


def _column_decoder(field: pa.Field, known: Field | None) -> Callable[[pa.Array], _Values]:
    if not arrow.is_list(field.type):
        return value_decoder(field, known)
    decode = value_decoder(field.type.value_field, known)

    def decode_lists(array: pa.Array) -> _Values:
        items = decode(array.flatten())
        lengths = array.value_lengths()
        stops = np.cumsum(integers(lengths)).tolist()
        return [items[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]

    return decode_lists


def value_decoder(field: pa.Field, known: Field | None) -> Callable[[pa.Array], _Values]:
    """Returns the function that reads an array of values, of items if they are REPEATED."""
    type_ = field.type
    if arrow.plain_type(type_) != type_:
        decode_plain = value_decoder(field.with_type(arrow.plain_type(type_)), known)
        return lambda array: decode_plain(plain(array))
    if pa.types.is_struct(type_):
        if (known and known.type == "RANGE") or arrow.sql_type(field) == "RANGE":
            return _range_decoder(type_)
        return _struct_decoder(type_, known)
    for fits, decode in _DECODERS:
        if fits(type_):
            return decode
    return _plain


def _plain(array: pa.Array) -> _Values:
    return array.to_pylist()  # type: ignore[no-any-return]


def plain(array: pa.Array) -> pa.Array:
    """Returns the values of a dictionary or of runs, which hide how many of them are NULL."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def integers(array: pa.Array) -> Any:
    """Returns numbers or bools as a numpy array, 0 where there is NULL."""
    if array.null_count:
        array = array.fill_null(pa.scalar(0).cast(array.type))
    return array.to_numpy(zero_copy_only=False)


def _nulled(array: pa.Array, column: _Values) -> _Values:
    """Puts None where the array has NULL."""
    if array.null_count:
        for index in np.flatnonzero(nulls(array)):
            column[index] = None
    return column


def nulls(array: pa.Array) -> Any:
    """Returns a numpy array that is True where there is NULL."""
    return array.is_null().to_numpy(zero_copy_only=False)


def _dates(array: pa.Array) -> _Values:
    days = array.cast(pa.date32()).view(pa.int32())
    check_bounds(days, temporals.DAYS_MIN, temporals.DAYS_MAX)
    return _nulled(array, integers(days).astype("int64").view("datetime64[D]").tolist())


def _times(array: pa.Array) -> _Values:
    micros = array.cast(pa.time64("us")).view(pa.int64())
    check_bounds(micros, 0, temporals.DAY_MICROS - 1)
    moments = integers(micros).view("datetime64[us]").tolist()
    return _nulled(array, list(map(datetime.datetime.time, moments)))


def _civils(array: pa.Array) -> _Values:
    micros = array.cast(pa.timestamp("us")).view(pa.int64())
    check_bounds(micros, temporals.MICROS_MIN, temporals.MICROS_MAX)
    return _nulled(array, integers(micros).view("datetime64[us]").tolist())


def _instants(array: pa.Array) -> _Values:
    micros = array.cast(pa.timestamp("us", tz=array.type.tz)).view(pa.int64())
    check_bounds(micros, temporals.MICROS_MIN, temporals.MICROS_MAX)
    # Adding to an epoch in UTC is several times faster than replacing the zone.
    deltas = integers(micros).view("timedelta64[us]").tolist()
    return _nulled(array, list(map(temporals.EPOCH.__add__, deltas)))


def _decimals(array: pa.Array) -> _Values:
    texts = array.cast(pa.string())
    if texts.null_count:
        return [None if text is None else decimal.Decimal(text) for text in texts.to_pylist()]
    return list(map(decimal.Decimal, texts.to_pylist()))


def _floats(array: pa.Array) -> _Values:
    return array.cast(pa.float64()).to_pylist()  # type: ignore[no-any-return]


def intervals(array: pa.Array) -> _Values:
    """Returns `Interval` values; Arrow's nanoseconds must be whole microseconds."""
    return [
        None
        if parts is None
        else values.Interval(parts.months, parts.days, _whole_micros(parts.nanoseconds))
        for parts in array.to_pylist()
    ]


def _whole_micros(nanos: int) -> int:
    micros, rest = divmod(nanos, 1_000)
    if rest:
        raise ValueError("an interval has parts of a microsecond")
    return micros


def _struct_decoder(type_: pa.StructType, known: Field | None) -> Callable[[pa.Array], _Values]:
    inner = {field.name.lower(): field for field in known.fields} if known else {}
    fields = [type_.field(index) for index in range(type_.num_fields)]
    make = _dict_maker([field.name for field in fields])
    decoders = [_column_decoder(field, inner.get(field.name.lower())) for field in fields]

    def decode(array: pa.Array) -> _Values:
        children = [
            decoder(child) for decoder, child in zip(decoders, array.flatten(), strict=True)
        ]
        return _nulled(array, _dicts(make, children, len(array)))

    return decode


def _range_decoder(type_: pa.StructType) -> Callable[[pa.Array], _Values]:
    ends = [type_.field(index).name for index in range(type_.num_fields)]
    if sorted(ends) != ["end", "start"]:
        raise ConfigError(f"a RANGE is a struct of start and end, and in the batch it is {type_}")
    decode_start = value_decoder(type_.field("start"), None)
    decode_end = value_decoder(type_.field("end"), None)
    start_first = ends[0] == "start"

    def decode(array: pa.Array) -> _Values:
        starts, stops = array.flatten() if start_first else reversed(array.flatten())
        return _nulled(array, list(map(values.Range, decode_start(starts), decode_end(stops))))

    return decode


_DECODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], _Values]], ...] = (
    (pa.types.is_date, _dates),
    (pa.types.is_time, _times),
    (arrow.has_zone, _instants),
    (pa.types.is_timestamp, _civils),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_floating, _floats),
    (lambda type_: type_ == pa.month_day_nano_interval(), intervals),
)
