//! The HTTP clients of an arbiter: one for each client certificate, and one without a certificate.
//!
//! All subscriptions of an arbiter with the same certificate share connections. Subscriptions with different
//! certificates do not: an endpoint would take one for the other.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::deliver::{self, WebhookClient};

/// The client certificate that a subscription names no longer exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate {0} is not in the folder delivery.client_certificates_dir; nothing was sent")]
pub(crate) struct MissingCertificate(String);

thread_local! {
    static CLIENTS: RefCell<BTreeMap<Option<String>, Rc<WebhookClient>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The client of this arbiter that presents the certificate `identity`.
pub(crate) fn client(
    options: &deliver::ClientOptions,
    identity: Option<&str>,
) -> Result<Rc<WebhookClient>, MissingCertificate> {
    let key = identity.map(str::to_owned);
    let trust = match identity {
        Some(name) => options.identities.get(name).ok_or_else(|| MissingCertificate(name.to_owned()))?,
        None => options.trust.clone(),
    };
    // A certificate that was replaced needs new connections.
    let kept = CLIENTS.with_borrow(|clients| clients.get(&key).cloned());
    if let Some(client) = kept.filter(|client| client.trust().is(&trust)) {
        return Ok(client);
    }
    let options = deliver::ClientOptions { trust, ..options.clone() };
    let client = Rc::new(WebhookClient::new(options));
    CLIENTS.with_borrow_mut(|clients| clients.insert(key, Rc::clone(&client)));
    Ok(client)
}
