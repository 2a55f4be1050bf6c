"""Table schemas in the three languages of the service: REST, Arrow and the Write API's proto.

Own code: the package's codecs are not used here, so that an error in them shows.
Arrow types are those that the Storage Read API serves, one for one, so that stored
chunks go out as they are. TIMESTAMP(12) is stored as text with twelve digits.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field, TableSchema

PARTITION_TIME = "_PARTITIONTIME"
"""Pseudo column of tables that are partitioned by ingestion time."""

CHANGE_TYPE = "_CHANGE_TYPE"
CHANGE_SEQUENCE = "_CHANGE_SEQUENCE_NUMBER"

_SCALARS = {
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "INT64": pa.int64(),
    "FLOAT64": pa.float64(),
    "BOOL": pa.bool_(),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "JSON": pa.string(),
    "GEOGRAPHY": pa.string(),
    "INTERVAL": pa.month_day_nano_interval(),
}
_METADATA = {
    "GEOGRAPHY": {
        b"ARROW:extension:name": b"google:sqlType:geography",
        b"ARROW:extension:metadata": b'{"encoding": "WKT"}',
    },
    "DATETIME": {b"ARROW:extension:name": b"google:sqlType:datetime"},
    "JSON": {b"ARROW:extension:name": b"google:sqlType:json"},
}
# REST answers use the names of legacy SQL for these, whatever the table was made with.
_REST_NAMES = {"INT64": "INTEGER", "FLOAT64": "FLOAT", "BOOL": "BOOLEAN", "STRUCT": "RECORD"}


# --- Arrow -----------------------------------------------------------------------------


def is_picos(field: Field) -> bool:
    """Whether a column is a TIMESTAMP(12)."""
    return field.type == "TIMESTAMP" and field.timestamp_precision == 12


def element_type(field: Field) -> pa.DataType:
    """Returns the Arrow type of one value of a field, its mode left aside."""
    if field.type == "STRUCT":
        return pa.struct([arrow_field(inner) for inner in field.fields])
    if field.type == "RANGE":
        bound = _SCALARS[field.range_element_type or "DATE"]
        return pa.struct([pa.field("start", bound), pa.field("end", bound)])
    if is_picos(field):
        return pa.string()
    return _SCALARS[field.type]


def arrow_type(field: Field) -> pa.DataType:
    """Returns the Arrow type of a column, a list of its elements if it is REPEATED."""
    if field.repeated:
        return pa.list_(
            pa.field(
                "item", element_type(field), nullable=False, metadata=_METADATA.get(field.type)
            )
        )
    return element_type(field)


def arrow_field(field: Field) -> pa.Field:
    """Returns a column as the Storage Read API's Arrow schema has it."""
    return pa.field(
        field.name,
        arrow_type(field),
        nullable=field.mode == "NULLABLE",
        metadata=None if field.repeated else _METADATA.get(field.type),
    )


def arrow_schema(schema: TableSchema) -> pa.Schema:
    """Returns a table's Arrow schema."""
    return pa.schema([arrow_field(field) for field in schema])


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch with exactly the columns of `schema`: by name, NULL where it has none.

    For chunks that are older than a column of their table.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        _conform_array(batch.column(index), field.type)
        if (index := batch.schema.get_field_index(field.name)) >= 0
        else nothing(field.type, batch.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def nothing(kind: pa.DataType, count: int) -> pa.Array:
    """Returns a column of missing values: NULL, or no elements."""
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), count + 1), pa.nulls(0, kind.value_type), type=kind
        )
    return pa.nulls(count, kind)


def _conform_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        have = {field.name: position for position, field in enumerate(array.type)}
        children = [
            _conform_array(array.field(have[field.name]), field.type)
            if field.name in have
            else nothing(field.type, len(array))
            for field in kind
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            _rebased_offsets(array), _conform_array(array.flatten(), kind.value_type), type=kind
        )
    return array.cast(kind)


def _rebased_offsets(array: pa.ListArray) -> pa.Array:
    # A slice keeps its parent's offsets, while flatten() starts at its own first value.
    return pc.subtract(array.offsets, array.offsets[0])


