"""Format numbers, sizes and ages for people."""

from __future__ import annotations

import math

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def short(value: float) -> str:
    """Format a number in at most eight characters; nine with an exponent of three digits.

    Example:
        >>> [short(value) for value in (0.25, 1234567.0, -2.5e-08, float("nan"))]
        ['0.25', '1.2e6', '-2.5e-8', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e5:
        return str(int(value))
    # 9999.96 would be rounded to five digits.
    if 1e-2 <= abs(value) < 9999.5:
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.4g}"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def exact(value: float) -> str:
    """Format a number with all digits of float32.

    Example:
        >>> exact(0.1), exact(float("-inf"))
        ('0.1', '-Inf')
    """
    return f"{value:.7g}" if math.isfinite(value) else short(value)


def byte_size(count: int) -> str:
    """Format a number of bytes.

    Example:
        >>> byte_size(999), byte_size(1536), byte_size(5 << 30)
        ('999 B', '1.5 KiB', '5.0 GiB')
    """
    size, unit = float(count), 0
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def ago(seconds: float) -> str:
    """Format an age.

    Example:
        >>> ago(5), ago(7500), ago(-1)
        ('5 s ago', '2 h ago', 'now')
    """
    for length, name in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {name} ago"
    return "now"
