"""Providers: adapters to models, and the client around each: cache, retries, limits, budget."""
