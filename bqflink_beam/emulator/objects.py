"""A small Cloud Storage beside BigQuery, so that ``gs://`` works without another server.

What load and extract jobs, Google's storage client and Beam's file system need of the
JSON API: buckets (made when first written to), objects with generations and
preconditions, uploads of all kinds, ranges, listing, rewriting, composing, batches.
In memory; it ends with the server.
"""

import base64
import dataclasses
import datetime
import hashlib
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import google_crc32c

from bqflink_beam.clock import Clock
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.batches import answer_batch
from bqflink_beam.emulator.pages import integer_of, position_of, token_of
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rest import Request, Response, Route
from bqflink_beam.emulator.uploads import content_range, related_parts

_LIST_MAX = 1000
_UTC = datetime.timezone.utc


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """One object: its bytes, and what its JSON resource says besides."""

    data: bytes
    generation: int
    created: str
    metadata: Mapping[str, Any]


class Objects:
    """The objects of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._buckets: dict[str, dict[str, StoredObject]] = {}
        self._generation = 0

    def put(
        self,
        bucket: str,
        name: str,
        data: bytes,
        metadata: Mapping[str, Any] | None = None,
        *,
        if_generation: int | None = None,
    ) -> dict[str, Any]:
        """Stores an object whole; returns its resource.

        Args:
            if_generation: the generation that must be there now, 0 for none.

        Raises:
            Refused: FAILED_PRECONDITION, another generation is there.
        """
        with self._lock:
            objects = self._buckets.setdefault(bucket, {})
            have = objects[name].generation if name in objects else 0
            if if_generation not in (None, have):
                raise _precondition()
            # Generations grow over restarts too, as they are made of the time.
            self._generation = max(self._generation + 1, int(self._clock.now_s() * 1e6))
            kept = {k: v for k, v in (metadata or {}).items() if k in ("contentType", "metadata")}
            now = datetime.datetime.fromtimestamp(self._clock.now_s(), _UTC)
            created = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            objects[name] = StoredObject(data, self._generation, created, kept)
            return self.resource(bucket, name)

    def get(self, bucket: str, name: str) -> StoredObject:
        """Returns an object.

        Raises:
            Refused: NOT_FOUND.
        """
        with self._lock:
            found = self._buckets.get(bucket, {}).get(name)
        if found is None:
            raise Refused(f"No such object: {bucket}/{name}", code="NOT_FOUND")
        return found

    def delete(self, bucket: str, name: str, if_generation: int | None = None) -> None:
        with self._lock:
            found = self.get(bucket, name)
            if if_generation not in (None, found.generation):
                raise _precondition()
            del self._buckets[bucket][name]

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Returns the names of a bucket's objects that begin with a prefix, in order."""
        with self._lock:
            return sorted(name for name in self._buckets.get(bucket, ()) if name.startswith(prefix))

    def make_bucket(self, bucket: str) -> None:
        with self._lock:
            if bucket in self._buckets:
                raise Refused("You already own this bucket.", code="ALREADY_EXISTS")
            self._buckets[bucket] = {}

    def buckets(self) -> list[str]:
        with self._lock:
            return sorted(self._buckets)

    def resource(self, bucket: str, name: str) -> dict[str, Any]:
        """Returns an object's JSON resource."""
        found = self.get(bucket, name)
        return {
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{found.generation}",
            "name": name,
            "bucket": bucket,
            "generation": str(found.generation),
            "metageneration": "1",
            "size": str(len(found.data)),
            "timeCreated": found.created,
            "updated": found.created,
            "md5Hash": base64.b64encode(hashlib.md5(found.data).digest()).decode(),
            "crc32c": base64.b64encode(google_crc32c.value(found.data).to_bytes(4, "big")).decode(),
            "etag": str(found.generation),
            **found.metadata,
        }


def _precondition() -> Refused:
    return Refused(
        "At least one of the pre-conditions you specified did not hold.", code="FAILED_PRECONDITION"
    )


def _bucket_resource(name: str) -> dict[str, Any]:
    return {"kind": "storage#bucket", "id": name, "name": name, "location": "US", "etag": "1"}


# --- JSON API -----------------------------------------------------------------------------

_BUCKET = "/storage/v1/b/{bucket}"
_OBJECT = _BUCKET + "/o/{object}"
_UPLOAD = "/upload/storage/v1/b/{bucket}/o"
_TARGET = "/b/{bucket2}/o/{object2}"


def object_routes(objects: Objects) -> list[Route]:
    """Returns the methods of the JSON API."""
    api = _Api(objects)
    plain: list[tuple[str, str, str, Callable[[Request], Any]]] = [
        ("GET", "/storage/v1/b", "buckets.list", api.list_buckets),
        ("POST", "/storage/v1/b", "buckets.insert", api.insert_bucket),
        ("GET", _BUCKET, "buckets.get", api.get_bucket),
        ("GET", _BUCKET + "/o", "objects.list", api.list_objects),
        ("GET", _OBJECT, "objects.get", api.get),
        ("GET", "/download" + _OBJECT, "objects.get", api.download),
        ("DELETE", _OBJECT, "objects.delete", api.delete),
        ("PATCH", _OBJECT, "objects.patch", api.patch),
        ("POST", _UPLOAD, "objects.insert", api.upload),
        ("PUT", _UPLOAD, "objects.insert", api.upload_piece),
        ("POST", _OBJECT + "/rewriteTo" + _TARGET, "objects.rewrite", api.rewrite),
        ("POST", _OBJECT + "/copyTo" + _TARGET, "objects.copy", api.copy),
        ("POST", _OBJECT + "/compose", "objects.compose", api.compose),
    ]
    routes = [Route(*parts) for parts in plain]
    return [
        *routes,
        Route("POST", "/batch/storage/v1", "storage.batch", lambda r: answer_batch(routes, r)),
    ]


