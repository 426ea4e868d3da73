//! `GET /metadata/endpoints`: the addresses of this cloud, which `az cloud register` and other
//! clients of Azure Resource Manager request before they sign in. No token is needed.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;

use super::{Control, model::value_of};

/// The suffixes that clients read. Terraform's provider does not start without those of storage and
/// key vaults.
const SUFFIXES: [(&str, &str); 14] = [
    ("acrLoginServer", "registry"),
    ("attestationEndpoint", "attestation"),
    ("azureDataLakeAnalyticsCatalogAndJob", "analytics"),
    ("azureDataLakeStoreFileSystem", "lake"),
    ("azureFrontDoorEndpointSuffix", "frontdoor"),
    ("keyVaultDns", "vault"),
    ("mariadbServerEndpoint", "mariadb"),
    ("mhsmDns", "hsm"),
    ("mysqlServerEndpoint", "mysql"),
    ("postgresqlServerEndpoint", "postgresql"),
    ("sqlServerHostname", "sql"),
    ("storage", "storage"),
    ("storageSyncEndpointSuffix", "sync"),
    ("synapseAnalytics", "synapse"),
];

/// The addresses of the cloud: those of API version 2022-09-01, which `az cloud register` and
/// Terraform request, and those of 1.0, which `Add-AzEnvironment -ARMEndpoint` of PowerShell
/// requests
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CloudEndpoints {
    /// Name of the cloud, always `gridhook`
    name: &'static str,
    /// Address of the dashboard
    portal: String,
    /// Address of the control plane
    resource_manager: String,
    /// Sign-in of the cloud
    authentication: CloudAuthentication,
    /// Audience of tokens for a directory service, which does not exist here
    graph_audience: String,
    /// Audience of tokens for a directory service, which does not exist here
    microsoft_graph_resource_id: String,
    /// Audience of tokens for a service of batch jobs, which does not exist here
    batch: String,
    /// Audience of tokens for a service of media, which does not exist here
    media: String,
    /// Address of a gallery, which does not exist here
    gallery_endpoint: String,
    /// Address of a directory service, which does not exist here
    graph_endpoint: String,
    /// Address of the dashboard
    portal_endpoint: String,
    /// Host name suffixes of other services, which do not exist here: no name of the domain
    /// `invalid` has an address
    suffixes: BTreeMap<&'static str, String>,
}

/// Sign-in of the cloud
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CloudAuthentication {
    /// Address of the issuer of access tokens
    login_endpoint: String,
    /// Audiences of access tokens
    audiences: Vec<String>,
    /// Tenant to sign in to
    tenant: &'static str,
    /// Kind of the issuer, always `AAD`
    identity_provider: &'static str,
}

/// `GET /metadata/endpoints`.
pub(super) async fn get_endpoints(
    request: HttpRequest,
    control: web::Data<Control>,
) -> HttpResponse {
    HttpResponse::Ok().json(CloudEndpoints::from_request(&control, &request))
}

impl Control {
    /// The cloud as templates see it (`environment()`).
    pub(super) fn environment(&self, request: &HttpRequest) -> Value {
        value_of(&CloudEndpoints::from_request(self, request))
    }
}

impl CloudEndpoints {
    fn from_request(control: &Control, request: &HttpRequest) -> Self {
        let address = control_address(control, request);
        Self {
            name: "gridhook",
            portal: format!("{address}ui/"),
            resource_manager: address.clone(),
            authentication: CloudAuthentication::from_request(control, request),
            graph_audience: address.clone(),
            microsoft_graph_resource_id: address.clone(),
            batch: address.clone(),
            media: address.clone(),
            portal_endpoint: format!("{address}ui/"),
            gallery_endpoint: address.clone(),
            graph_endpoint: address,
            suffixes: SUFFIXES
                .into_iter()
                .map(|(key, name)| (key, format!("{name}.gridhook.invalid")))
                .collect(),
        }
    }
}

impl CloudAuthentication {
    /// Clients append the tenant to the address of the issuer, so it is the issuer's origin.
    fn from_request(control: &Control, request: &HttpRequest) -> Self {
        let issuer = control.operators.as_ref();
        let origin = issuer.and_then(|issuer| Url::parse(&issuer.name).ok()?.join("/").ok());
        Self {
            login_endpoint: origin.map_or_else(
                || control_address(control, request),
                |origin| origin.to_string(),
            ),
            audiences: issuer.map_or_else(
                || vec![control_address(control, request)],
                |issuer| issuer.audiences.clone(),
            ),
            tenant: "common",
            identity_provider: "AAD",
        }
    }
}

/// The address of the control plane, with a slash at the end as in Azure.
fn control_address(control: &Control, request: &HttpRequest) -> String {
    format!("{}/", control.operators_url(request))
}
