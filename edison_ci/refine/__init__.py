"""Better prompts as small diffs, tried before they are shown."""
