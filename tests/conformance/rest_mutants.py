"""Breakages of the REST side, one rule each, and the test of `JobConformance` that must notice."""

import importlib
import pathlib
import tempfile

import pytest

from tests.conformance.mutants import Mutant, _cases, mutated


def failures(mutant: Mutant) -> list[str]:
    """Runs the mutant's tests on it, over HTTP; returns those that failed."""
    red = []
    with mutated(mutant):
        suite = importlib.import_module("bqflink_beam.testing.conformance.jobs").JobConformance
        for name in mutant.tests.split():
            for arguments in _cases(getattr(suite, name)):
                if _fails(suite(), name, arguments):
                    red.append(f"{name}{list(arguments.values()) or ''}")
    return red


def _fails(suite, name, arguments) -> bool:
    # Loaded here and not above, so that the mutant is in them.
    server_module = importlib.import_module("bqflink_beam.emulator.server")
    settings_module = importlib.import_module("bqflink_beam.emulator.settings")
    rest_module = importlib.import_module("bqflink_beam.testing.conformance.rest")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def put_file(file: str, data: bytes) -> str:
            (root / file).write_bytes(data)
            return f"file://{root / file}"

        settings = settings_module.Settings(files_root=root)
        with server_module.EmulatorServer(settings=settings) as server:
            server.create_dataset("test-project", "conformance")
            rest = rest_module.Rest(server.rest_endpoint, "test-project", "conformance", put_file)
            try:
                getattr(suite, name)(rest, **arguments)
            except (Exception, pytest.fail.Exception):
                return True
    return False


def _m(name: str, file: str, old: str, new: str, tests: str) -> Mutant:
    return Mutant(name, file, old, new, tests)


