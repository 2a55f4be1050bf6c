"""Record batches -> serialized proto rows, without a Python object per value.

A field of all rows at once becomes one or two Arrow arrays of bytes (tag and varint,
or tag with length and payload), and Arrow joins those of all fields row by row. Texts
are not even copied before that. Columns whose Arrow type is not the one of a read
session go through `values.converter` like any other value; so nothing is accepted
here that the other codecs refuse.
"""

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.codec import arrow as codec
from bqflink_beam.codec import rows, temporals, values
from bqflink_beam.errors import ConfigError, RowError, shorten
from bqflink_beam.schema import arrow, proto
from bqflink_beam.schema.model import Field, TableSchema

_Pieces = list[pa.Array]
_Encode = Callable[[pa.Array], pa.Array]

_FAILURES = (*rows.FAILURES, pa.ArrowException)
_VARINT, _FIXED64, _LENGTH = 0, 1, 2
# Numbers from here on take one more byte, from 2 bytes up.
_VARINT_STEPS = np.array([1 << 7 * groups for groups in range(1, 10)], dtype=np.uint64)


class BatchToProto:
    """Turns record batches of one Arrow schema into rows of one table.

    Columns are matched by name without case; a column of the table that the batch has
    not is unset. Rows decode to the same values as those of `RowEncoder`.
    """

    def __init__(self, arrow_schema: pa.Schema, schema: TableSchema) -> None:
        """Plans the encoding.

        Raises:
            ConfigError: the batches have a column that the table has not, lack a
                REQUIRED one, or have lists where the table has none.
        """
        self.descriptor = proto.descriptor(schema)
        self._arrow_schema = arrow_schema
        self._schema = schema
        self._encode = _message(list(arrow_schema), schema.fields, "")

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the rows of a batch, each a serialized message of `descriptor`.

        Raises:
            RowError: a row that cannot be written; says which, where, what and why.
            ConfigError: the batch has another schema than the one that is planned for.
        """
        if batch.schema != self._arrow_schema:
            raise ConfigError(
                f"the batch has the schema {shorten(batch.schema)}, "
                f"expected was {shorten(self._arrow_schema)}"
            )
        try:
            return self._encode(batch.columns, batch.num_rows, 0).to_pylist()  # type: ignore[no-any-return]
        except _FAILURES as error:
            for index, row in enumerate(
                codec.BatchDecoder(self._arrow_schema, self._schema).rows(batch)
            ):
                rows.explain_in_batch(self._schema.fields, index, row)
            raise RowError(f"the batch cannot be encoded: {error}") from error


def _message(
    columns: Sequence[pa.Field], fields: Sequence[Field], owner: str
) -> Callable[[Sequence[pa.Array], int, int], pa.Array]:
    """Returns the function that joins the fields of all rows to one message each.

    It takes the columns, the number of rows, and how many of these are NULL.
    """
    columns = [column.with_type(arrow.plain_type(column.type)) for column in columns]
    places = {column.name.lower(): index for index, column in enumerate(columns)}
    known = {field.name.lower() for field in fields}
    for column in columns:
        if column.name.lower() not in known or len(places) != len(columns):
            raise ConfigError(
                f"the table has no column {owner}{column.name}, or the batch has it twice",
                column=f"{owner}{column.name}",
            )
    plan = []
    for number, field in enumerate(fields, 1):
        place = places.get(field.name.lower())
        if place is not None:
            needed = field.required and not rows.never_null(field)
            plan.append((place, needed, _field(columns[place], field, number, owner)))
        elif field.required and not rows.never_null(field):
            raise ConfigError(
                f"{owner}{field.name} is REQUIRED and the batch has no such column",
                column=f"{owner}{field.name}",
            )

    def encode(arrays: Sequence[pa.Array], count: int, nulls: int) -> pa.Array:
        pieces: _Pieces = []
        for place, needed, pieces_of in plan:
            array = codec.plain(arrays[place])
            # Where a STRUCT is NULL, so is all that is in it.
            if needed and array.null_count > nulls:
                raise RowError("NULL in a REQUIRED column")
            pieces += pieces_of(array)
        return _joined(pieces) if pieces else pa.array([b""] * count, pa.binary())

    return encode


def _joined(pieces: _Pieces) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def _field(
    column: pa.Field, field: Field, number: int, owner: str
) -> Callable[[pa.Array], _Pieces]:
    """Returns the function that encodes one field of all rows, tag included."""
    if pa.types.is_null(column.type):
        return lambda array: []
    if arrow.is_list(column.type) != field.repeated:
        have = "a list" if arrow.is_list(column.type) else "no list"
        raise ConfigError(
            f"{owner}{field.name} is {field.mode}, and in the batch it is {have}",
            column=f"{owner}{field.name}",
        )
    if field.repeated:
        return _list(column.type.value_field, field, number, owner)
    return _value(column, field, number, owner)


def _list(item: pa.Field, field: Field, number: int, owner: str) -> Callable[[pa.Array], _Pieces]:
    packed = _kind(field) in _NUMBERS or field.type == "FLOAT64"
    item = item.with_type(arrow.plain_type(item.type))
    # The items of a packed field have no tags of their own.
    pieces_of = _value(item, field, None if packed else number, owner)
    tag = _tag(number, _LENGTH)

    def pieces(array: pa.Array) -> _Pieces:
        items = codec.plain(array.flatten())
        if items.null_count:
            raise RowError("NULL in an ARRAY")
        stops = np.cumsum(codec.integers(array.value_lengths()), dtype=np.int64)
        grouped = _regrouped(_joined(pieces_of(items)), stops)
        if not packed:
            return [grouped]
        lengths = _lengths(grouped)
        return [_varints(tag, lengths, lengths == 0), grouped]

    return pieces


# --- values ----------------------------------------------------------------------------


def _kind(field: Field) -> str:
    return "PICOS" if field.timestamp_precision == 12 else field.type


def _value(
    column: pa.Field, field: Field, number: int | None, owner: str
) -> Callable[[pa.Array], _Pieces]:
    """Returns the function that encodes values, with tags if there is a number; NULL is empty."""
    kind = _kind(field)
    canonical = _canonical(column, field) if kind != "STRUCT" else None
    if canonical and kind in _NUMBERS:
        numbers, tag = _NUMBERS[kind], _tag(number, _VARINT)

        def encode_numbers(array: pa.Array) -> _Pieces:
            array = canonical(array)
            return [_varints(tag, numbers(array), _absent(array))]

        return encode_numbers
    if canonical and kind == "FLOAT64":
        tag = _tag(number, _FIXED64)
        return lambda array: [_doubles(tag, canonical(array))]
    tag = _tag(number, _LENGTH)
    payload_of = _struct(column, field, owner) if canonical is None else _payload(field, kind)

    def encode_payloads(array: pa.Array) -> _Pieces:
        payload = payload_of(canonical(array) if canonical else array)
        return [_varints(tag, _lengths(payload), _absent(array)), payload]

    return encode_payloads


def _struct(column: pa.Field, field: Field, owner: str) -> _Encode:
    if not pa.types.is_struct(column.type):
        raise ConfigError(
            f"{owner}{field.name} is a STRUCT, and in the batch it is {column.type}",
            column=f"{owner}{field.name}",
        )
    inner = [column.type.field(index) for index in range(column.type.num_fields)]
    message = _message(inner, field.fields, f"{owner}{field.name}.")
    return lambda array: message(array.flatten(), len(array), array.null_count)


def _payload(field: Field, kind: str) -> _Encode:
    if kind == "RANGE":
        element = field.range_element_type or ""
        return lambda array: _ranges(array, element)
    return _PAYLOADS[kind]


def _canonical(column: pa.Field, field: Field) -> _Encode:
    """Returns the function that brings a column to the one Arrow type of its BigQuery type."""
    type_ = arrow.arrow_type(field)
    plain = not (field.max_length or field.precision or _kind(field) == "PICOS")
    if plain and column.type == type_:
        return lambda array: array
    fits = _NATIVE.get(field.type)
    if plain and fits is not None and fits(column.type):
        return lambda array: array.cast(type_)
    decode = codec.value_decoder(column, field)
    encode = codec.value_encoder(field, None)
    return lambda array: encode(decode(array))


_NATIVE: dict[str, Callable[[pa.DataType], bool]] = {
    "STRING": arrow.is_text,
    "GEOGRAPHY": arrow.is_text,
    "JSON": arrow.is_text,
    "BYTES": arrow.is_bytes,
    "INT64": pa.types.is_integer,
    "FLOAT64": pa.types.is_floating,
    "BOOL": pa.types.is_boolean,
    "NUMERIC": pa.types.is_decimal,
    "BIGNUMERIC": pa.types.is_decimal,
    "DATE": pa.types.is_date,
    "TIME": pa.types.is_time,
    "DATETIME": lambda type_: pa.types.is_timestamp(type_) and type_.tz is None,
    "TIMESTAMP": arrow.has_zone,
}


def _bounded(array: pa.Array, least: int, greatest: int) -> Any:
    codec.check_bounds(array, least, greatest)
    return codec.integers(array)


def _dates(array: pa.Array) -> Any:
    return _bounded(array.view(pa.int32()), temporals.DAYS_MIN, temporals.DAYS_MAX)


def _instants(array: pa.Array) -> Any:
    return _bounded(array.view(pa.int64()), temporals.MICROS_MIN, temporals.MICROS_MAX)


def _times(array: pa.Array) -> Any:
    return _packed_clock(_bounded(array.view(pa.int64()), 0, temporals.DAY_MICROS - 1))


def _civils(array: pa.Array) -> Any:
    days, clock = np.divmod(_instants(array), temporals.DAY_MICROS)
    dates = days.view("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = months.astype("datetime64[Y]")
    date_bits = (
        (years.astype(np.int64) + 1970) << 26
        | ((months - years.astype("datetime64[M]")).astype(np.int64) + 1) << 22
        | ((dates - months.astype("datetime64[D]")).astype(np.int64) + 1) << 17
    )
    return date_bits << 20 | _packed_clock(clock)


def _packed_clock(micros: Any) -> Any:
    """Returns times of day as the service's bit fields."""
    seconds, micros = np.divmod(micros, 1_000_000)
    minutes, seconds = np.divmod(seconds, 60)
    hours, minutes = np.divmod(minutes, 60)
    return (hours << 12 | minutes << 6 | seconds) << 20 | micros


