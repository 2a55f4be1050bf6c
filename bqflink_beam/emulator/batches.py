"""Batches of the Cloud Storage JSON API: HTTP requests in a MIME body, answers in another."""

import email.message
import email.parser
import json
import urllib.parse

from bqflink_beam.emulator.api_errors import error_body, http_status, invalid
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rest import Request, Response, Route

_BOUNDARY = "batch_of_answers"


def answer_batch(routes: list[Route], request: Request) -> Response:
    """Runs the requests of a batch one after another.

    Raises:
        Refused: the body is no batch.
    """
    kind = request.headers.get("content-type", "")
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    message = email.parser.BytesParser().parsebytes(head + request.body)
    if not message.is_multipart():
        raise invalid("A batch needs a multipart/mixed body")
    pieces = []
    for part in message.get_payload():
        if isinstance(part, email.message.Message):
            inner = part.get_payload(decode=True)
            response = _run(routes, inner if isinstance(inner, bytes) else b"")
            number = str(part.get("Content-ID", "")).strip("<>")
            pieces.append(_piece(response, number))
    body = "".join(pieces) + f"--{_BOUNDARY}--\r\n"
    return Response(data=body.encode(), content_type=f'multipart/mixed; boundary="{_BOUNDARY}"')


def _run(routes: list[Route], data: bytes) -> Response:
    head, _, body = data.replace(b"\r\n", b"\n").partition(b"\n\n")
    first, _, lines = head.decode().partition("\n")
    verb, target, *_ = first.split(" ")
    headers = {key.lower(): value for key, value in email.message_from_string(lines).items()}
    url = urllib.parse.urlsplit(target)
    for route in routes:
        path = route.match(url.path) if route.verb == verb else None
        if path is not None:
            parameters = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            try:
                value = route.handler(Request(verb, path, parameters, headers, body.strip()))
            except Refused as refused:
                return Response(error_body(refused), http_status(refused))
            if isinstance(value, Response):
                return value
            return Response(value, 204 if value is None else 200)
    return Response(error_body(Refused(f"Not found: {target}", code="NOT_FOUND")), 404)


def _piece(response: Response, number: str) -> str:
    body = "" if response.value is None else json.dumps(response.value)
    return (
        f"--{_BOUNDARY}\r\nContent-Type: application/http\r\n"
        f"Content-ID: <response-{number}>\r\n\r\n"
        f"HTTP/1.1 {response.status} Answer\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}\r\n"
    )
