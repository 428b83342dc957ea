output "settings" {
  description = "Settings of the section gcp."
  value = {
    project         = var.project
    service_account = google_service_account.gateways.email
    network         = google_compute_network.gateways.name
    subnetworks     = { for region, one in google_compute_subnetwork.gateways : "gcp:${region}" => one.name }
    regions         = [for region in keys(var.subnetworks) : "gcp:${region}"]
  }
}
