"""x / (1 + abs(x)), for every framework whose arrays support DLPack."""

from ._ops import ops

__all__ = ["softsign"]


def softsign(out, x):
    """Write ``x / (1 + abs(x))`` to ``out`` and return it.

    Args:
        out: where to write the result: an array like ``x``, or ``x`` itself.
        x: a contiguous float32 array of any framework with DLPack, such as a
            torch tensor or a NumPy array.
    """
    ops.softsign(out, x)
    return out
