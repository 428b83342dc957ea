# What fleets on Azure need and never make themselves: the role of the orchestrator, the identity of
# sources and sinks, and networks. Resource groups and network security groups of fleets are not
# here: each fleet makes its own.

terraform {
  required_version = ">= 1.3"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 3.0"
    }
  }
}

locals {
  # The actions stand in the documentation, where a test compares them with the code.
  role  = jsondecode(file("${path.module}/../../../docs/reference/permissions/azure.json"))
  scope = "/subscriptions/${var.subscription_id}"
}

resource "azurerm_role_definition" "fleets" {
  name              = local.role.Name
  description       = local.role.Description
  scope             = local.scope
  assignable_scopes = [local.scope]

  permissions {
    actions      = local.role.Actions
    not_actions  = local.role.NotActions
    data_actions = local.role.DataActions
  }
}

resource "azurerm_role_assignment" "orchestrator" {
  scope              = local.scope
  role_definition_id = azurerm_role_definition.fleets.role_definition_resource_id
  principal_id       = var.orchestrator_principal_id
}

resource "azurerm_resource_group" "static" {
  name     = "skyplane-static"
  location = var.location
}

resource "azurerm_user_assigned_identity" "gateways" {
  name                = "skyplane-gateways"
  location            = azurerm_resource_group.static.location
  resource_group_name = azurerm_resource_group.static.name
}

resource "azurerm_role_assignment" "sources" {
  for_each             = toset(var.source_accounts)
  scope                = each.value
  role_definition_name = "Storage Blob Data Reader"
  principal_id         = azurerm_user_assigned_identity.gateways.principal_id
}

resource "azurerm_role_assignment" "destinations" {
  for_each             = toset(var.destination_accounts)
  scope                = each.value
  role_definition_name = "Storage Blob Data Contributor"
  principal_id         = azurerm_user_assigned_identity.gateways.principal_id
}

resource "azurerm_virtual_network" "gateways" {
  for_each            = var.subnets
  name                = "skyplane-${each.key}"
  location            = each.key
  resource_group_name = azurerm_resource_group.static.name
  address_space       = [each.value]
}

resource "azurerm_subnet" "gateways" {
  for_each             = var.subnets
  name                 = "gateways"
  resource_group_name  = azurerm_resource_group.static.name
  virtual_network_name = azurerm_virtual_network.gateways[each.key].name
  address_prefixes     = [each.value]
  service_endpoints    = ["Microsoft.Storage"]
}
