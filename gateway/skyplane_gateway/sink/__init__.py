"""The sink: assembles chunks and writes them to the destination store."""
