"""Importers: configurations of other tools as files of a project, with a report on each key."""
