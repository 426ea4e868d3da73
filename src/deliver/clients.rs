//! The HTTP clients of an arbiter: one for each set of address rules and each [`ClientSpec`].
//!
//! All subscriptions of an arbiter with the same specification share connections. Subscriptions
//! with different certificates do not: an endpoint would take one for the other. Nor do those with
//! different TLS versions: an open connection may have a version that is too old.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::{AddressRules, ClientOptions, MinimumTlsVersion, WebhookClient, proxy::DIRECT};

/// Something that a subscription names no longer exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingPart {
    #[error(
        "the client certificate {0} is not in the folder delivery.client_certificates_dir; nothing \
         was sent"
    )]
    Certificate(String),
    #[error("the proxy {0} is not in delivery.resources; nothing was sent")]
    Proxy(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AddressOrigin {
    Subscription,
    /// The operator chose the address in the settings.
    Operator,
}

/// Settings of a subscription for its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientSpec {
    /// The name of the client certificate to present.
    pub certificate: Option<String>,
    pub minimum_tls_version: MinimumTlsVersion,
    /// The name of the proxy, or [`DIRECT`]; [`None`] for the server's proxy.
    pub proxy: Option<String>,
}

type ClientKey = (AddressOrigin, ClientSpec);

thread_local! {
    static CLIENTS: RefCell<BTreeMap<ClientKey, Rc<WebhookClient>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The client of this arbiter for `spec`.
///
/// # Errors
/// If the certificate or the proxy does not exist.
pub fn shared_client(
    options: &ClientOptions,
    spec: ClientSpec,
) -> Result<Rc<WebhookClient>, MissingPart> {
    let trust = match &spec.certificate {
        Some(name) => options
            .identities
            .get(name)
            .ok_or_else(|| MissingPart::Certificate(name.clone()))?,
        None => options.trust.clone(),
    };
    let trust = trust.with_minimum(spec.minimum_tls_version);
    let proxy = match spec.proxy.as_deref() {
        None => options.proxy.clone(),
        Some(DIRECT) => None,
        Some(name) => Some(
            options
                .connections
                .find_proxy(name)
                .ok_or_else(|| MissingPart::Proxy(name.to_owned()))?,
        ),
    };
    Ok(cached_client(
        (AddressOrigin::Subscription, spec),
        ClientOptions {
            trust,
            proxy,
            ..options.clone()
        },
    ))
}

/// The client of this arbiter for addresses that the operator configured: all but the server's own.
pub fn operators_client(options: &ClientOptions) -> Rc<WebhookClient> {
    let rules = AddressRules {
        own: options.rules.own.clone(),
        ..AddressRules::allow_all()
    };
    cached_client(
        (AddressOrigin::Operator, ClientSpec::default()),
        ClientOptions {
            rules,
            ..options.clone()
        },
    )
}

fn cached_client(key: ClientKey, options: ClientOptions) -> Rc<WebhookClient> {
    // A certificate that was replaced needs new connections.
    let known_client = CLIENTS.with_borrow(|clients| clients.get(&key).cloned());
    if let Some(client) = known_client.filter(|client| client.trust().is_same(&options.trust)) {
        return client;
    }
    let client = Rc::new(WebhookClient::new(options));
    CLIENTS.with_borrow_mut(|clients| clients.insert(key, Rc::clone(&client)));
    client
}
