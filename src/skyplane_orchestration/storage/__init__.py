"""Opens stores from locations, looks at them before a transfer, compares them after it."""
