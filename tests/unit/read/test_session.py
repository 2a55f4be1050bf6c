"""Planning a read: which table, which columns, which query, and what is refused."""

import datetime

import pyarrow as pa
import pytest

from bqflink_beam.errors import (
    AccessDeniedError,
    ConfigError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PermanentError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.read import query, session
from bqflink_beam.read.request import ReadRequest
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import Job, Table
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.testing.read_model import ReadModel

PEOPLE = TableReference("p", "d", "people")
VIEW = TableReference("p", "d", "people_view")
RESULT = TableReference("p", "_anonymous", "r1")
SCHEMA = TableSchema(
    (
        Field(name="Id", type="INT64"),
        Field(
            name="address",
            type="STRUCT",
            fields=(Field(name="City", type="STRING"), Field(name="zip", type="INT64")),
        ),
    )
)
ROWS = pa.table({"Id": [1, 2], "address": [{"City": "x", "zip": 1}, None]})


class TablesModel:
    def __init__(self, kinds, resource=None):
        self.kinds = kinds
        self.resource = resource or {}

    def get(self, table):
        if table not in self.kinds:
            return None
        return Table(
            reference=table,
            schema=SCHEMA,
            kind=self.kinds[table],
            location="US",
            etag="e",
            resource=self.resource,
        )


class JobsModel:
    """Runs each query at once; `outcomes` are the errors of the first jobs, (reason, text) or None."""

    def __init__(self, outcomes=(), statement="SELECT", result=RESULT, regional=False):
        self.outcomes = list(outcomes)
        self.statement = statement
        self.regional = regional
        self.result = result
        self.jobs = {}
        self.inserted = []
        self.dry = []

    def insert(self, job_id, configuration, *, location, labels=None):
        if job_id in self.jobs:
            raise ConflictError(f"job {job_id} exists")
        dry = configuration.get("dryRun", False)
        if self.outcomes and isinstance(self.outcomes[0], Exception):
            raise self.outcomes.pop(0)
        outcome = self.outcomes.pop(0) if self.outcomes and not dry else None
        resource = {
            "configuration": {
                "query": {
                    "query": configuration["query"]["query"],
                    "destinationTable": {
                        "projectId": self.result.project,
                        "datasetId": self.result.dataset,
                        "tableId": self.result.table,
                    },
                }
            },
            "statistics": {"query": {"statementType": self.statement}},
            "status": {"errorResult": {"reason": outcome[0]}} if outcome else {},
        }
        error = outcome[1] if outcome else None
        location = location or "EU"
        if dry:
            self.dry.append(configuration["query"]["query"])
            return Job(id=job_id, location=location, done=True, error=error, resource=resource)
        self.inserted.append((job_id, configuration["query"]["query"], location, labels))
        self.jobs[job_id] = Job(id=job_id, location="EU", done=True, error=error, resource=resource)
        return Job(id=job_id, location=location, done=False, error=None, resource={})

    def get(self, job_id, *, location):
        return self.jobs.get(job_id) if location == "EU" or not self.regional else None

    def wait(self, job_id, *, location, budget_s):
        return self.get(job_id, location=location)


class ClientModel:
    def __init__(self, *, kinds=None, jobs=None, resource=None, read=None):
        self.tables = TablesModel(kinds or {PEOPLE: "TABLE", VIEW: "VIEW"}, resource)
        self.jobs = jobs or JobsModel()
        self.read = read or ReadModel({PEOPLE: ROWS, RESULT: ROWS})


class RecordingRead(ReadModel):
    """Notes what was asked for; lets any filter pass."""

    def __init__(self, tables):
        super().__init__(tables)
        self.requests = []

    def create_session(self, request):
        self.requests.append(request)
        return super().create_session(
            type(request)(table=request.table, streams_max=request.streams_max)
        )


def client_that_records(**kwargs):
    return ClientModel(read=RecordingRead({PEOPLE: ROWS, RESULT: ROWS}), **kwargs)


def test_a_table_becomes_a_session_of_it_with_the_spelling_of_its_columns():
    client = client_that_records()
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    request = ReadRequest(
        table=PEOPLE,
        columns=("ID", "Address.city"),
        row_filter="Id > 1",
        streams_max=7,
        snapshot_time=moment,
    )

    session.open_session(request, client, run_id="run")

    [asked] = client.read.requests
    assert asked.table == PEOPLE
    assert asked.columns == ("Id", "address.City")
    assert asked.row_filter == "Id > 1"
    assert asked.streams_max == 7
    assert datetime.datetime.fromtimestamp(asked.snapshot_s, datetime.timezone.utc) == moment


def test_a_query_is_run_and_its_result_read_with_columns_and_filter():
    client = client_that_records()
    request = ReadRequest(
        query="SELECT 1 AS Id",
        columns=("Id",),
        row_filter="Id = 1",
        location="EU",
        labels=(("team", "x"),),
    )

    session.open_session(request, client, run_id="run")

    [asked] = client.read.requests
    assert (asked.table, asked.columns, asked.row_filter) == (RESULT, ("Id",), "Id = 1")
    assert client.jobs.inserted == [
        (query.job_id("run", "SELECT 1 AS Id", 0), "SELECT 1 AS Id", "EU", {"team": "x"})
    ]


def test_a_view_is_read_by_a_query_of_whole_columns_and_cut_by_the_session():
    client = client_that_records()
    request = ReadRequest(
        table=VIEW, columns=("address.city", "address.zip", "id"), row_filter="Id > 1 -- all"
    )

    session.open_session(request, client, run_id="run")

    [(_, text, _, _)] = client.jobs.inserted
    assert text == ("SELECT `address`, `Id` FROM `p`.`d`.`people_view`\nWHERE (\nId > 1 -- all\n)")
    [asked] = client.read.requests
    assert (asked.table, asked.row_filter) == (RESULT, "")
    assert asked.columns == ("address.City", "address.zip", "Id")


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED_VIEW", "EXTERNAL"])
def test_what_has_no_rows_of_its_own_is_read_whole_by_a_query(kind):
    client = client_that_records(kinds={VIEW: kind})

    session.open_session(ReadRequest(table=VIEW), client, run_id="run")

    assert [text for _, text, _, _ in client.jobs.inserted] == [
        "SELECT * FROM `p`.`d`.`people_view`"
    ]


def test_a_planning_step_that_is_tried_again_finds_its_query_and_pays_once():
    client = client_that_records()
    request = ReadRequest(query="SELECT 1")

    for _ in range(3):
        session.open_session(request, client, run_id="run")

    assert len(client.jobs.inserted) == 1
    assert [asked.table for asked in client.read.requests] == [RESULT] * 3


def test_a_query_of_a_region_is_found_there_without_being_told_where():
    jobs = JobsModel(regional=True)
    first = query.run(jobs, "SELECT 1", run_id="run")

    second = query.run(jobs, "SELECT 1", run_id="run")

    assert (first.found, second.found) == (False, True)
    assert len(jobs.inserted) == 1


def test_the_query_of_a_view_runs_where_the_view_is():
    client = client_that_records()

    session.open_session(ReadRequest(table=VIEW), client, run_id="run")

    assert [location for _, _, location, _ in client.jobs.inserted] == ["US"]


def test_another_run_and_another_text_are_other_jobs():
    ids = {
        query.job_id(run, text, number)
        for run in ("a", "b")
        for text in ("SELECT 1", "SELECT 2")
        for number in (0, 1)
    }

    assert len(ids) == 8
    assert query.job_id("a", "SELECT 1", 0) == query.job_id("a", "SELECT 1", 0)
    assert query.job_id("a", "bSELECT 1", 0) != query.job_id("ab", "SELECT 1", 0)


def test_a_query_that_failed_for_a_passing_reason_runs_again_under_the_next_id():
    jobs, clock = JobsModel([("backendError", "try later"), None]), FakeClock()

    result = query.run(jobs, "SELECT 1", run_id="run", clock=clock)

    assert result == query.QueryResult(RESULT, 1, found=False)
    assert [identity for identity, *_ in jobs.inserted] == [
        query.job_id("run", "SELECT 1", 0),
        query.job_id("run", "SELECT 1", 1),
    ]
    assert len(clock.slept) == 1


def test_a_query_that_goes_on_failing_ends_in_an_error():
    jobs = JobsModel([("backendError", "try later")] * 99)

    with pytest.raises(PermanentError, match=r"backendError\): try later"):
        query.run(jobs, "SELECT 1", run_id="run", clock=FakeClock())

    assert len(jobs.inserted) == 5


def test_a_query_that_somebody_has_cancelled_is_not_started_again():
    jobs = JobsModel([("stopped", "Job execution was cancelled: User requested cancellation")])

    with pytest.raises(PermanentError, match="User requested cancellation"):
        query.run(jobs, "SELECT 1", run_id="run", clock=FakeClock())

    assert len(jobs.inserted) == 1


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("invalidQuery", ConfigError),
        ("responseTooLarge", ConfigError),
        ("notFound", NotFoundError),
        ("accessDenied", AccessDeniedError),
        ("resourcesExceeded", PermanentError),
    ],
)
def test_a_failed_query_says_why_in_bigquerys_words(reason, error):
    client = ClientModel(jobs=JobsModel([(reason, "Syntax error at [1:8]")]))

    with pytest.raises(error, match=r"Syntax error at \[1:8\]"):
        session.open_session(ReadRequest(query="SELECT ("), client, run_id="run")

    assert len(client.jobs.inserted) == 1


