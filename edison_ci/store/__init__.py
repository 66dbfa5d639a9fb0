"""What is kept: answers, money, runs and cells, in one SQLite file."""