def _texts(array: pa.Array) -> pa.Array:
    # Arrow itself trusts whoever made the batch that texts are UTF-8.
    array.validate(full=True)
    return array.cast(pa.binary())


def _bytes(array: pa.Array) -> pa.Array:
    return array


def _json(array: pa.Array) -> pa.Array:
    for text in array.to_pylist():
        if text is not None:
            values.json_(text)
    return array.cast(pa.binary())


def _decimals(array: pa.Array) -> pa.Array:
    """Decimals as plain text, without the zeros that Arrow fills them up with."""
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        texts = pa.array(
            [
                text if text is None or "E" not in text else format(decimal.Decimal(text), "f")
                for text in texts.to_pylist()
            ],
            pa.string(),
        )
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".").cast(pa.binary())


def _intervals(array: pa.Array) -> pa.Array:
    texts = [
        None if each is None else str(values.interval(each)) for each in codec.intervals(array)
    ]
    return pa.array(texts, pa.string()).cast(pa.binary())


def _ranges(array: pa.Array, element: str) -> pa.Array:
    starts, ends = array.flatten()
    if pc.any(pc.greater_equal(starts, ends)).as_py():
        raise RowError("needs its start before its end")
    numbers = _NUMBERS[element]
    return _joined(
        [
            _varints(_tag(number, _VARINT), numbers(bound), _absent(bound))
            for number, bound in enumerate((starts, ends), 1)
        ]
    )