def test_a_query_refused_at_once_is_the_callers_mistake():
    client = ClientModel(jobs=JobsModel([InvalidRequestError("Syntax error")]))

    with pytest.raises(ConfigError, match="refuses the query: Syntax error"):
        session.open_session(ReadRequest(query="SELECT ("), client, run_id="run")


@pytest.mark.parametrize("statement", ["DELETE", "CREATE_TABLE_AS_SELECT", "SCRIPT"])
def test_only_a_select_is_read_and_nothing_else_is_run(statement):
    client = ClientModel(jobs=JobsModel(statement=statement))

    with pytest.raises(ConfigError, match=f"must be a SELECT, got a {statement}"):
        session.open_session(ReadRequest(query="DELETE FROM t"), client, run_id="run")

    assert client.jobs.inserted == []


def test_a_found_result_that_has_expired_is_made_again():
    client = client_that_records()
    session.open_session(ReadRequest(query="SELECT 1"), client, run_id="run")
    client.jobs.result = fresh = TableReference("p", "_anonymous", "r2")
    client.read.tables = {fresh: ROWS}

    again = session.open_session(ReadRequest(query="SELECT 1"), client, run_id="run")

    assert again.table == fresh
    assert [identity for identity, *_ in client.jobs.inserted] == [
        query.job_id("run", "SELECT 1", 0),
        query.job_id("run", "SELECT 1", 1),
    ]


