"""Breakages of the embedded BigQuery, one rule each, and the test that must notice.

A mutant is a text that stands once in one file of the emulator, and another in its
place. The emulator is loaded again from that source, under its own name and for the
length of a block, and the named tests of the conformance suite run on it.
"""

import contextlib
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import inspect
import itertools
import pathlib
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import pytest

import bqflink_beam

_ROOT = pathlib.Path(bqflink_beam.__file__).parent
_PACKAGES = ("bqflink_beam.emulator", "bqflink_beam.testing.conformance")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `file` of the emulator; `tests` are those that must turn red."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def source(self) -> str:
        text = (_ROOT / "emulator" / self.file).read_text()
        assert text.count(self.old) == 1, f"{self.name}: found {text.count(self.old)} times"
        return text.replace(self.old, self.new)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        module = mutant.file.removesuffix(".py").replace("/", ".")
        self._name = f"bqflink_beam.emulator.{module}"

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        file = str(_ROOT / "emulator" / self._mutant.file)
        loader = _Loader(fullname, file, self._mutant.source())
        return importlib.machinery.ModuleSpec(fullname, loader, origin=file)


@contextlib.contextmanager
def mutated(mutant: Mutant) -> Iterator[ModuleType]:
    """Loads the emulator and the suites anew with a mutant in them; yields the suites."""
    saved = {name: module for name, module in sys.modules.items() if name.startswith(_PACKAGES)}
    parents = (sys.modules["bqflink_beam"], importlib.import_module("bqflink_beam.testing"))
    attributes = [(parent, dict(vars(parent))) for parent in parents]
    finder = _Finder(mutant)
    for name in saved:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        suites = importlib.import_module("bqflink_beam.testing.conformance")
        importlib.import_module("bqflink_beam.testing.conformance.embedded")
        yield suites
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(_PACKAGES)]:
            del sys.modules[name]
        sys.modules.update(saved)
        for parent, before in attributes:
            for name in ("emulator", "conformance"):
                if name in before:
                    setattr(parent, name, before[name])


def failures(mutant: Mutant) -> list[str]:
    """Runs the mutant's tests on it; returns those that failed."""
    with mutated(mutant) as suites:
        red = []
        for name in mutant.tests.split():
            suite = next(
                s for s in (suites.WriteConformance, suites.ReadConformance) if hasattr(s, name)
            )
            for arguments in _cases(getattr(suite, name)):
                if _fails(suites, suite(), name, arguments):
                    red.append(f"{name}{list(arguments.values()) or ''}")
        return red


def _fails(suites: ModuleType, suite: Any, name: str, arguments: dict[str, Any]) -> bool:
    with suites.embedded.direct() as bigquery:
        try:
            getattr(suite, name)(bigquery, **arguments)
        except (Exception, pytest.fail.Exception):
            return True
    return False


def _cases(test: Any) -> Iterator[dict[str, Any]]:
    """Yields the arguments of each case of a parametrized test."""
    axes = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name != "parametrize":
            continue
        names, values = mark.args[0], mark.args[1]
        names = [part.strip() for part in names.split(",")] if isinstance(names, str) else names
        axes.append(
            [
                dict(zip(names, value if len(names) > 1 else (value,), strict=True))
                for value in values
            ]
        )
    known = set(inspect.signature(test).parameters)
    for combination in itertools.product(*axes):
        arguments = {name: value for each in combination for name, value in each.items()}
        assert set(arguments) <= known
        yield arguments


def _m(name: str, file: str, old: str, new: str, tests: str) -> Mutant:
    return Mutant(name, file, old, new, tests)


