"""The JSON types of what REST bodies hold, by name: checked before any method looks inside.

A name means the same in every resource but for `query`, `fields`, `type`, `start` and
`end`, which are left to the methods. NULL is allowed everywhere, and so are unknown names.
"""

from collections.abc import Mapping
from typing import Any

from bqflink_beam.emulator.api_errors import invalid


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OBJECTS = _names("""tableReference datasetReference jobReference configuration load copy extract destinationTable
    sourceTable schema timePartitioning rangePartitioning range clustering view materializedView
    tableConstraints primaryKey labels defaultDataset parameterType parameterValue arrayType
    structValues rangeValue rangeElementType policyTags formatOptions parquetOptions csvOptions
    destinationEncryptionConfiguration destinationTableProperties encryptionConfiguration
    snapshotDefinition externalDataConfiguration destination""")
_LISTS_OF_OBJECTS = _names(
    "rows sourceTables queryParameters structTypes arrayValues access sourceObjects"
)
_LISTS_OF_TEXTS = _names(
    "sourceUris destinationUris schemaUpdateOptions columns names decimalTargetTypes"
)
_TEXTS = _names("""projectId datasetId tableId jobId location writeDisposition createDisposition sourceFormat
    name mode description destinationFormat compression fieldDelimiter quote nullMarker encoding
    templateSuffix friendlyName operationType destinationUri parameterMode roundingMode field
    defaultValueExpression kmsKeyName maxStaleness""")
_INTEGERS = _names("""maxResults timeoutMs maxBadRecords skipLeadingRows expirationMs expirationTime maxLength
    defaultTableExpirationMs precision scale jobTimeoutMs maximumBytesBilled timestampPrecision
    interval""")
_BOOLEANS = _names("""useLegacySql dryRun skipInvalidRows ignoreUnknownValues autodetect allowJaggedRows
    allowQuotedNewlines useAvroLogicalTypes printHeader requirePartitionFilter enableListInference
    useInt64Timestamp""")
_OPAQUE = frozenset({"json", "metadata", "labels"})
_INT64_MAX = (1 << 63) - 1


def check_shape(value: Any, path: str = "") -> None:
    """Checks a JSON body.

    Raises:
        Refused: a value has another JSON type than its name says.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if item is not None and not _fits(key, item):
                raise invalid(f"Invalid value at '{where}': {str(item)[:100]}")
            if key == "structValues" and item is not None:
                # Its names are the caller's, and say nothing about what they hold.
                check_shape(list(item.values()), where)
            elif key not in _OPAQUE:
                check_shape(item, where)
    elif isinstance(value, list):
        for item in value:
            check_shape(item, path)


def _fits(key: str, item: Any) -> bool:
    if key in _OBJECTS:
        return isinstance(item, Mapping)
    if key in _LISTS_OF_OBJECTS:
        return isinstance(item, list) and all(isinstance(one, Mapping) for one in item)
    if key in _LISTS_OF_TEXTS:
        return isinstance(item, list) and all(isinstance(one, str) for one in item)
    if key in _TEXTS:
        return isinstance(item, str)
    if key in _BOOLEANS:
        return isinstance(item, bool) or item in ("true", "false")
    if key in _INTEGERS:
        return _is_integer(item)
    if key == "fields":
        kinds = {isinstance(one, str) for one in item} if isinstance(item, list) else {None}
        texts = kinds <= {True}
        return texts or (kinds == {False} and all(isinstance(one, Mapping) for one in item))
    if key == "query":
        return isinstance(item, str | Mapping)
    if key == "type":
        return isinstance(item, str | Mapping)
    return True


def _is_integer(item: Any) -> bool:
    if isinstance(item, str):
        digits = item.removeprefix("-")
        return digits.isascii() and digits.isdigit() and int(digits) <= _INT64_MAX
    return isinstance(item, int) and not isinstance(item, bool) and abs(item) <= _INT64_MAX