def test_a_fresh_result_that_cannot_be_read_is_not_paid_for_again():
    client = ClientModel(read=ReadModel({}))

    with pytest.raises(NotFoundError):
        session.open_session(ReadRequest(query="SELECT 1"), client, run_id="run")

    assert len(client.jobs.inserted) == 1


OPENERS = {
    "at planning": lambda request, client: session.open_session(request, client, run_id="run"),
    "at construction": session.check,
}


@pytest.mark.parametrize("act", OPENERS.values(), ids=OPENERS)
class TestMistakes:
    def test_missing_table(self, act):
        request = ReadRequest(table=TableReference("p", "d", "gone"))

        with pytest.raises(ConfigError, match=r"table p\.d\.gone does not exist") as raised:
            act(request, ClientModel())

        assert raised.value.table == "p.d.gone"

    @pytest.mark.parametrize("table", [PEOPLE, VIEW])
    def test_missing_column(self, act, table):
        request = ReadRequest(table=table, columns=("id", "nmae"))

        with pytest.raises(ConfigError, match="no column 'nmae'; there is Id, address") as raised:
            act(request, ClientModel())

        assert raised.value.column == "nmae"

    def test_missing_field_of_a_struct(self, act):
        request = ReadRequest(table=PEOPLE, columns=("address.street",))

        with pytest.raises(ConfigError, match="no column 'address.street'; address has City, zip"):
            act(request, ClientModel())

    def test_field_of_something_that_is_no_struct(self, act):
        request = ReadRequest(table=PEOPLE, columns=("id.x",))

        with pytest.raises(ConfigError, match="Id has no fields, it is no STRUCT"):
            act(request, ClientModel())

    def test_filter_that_bigquery_refuses(self, act):
        class Refusing(ReadModel):
            def create_session(self, request):
                raise InvalidRequestError("Unrecognized name: nmae")

        request = ReadRequest(table=PEOPLE, row_filter="nmae > 1")

        with pytest.raises(
            ConfigError, match=r"row_filter 'nmae > 1': Unrecognized name: nmae"
        ) as raised:
            act(request, ClientModel(read=Refusing()))

        assert raised.value.table == "p.d.people"

    def test_query_that_bigquery_refuses(self, act):
        client = ClientModel(jobs=JobsModel([InvalidRequestError("Syntax error")]))

        with pytest.raises(ConfigError, match="Syntax error"):
            act(ReadRequest(query="SELECT ("), client)

    def test_snapshot_of_a_view(self, act):
        moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)

        with pytest.raises(ConfigError, match="is a VIEW"):
            act(ReadRequest(table=VIEW, snapshot_time=moment), ClientModel())


