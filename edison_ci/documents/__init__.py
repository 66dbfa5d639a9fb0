"""Text files with positions: how bytes in a repository become values that know their line."""
