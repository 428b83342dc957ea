"""Names of limits, as used in `binding`, in errors, and for row blocks and shadow prices.

A limit of one region is its name, a space, and the region's tag.
"""

from __future__ import annotations

from typing import Final

THROUGHPUT_FLOOR: Final = "throughput_floor"
DEADLINE: Final = "deadline"
COST_CEILING: Final = "cost_ceiling"
POLICY: Final = "policy"
POLICY_MAX_JOB_USD: Final = "policy max_job_usd"
NO_ROUTE: Final = "no_route"
INSTANCE_QUOTA: Final = "instance_quota"
VCPU_QUOTA: Final = "vcpu_quota"
OBJECTS: Final = "objects"
STORAGE_READ: Final = "storage_read"
STORAGE_WRITE: Final = "storage_write"
PROCESSOR: Final = "processor"
INGRESS_LIMIT: Final = "ingress_limit"
EGRESS_LIMIT: Final = "egress_limit"
CONNECTION_LIMIT_IN: Final = "connection_limit_in"
CONNECTION_LIMIT_OUT: Final = "connection_limit_out"

#: Limits that grow with the instances of a region: (4f), (4g), (4i), (4h).
REGION_LIMITS: Final = (INGRESS_LIMIT, EGRESS_LIMIT, CONNECTION_LIMIT_IN, CONNECTION_LIMIT_OUT)
