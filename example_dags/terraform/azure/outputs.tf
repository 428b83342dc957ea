output "settings" {
  description = "Settings of the section azure."
  value = {
    subscription_id  = var.subscription_id
    managed_identity = azurerm_user_assigned_identity.gateways.id
    self_delete_role = one(azurerm_role_definition.self_delete[*].role_definition_resource_id)
    subnets          = { for location, one in azurerm_subnet.gateways : "azure:${location}" => one.id }
  }
}