_NUMBERS: dict[str, Callable[[pa.Array], Any]] = {
    "INT64": codec.integers,
    "BOOL": codec.integers,
    "DATE": _dates,
    "TIME": _times,
    "DATETIME": _civils,
    "TIMESTAMP": _instants,
}
_PAYLOADS: dict[str, _Encode] = {
    "STRING": _texts,
    "GEOGRAPHY": _texts,
    "PICOS": _texts,
    "JSON": _json,
    "BYTES": _bytes,
    "NUMERIC": _decimals,
    "BIGNUMERIC": _decimals,
    "INTERVAL": _intervals,
}


# --- bytes -----------------------------------------------------------------------------


def _tag(number: int | None, wire_type: int) -> bytes:
    return b"" if number is None else proto.varint(number << 3 | wire_type)


def _absent(array: pa.Array) -> Any:
    """Returns where there is NULL, None if there is none."""
    return codec.nulls(array) if array.null_count else None


def _varints(tag: bytes, numbers: Any, absent: Any) -> pa.Array:
    """Encodes integers as tag and varint, negative ones as 64 bits; absent ones as nothing."""
    unsigned = numbers.astype(np.int64).view(np.uint64)
    widths = np.searchsorted(_VARINT_STEPS, unsigned, side="right") + 1
    width_max = int(widths.max()) if len(widths) else 1
    shifts = np.arange(0, 7 * width_max, 7, dtype=np.uint64)
    data = np.empty((len(unsigned), len(tag) + width_max), dtype=np.uint8)
    data[:, : len(tag)] = np.frombuffer(tag, dtype=np.uint8)
    data[:, len(tag) :] = unsigned[:, None] >> shifts & np.uint64(0x7F) | np.uint64(0x80)
    widths += len(tag)
    data[np.arange(len(data)), widths - 1] &= 0x7F
    return _rows(data, widths, absent)


