"""pyarrow, imported in one place so that its one known knot is answered with the remedy."""

from __future__ import annotations

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:  # pragma: no cover - depends on the installed pair
    raise ImportError(
        f"pyarrow does not import ({error}). pyarrow 26 needs NumPy 2; where NumPy 1 must stay "
        "(MXNet 1.9, TensorFlow 2.15): pip install 'tornasole[numpy1]'"
    ) from error

__all__ = ["PARQUET_ERRORS", "pa", "pc", "pq", "warm_up"]

# What reading a Parquet file can end in: errors of Parquet's own arrive as one of the last two.
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, RuntimeError)


def warm_up() -> None:
    """Has pyarrow do now what it does when it is first used.

    It looks for pandas, and imports it where it is installed, which takes some tenths of a second.
    """
    pa.array([0])
