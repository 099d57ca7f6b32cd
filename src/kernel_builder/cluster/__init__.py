"""Actions on other machines, by dask.distributed."""
