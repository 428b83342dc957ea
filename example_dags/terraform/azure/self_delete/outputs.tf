output "self_delete_role" {
  description = "Value of the option."
  value       = azurerm_role_definition.self_delete.role_definition_resource_id
}
