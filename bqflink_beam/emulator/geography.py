"""GEOGRAPHY text: WKT and GeoJSON to the WKT that is stored.

Checks the form of a shape and the range of its coordinates, and writes it without the
spaces that WKT allows. What makes a polygon a valid one on a sphere is not checked.
"""

import json
import re
from typing import Any

_TOKEN = re.compile(r"\s*([A-Za-z]+|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[(),])")
# How deep parentheses nest around the points of each shape, and the fewest points inside.
_SHAPES = {
    "POINT": (1, 1),
    "LINESTRING": (1, 2),
    "POLYGON": (2, 4),
    "MULTIPOINT": (1, 1),
    "MULTILINESTRING": (2, 2),
    "MULTIPOLYGON": (3, 4),
}
_COLLECTION = "GEOMETRYCOLLECTION"
_JSON_SHAPES = {
    "Point": "POINT",
    "LineString": "LINESTRING",
    "Polygon": "POLYGON",
    "MultiPoint": "MULTIPOINT",
    "MultiLineString": "MULTILINESTRING",
    "MultiPolygon": "MULTIPOLYGON",
}


def canonical_wkt(text: str) -> str:
    """Returns a shape, given as WKT or GeoJSON, as WKT.

    Raises:
        ValueError: the text is none; the message says why.
    """
    if text.lstrip().startswith("{"):
        return _from_geojson(_parsed(text))
    parser = _Parser(text)
    try:
        shape = parser.shape()
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    parser.end()
    return shape


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


class _Parser:
    """Reads one WKT text."""

    def __init__(self, text: str) -> None:
        self._tokens = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise ValueError(f"unexpected {stripped[position:][:10]!r}")
            self._tokens.append(match[1])
            position = match.end()
        self._next = 0

    def shape(self) -> str:
        kind = self._take().upper()
        if kind == "FULLGLOBE":
            return kind
        if kind != _COLLECTION and kind not in _SHAPES:
            raise ValueError(f"{kind[:20]!r} is no shape")
        if self._peek().upper() == "EMPTY":
            self._take()
            return f"{kind} EMPTY"
        if kind == _COLLECTION:
            return f"{kind}({self._list(self.shape)})"
        depth, fewest = _SHAPES[kind]
        return kind + self._nested(kind, depth, fewest)

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._next]!r}")

    def _nested(self, kind: str, depth: int, fewest: int) -> str:
        if depth > 1:
            return f"({self._list(lambda: self._nested(kind, depth - 1, fewest))})"
        points: list[str] = []

        def point() -> str:
            # MULTIPOINT's points may stand in parentheses of their own.
            wrapped = kind == "MULTIPOINT" and self._peek() == "("
            if wrapped:
                self._expect("(")
            points.append(_point(self._take(), self._take()))
            if wrapped:
                self._expect(")")
            return points[-1]

        inside = self._list(point)
        _check_points(kind, points, fewest)
        return f"({inside})"

    def _list(self, item: Any) -> str:
        self._expect("(")
        items = [item()]
        while self._peek() == ",":
            self._take()
            items.append(item())
        self._expect(")")
        return ", ".join(items)

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise ValueError("it ends too early")
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            raise ValueError(f"expected {token!r}, got {found!r}")


def _check_points(kind: str, points: list[str], fewest: int) -> None:
    if kind == "POINT" and len(points) != 1:
        raise ValueError("a POINT has one point")
    if len(points) < fewest:
        raise ValueError(f"a {kind} needs {fewest} points, got {len(points)}")
    if "POLYGON" in kind and points[0] != points[-1]:
        raise ValueError("a ring ends where it begins")


def _point(longitude: str, latitude: str) -> str:
    if not abs(float(longitude)) <= 180.0:
        raise ValueError(f"longitude {longitude} is not within 180 degrees")
    if not abs(float(latitude)) <= 90.0:
        raise ValueError(f"latitude {latitude} is not within 90 degrees")
    return f"{longitude} {latitude}"


def _from_geojson(shape: Any) -> str:
    if not isinstance(shape, dict):
        raise ValueError("GeoJSON is an object")
    if shape.get("type") == "GeometryCollection":
        inner = shape.get("geometries")
        if not isinstance(inner, list):
            raise ValueError("a GeometryCollection has geometries")
        if not inner:
            return f"{_COLLECTION} EMPTY"
        return f"{_COLLECTION}({', '.join(map(_from_geojson, inner))})"
    kind = _JSON_SHAPES.get(str(shape.get("type")))
    if kind is None:
        raise ValueError(f"{str(shape.get('type'))[:20]!r} is no shape")
    # Through WKT, so that one set of rules holds for both.
    depth = _SHAPES[kind][0] - (kind == "POINT")
    return canonical_wkt(kind + _coordinates(shape.get("coordinates"), depth, kind == "POINT"))


def _coordinates(value: Any, depth: int, single: bool) -> str:
    if not isinstance(value, list):
        raise ValueError("coordinates are lists")
    if depth == 0:
        numbers = [each for each in value if isinstance(each, (int, float))]
        if len(numbers) != len(value) or len(value) < 2:
            raise ValueError("a position is longitude and latitude")
        position = f"{numbers[0]!r} {numbers[1]!r}"
        return f"({position})" if single else position
    return f"({', '.join(_coordinates(each, depth - 1, single) for each in value)})"
