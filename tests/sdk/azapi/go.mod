module gridhook.invalid/azapi

go 1.24.0

require github.com/Azure/terraform-provider-azapi v1.15.0
