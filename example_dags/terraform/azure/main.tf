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

# With it a machine deletes itself at its end; each gets it on itself alone, at its launch.
resource "azurerm_role_definition" "self_delete" {
  count             = var.self_delete ? 1 : 0
  name              = "Skyplane machines delete themselves"
  scope             = local.scope
  assignable_scopes = [local.scope]

  permissions {
    actions = ["Microsoft.Compute/virtualMachines/delete"]
  }
}

resource "azurerm_role_definition" "assign" {
  count             = var.self_delete ? 1 : 0
  name              = "Skyplane fleets assign a role"
  scope             = local.scope
  assignable_scopes = [local.scope]

  permissions {
    actions = ["Microsoft.Authorization/roleAssignments/write"]
  }
}

# The condition allows that one role, for identities only.
resource "azurerm_role_assignment" "assign" {
  count              = var.self_delete ? 1 : 0
  scope              = local.scope
  role_definition_id = azurerm_role_definition.assign[0].role_definition_resource_id
  principal_id       = var.orchestrator_principal_id
  condition_version  = "2.0"
  condition          = <<-EOT
    (
      !(ActionMatches{'Microsoft.Authorization/roleAssignments/write'})
      OR
      (
        @Request[Microsoft.Authorization/roleAssignments:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals {${azurerm_role_definition.self_delete[0].role_definition_id}}
        AND
        @Request[Microsoft.Authorization/roleAssignments:PrincipalType] ForAnyOfAnyValues:StringEqualsIgnoreCase {'ServicePrincipal'}
      )
    )
  EOT
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
