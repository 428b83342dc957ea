variable "subscription_id" {
  description = "The subscription that has the instances."
  type        = string
}

variable "orchestrator_principal_id" {
  description = "Object id of the identity or service principal that launches instances."
  type        = string
}

variable "location" {
  description = "Location of the resource group that has the identity and the networks."
  type        = string
}

variable "subnets" {
  description = "Location -> range of its network, as westeurope = \"10.30.0.0/24\"; may be empty."
  type        = map(string)
  default     = {}
}

variable "source_accounts" {
  description = "Resource ids of the storage accounts that gateways read."
  type        = list(string)
}

variable "destination_accounts" {
  description = "Resource ids of the storage accounts that gateways write."
  type        = list(string)
}
