"""Prompt refinement: small diffs by a model, checked by guardrails and measured before review."""
