"""People and suggestions: offering a refined prompt, and deciding about it."""
