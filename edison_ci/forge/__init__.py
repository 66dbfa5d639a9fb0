"""GitHub and plain Git: comments on pull requests, events of a job, and proposed changes."""
