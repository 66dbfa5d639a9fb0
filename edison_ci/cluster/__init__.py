"""Clusters: runs whose calls are made by workers on other machines, connected by Dask."""
