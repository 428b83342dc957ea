"""One module per verb: `add` describes its arguments, `run` does it and gives the exit code."""
