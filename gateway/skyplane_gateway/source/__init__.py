"""The source: reads ranges of objects and sends them as chunks."""
