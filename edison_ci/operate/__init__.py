"""Looking after a project: who may do what, and keeping its results in order."""
