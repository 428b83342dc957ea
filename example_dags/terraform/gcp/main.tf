# What fleets on Google Cloud need and never make themselves: the role of the orchestrator, the
# service account of sources and sinks, and a network. Firewall rules are not here: each fleet makes
# its own.

terraform {
  required_version = ">= 1.3"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

locals {
  # The permissions stand in the documentation, where a test compares them with the code.
  role = yamldecode(file("${path.module}/../../../docs/reference/permissions/gcp.yaml"))
}

resource "google_project_service" "apis" {
  for_each           = toset(["cloudresourcemanager.googleapis.com", "compute.googleapis.com"])
  project            = var.project
  service            = each.value
  disable_on_destroy = false
}

resource "google_project_iam_custom_role" "fleets" {
  project     = var.project
  role_id     = "skyplaneFleets"
  title       = local.role.title
  description = local.role.description
  stage       = local.role.stage
  permissions = local.role.includedPermissions
}

resource "google_project_iam_member" "orchestrator" {
  project = var.project
  role    = google_project_iam_custom_role.fleets.id
  member  = var.orchestrator
}

resource "google_service_account" "gateways" {
  project      = var.project
  account_id   = "skyplane-gateways"
  display_name = "Sources and sinks of skyplane-orchestration"
}

# The orchestrator gives instances this account, and no other.
resource "google_service_account_iam_member" "orchestrator" {
  service_account_id = google_service_account.gateways.name
  role               = "roles/iam.serviceAccountUser"
  member             = var.orchestrator
}

resource "google_storage_bucket_iam_member" "sources" {
  for_each = toset(var.source_buckets)
  bucket   = each.value
  role     = "roles/storage.objectViewer"
  member   = google_service_account.gateways.member
}

resource "google_storage_bucket_iam_member" "destinations" {
  for_each = toset(var.destination_buckets)
  bucket   = each.value
  role     = "roles/storage.objectUser"
  member   = google_service_account.gateways.member
}

resource "google_compute_network" "gateways" {
  project                 = var.project
  name                    = "skyplane-gateways"
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "gateways" {
  for_each                 = var.subnetworks
  project                  = var.project
  name                     = "skyplane-gateways"
  region                   = each.key
  network                  = google_compute_network.gateways.id
  ip_cidr_range            = each.value
  private_ip_google_access = true
}
