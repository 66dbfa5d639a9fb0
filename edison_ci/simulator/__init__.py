"""The simulator: models that only simulate, and are labelled so, to try everything offline."""