MUTANTS = [
    _m(
        "job ids are not remembered",
        "jobs.py",
        "if self._store.document(_KIND, key) is not None:\n                raise",
        "if False:\n                raise",
        "test_job_id_is_used_once",
    ),
    _m(
        "ids of failed jobs are free again",
        "jobs.py",
        "if self._store.document(_KIND, key) is not None:\n                raise",
        'if "errorResult" not in (self._store.document(_KIND, key) or {"status": {"errorResult": 1}})["status"]:\n                raise',
        "test_id_of_a_failed_job_stays_taken",
    ),
    _m(
        "labels are dropped",
        "jobs.py",
        "{**copy.deepcopy(dict(configuration)), ",
        '{**{k: v for k, v in configuration.items() if k != "labels"}, ',
        "test_query_text_and_labels_come_back",
    ),
    _m(
        "jobs are listed oldest first",
        "jobs.py",
        "in reversed(self._store.list_documents(_KIND).values())",
        "in self._store.list_documents(_KIND).values()",
        "test_jobs_are_listed",
    ),
    _m(
        "cancel rewrites a job that is done",
        "jobs.py",
        'if document["status"]["state"] == "DONE":\n                    return',
        "if False:\n                    return",
        "test_cancel_of_a_done_job_is_harmless",
    ),
    _m(
        "a dry run keeps its job",
        "jobs.py",
        '        if configuration.get("dryRun"):\n            return',
        "        if False:\n            return",
        "test_dry_run_changes_nothing",
    ),
    _m(
        "WRITE_EMPTY writes on",
        "destinations.py",
        'if self.mode == "WRITE_EMPTY" and snapshot_named(found, reference.table).row_count:',
        "if False:",
        "test_dispositions test_destination_is_written_as_the_disposition_says",
    ),
    _m(
        "CREATE_NEVER creates",
        "destinations.py",
        'if self._create == "CREATE_NEVER":',
        "if False:",
        "test_dispositions test_create_never_needs_the_table",
    ),
    _m(
        "WRITE_TRUNCATE appends",
        "destinations.py",
        "change.replace(self.reference, batches)",
        "change.append(self.reference, batches)",
        "test_dispositions test_sources_are_copied_together",
    ),
    _m(
        "WRITE_TRUNCATE keeps the schema",
        "destinations.py",
        'if found is None or (self.mode == "WRITE_TRUNCATE" and not self._decorated):',
        "if found is None:",
        "test_destination_is_written_as_the_disposition_says",
    ),
    _m(
        "columns are added without leave",
        "destinations.py",
        'if "ALLOW_FIELD_ADDITION" not in updates:',
        "if False:",
        "test_schema_update_options",
    ),
    _m(
        "a copy reads its first source only",
        "copy_job.py",
        "chunks = [chunk for _, rows in sources for chunk in rows]",
        "chunks = list(sources[0][1])",
        "test_sources_are_copied_together",
    ),
    _m(
        "a copy appends by default",
        "copy_job.py",
        'default_write="WRITE_EMPTY"',
        'default_write="WRITE_APPEND"',
        "test_sources_are_copied_together",
    ),
    _m(
        "bad records are skipped",
        "load_job.py",
        "if len(self.bad) > self._bad_max:",
        "if False:",
        "test_bad_file_loads_nothing test_bad_records_up_to_the_maximum",
    ),
    _m(
        "maxBadRecords is not obeyed",
        "load_job.py",
        'int(options.get("maxBadRecords") or 0)',
        "0",
        "test_bad_records_up_to_the_maximum",
    ),
    _m(
        "outputRows counts files",
        "load_job.py",
        '"outputRows": str(rows)',
        '"outputRows": str(len(contents))',
        "test_files_are_loaded_together",
    ),
    _m(
        "unknown fields are dropped",
        "jsonvalues.py",
        "            if ignore_unknown:\n                continue\n            raise",
        "            if True:\n                continue\n            raise",
        "test_unknown_fields test_skip_and_ignore",
    ),
    _m(
        "field names match by case",
        "jsonvalues.py",
        "field = known.get(name.lower())",
        "field = known.get(name)",
        "test_unknown_fields",
    ),
    _m(
        "an empty STRING of a CSV is NULL",
        "load_text.py",
        'if text == null_marker and (text or field.type not in ("STRING", "BYTES")):',
        "if text == null_marker:",
        "test_csv",
    ),
    _m(
        "a wildcard is read by its letters",
        "files.py",
        'if "*" not in uri:\n            return [uri] if',
        "if True:\n            return [uri] if",
        "test_files_are_loaded_together",
    ),
    _m(
        "insertAll stops only the bad rows",
        "inserts.py",
        'if errors and not body.get("skipInvalidRows"):',
        "if False:",
        "test_one_bad_row_stops_all",
    ),
    _m(
        "insertAll takes JSON text for a JSON string",
        "inserts.py",
        "json_text=True",
        "json_text=False",
        "test_strings_for_json_columns",
    ),
    _m(
        "load jobs take a JSON string for JSON text",
        "load_text.py",
        "yield jsonvalues.row_values(schema.fields, value, ignore_unknown=ignore)",
        "yield jsonvalues.row_values(schema.fields, value, ignore_unknown=ignore, json_text=True)",
        "test_strings_for_json_columns",
    ),
    _m(
        "insertAll forgets insert ids",
        "inserts.py",
        "if key is None or (key not in self._seen and key not in fresh.values()):",
        "if True:",
        "test_insert_id_deduplicates",
    ),
    _m(
        "etags are not compared",
        "datasets.py",
        'if if_match not in (None, "*", have["etag"]):',
        "if False:",
        "test_stale_etag_is_refused",
    ),
    _m(
        "columns may go",
        "tables.py",
        'raise _mismatch(f"Field {name} is missing in new schema")',
        "continue",
        "test_schema_may_not_shrink_or_tighten",
    ),
    _m(
        "columns may be retyped",
        "tables.py",
        "if new.type != field.type:",
        "if False:",
        "test_schema_may_not_shrink_or_tighten",
    ),
    _m(
        "pages overlap",
        "pages.py",
        "return list(items[start:stop]), token_of(stop)",
        "return list(items[start : stop + 1]), token_of(stop)",
        "test_tables_are_listed_in_pages",
    ),
    _m(
        "pages of rows skip one",
        "tables.py",
        'answer["pageToken"] = token_of(stop)',
        'answer["pageToken"] = token_of(stop + 1)',
        "test_rows_come_in_pages",
    ),
    _m(
        "anonymous results stay",
        "query_job.py",
        '            "expirationTime": str(expires_ms),\n',
        "",
        "test_anonymous_result_is_a_table_with_an_expiry",
    ),
    _m(
        "hidden datasets are listed",
        "datasets.py",
        'if (show_hidden or not dataset["datasetReference"]["datasetId"].startswith("_"))',
        "if True",
        "test_anonymous_dataset_is_not_listed",
    ),
    _m(
        "MERGE takes two matches",
        "sql/dml.py",
        "if len(set(numbers)) != len(numbers):",
        "if False:",
        "test_merge_refuses_two_matches",
    ),
    _m(
        "UPDATE forgets its WHERE",
        "sql/dml.py",
        'FROM {text} WHERE {condition}")\n        numbers',
        'FROM {text}")\n        numbers',
        "test_dml_counts_and_changes",
    ),
    _m(
        "positional parameters are bound backwards",
        "sql/scope.py",
        "return self.positional[self.positional_used - 1]",
        "return self.positional[-self.positional_used]",
        "test_parameters_are_bound",
    ),
    _m(
        "TIMESTAMP ignores useInt64Timestamp",
        "tables.py",
        'int64_timestamps=flag_of(parameters, "formatOptions.useInt64Timestamp")',
        "int64_timestamps=False",
        "test_cells_are_encoded_as_rest_has_them",
    ),
    _m(
        "a decorator is forgotten by tabledata.list",
        "tables.py",
        "rows_page(snapshot_named(table, name), parameters)",
        "rows_page(table.snapshot(), parameters)",
        "test_one_partition_is_read",
    ),
    _m(
        "deleting a partition drops the table",
        "tables.py",
        'if "$" not in name:\n                self._store.delete_table',
        "if True:\n                self._store.delete_table",
        "test_one_partition_is_deleted",
    ),
    _m(
        "rows of other partitions are written",
        "destinations.py",
        "check_partition(table, self.reference.table, batches)",
        "pass",
        "test_rows_of_another_partition_are_refused",
    ),
    _m(
        "WRITE_EMPTY looks at the whole table",
        "destinations.py",
        "snapshot_named(found, reference.table).row_count",
        "found.snapshot().row_count",
        "test_empty_partition_is_written",
    ),
    _m(
        "another partitioning is taken for the table's",
        "destinations.py",
        "        self._check_layout(found)\n",
        "",
        "test_other_partitioning_is_refused",
    ),
    _m(
        "a new table's layout is not checked",
        "destinations.py",
        "            check_layout(schema, resource)\n",
        "",
        "test_new_table_has_the_layout",
    ),
    _m(
        "copies forget their partitions",
        "copy_job.py",
        "table.snapshot(at_s, pseudo_columns=True).chunks",
        "table.snapshot(at_s).chunks",
        "test_copies_keep_partitions",
    ),
    _m(
        "schema updates go with any disposition",
        "destinations.py",
        "    _check_updates(configuration)\n",
        "",
        "test_schema_updates_go_with_appends",
    ),
    _m(
        "deletes look at no etag",
        "tables.py",
        "            check_etag(table.resource, if_match)\n",
        "",
        "test_delete_with_a_stale_etag_is_refused",
    ),
    _m(
        "DML needs no partition filter",
        "statements.py",
        "rows, default, table.required_partition_filter",
        "rows, default, None",
        "test_required_filter_is_required_of_dml",
    ),
    _m(
        "half an OR is a filter",
        "sql/sources.py",
        "_filters(node.this, names) and _filters(node.expression, names)",
        "_filters(node.this, names) or _filters(node.expression, names)",
        "test_required_filter_is_required_of_dml",
    ),
    _m(
        "the oldest table of a wildcard has the say",
        "wildcards.py",
        "newest = max(reversed(tables)",
        "newest = min(tables",
        "test_wildcard_tables",
    ),
    _m(
        "a star shows the table's suffix",
        "sql/scope.py",
        "PSEUDO_COLUMNS = frozenset({PARTITION_TIME, PARTITION_DATE, TABLE_SUFFIX})",
        "PSEUDO_COLUMNS = frozenset({PARTITION_TIME, PARTITION_DATE})",
        "test_wildcard_tables",
    ),
    _m(
        "an INSERT of MERGE sees both sides",
        "sql/dml.py",
        'if not when.args.get("matched"):\n            sides',
        "if False:\n            sides",
        "test_merge_clauses_name_their_side",
    ),
    _m(
        "a field of a NULL STRUCT makes it a STRUCT",
        "sql/dml.py",
        "(CASE WHEN {old.sql} IS NULL THEN {bad} ELSE {new.sql} END)",
        "{new.sql}",
        "test_field_of_a_null_struct_is_not_set",
    ),
]
