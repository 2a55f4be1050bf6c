"""Files that come with a load job: multipart and resumable uploads."""

import email.parser
import json
import threading
import uuid
from collections.abc import Mapping
from typing import Any

from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.jobs import Jobs
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rest import Request, Response
from bqflink_beam.emulator.shapes import check_shape


class Uploads:
    """``jobs.insert`` under ``/upload``; keeps the pieces of resumable uploads."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, dict[str, Any], bytearray]] = {}

    def post(self, request: Request) -> Any:
        """Takes a multipart upload, or opens a resumable one."""
        project = request.path["project"]
        kind = request.parameters.get("uploadType")
        if kind == "multipart":
            resource, data = related_parts(request)
            return self._jobs.insert(project, resource, data)
        if kind != "resumable":
            raise invalid(f"Unsupported uploadType {kind!r}")
        upload_id = uuid.uuid4().hex
        with self._lock:
            self._open[upload_id] = (project, request.json(), bytearray())
        where = (
            f"{request.origin}/upload/bigquery/v2/projects/{project}/jobs"
            f"?uploadType=resumable&upload_id={upload_id}"
        )
        return Response({}, 200, {"Location": where, "X-GUploader-UploadID": upload_id})

    def put(self, request: Request) -> Any:
        """Takes a piece of a resumable upload; the last one inserts the job."""
        upload_id = request.parameters.get("upload_id", "")
        with self._lock:
            found = self._open.get(upload_id)
            if found is None:
                raise Refused("Not found: no such upload", code="NOT_FOUND")
            project, resource, data = found
            start, total = content_range(request.headers, len(request.body))
            if start is not None:
                if start > len(data):
                    raise invalid(f"Upload piece at {start} leaves a gap after {len(data)}")
                data[start:] = request.body
            if total is None or len(data) < total:
                headers = {"Range": f"bytes=0-{len(data) - 1}"} if data else {}
                return Response(None, 308, headers)
            del self._open[upload_id]
        return self._jobs.insert(project, resource, bytes(data))


def content_range(headers: Mapping[str, str], size: int) -> tuple[int | None, int | None]:
    """Returns where a piece begins (None for a mere question) and how long the whole is."""
    text = headers.get("content-range", "")
    if not text:
        return 0, size
    span, _, total = text.removeprefix("bytes ").partition("/")
    length = None if total == "*" else int(total)
    return (None if span == "*" else int(span.partition("-")[0])), length


def related_parts(request: Request) -> tuple[dict[str, Any], bytes]:
    """Takes a ``multipart/related`` body apart: the job's resource, and the file."""
    kind = request.headers.get("content-type", "")
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    message = email.parser.BytesParser().parsebytes(head + request.body)
    boundary = message.get_boundary()
    if not kind.startswith("multipart/") or not boundary:
        raise invalid("A multipart upload needs a multipart/related body")
    # Cut by hand: the parser would decode the file's bytes as text.
    pieces = request.body.split(b"--" + boundary.encode())[1:-1]
    if len(pieces) != 2:
        raise invalid("A multipart upload has two parts: the job and the file")
    first, second = (_body_of(piece) for piece in pieces)
    try:
        resource = json.loads(first)
    except ValueError as error:
        raise invalid(f"Parse Error: {error}") from None
    if not isinstance(resource, dict):
        raise invalid("Parse Error: the first part must be a JSON object")
    check_shape(resource)
    return resource, second


def _body_of(piece: bytes) -> bytes:
    """Returns what stands behind the headers of a part; lines end in CRLF or, in some clients, LF."""
    for blank, end in ((b"\r\n\r\n", b"\r\n"), (b"\n\n", b"\n")):
        head, found, body = piece.lstrip(b"\r\n").partition(blank)
        if found and b":" in head:
            return body.removesuffix(end)
    raise invalid("A part of a multipart upload has no headers")
