"""A kernel for a device that nobody has."""

__all__: list = []