# --- REST ------------------------------------------------------------------------------


def schema_from_rest(schema: Mapping[str, Any]) -> TableSchema:
    """Reads ``{"fields": [...]}`` of a REST resource.

    Raises:
        Refused: INVALID_ARGUMENT, in the words of the model.
    """
    try:
        return TableSchema(tuple(field_from_rest(field) for field in schema.get("fields") or ()))
    except ConfigError as error:
        raise Refused(str(error)) from error


def field_from_rest(field: Mapping[str, Any]) -> Field:
    """Reads one TableFieldSchema."""
    for needed in ("name", "type"):
        if not field.get(needed):
            raise Refused(f"Schema field shouldn't be used as input with a missing {needed}")
    element = (field.get("rangeElementType") or {}).get("type")
    return Field(
        name=field["name"],
        type=field["type"],
        mode=field.get("mode") or "NULLABLE",
        fields=tuple(field_from_rest(inner) for inner in field.get("fields") or ()),
        max_length=_integer(field.get("maxLength")),
        precision=_integer(field.get("precision")),
        scale=_integer(field.get("scale")),
        rounding_mode=field.get("roundingMode"),
        range_element_type=element.upper() if element else None,
        timestamp_precision=_integer(field.get("timestampPrecision")),
        default_value_expression=field.get("defaultValueExpression"),
        description=field.get("description"),
        policy_tags=tuple((field.get("policyTags") or {}).get("names") or ()),
    )


def schema_to_rest(schema: TableSchema) -> dict[str, Any]:
    """Returns the ``schema`` of a REST resource."""
    return {"fields": [field_to_rest(field) for field in schema]}


def field_to_rest(field: Field) -> dict[str, Any]:
    """Returns one TableFieldSchema, 64-bit numbers as text as REST has them."""
    resource: dict[str, Any] = {
        "name": field.name,
        "type": _REST_NAMES.get(field.type, field.type),
        "mode": field.mode,
    }
    if field.fields:
        resource["fields"] = [field_to_rest(inner) for inner in field.fields]
    if field.range_element_type:
        resource["rangeElementType"] = {"type": field.range_element_type}
    if field.policy_tags:
        resource["policyTags"] = {"names": list(field.policy_tags)}
    for key, number in (
        ("maxLength", field.max_length),
        ("precision", field.precision),
        ("scale", field.scale),
        ("timestampPrecision", field.timestamp_precision),
    ):
        if number is not None:
            resource[key] = str(number)
    for key, text in (
        ("roundingMode", field.rounding_mode),
        ("defaultValueExpression", field.default_value_expression),
        ("description", field.description),
    ):
        if text is not None:
            resource[key] = text
    return resource


def _integer(value: object) -> int | None:
    if value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        raise Refused(f"Invalid value for an integer field of the schema: {value!r}") from None


# --- Storage Write's TableSchema ----------------------------------------------------------

_TableFieldSchema = storage_types.TableFieldSchema.pb()
_PROTO_TYPES = {"STRUCT": "STRUCT", "FLOAT64": "DOUBLE"}


def schema_to_proto(schema: TableSchema) -> Any:
    """Returns the ``google.cloud.bigquery.storage.v1.TableSchema`` message of a table."""
    return storage_types.TableSchema.pb()(fields=[_field_to_proto(field) for field in schema])


def _field_to_proto(field: Field) -> Any:
    message = _TableFieldSchema(
        name=field.name,
        type_=_TableFieldSchema.Type.Value(_PROTO_TYPES.get(field.type, field.type)),
        mode=_TableFieldSchema.Mode.Value(field.mode),
        fields=[_field_to_proto(inner) for inner in field.fields],
        description=field.description or "",
        max_length=field.max_length or 0,
        precision=field.precision or 0,
        scale=field.scale or 0,
        default_value_expression=field.default_value_expression or "",
    )
    if field.timestamp_precision is not None:
        message.timestamp_precision.value = field.timestamp_precision
    if field.range_element_type:
        message.range_element_type.type_ = _TableFieldSchema.Type.Value(field.range_element_type)
    return message
