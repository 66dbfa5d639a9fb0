"""The read model: what stored runs found, in records that every screen and report renders."""
