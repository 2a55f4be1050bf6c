"""First writer wins: what a bounded run commits is decided once, and outlives the worker.

A document is put under an id; whoever comes later gets the first one back. The usual
home is a BigQuery job of that id: inserting a job is the one step of the service that
is atomic, durable, and refused the second time. The job's query carries the document
as a comment and reads nothing, so it costs nothing; the insert decides, not its result.
"""

import base64
import hashlib
import json
import re
import zlib
from typing import Protocol

from bqflink_beam.errors import (
    AccessDeniedError,
    BqflinkError,
    ConfigError,
    ConflictError,
    OutcomeUnknownError,
)
from bqflink_beam.service.base import JobService

# BigQuery refuses query texts above 1 MB.
_TEXT_BYTES_MAX = 900_000
_MARK = "bqflink_beam register 1"
_TEXT = re.compile(rf"SELECT 1 -- {_MARK} (\w+) ([A-Za-z0-9+/=]*)\Z")


class Register(Protocol):
    """Documents by id, each of which can be written once."""

    def put(self, id: str, document: bytes) -> bytes:
        """Writes a document; returns the one that is there, which may be an earlier one."""

    def get(self, id: str) -> bytes | None:
        """Returns the document, None if there is none."""


class JobRegister:
    """A register in the jobs of the billing project.

    Documents that do not fit into one job are put as parts first, each under the hash of
    its content, and then the list of parts under the id.

    Args:
        location: where the jobs live. Must be the same for every attempt: an id is taken
            for one location only.
    """

    def __init__(self, jobs: JobService, location: str) -> None:
        self._jobs = jobs
        self._location = location

    def put(self, id: str, document: bytes) -> bytes:
        """See `Register.put`.

        Raises:
            ConfigError: the credentials may not create jobs.
            BqflinkError: no answer within the retry budget; putting again is safe.
        """
        packed = base64.b64encode(zlib.compress(document, 9))
        if len(packed) <= _TEXT_BYTES_MAX:
            return self._put_text(id, "whole", packed)
        parts = []
        for start in range(0, len(packed), _TEXT_BYTES_MAX):
            part = packed[start : start + _TEXT_BYTES_MAX]
            part_id = f"{id}-{hashlib.sha256(part).hexdigest()[:32]}"
            self._put_text(part_id, "part", part)
            parts.append(part_id)
        listing = base64.b64encode(zlib.compress(json.dumps(parts).encode(), 9))
        return self._put_text(id, "parts", listing)

    def get(self, id: str) -> bytes | None:
        """See `Register.get`."""
        job = self._jobs.get(id, location=self._location)
        if job is None:
            return None
        query = str(job.resource.get("configuration", {}).get("query", {}).get("query", ""))
        return self._document(id, query)

    def _put_text(self, id: str, kind: str, packed: bytes) -> bytes:
        query = f"SELECT 1 -- {_MARK} {kind} {packed.decode()}"
        configuration = {"query": {"query": query, "useLegacySql": False}}
        try:
            self._jobs.insert(
                id,
                configuration,
                location=self._location,
                labels={"bqflink_beam": "register"},
            )
        except ConflictError:
            there = self.get(id)
            if there is None:
                raise OutcomeUnknownError(
                    f"job {id} in {self._location} exists and cannot be read; run again"
                ) from None
            return there
        except AccessDeniedError as error:
            raise ConfigError(
                "exactly-once writes of bounded input record what they commit in a BigQuery job, and these "
                f"credentials may not create one: {error.message}. Grant bigquery.jobs.create, or choose "
                "ExactlyOnce(register=None), with which a restart after the commit can double rows"
            ) from error
        return self._document(id, query)

    def _document(self, id: str, query: str) -> bytes:
        match = _TEXT.match(query)
        if match is None:
            raise BqflinkError(f"job {id} exists, but was not written by this package's register")
        content = base64.b64decode(match[2])
        if match[1] == "part":
            return content
        document = zlib.decompress(content)
        if match[1] == "whole":
            return document
        packed = []
        for part_id in json.loads(document):
            job = self._jobs.get(part_id, location=self._location)
            if job is None:
                raise BqflinkError(f"job {part_id}, a part of register document {id}, is missing")
            text = _TEXT.match(str(job.resource["configuration"]["query"]["query"]))
            if text is None:
                raise BqflinkError(
                    f"job {part_id} exists, but was not written by this package's register"
                )
            packed.append(text[2])
        return zlib.decompress(base64.b64decode("".join(packed)))


class NoRegister:
    """Remembers nothing: for users who may not create jobs, and accept what that means."""

    def put(self, id: str, document: bytes) -> bytes:
        return document

    def get(self, id: str) -> bytes | None:
        return None
