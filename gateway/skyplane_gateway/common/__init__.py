"""What the library and its gateways share: errors, documents, objects, clocks, filters."""
