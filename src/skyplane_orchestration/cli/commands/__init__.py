"""One module per subcommand: `add` declares its arguments, `run` returns the exit code."""