MUTANTS = [
    # --- streams: flush, finalize, commit, offsets ---
    _m("flush is exclusive", "streams.py", 'state["flushed"], offset + 1)\n            self._put(change, state, flushed=offset + 1)', 'state["flushed"], offset)\n            self._put(change, state, flushed=offset)', "test_flush_is_inclusive"),
    _m("flush writes all rows again", "streams.py", 'append_held(table, name, state["flushed"], offset + 1)', "append_held(table, name, 0, offset + 1)", "test_flushes_add_up_to_each_row_once"),
    _m("flush again is silent", "streams.py", 'if offset < state["flushed"]:', "if False:", "test_flush_again_is_already_exists"),
    _m("flush may go beyond the end", "streams.py", 'if offset >= state["rows"]:', 'if offset > state["rows"]:', "test_flush_beyond_the_end"),
    _m("flush takes any kind of stream", "streams.py", 'if state["kind"] != BUFFERED:', "if False:", "test_flush_of_another_kind"),
    _m("flush works after finalize", "streams.py", 'if state["finalized"]:\n                raise Refused(\n                    f"Stream has been finalized. Entity', 'if False:\n                raise Refused(\n                    f"Stream has been finalized. Entity', "test_flush_after_finalize"),
    _m("buffered rows are visible at once", "streams.py", 'if state["kind"] == COMMITTED:\n                change.append', 'if state["kind"] != PENDING:\n                change.append', "test_flush_is_inclusive"),
    _m("pending rows are visible at once", "streams.py", 'if state["kind"] == COMMITTED:\n                change.append', 'if state["kind"] != BUFFERED:\n                change.append', "test_commit_makes_rows_of_all_streams_visible"),
    _m("an old offset is written again", "streams.py", "if offset < end:", "if False:", "test_second_append_at_an_offset_is_refused"),
    _m("a written offset is a gap", "streams.py", 'storage_error="OFFSET_ALREADY_EXISTS",\n                entity=name,\n            )\n        raise Refused(', 'storage_error="OFFSET_OUT_OF_RANGE",\n                entity=name,\n            )\n        raise Refused(', "test_second_append_at_an_offset_is_refused"),
    _m("offsets are not checked", "streams.py", "if offset is None or offset == end:", "if True:", "test_append_beyond_the_end_is_refused"),
    _m("a gap is accepted", "streams.py", "if offset is None or offset == end:", "if offset is None or offset >= end:", "test_append_beyond_the_end_is_refused"),
    _m("the answer's offset is the end", "streams.py", '        return int(state["rows"])\n\n    def check_append', '        return int(state["rows"]) + chunk.num_rows\n\n    def check_append', "test_offset_of_the_answer"),
    _m("appends after finalize are taken", "streams.py", '        if state["finalized"]:\n            raise Refused(\n                f"Stream has been finalized and', '        if False:\n            raise Refused(\n                f"Stream has been finalized and', "test_append_after_finalize_is_refused"),
    _m("finalize counts one too few", "streams.py", 'return int(state["rows"])\n\n    def flush', 'return int(state["rows"]) - 1\n\n    def flush', "test_finalize_counts_the_rows"),
    _m("finalize does not finalize", "streams.py", "self._put(change, state, finalized=True)", "pass", "test_append_after_finalize_is_refused"),
    _m("an open stream can be committed", "streams.py", 'if not state["finalized"]:\n            raise Refused(\n                f"Stream must be finalized', 'if False:\n            raise Refused(\n                f"Stream must be finalized', "test_one_open_stream_stops_the_whole_commit"),
    _m("a stream can be committed twice", "streams.py", 'if state["commit_s"] is not None:', "if False:", "test_second_commit_doubles_nothing"),
    _m("a commit is not atomic", "streams.py", "            if problems:\n                return None, problems\n", "", "test_one_open_stream_stops_the_whole_commit"),
    _m("any kind of stream can be committed", "streams.py", 'if state["kind"] != PENDING:\n            raise', "if False:\n            raise", "test_commit_of_another_kind"),
    _m("a commit takes streams of other tables", "streams.py", 'if state["uid"] != table.uid:\n            raise', "if False:\n            raise", "test_commit_of_another_tables_stream"),
    _m("a commit forgets its time", "streams.py", "self._put(change, state, commit_s=now_s)", "self._put(change, state)", "test_committed_stream_tells_when test_second_commit_doubles_nothing"),
    _m("streams never expire", "streams.py", "return bool(self._store.clock.now_s() > state", "return bool(False and self._store.clock.now_s() > state", "test_idle_buffered_stream_expires"),
    _m("appends do not keep a stream alive", "streams.py", '{**state, "touched_s": now_s, **changed}', "{**state, **changed}", "test_idle_buffered_stream_expires"),
    _m("a stream outlives its table", "streams.py", 'if state is None or self._too_old(state) or self._table(state) is None:', "if state is None or self._too_old(state):", "test_stream_of_a_dropped_table_is_gone"),
    # --- write: the methods ---
    _m("BASIC view tells the schema", "write.py", "    if full:\n        message.table_schema", "    if True:\n        message.table_schema", "test_basic_view_has_no_schema"),
    _m("the default stream can be finalized", "write.py", 'if stream == "_default":\n            raise stream_not_found(request.name)\n        rows = acting.deliver(lambda: self.streams.finalize(request.name))', 'rows = 0 if stream == "_default" else self.streams.finalize(request.name)', "test_default_stream_cannot_be_finalized"),
    _m("a stream may be listed twice", "write.py", "if len(set(names)) < len(names):", "if False:", "test_stream_listed_twice_is_written_once_at_most"),
    _m("a commit of nothing succeeds", "write.py", "if not names or len(names)", "if len(names)", "test_commit_of_nothing"),
    _m("commit_time is always set", "write.py", "if commit_s is not None:\n            response", "commit_s = commit_s or 1.0\n        if commit_s is not None:\n            response", "test_one_open_stream_stops_the_whole_commit"),
    # --- append: connections ---
    _m("the default stream tells offsets", "append.py", "        return None, chunk.num_rows", "        return 0, chunk.num_rows", "test_rows_are_visible_at_once"),
    _m("the default stream takes offsets", "append.py", "if offset is not None:\n                raise Refused(\n                    f\"Offset must not be set", "if False:\n                raise Refused(\n                    f\"Offset must not be set", "test_offset_is_refused"),
    _m("write_stream is needed in every request", "append.py", "if self._switched:\n", "if True:\n", "test_stream_and_schema_stick"),
    _m("write_stream may be left out after a switch", "append.py", "            self._switched = True\n", "            pass\n", "test_stream_must_be_named_after_a_switch"),
    _m("made streams can be switched", "append.py", "if not (self._current.is_default and target.is_default):", "if False:", "test_switch_between_made_streams_is_refused"),
    _m("a new destination keeps the schema of before", "append.py", "        if fresh:\n            target.forget_schema()\n", "        if fresh and self._targets:\n            for other in self._targets.values():\n                target.proto_schema = target.proto_schema or other.proto_schema\n", "test_new_destination_needs_a_schema"),
    _m("there is no request limit", "append.py", "if request_bytes >= self._settings.append_bytes_max:", "if False:", "test_request_too_large"),
    _m("good rows beside bad ones are appended", "append.py", "        if faulty.messages:\n            raise _RowErrors(target.name, faulty)\n        if not", "        if faulty.messages and len(faulty.messages) == chunk.num_rows:\n            raise _RowErrors(target.name, faulty)\n        if not", "test_bad_rows test_bad_row_on_the_default_stream"),
    _m("row errors have no index", "append.py", "RowErrorMessage(index=row,", "RowErrorMessage(index=0,", "test_bad_row_on_the_default_stream"),
    _m("a change of the schema is not told", "append.py", "if schema != target.known_schema:", "if False:", "test_updated_schema"),
    _m("a change of the schema is told for ever", "append.py", "            target.known_schema = schema\n", "            pass\n", "test_updated_schema"),
    _m("defaults are given without being asked for", "append.py", "self._default_interpretation = _NULL_VALUE", "self._default_interpretation = _DEFAULT_VALUE", "test_missing_is_null"),
    _m("default interpretation does not stick", "append.py", "self._default_interpretation = request.default_missing_value_interpretation", "pass", "test_default_value"),
    _m("the map of interpretations is ignored", "append.py", "lowered.get(lower, self._default_interpretation) == _DEFAULT_VALUE", "self._default_interpretation == _DEFAULT_VALUE", "test_map_overrides_for_one_request"),
    _m("an error ends the connection", "append.py", 'if refused.code == "NOT_FOUND":', 'if refused.code != "OK":', "test_second_append_at_an_offset_is_refused"),
    _m("storage errors are not in the details", "rpc.py", "if refused.storage_error is not None:\n        detail", "if False:\n        detail", "test_second_append_at_an_offset_is_refused test_extra_fields"),
    _m("an interpretation of a refused request is forgotten", "append.py", "            self._default_interpretation = request.default_missing_value_interpretation\n", "            self._default_interpretation = request.default_missing_value_interpretation if not request.HasField(\"offset\") or request.offset.value == 0 else _NULL_VALUE\n", "test_interpretation_of_a_refused_request"),
    _m("any interpretation will do", "append.py", "not in (0, _NULL_VALUE, _DEFAULT_VALUE)", "not in range(100)", "test_unknown_default_interpretation"),
    _m("a new writer schema is ignored", "append.py", "            target.proto_schema = request.proto_rows.writer_schema.proto_descriptor\n", "            target.proto_schema = getattr(self, 'kept', None) or request.proto_rows.writer_schema.proto_descriptor\n            self.kept = target.proto_schema\n", "test_writer_schema_changes"),
    _m("commits have no limit", "write.py", "or len(names) > COMMIT_STREAMS_MAX", "or False", "test_commit_of_too_many_streams"),
    _m("one error stands for all in a commit", "streams.py", "                    problems.append(refused)\n", "                    problems = [refused]\n", "test_each_stream_has_its_error"),
    _m("a flush without an offset flushes everything", "write.py", 'if not request.HasField("offset"):', "if False:", "test_flush_without_an_offset"),
    # --- rows ---
    _m("extra fields are dropped", "protorows.py", "                unknown.append(path + name)\n", "", "test_extra_fields test_extra_nested_fields"),
    _m("names must match in case", "protorows.py", "field = by_name.get(name.lower())", "field = {f.name: f for f in fields}.get(name)", "test_names_in_another_case"),
    _m("zero is missing", "protorows.py", "bool(value) or has(message, name)", "bool(value)", "test_zero_is_not_missing"),
    _m("missing is zero", "protorows.py", "present = [has(message, name) for message in messages]", "present = [True for message in messages]", "test_nested"),
    _m("nested errors name the wrong row", "protorows.py", "owners = [row for row, n in zip(rows, lengths, strict=True) for _ in range(n)]", "owners = list(range(len(items)))", "test_nested_conversion_errors_name_the_row"),
    _m("the column_name annotation is ignored", "protorows.py", "name = self._names.get(proto_field.full_name, proto_field.name)", "name = proto_field.name", "test_annotated_name"),
    _m("REQUIRED is not checked", "checks.py", "if field.required and array.null_count:", "if False:", "test_missing_required_value"),
    _m("lengths are counted in bytes", "checks.py", 'pc.utf8_length if field.type == "STRING"', 'pc.binary_length if field.type == "STRING"', "test_value_is_a_row_error"),
    _m("lengths are not checked", "checks.py", "if limit is not None:", "if False:", "test_bad_rows"),
    _m("ranges are not checked", "checks.py", 'if extremes["min"] < low or extremes["max"] > high:', "if False:", "test_value_is_a_row_error"),
    _m("scale is cut off", "checks.py", "if rest * 2 > step or", "if False and rest * 2 > step or", "test_scale_is_rounded"),
    _m("precision is not checked", "checks.py", "if abs(kept) // step > unscaled_max:", "if False:", "test_value_is_a_row_error"),
    _m("JSON is not checked", "checks.py", "json.loads(text, parse_constant=_refuse_constant)", "text", "test_value_is_a_row_error"),
    _m("an empty range is a range", "checks.py", "pc.greater_equal(start, end)", "pc.greater(start, end)", "test_empty_range"),
    _m("NUMERIC bytes are big-endian", "protovalues.py", "None if item is None else item + padding[item[-1] >> 7 if item else 0][len(item) :]", "None if item is None else (item + padding[item[-1] >> 7 if item else 0][len(item) :])[::-1]", "test_value_is_taken_and_comes_back"),
    _m("NUMERIC bytes lose their sign", "protovalues.py", "padding[item[-1] >> 7 if item else 0]", "padding[0]", "test_value_is_taken_and_comes_back"),
    _m("packed times are micros", "protovalues.py", '("TIME", "int64"): packed_time_micros', '("TIME", "int64"): lambda packed: packed % 86_400_000_000', "test_value_is_taken_and_comes_back"),
    _m("packed civil days are off by one", "literals.py", "day_of_era - 719_468", "day_of_era - 719_467", "test_value_is_taken_and_comes_back"),
    _m("uint64 goes with INT64", "protovalues.py", '("INT64", "uint32"): _INT64,', '("INT64", "uint32"): _INT64,\n    ("INT64", "uint64"): _INT64,', "test_type_that_does_not_go"),
    _m("extra Arrow columns are dropped", "arrowrows.py", "            extra.append(path + name)\n", "            pass\n", "test_arrow_rows_with_extra_columns"),
    _m("NULL lists stay", "arrowrows.py", "    # A list that is NULL holds nothing, and is stored as an empty one.\n", "    if array.type.equals(kind):\n        return array\n", "test_arrow_null_lists"),
    _m("Arrow columns of one name are dropped", "arrowrows.py", "elif name.lower() in found:", "elif False:", "test_arrow_columns_of_one_name"),
    _m("Arrow values name the wrong row", "arrowrows.py", "bisect.bisect_right(ends, at) - 1", "at", "test_arrow_rows_with_values_that_do_not_convert"),
    _m("a default takes the place of values", "defaults.py", "next(made_at) if absent else row", "next(made_at) if absent or True else row", "test_default_value"),
    _m("numbers may have underscores", "protovalues.py", "_DECIMAL.fullmatch(text) is None", "False", "test_value_is_a_row_error"),
    _m("NUMERIC takes no uint64", "protovalues.py", '"int64", "uint64", "float", "double"})', '"int64", "float", "double"})', "test_value_is_taken_and_comes_back"),
    _m("digits of any script", "literals.py", '_DATE_TEXT = re.compile(rf"^{_DATE}$", re.ASCII)', '_DATE_TEXT = re.compile(rf"^{_DATE}$")', "test_value_is_a_row_error"),
    _m("columns beyond the first thousands are forgotten", "descriptors.py", "for start in range(0, len(fields), _FIELDS_MAX):", "for start in range(0, _FIELDS_MAX, _FIELDS_MAX):", "test_thousands_of_columns"),
    _m("a column hides the message's method", "protorows.py", "type(messages[0]).HasField", "(lambda message, name: message.HasField(name))", "test_column_called_like_something_else"),
    # --- reads ---
    _m("offsets are ignored", "responses.py", "for chunk in rows.slice(offset, total):", "for chunk in rows.slice(0, total):", "test_reading_resumes_at_the_offset"),
    _m("reading resumes one row late", "responses.py", "for chunk in rows.slice(offset, total):", "for chunk in rows.slice(offset + (offset > 0), total):", "test_reading_resumes_at_the_offset"),
    _m("an offset beyond the end is empty", "read.py", "if offset > rows.row_count:", "if False:", "test_offset_beyond_the_end test_primary_goes_on_at_the_offset"),
    _m("an offset at the end is refused", "read.py", "if offset > rows.row_count:", "if offset >= rows.row_count:", "test_offset_at_the_end"),
    _m("sessions do not expire", "sessions.py", "if now_s >= self.expire_s:", "if False:", "test_expired_session"),
    _m("more streams than asked for", "read.py", "return min(count, most or STREAMS_MAX, STREAMS_MAX, rows)", "return min(count + 1, STREAMS_MAX, rows)", "test_stream_count_is_bounded"),
    _m("an empty table has a stream", "read.py", "return min(count, most or STREAMS_MAX, STREAMS_MAX, rows)", "return max(1, min(count, most or STREAMS_MAX, STREAMS_MAX, rows))", "test_empty_table_has_no_streams"),
    _m("streams overlap by a row", "sessions.py", "            self.add_stream(start, stop)\n", "            self.add_stream(max(start - 1, 0), stop)\n", "test_each_row_is_in_one_stream"),
    _m("a split loses a row", "sessions.py", "self.add_stream(middle, stream.stop)", "self.add_stream(middle + 1, stream.stop)", "test_split_loses_and_doubles_nothing"),
    _m("a split doubles a row", "sessions.py", "self.add_stream(stream.start, middle),", "self.add_stream(stream.start, middle + 1),", "test_split_loses_and_doubles_nothing"),
    _m("a split ends the original", "sessions.py", "        middle = stream.start + first\n", "        middle = stream.start + first\n        self._streams.pop(stream.name)\n", "test_split_loses_and_doubles_nothing"),
    _m("one row can be split", "sessions.py", "if length < rows_min or not 0 < first < length:", "if False:", "test_one_row_cannot_be_split"),
    _m("any fraction splits", "read.py", "if not 0.0 < fraction < 1.0:", "if False:", "test_fraction_out_of_range"),
    _m("snapshot_time is ignored", "read.py", 'if not asked.table_modifiers.HasField("snapshot_time"):', "if True:", "test_snapshot_time test_snapshot_time_before_the_table"),
    _m("a snapshot has the rows of later", "table.py", "in version.chunks()", "in version.rows.slice(0, version.rows.row_count)", "test_snapshot_time"),
    _m("row restrictions are ignored", "read.py", "_keeper(filterable, restriction, document[\"now_s\"]) if restriction else None", "None", "test_row_restriction"),
    _m("a bad restriction is ignored", "read.py", "    compiled = RowFilter(schema, restriction, now_s=now_s)\n", "    try:\n        compiled = RowFilter(schema, restriction, now_s=now_s)\n    except Refused:\n        return lambda chunks: list(chunks)\n", "test_bad_restriction"),
    _m("a restriction sees selected columns only", "read.py", "_keeper(filterable, restriction, document[\"now_s\"]) if restriction else None", "_keeper(Projection(schema, options.selected_fields).schema, restriction, 0.0) if restriction else None", "test_restriction_on_a_column_not_selected"),
    _m("unknown selected fields are dropped", "projection.py", "    if unknown:\n", "    if False:\n", "test_unknown_field"),
    _m("selected fields come in the order asked for", "projection.py", "    for field in fields:\n        if field.name.lower() in wanted:", "    for field in [names[each] for each in wanted]:\n        if field.name.lower() in wanted:", "test_order_is_the_tables"),
    _m("views can be read", "read.py", 'if table.kind not in ("TABLE", "SNAPSHOT"):', "if False:", "test_views"),
    _m("progress always goes from 0 to 1", "responses.py", "message.stats.progress.at_response_end = stop / total", "message.stats.progress.at_response_end = 1.0", "test_progress"),
    _m("progress does not know the offset", "responses.py", "message.stats.progress.at_response_start = offset / total", "message.stats.progress.at_response_start = 0.0", "test_progress_after_resuming"),
    _m("buffers are not compressed", "responses.py", "    if codec is None:\n", "    if True:\n", "test_compressed_buffers"),
    _m("responses are not compressed", "responses.py", "            if whole:\n", "            if False:\n", "test_compressed_responses"),
    _m("DATETIME has no sqlType", "types.py", '    "DATETIME": {b"ARROW:extension:name": b"google:sqlType:datetime"},\n', "", "test_arrow_metadata"),
    _m("TIMESTAMP has no zone", "types.py", '"TIMESTAMP": pa.timestamp("us", tz="UTC")', '"TIMESTAMP": pa.timestamp("us")', "test_arrow_types"),
    _m("everything is nullable", "types.py", 'nullable=field.mode == "NULLABLE",', "nullable=True,", "test_arrow_nullability"),
    _m("Avro DATETIME is a timestamp", "avrorows.py", '"DATETIME": {"type": "string", "logicalType": "datetime"}', '"DATETIME": {"type": "long", "logicalType": "timestamp-micros"}', "test_avro_types"),
    _m("Avro arrays are nullable", "avrorows.py", 'made["type"] = {"type": "array", "items": element}', 'made["type"] = ["null", {"type": "array", "items": element}]', "test_avro_modes_and_nesting"),
    _m("the request's streams are taken over", "read.py", "        # What the caller may set, and nothing else of what came: the rest is output only.\n", "        message.MergeFrom(asked)\n", "test_output_fields_of_the_request"),
    _m("trace ids may be long", "read.py", "len(asked.trace_id.encode()) > _TRACE_ID_BYTES_MAX", "len(asked.trace_id) > _TRACE_ID_BYTES_MAX", "test_long_trace_id"),
    _m("stream counts may be negative", "read.py", "if most < 0 or least < 0:", "if False:", "test_negative_stream_count"),
    _m("restrictions may be long", "read.py", "if len(options.row_restriction) > _RESTRICTION_CHARS_MAX:", "if False:", "test_long_restriction"),
    _m("estimates are those of all columns", "read.py", "session.projection.apply(chunk).nbytes for chunk", "chunk.nbytes for chunk", "test_estimated_bytes_of_selected_columns"),
    _m("streams without rows stay", "read.py", "            session.drop_streams()\n", "            pass\n", "test_restriction_that_keeps_nothing"),
    _m("CURRENT_TIMESTAMP is 1970", "sql/run.py", "        self._now = _EPOCH + datetime.timedelta(microseconds=round(now_s * 1e6))\n", "        self._now = _EPOCH\n", "test_current_timestamp"),
    _m("responses grow by compression", "responses.py", "if len(compressed) < len(payload) else", "if True else", "test_responses_that_do_not_shrink"),
    _m("a text that names the partition is a filter", "read.py", "code = _TEXT_LITERAL.sub(\"''\", restriction)", "code = restriction", "test_required_partition_filter"),
    _m("time travel has no end", "table.py", "or (at_s is not None and at_s < oldest_s)", "", "test_snapshot_time_beyond_time_travel"),
    _m("a table does not expire", "store.py", "if found is None or found.expires_s is None or found.expires_s > self.clock.now_s():", "if True:", "test_expired_table"),
    # --- store and changes ---
    _m("the partition time is lost", "read.py", "return table.snapshot(pseudo_columns=True)\n        try", "return table.snapshot()\n        try", "test_partition_time"),
    _m("an UPSERT only inserts", "cdc.py", "    gone = _rows_with(table, key, final)\n", "    gone: list[int] = []\n", "test_upsert_and_delete"),
    _m("a DELETE does nothing", "cdc.py", 'upserts = sorted(row for row in final.values() if kinds[row] == "UPSERT")', "upserts = sorted(final.values())", "test_upsert_and_delete test_deleted_key_stays_deleted"),
    _m("sequence numbers are ignored", "cdc.py", "if known is not None and sequence < known:", "if False:", "test_sequence_numbers"),
    _m("of equal sequence numbers the first wins", "cdc.py", "sequence < known:", "sequence <= known:", "test_equal_sequence_numbers"),
    _m("sequence numbers compare as text", "cdc.py", 'tuple(int(part, 16) for part in text.split("/"))', "tuple(map(ord, text))", "test_sequence_sections"),
    _m("a key is its first column", "cdc.py", "    key = table.primary_key\n    columns", "    key = table.primary_key[:1]\n    columns", "test_composite_key"),
    _m("any change type will do", "cdc.py", 'if kind not in ("UPSERT", "DELETE"):', "if False:", "test_other_change_types"),
    _m("changes need no key", "cdc.py", "if not key or len(key) > _KEY_COLUMNS_MAX:", "if False:", "test_table_without_a_key"),
    _m("made streams take changes", "cdc.py", "    if not is_default:\n", "    if False:\n", "test_made_streams_take_no_changes"),
]  # fmt: skip
