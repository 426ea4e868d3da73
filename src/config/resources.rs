//! `[delivery.resources.NAME]`: the services that event subscriptions deliver to besides webhooks,
//! and their credentials.

use std::collections::BTreeMap;

use serde::Deserialize;
use url::Url;

use super::{Secret, layers::Layers, read, tables};

/// The section of the services.
pub(super) const RESOURCES: &str = "delivery.resources.";

/// The keys of a service that are not secret.
pub(super) const PLAIN: [&str; 3] = ["resource_ids", "url", "used_by"];

/// The credentials. Each kind of destination uses some of them.
pub(super) const CREDENTIALS: [&str; 13] = [
    "access_key",
    "access_key_id",
    "access_key_name",
    "credentials",
    "function_key",
    "password",
    "sas_token",
    "secret_access_key",
    "session_token",
    "token",
    "token_audience",
    "token_tenant",
    "username",
];

#[derive(Clone, Debug)]
pub struct ResourceConfig {
    pub name: String,
    pub url: Url,
    /// The resource ids that the table stands for.
    pub resource_ids: Vec<String>,
    /// The scopes of the event subscriptions that may use the resource, as written.
    pub used_by: Vec<String>,
    /// Credentials by the name of the setting.
    pub credentials: Vec<(&'static str, Secret)>,
}

#[derive(Deserialize)]
pub(super) struct RawResource {
    #[serde(default, deserialize_with = "read::optional")]
    url: Option<String>,
    #[serde(default, deserialize_with = "read::texts")]
    resource_ids: Vec<String>,
    #[serde(default, deserialize_with = "read::texts")]
    used_by: Vec<String>,
    // The keys are checked before, one by one.
    #[serde(flatten)]
    credentials: BTreeMap<String, String>,
}

/// The services of the settings.
pub(super) fn resolve(
    raw: BTreeMap<String, RawResource>,
    layers: &mut Layers,
) -> Vec<ResourceConfig> {
    let resolved = raw
        .into_iter()
        .filter_map(|(name, raw)| raw.resolve(name, layers));
    resolved.collect()
}

impl RawResource {
    fn resolve(self, name: String, layers: &mut Layers) -> Option<ResourceConfig> {
        let Self {
            url,
            resource_ids,
            used_by,
            credentials,
        } = self;
        let at = format!("{RESOURCES}{name}");
        let text = url.unwrap_or_default();
        let url = Url::parse(&text)
            .ok()
            .filter(|url| url.has_host() && url.password().is_none());
        let Some(url) = url.filter(|url| url.query().is_none() && url.fragment().is_none()) else {
            let expectation = "an address such as https://account.queue.core.windows.net, without \
                user, password and query";
            layers.refuse_value(&[&format!("{at}.url")], expectation);
            return None;
        };
        let credentials =
            tables::read_credentials(&at, credentials, &CREDENTIALS, layers, |_, _| {});
        Some(ResourceConfig {
            name,
            url,
            resource_ids,
            used_by,
            credentials,
        })
    }
}
