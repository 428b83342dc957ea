"""Fleets of cloud instances, the same for all clouds; `cloud.Cloud` is what each cloud adds."""
