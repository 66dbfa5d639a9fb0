"""Git, run so that the repository it looks at can run nothing: commands, objects, history."""
