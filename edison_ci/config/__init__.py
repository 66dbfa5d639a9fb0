"""What the user wrote: the files of a project, read, checked and turned into values."""
