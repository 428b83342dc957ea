variable "project" {
  description = "Id of the project that has the instances."
  type        = string
}

variable "orchestrator" {
  description = "Who launches instances, as serviceAccount:worker@my-project.iam.gserviceaccount.com."
  type        = string
}

variable "subnetworks" {
  description = "Region -> range of its subnetwork, as europe-west1 = \"10.20.0.0/24\"."
  type        = map(string)
}

variable "source_buckets" {
  description = "Names of the buckets that gateways read."
  type        = list(string)
}

variable "destination_buckets" {
  description = "Names of the buckets that gateways write."
  type        = list(string)
}
