//! The HTTP clients of an arbiter: one for each certificate that endpoints are shown, and one for none.
//!
//! Connections are kept for all subscriptions of an arbiter that may share them. Those that show another certificate may
//! not: an endpoint would take one subscription for another.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::deliver::{self, WebhookClient};

/// A subscription names a certificate that was there when it was set up and is not there now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate {0} is not in the folder delivery.client_certificates_dir; nothing was sent")]
pub(crate) struct MissingCertificate(String);

thread_local! {
    static CLIENTS: RefCell<BTreeMap<Option<String>, Rc<WebhookClient>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The client of this arbiter that shows the certificate `identity`.
pub(crate) fn client(
    options: &deliver::ClientOptions,
    identity: Option<&str>,
) -> Result<Rc<WebhookClient>, MissingCertificate> {
    let key = identity.map(str::to_owned);
    let trust = match identity {
        Some(name) => options.identities.get(name).ok_or_else(|| MissingCertificate(name.to_owned()))?,
        None => options.trust.clone(),
    };
    // A certificate that was changed since needs connections of its own.
    let kept = CLIENTS.with_borrow(|clients| clients.get(&key).cloned());
    if let Some(client) = kept.filter(|client| client.trust().is(&trust)) {
        return Ok(client);
    }
    let options = deliver::ClientOptions { trust, ..options.clone() };
    let client = Rc::new(WebhookClient::new(options));
    CLIENTS.with_borrow_mut(|clients| clients.insert(key, Rc::clone(&client)));
    Ok(client)
}
