//! The HTTP clients of an arbiter: one for each set of address rules and client certificate.
//!
//! All subscriptions of an arbiter with the same certificate share connections. Subscriptions with different
//! certificates do not: an endpoint would take one for the other.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::{AddressRules, ClientOptions, WebhookClient};

/// The client certificate that a subscription names no longer exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate {0} is not in the folder delivery.client_certificates_dir; nothing was sent")]
pub struct MissingCertificate(String);

/// Who chose the address that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AddressOrigin {
    /// A subscription.
    Subscription,
    /// The operator, in the settings.
    Operator,
}

type ClientKey = (AddressOrigin, Option<String>);

thread_local! {
    static CLIENTS: RefCell<BTreeMap<ClientKey, Rc<WebhookClient>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The client of this arbiter that presents the certificate `identity`.
///
/// # Errors
/// If the certificate does not exist.
pub fn client(options: &ClientOptions, identity: Option<&str>) -> Result<Rc<WebhookClient>, MissingCertificate> {
    let trust = match identity {
        Some(name) => options.identities.get(name).ok_or_else(|| MissingCertificate(name.to_owned()))?,
        None => options.trust.clone(),
    };
    Ok(kept((AddressOrigin::Subscription, identity.map(str::to_owned)), ClientOptions { trust, ..options.clone() }))
}

/// The client of this arbiter for addresses that the operator configured: all but the server's own.
pub(super) fn operators_client(options: &ClientOptions) -> Rc<WebhookClient> {
    let rules = AddressRules { own: options.rules.own.clone(), ..AddressRules::all() };
    kept((AddressOrigin::Operator, None), ClientOptions { rules, ..options.clone() })
}

fn kept(key: ClientKey, options: ClientOptions) -> Rc<WebhookClient> {
    // A certificate that was replaced needs new connections.
    let kept = CLIENTS.with_borrow(|clients| clients.get(&key).cloned());
    if let Some(client) = kept.filter(|client| client.trust().is(&options.trust)) {
        return client;
    }
    let client = Rc::new(WebhookClient::new(options));
    CLIENTS.with_borrow_mut(|clients| clients.insert(key, Rc::clone(&client)));
    client
}
