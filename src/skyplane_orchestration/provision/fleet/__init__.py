"""Fleets of instances, the same for all clouds; `machines.Machines` is what each cloud adds."""
