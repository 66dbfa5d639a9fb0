"""A model server on loopback, for tests that need real HTTP and an independent ledger."""
