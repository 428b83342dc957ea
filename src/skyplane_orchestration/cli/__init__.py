"""The command `skyplane-orch`: one module per subcommand, and the output to a terminal."""
