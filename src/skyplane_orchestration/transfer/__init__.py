"""One run of a job on a fleet: submit, monitor, budget, move, finalize."""
