"""Files as an object store."""
