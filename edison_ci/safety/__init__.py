"""Screens on texts: personal data, jailbreaks and secrets, found without a model."""
