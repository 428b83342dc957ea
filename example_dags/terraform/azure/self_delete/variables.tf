variable "subscription_id" {
  description = "The subscription that has the instances."
  type        = string
}

variable "orchestrator_principal_id" {
  description = "Object id of the identity or service principal that launches instances."
  type        = string
}
