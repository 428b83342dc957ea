# The role with which machines of fleets delete themselves at their end (option self_delete_role),
# and the right of the orchestrator to assign this role and no other.

terraform {
  required_version = ">= 1.3"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 3.0"
    }
  }
}

# Each machine gets it on itself alone, at its launch.
resource "azurerm_role_definition" "self_delete" {
  name              = "Skyplane machines delete themselves"
  scope             = "/subscriptions/${var.subscription_id}"
  assignable_scopes = ["/subscriptions/${var.subscription_id}"]

  permissions {
    actions = ["Microsoft.Compute/virtualMachines/delete"]
  }
}

resource "azurerm_role_definition" "assign" {
  name              = "Skyplane fleets assign a role"
  scope             = "/subscriptions/${var.subscription_id}"
  assignable_scopes = ["/subscriptions/${var.subscription_id}"]

  permissions {
    actions = ["Microsoft.Authorization/roleAssignments/write"]
  }
}

# The condition allows that one role, for identities only.
resource "azurerm_role_assignment" "assign" {
  scope              = "/subscriptions/${var.subscription_id}"
  role_definition_id = azurerm_role_definition.assign.role_definition_resource_id
  principal_id       = var.orchestrator_principal_id
  condition_version  = "2.0"
  condition          = <<-EOT
    (
      !(ActionMatches{'Microsoft.Authorization/roleAssignments/write'})
      OR
      (
        @Request[Microsoft.Authorization/roleAssignments:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals {${azurerm_role_definition.self_delete.role_definition_id}}
        AND
        @Request[Microsoft.Authorization/roleAssignments:PrincipalType] ForAnyOfAnyValues:StringEqualsIgnoreCase {'ServicePrincipal'}
      )
    )
  EOT
}
