"""Text files read as values with line and column: YAML, JSON, CSV, and edits of them."""
