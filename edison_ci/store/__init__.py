"""The results file: answers, costs, runs and cells, in one SQLite database."""
