"""pyarrow, imported here only, so that a NumPy mismatch is reported with its remedy."""

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

# The exceptions of reading a Parquet file; errors of Parquet are one of the last two.
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, RuntimeError)


def warm_up() -> None:
    """Run pyarrow's initialization now: it imports pandas if installed, which takes a while."""
    pa.array([0])
