"""The journal: what a transfer has begun at its destination, and where it can resume."""