class _Api:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._uploads: dict[str, tuple[str, Mapping[str, Any], Request, bytearray]] = {}

    def list_buckets(self, request: Request) -> Any:
        items = [_bucket_resource(name) for name in self._objects.buckets()]
        return {"kind": "storage#buckets", "items": items}

    def insert_bucket(self, request: Request) -> Any:
        name = request.json().get("name")
        if not name:
            raise invalid("Required parameter is missing: name")
        self._objects.make_bucket(name)
        return _bucket_resource(name)

    def get_bucket(self, request: Request) -> Any:
        name = request.path["bucket"]
        if name not in self._objects.buckets():
            raise Refused("The specified bucket does not exist.", code="NOT_FOUND")
        return _bucket_resource(name)

    def list_objects(self, request: Request) -> Any:
        bucket, parameters = request.path["bucket"], request.parameters
        delimiter, prefix = parameters.get("delimiter", ""), parameters.get("prefix", "")
        names, folders = [], set()
        for name in self._objects.names(bucket, prefix):
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                names.append(name)
        start = position_of(parameters.get("pageToken"))
        stop = start + min(integer_of(parameters, "maxResults", _LIST_MAX) or _LIST_MAX, _LIST_MAX)
        answer: dict[str, Any] = {
            "kind": "storage#objects",
            "items": [self._objects.resource(bucket, name) for name in names[start:stop]],
        }
        if folders:
            answer["prefixes"] = sorted(folders)
        return {**answer, "nextPageToken": token_of(stop)} if stop < len(names) else answer

    def get(self, request: Request) -> Any:
        if request.parameters.get("alt") == "media":
            return self.download(request)
        return self._objects.resource(request.path["bucket"], request.path["object"])

    def download(self, request: Request) -> Response:
        found = self._objects.get(request.path["bucket"], request.path["object"])
        kind = str(found.metadata.get("contentType") or "application/octet-stream")
        headers = {"X-Goog-Generation": str(found.generation)}
        span = request.headers.get("range", "").removeprefix("bytes=")
        if not span:
            return Response(data=found.data, content_type=kind, headers=headers)
        first, _, last = span.partition("-")
        size = len(found.data)
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= size:
            headers["Content-Range"] = f"bytes */{size}"
            return Response(status=416, data=b"", content_type=kind, headers=headers)
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return Response(status=206, data=found.data[start:stop], content_type=kind, headers=headers)

    def delete(self, request: Request) -> None:
        self._objects.delete(request.path["bucket"], request.path["object"], _generation(request))

    def patch(self, request: Request) -> Any:
        bucket, name = request.path["bucket"], request.path["object"]
        found = self._objects.get(bucket, name)
        return self._objects.put(bucket, name, found.data, {**found.metadata, **request.json()})

    # --- uploads ---

    def upload(self, request: Request) -> Any:
        kind = request.parameters.get("uploadType")
        if kind == "multipart":
            resource, data = related_parts(request)
            return self._store(request, resource, data)
        if kind == "resumable":
            upload_id = uuid.uuid4().hex
            with self._lock:
                self._uploads[upload_id] = (
                    request.path["bucket"],
                    request.json(),
                    request,
                    bytearray(),
                )
            path = urllib.parse.quote(request.path["bucket"])
            where = f"{request.origin}/upload/storage/v1/b/{path}/o?upload_id={upload_id}"
            return Response({}, headers={"Location": where, "X-GUploader-UploadID": upload_id})
        resource = {"contentType": request.headers.get("content-type")}
        return self._store(request, resource, request.body)

    def upload_piece(self, request: Request) -> Any:
        upload_id = request.parameters.get("upload_id", "")
        with self._lock:
            if upload_id not in self._uploads:
                raise Refused("Not found: no such upload", code="NOT_FOUND")
            _, resource, first, data = self._uploads[upload_id]
            start, total = content_range(request.headers, len(request.body))
            if start is not None:
                if start > len(data):
                    raise invalid(f"Upload piece at {start} leaves a gap after {len(data)}")
                data[start:] = request.body
            if total is None or len(data) < total:
                headers = {"Range": f"bytes=0-{len(data) - 1}"} if data else {}
                return Response(status=308, headers=headers)
            del self._uploads[upload_id]
        return self._store(first, resource, bytes(data))

    def _store(self, request: Request, resource: Mapping[str, Any], data: bytes) -> Any:
        name = request.parameters.get("name") or resource.get("name")
        if not name:
            raise invalid("Required parameter is missing: name")
        return self._objects.put(
            request.path["bucket"], name, data, resource, if_generation=_generation(request)
        )

    # --- copies ---

    def copy(self, request: Request) -> Any:
        path = request.path
        found = self._objects.get(path["bucket"], path["object"])
        return self._objects.put(
            path["bucket2"],
            path["object2"],
            found.data,
            {**found.metadata, **request.json()},
            if_generation=_generation(request),
        )

    def rewrite(self, request: Request) -> Any:
        resource = self.copy(request)
        return {
            "kind": "storage#rewriteResponse",
            "done": True,
            "objectSize": resource["size"],
            "totalBytesRewritten": resource["size"],
            "resource": resource,
        }

    def compose(self, request: Request) -> Any:
        bucket, body = request.path["bucket"], request.json()
        pieces = [self._objects.get(bucket, item["name"]).data for item in body["sourceObjects"]]
        return self._objects.put(
            bucket,
            request.path["object"],
            b"".join(pieces),
            body.get("destination") or {},
            if_generation=_generation(request),
        )


def _generation(request: Request) -> int | None:
    return integer_of(request.parameters, "ifGenerationMatch", None)
