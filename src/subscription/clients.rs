//! The HTTP clients of an arbiter: one for each certificate that endpoints are shown, and one for none.
//!
//! Connections are kept for all subscriptions of an arbiter that may share them. Those that show another certificate may
//! not: an endpoint would take one subscription for another.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::deliver::{self, Client};

/// A subscription names a certificate that was there when it was set up and is not there now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate {0} is not in the folder delivery.client_certificates_dir; nothing was sent")]
pub(super) struct Missing(String);

thread_local! {
    static CLIENTS: RefCell<BTreeMap<Option<String>, Rc<Client>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The client of this arbiter that shows the certificate `identity`.
pub(super) fn client(options: &deliver::Options, identity: Option<&str>) -> Result<Rc<Client>, Missing> {
    let key = identity.map(str::to_owned);
    if let Some(client) = CLIENTS.with_borrow(|clients| clients.get(&key).cloned()) {
        return Ok(client);
    }
    let mut options = options.clone();
    if let Some(name) = identity {
        options.trust = options.identities.get(name).cloned().ok_or_else(|| Missing(name.to_owned()))?;
    }
    let client = Rc::new(Client::new(options));
    CLIENTS.with_borrow_mut(|clients| clients.insert(key, Rc::clone(&client)));
    Ok(client)
}
