terraform {
  required_providers {
    azapi = { source = "azure/azapi" }
  }
}

variable "url" { type = string }
variable "authority" { type = string }
variable "audience" { type = string }
variable "team" {
  type    = string
  default = "a"
}

provider "azapi" {
  endpoint = [{
    resource_manager_endpoint       = var.url
    active_directory_authority_host = var.authority
    resource_manager_audience       = var.audience
  }]
  subscription_id            = "s-1"
  skip_provider_registration = true
  use_cli                    = false
  use_msi                    = true
}

resource "azapi_resource" "group" {
  type      = "Microsoft.Resources/resourceGroups@2022-09-01"
  name      = "tf"
  parent_id = "/subscriptions/s-1"
  location  = "local"
  body      = jsonencode({})
}

resource "azapi_resource" "topic" {
  type      = "Microsoft.EventGrid/topics@2022-06-15"
  name      = "tf-orders"
  parent_id = azapi_resource.group.id
  location  = "local"
  tags      = { team = var.team }
  body      = jsonencode({ properties = { inputSchema = "EventGridSchema" } })
}

resource "azapi_resource" "domain" {
  type      = "Microsoft.EventGrid/domains@2022-06-15"
  name      = "tf-domain"
  parent_id = azapi_resource.group.id
  location  = "local"
  body      = jsonencode({ properties = {} })
}

resource "azapi_resource" "deployment" {
  type      = "Microsoft.Resources/deployments@2022-09-01"
  name      = "main"
  parent_id = azapi_resource.group.id
  body = jsonencode({
    properties = {
      mode = "Incremental"
      parameters = { team = { value = var.team } }
      template = {
        "$schema"      = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
        contentVersion = "1.0.0.0"
        parameters     = { team = { type = "string" } }
        resources = [{
          type = "Microsoft.EventGrid/topics", apiVersion = "2022-06-15", name = "tf-deployed",
          location = "local", tags = { team = "[parameters('team')]" }
        }]
        outputs = { id = { type = "string", value = "[resourceId('Microsoft.EventGrid/topics', 'tf-deployed')]" } }
      }
    }
  })
  response_export_values = ["properties.outputs"]
}

output "deployed" {
  value = azapi_resource.deployment.output
}