def test_the_check_runs_no_query():
    client = client_that_records()

    session.check(ReadRequest(query="SELECT 1"), client)
    session.check(ReadRequest(table=VIEW, row_filter="Id > 1"), client)

    assert client.jobs.inserted == []
    assert client.jobs.dry == [
        "SELECT 1",
        "SELECT * FROM `p`.`d`.`people_view`\nWHERE (\nId > 1\n)",
    ]


def test_partition_pseudo_columns_exist_for_ingestion_time_tables_only():
    ingestion = client_that_records(resource={"timePartitioning": {"type": "DAY"}})
    by_column = client_that_records(resource={"timePartitioning": {"type": "DAY", "field": "ts"}})
    request = ReadRequest(table=PEOPLE, columns=("_PartitionTime", "id"))

    session.open_session(request, ingestion, run_id="run")

    assert ingestion.read.requests[0].columns == ("_PARTITIONTIME", "Id")
    with pytest.raises(ConfigError, match="_PartitionTime"):
        session.open_session(request, by_column, run_id="run")


NAIVE = datetime.datetime(2024, 1, 1)  # noqa: DTZ001 - the mistake under test
OLD = datetime.datetime(1969, 12, 31, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of table and query"),
        ({"table": PEOPLE, "query": "SELECT 1"}, "exactly one of table and query"),
        ({"query": "  "}, "query must not be empty"),
        ({"table": TableReference("p", "d", "t$20240101")}, "decorator"),
        ({"table": PEOPLE, "columns": ("a", "A")}, "names 'A' twice"),
        ({"table": PEOPLE, "columns": ("a.",)}, "columns must be names"),
        ({"table": PEOPLE, "columns": ("",)}, "columns must be names"),
        ({"table": PEOPLE, "row_filter": "x" * ((1 << 20) + 1)}, "row_filter may have"),
        ({"table": PEOPLE, "streams_max": -1}, "streams_max must be in"),
        ({"table": PEOPLE, "snapshot_time": NAIVE}, "with a time zone"),
        ({"table": PEOPLE, "snapshot_time": OLD}, "before 1970"),
        ({"query": "SELECT 1", "snapshot_time": OLD}, "FOR SYSTEM_TIME AS OF"),
        ({"table": PEOPLE, "location": "EU"}, "are for query="),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ReadRequest(**options)
