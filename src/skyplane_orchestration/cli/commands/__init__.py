"""One module per subcommand: `add` declares its arguments, `run` returns the exit code.

`cli/main.py` has the list of them.
"""
