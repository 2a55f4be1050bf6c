"""Files that jobs read and write: ``gs://`` through a storage emulator, ``file://`` under a root."""

import contextlib
import dataclasses
import fnmatch
import http.client
import json
import os
import pathlib
import re
import tempfile
import urllib.parse
from collections.abc import Iterator

from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.objects import Objects
from bqflink_beam.emulator.refused import Refused

_TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Files:
    """Where the server's jobs find files.

    Attributes:
        root: folder under which ``file://`` URIs may lie; None refuses them all.
        gcs_endpoint: ``http://host:port`` of a Cloud Storage (emulator), as
            STORAGE_EMULATOR_HOST has it; None for `objects`.
        objects: the server's own Cloud Storage.
    """

    root: pathlib.Path | None = None
    gcs_endpoint: str | None = None
    objects: Objects | None = None

    def match(self, uri: str) -> list[str]:
        """Returns the files a URI names, in order; one ``*`` stands for any text.

        Raises:
            Refused: NOT_FOUND, there is none; INVALID_ARGUMENT, it may not be read.
        """
        if uri.count("*") > 1:
            raise invalid(f"At most one wildcard is allowed in a URI: {uri}")
        found = self._match_gcs(uri) if uri.startswith("gs://") else self._match_local(uri)
        if not found:
            raise Refused(f"Not found: URI {uri}", code="NOT_FOUND")
        return found

    def read(self, uri: str) -> bytes:
        """Returns the content of one file.

        Raises:
            Refused: NOT_FOUND.
        """
        if uri.startswith("gs://"):
            bucket, name = _split(uri)
            if self._own is not None:
                return self._own.get(bucket, name).data
            status, body = self._gcs(
                "GET", f"/download/storage/v1/b/{bucket}/o/{_quoted(name)}?alt=media"
            )
            if status == 404:
                raise Refused(f"Not found: URI {uri}", code="NOT_FOUND")
            return _expect(status, body, uri)
        try:
            return self._local(uri).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise Refused(f"Not found: URI {uri}", code="NOT_FOUND") from None

    def write(self, uri: str, data: bytes) -> None:
        """Writes one file, whole or not at all."""
        if uri.startswith("gs://"):
            bucket, name = _split(uri)
            if self._own is not None:
                self._own.put(bucket, name, data)
                return
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={_quoted(name)}"
            _expect(*self._gcs("POST", path, data), uri)
            return
        target = self._local(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=".part-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(part, target)

    # --- local ---

    def _local(self, uri: str) -> pathlib.Path:
        path = uri.removeprefix("file://") if uri.startswith("file://") else uri
        if not path.startswith("/"):
            raise invalid(f"Source URI must be a Google Cloud Storage or file URI: {uri}")
        if self.root is None:
            raise invalid(f"This server reads no local files (no files root is set): {uri}")
        resolved = pathlib.Path(urllib.parse.unquote(path)).resolve()
        if not resolved.is_relative_to(self.root.resolve()):
            raise Refused(
                f"Access Denied: {uri} is not under the server's files root",
                code="PERMISSION_DENIED",
            )
        return resolved

    def _match_local(self, uri: str) -> list[str]:
        if "*" not in uri:
            return [uri] if self._local(uri).is_file() else []
        path = urllib.parse.unquote(uri.removeprefix("file://"))
        base = self._local(path[: path.index("*")].rpartition("/")[0] or "/")
        pattern = fnmatch.translate(path.replace("[", "[[]").replace("?", "[?]"))
        matcher = re.compile(pattern)
        found = [str(file) for file in base.rglob("*") if file.is_file()]
        return sorted(f"file://{file}" for file in found if matcher.match(file))

    # --- Cloud Storage ---

    @property
    def _own(self) -> Objects | None:
        return self.objects if self.gcs_endpoint is None else None

    def _match_gcs(self, uri: str) -> list[str]:
        bucket, name = _split(uri)
        if self._own is not None:
            prefix, star, suffix = name.partition("*")
            return [
                f"gs://{bucket}/{found}"
                for found in self._own.names(bucket, prefix)
                if (found == name or star)
                and found.endswith(suffix)
                and len(found) >= len(prefix) + len(suffix)
            ]
        if "*" not in name:
            status, _ = self._gcs("GET", f"/storage/v1/b/{bucket}/o/{_quoted(name)}")
            return [uri] if status == 200 else []
        prefix, _, suffix = name.partition("*")
        found = []
        token = ""
        while True:
            path = f"/storage/v1/b/{bucket}/o?prefix={_quoted(prefix)}&pageToken={_quoted(token)}"
            body = json.loads(_expect(*self._gcs("GET", path), uri))
            found += [item["name"] for item in body.get("items", ())]
            token = body.get("nextPageToken", "")
            if not token:
                break
        kept = (n for n in found if n.endswith(suffix) and len(n) >= len(prefix) + len(suffix))
        return sorted(f"gs://{bucket}/{n}" for n in kept)

    def _gcs(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        if self.gcs_endpoint is None:
            raise invalid(
                "This server has no Cloud Storage: set STORAGE_EMULATOR_HOST where it is started"
            )
        with self._connection() as connection:
            try:
                headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except OSError as error:
                raise Refused(
                    f"Cloud Storage at {self.gcs_endpoint} does not answer: {error}",
                    code="UNAVAILABLE",
                ) from error

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        text = self.gcs_endpoint or ""
        url = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_TIMEOUT_S)
        try:
            yield connection
        finally:
            connection.close()


def _split(uri: str) -> tuple[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    if not bucket or not name:
        raise invalid(f"Invalid Cloud Storage URI: {uri}")
    return bucket, name


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _expect(status: int, body: bytes, uri: str) -> bytes:
    if status >= 300:
        raise Refused(f"Cloud Storage answered {status} for {uri}", code="UNAVAILABLE")
    return body
