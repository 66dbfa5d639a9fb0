"""Templates of prompts: an allow-listed language, its variables, and how it renders."""
