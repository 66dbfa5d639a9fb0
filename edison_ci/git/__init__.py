"""Git, run so that a hostile repository can start nothing: commands, objects, history."""
