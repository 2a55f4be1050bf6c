"""The Storage API's ``TableSchema`` message <-> the model."""

from typing import Any

from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.schema.model import Field, TableSchema

_Schema = types.TableSchema.pb()
_Field = types.TableFieldSchema.pb()
_TYPE = _Field.DESCRIPTOR.enum_types_by_name["Type"]
_MODE = _Field.DESCRIPTOR.enum_types_by_name["Mode"]

# The message's names that are not the model's.
_MODEL_NAME = {"DOUBLE": "FLOAT64"}
_MESSAGE_NAME = {ours: theirs for theirs, ours in _MODEL_NAME.items()}
_NUMBERS = ("max_length", "precision", "scale")
_TEXTS = ("description", "default_value_expression")


def from_message(message: Any) -> TableSchema:
    """Reads a ``TableSchema`` message.

    Raises:
        ConfigError: a column has a type that this version does not know.
    """
    return TableSchema(tuple(_field_from(field) for field in message.fields))


def to_message(schema: TableSchema) -> Any:
    """Returns the ``TableSchema`` message."""
    return _Schema(fields=[_field_to(field) for field in schema])


def _field_from(message: Any) -> Field:
    kind = _type_name(message.type_)
    mode = _MODE.values_by_number[message.mode].name if message.mode else "NULLABLE"
    element = None
    if message.HasField("range_element_type"):
        element = _type_name(message.range_element_type.type_)
    return Field(
        name=message.name,
        type=_MODEL_NAME.get(kind, kind),
        mode=mode,
        fields=tuple(_field_from(field) for field in message.fields),
        # proto3 cannot tell 0 from unset, and 0 is no length or precision a column can have.
        max_length=message.max_length or None,
        precision=message.precision or None,
        scale=message.scale or None,
        range_element_type=element,
        timestamp_precision=(
            message.timestamp_precision.value if message.HasField("timestamp_precision") else None
        ),
        default_value_expression=message.default_value_expression or None,
        description=message.description or None,
    )


def _type_name(number: int) -> str:
    """Returns the name of a type, or its number: the model then says that it knows no such type."""
    known = _TYPE.values_by_number.get(number)
    return known.name if known is not None else str(number)


def _field_to(field: Field) -> Any:
    message = _Field(
        name=field.name,
        type_=_TYPE.values_by_name[_MESSAGE_NAME.get(field.type, field.type)].number,
        mode=_MODE.values_by_name[field.mode].number,
        fields=[_field_to(inner) for inner in field.fields],
    )
    for name in (*_NUMBERS, *_TEXTS):
        value = getattr(field, name)
        if value is not None:
            setattr(message, name, value)
    if field.range_element_type is not None:
        message.range_element_type.type_ = _TYPE.values_by_name[field.range_element_type].number
    if field.timestamp_precision is not None:
        message.timestamp_precision.value = field.timestamp_precision
    return message
