output "settings" {
  description = "Settings of the section azure."
  value = {
    subscription_id  = var.subscription_id
    managed_identity = azurerm_user_assigned_identity.gateways.id
    subnets          = { for location, one in azurerm_subnet.gateways : "azure:${location}" => one.id }
  }
}
