"""Measuring and refining a prompt again and again, until it gets no better."""
