"""Opens stores from locations, checks them before a transfer, compares them after it."""
