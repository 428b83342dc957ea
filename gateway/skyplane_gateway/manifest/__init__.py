"""The memory of a place: what the copies below a folder were made of."""
