"""An attack suite that runs against an installed edison, as a job on GitHub would run it."""
