"""What travels to workers and back arrives as it left: errors, options, DoFns."""

import dataclasses
import datetime
import importlib
import inspect
import os
import pickle
import subprocess
import sys

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.errors import BqflinkError
from bqflink_beam.write.preflight import Finding, RequiredOption, Step, StepKind
from tests.rules.source import package_sources
from tests.transforms.sources import Tap, replay

_VALUE_OF = {
    "table": "p.d.t",
    "stream": "projects/p/datasets/d/tables/t/streams/s",
    "column": "a.b[2].c",
    "code": "NOT_FOUND",
    "value": "'12'",
    "retry_after_s": 2.5,
    "rows": ((3, "too long"), (7, "too short")),
    "resent": True,
}

# One of each public value class, with fields that are not the defaults.
_FIELD = bq.Field(name="id", type="INT64", mode="REQUIRED")
_VALUES = [
    bq.AccessToken("secret"),
    bq.Anonymous(),
    bq.ApplicationDefault(),
    bq.AtLeastOnce(batch_rows_max=7),
    bq.Connection(
        rest_endpoint="http://127.0.0.1:1",
        storage_endpoint="127.0.0.1:2",
        plaintext=True,
        credentials=bq.Anonymous(),
    ),
    bq.CreateTable(schema=[{"name": "id", "type": "INT64"}], clustering=("id",)),
    bq.ExactlyOnce(shards=3, run_id="mine"),
    _FIELD,
    bq.Impersonate("robot@p.iam.gserviceaccount.com", bq.AccessToken("secret")),
    bq.Interval(months=1, days=2, micros=3),
    bq.Range(datetime.date(2024, 1, 1), None),
    bq.ServiceAccountFile("/keys/loader.json"),
    bq.ServiceAccountJson('{"type": "service_account"}'),
    bq.TableReference("p", "d", "t"),
    bq.TableSchema((_FIELD,)),
    Finding("--streaming", "why"),
    RequiredOption(name="x", value=2, minimum=1, reason="why"),
    Step(label="Write", kind=StepKind.EXACTLY_ONCE, bounded=False, shards=2, location="EU"),
]

_EMULATOR = "bqflink_beam.emulator."

_UNPICKLE = """
import sys
from apache_beam.internal import pickler
for line in sys.stdin:
    fn = pickler.loads(bytes.fromhex(line))[0]
    print(f"{type(fn).__module__}.{type(fn).__qualname__}")
"""


def _subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _load_whole_package():
    for source in package_sources():
        if not source.name.endswith("__main__"):
            importlib.import_module(source.name)


_load_whole_package()
_ERRORS = [
    BqflinkError,
    *sorted(
        # Those of the emulator become statuses of its protocols, and never leave it.
        {e for e in _subclasses(BqflinkError) if not e.__module__.startswith(_EMULATOR)},
        key=lambda error: error.__name__,
    ),
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.__name__)
def test_error_arrives_with_all_it_knows(error):
    names = [name for name in inspect.signature(error).parameters if name != "message"]
    raised = error("it went wrong", **{name: _VALUE_OF[name] for name in names})

    arrived = pickle.loads(pickle.dumps(raised))

    assert type(arrived) is error
    assert str(arrived) == str(raised)
    assert {name: getattr(arrived, name) for name in names} == {
        name: _VALUE_OF[name] for name in names
    }


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.__name__)
def test_error_can_be_made_of_a_message_alone(error):
    assert pickle.loads(pickle.dumps(error("it went wrong"))).message == "it went wrong"


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_value_arrives_equal(value):
    for travel in (pickle, pickler):
        assert travel.loads(travel.dumps(value)) == value


def test_every_public_value_class_is_tried():
    classes = {
        found
        for found in (getattr(bq, name) for name in bq.__all__)
        if dataclasses.is_dataclass(found)
        and not issubclass(found, (BqflinkError, beam.PTransform))
    }

    assert {found.__name__ for found in classes} - {type(value).__name__ for value in _VALUES} == {
        # Results, made by the package and checked where they are made.
        "CommitReport",
        "LostStream",
    }


@pytest.fixture(scope="module")
def translated():
    """Serialized DoFns of one of each transform of ours, as runners get them."""
    with testing.Emulator() as server:
        server.create_table("p.d.t", [{"name": "id", "type": "INT64"}])
        pipelines = [_bounded(server.connection), _unbounded(server.connection)]
        functions = []
        for pipeline in pipelines:
            for transform in pipeline.to_runner_api().components.transforms.values():
                if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
                    payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
                    functions.append(payload.do_fn.payload)
        yield functions


def _pipeline():
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p"]))


def _bounded(connection):
    pipeline = _pipeline()
    rows = pipeline | "Read" >> bq.ReadFromBigQueryStorage("p.d.t", connection=connection)
    methods = [bq.AtLeastOnce(), bq.ExactlyOnce(), bq.ExactlyOnce(shards=2)]
    for number, method in enumerate(methods):
        _ = rows | f"Write{number}" >> bq.WriteToBigQueryStorage(
            "p.d.t", connection=connection, method=method
        )
    return pipeline


def _unbounded(connection):
    pipeline = _pipeline()
    _ = replay(pipeline, dict, Tap("pickle", 0)) | bq.WriteToBigQueryStorage(
        "p.d.t", connection=connection
    )
    return pipeline


def test_every_dofn_of_ours_arrives_in_another_process(translated):
    ours = {
        f"{fn.__module__}.{fn.__qualname__}"
        for fn in _subclasses(beam.DoFn)
        if fn.__module__.startswith("bqflink_beam.")
    }
    lines = "".join(payload.hex() + "\n" for payload in translated)

    # One without the secrets and modules of this process, as a worker is.
    answer = subprocess.run(
        [sys.executable, "-c", _UNPICKLE],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=os.getcwd(),
    )

    assert answer.returncode == 0, answer.stderr[-3000:]
    arrived = set(answer.stdout.split())
    assert {name for name in arrived if name.startswith("bqflink_beam.")} == ours
