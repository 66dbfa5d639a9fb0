"""Screens of texts for personal data, jailbreaks and secrets, without a model."""
