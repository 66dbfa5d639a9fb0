"""Grades with a model: what judges are asked, how their replies are read and combined."""
