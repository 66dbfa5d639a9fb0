"""Speed and memory, measured: commands that print tables."""
