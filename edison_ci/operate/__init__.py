"""Operation of a project: roles, accounts, trust, sessions, and maintenance of its results."""
