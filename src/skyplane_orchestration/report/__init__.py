"""A page about one task: its plan, fleet, result and lineage as HTML. It knows no orchestrator."""
