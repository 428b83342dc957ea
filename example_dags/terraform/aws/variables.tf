variable "deployment" {
  description = "The deployment of the orchestrator, as --deployment has it."
  type        = string

  validation {
    # Other characters are escaped in tags: docs/reference/permissions-aws.md.
    condition     = can(regex("^[A-Za-z0-9_.-]{1,64}$", var.deployment))
    error_message = "Use letters, digits, '_', '.' and '-'."
  }
}

variable "orchestrator_role" {
  description = "Name of the role that launches instances; empty to attach the policy yourself."
  type        = string
  default     = ""
}

variable "gateway_role" {
  description = "Name of the role of sources and sinks, and of its instance profile."
  type        = string
  default     = "skyplane-gateway"
}

variable "source_buckets" {
  description = "Names of the buckets that gateways read."
  type        = list(string)
}

variable "destination_buckets" {
  description = "Names of the buckets that gateways write."
  type        = list(string)
}
