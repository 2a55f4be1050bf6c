"""GEOGRAPHY text: what is a shape is kept, what is none is told."""

import pytest

from bqflink_beam.emulator.geography import canonical_wkt

SHAPES = [
    "POINT(-121 41)",
    "POINT EMPTY",
    "LINESTRING(0 0, 1 1)",
    "POLYGON((0 0, 1 0, 1 1, 0 0), (0.1 0.1, 0.2 0.1, 0.2 0.2, 0.1 0.1))",
    "MULTIPOINT(0 0, 1 1)",
    "MULTILINESTRING((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON(((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))",
    "GEOMETRYCOLLECTION EMPTY",
    "FULLGLOBE",
    "POINT(1.5e1 -9.0E1)",
]


@pytest.mark.parametrize("text", SHAPES)
def test_a_shape_is_kept_as_it_is(text):
    assert canonical_wkt(text) == text


@pytest.mark.parametrize("text", SHAPES)
def test_spaces_and_case_do_not_matter(text):
    spaced = text.replace("(", " ( ").replace(",", " , ").replace(")", " ) ")

    assert canonical_wkt(spaced) == text
    assert canonical_wkt(f"  {text}\n") == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ('{"type": "Point", "coordinates": [1, 2.5]}', "POINT(1 2.5)"),
        ('{"type": "LineString", "coordinates": [[0, 0], [1, 1]]}', "LINESTRING(0 0, 1 1)"),
        (
            '{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}',
            "POLYGON((0 0, 1 0, 1 1, 0 0))",
        ),
        ('{"type": "MultiPoint", "coordinates": [[0, 0], [1, 1]]}', "MULTIPOINT(0 0, 1 1)"),
        (
            '{"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]}',
            "GEOMETRYCOLLECTION(POINT(1 2))",
        ),
    ],
)
def test_geojson_becomes_wkt(document, text):
    assert canonical_wkt(document) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "POINT",
        "POINT(1)",
        "POINT(1 2 3)",
        "POINT(1 2",
        "POINT(1 2))",
        "POINT(1 2, 3 4)",
        "POINT(181 0)",
        "POINT(0 -90.5)",
        "POINT(x y)",
        "LINESTRING(0 0)",
        "POLYGON((0 0, 1 0, 1 1, 0 1))",
        "POLYGON((0 0, 1 0, 0 0))",
        "CIRCLE(0 0, 1)",
        "POINT(1;2)",
        "{}",
        "[1, 2]",
        '{"type": "Point", "coordinates": [1]}',
        '{"type": "Point", "coordinates": "1 2"}',
        '{"type": "Feature"}',
    ],
)
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(ValueError):
        canonical_wkt(text)