def _doubles(tag: bytes, array: pa.Array) -> pa.Array:
    """Encodes doubles as tag and eight bytes; NULL as nothing."""
    data = np.empty((len(array), len(tag) + 8), dtype=np.uint8)
    data[:, : len(tag)] = np.frombuffer(tag, dtype=np.uint8)
    numbers = codec.integers(array).astype("<f8")
    data[:, len(tag) :] = numbers.view(np.uint8).reshape(-1, 8)
    return _rows(data, np.full(len(data), len(tag) + 8), _absent(array))


def _rows(data: Any, widths: Any, absent: Any) -> pa.Array:
    """Returns the first bytes of each row of a matrix, as many as its width says."""
    if absent is not None:
        widths[absent] = 0
    offsets = np.zeros(len(widths) + 1, dtype=np.int32)
    np.cumsum(widths, out=offsets[1:])
    if int(offsets[-1]) != data.size:
        data = data[np.arange(data.shape[1]) < widths[:, None]]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(widths), buffers)


def _offsets(array: pa.Array) -> Any:
    if len(array) == 0:
        return np.zeros(1, dtype=np.int32)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _lengths(array: pa.Array) -> Any:
    """Returns the lengths of bytes; those of NULLs mean nothing."""
    return np.diff(_offsets(array))


def _regrouped(array: pa.Array, stops: Any) -> pa.Array:
    """Joins the bytes of each list's items; they lie one after another already."""
    offsets = _offsets(array)[np.concatenate(([0], stops))]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), array.buffers()[2]]
    return pa.Array.from_buffers(pa.binary(), len(stops), buffers)
