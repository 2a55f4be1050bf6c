"""ROUND and TRUNC of a FLOAT64 to a number of decimal digits, bit by bit as the service does it.

The service divides by a power of ten and multiplies by it again in numbers of 64 bits (the
x87's), so that is what is done here, with fractions that are rounded to 64 bits after each step.
"""

import functools
from fractions import Fraction

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.casts import coerce
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import InvalidQuery
from bqflink_beam.emulator.sql.kinds import FLOAT64
from bqflink_beam.emulator.sql.scope import Scalar

_BITS = 64
_DIGITS_MAX = 323
"""More digits than any FLOAT64 has behind its point."""
_POWER_MAX = 308


def _to_64_bits(value: Fraction) -> Fraction:
    if not value:
        return value
    size = abs(value)
    shift = size.numerator.bit_length() - size.denominator.bit_length() - _BITS
    scaled = size / Fraction(2) ** shift
    while scaled >= 1 << _BITS:
        scaled, shift = scaled / 2, shift + 1
    while scaled < 1 << (_BITS - 1):
        scaled, shift = scaled * 2, shift - 1
    rounded = round(scaled) * Fraction(2) ** shift  # half to even
    return rounded if value > 0 else -rounded


@functools.cache
def _power(exponent: int) -> Fraction:
    """Returns a power of ten, which the service comes to by multiplying, or dividing, by ten."""
    value = Fraction(1)
    for _ in range(abs(exponent)):
        value = _to_64_bits(value * 10 if exponent > 0 else value / 10)
    return value


def _cut(value: float, digits: int, *, away: bool) -> float:
    if digits > _DIGITS_MAX:
        return value
    if digits < -_POWER_MAX:
        return 0.0
    power = _power(-digits)
    scaled = _to_64_bits(Fraction(value) / power)
    size = abs(scaled)
    whole = int(size + Fraction(1, 2)) if away else int(size)
    result = _to_64_bits(whole * power)
    try:
        number = float(result)
    except OverflowError:
        raise InvalidQuery(f"Floating point overflow in ROUND({value}, {digits})") from None
    return -number if str(value).startswith("-") else number


def round_float(value: float, digits: int) -> float:
    """Rounds half away from zero; the value is finite."""
    return _cut(value, digits, away=True)


def trunc_float(value: float, digits: int) -> float:
    """Cuts digits off; the value is finite."""
    return _cut(value, digits, away=False)


def to_digits(env: Env, name: str, value: Scalar, digits: str) -> Scalar:
    """Returns ROUND or TRUNC of a FLOAT64; what is not finite stays as it is."""
    number = coerce(env.plan, value, FLOAT64, name).sql
    call = env.plan.call(f"{name.lower()}_float", number, f"CAST({digits} AS BIGINT)")
    return Scalar(
        f"(CASE WHEN {digits} IS NULL THEN NULL WHEN isfinite({number}) THEN {call} "
        f"ELSE {number} END)",
        FLOAT64,
    )


exact.add(
    {
        "round_float": exact.Exact(round_float, ("DOUBLE", "BIGINT"), "DOUBLE"),
        "trunc_float": exact.Exact(trunc_float, ("DOUBLE", "BIGINT"), "DOUBLE"),
    }
)
