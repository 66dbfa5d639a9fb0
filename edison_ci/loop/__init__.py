"""The refinement loop: measure and refine a prompt until it no longer improves."""
