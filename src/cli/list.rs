//! The control plane's lists, read to their end.

use awc::http::Method;
use serde_json::Value;
use url::Url;

use super::control::{Error, Session, segment};

/// What is listed at the top: each has event subscriptions.
pub(super) const KINDS: [&str; 2] = ["topics", "domains"];

/// The path of everything of a kind in an Azure subscription.
pub(super) fn path(subscription_id: &str, kind: &str) -> String {
    format!("/subscriptions/{}/providers/Microsoft.EventGrid/{kind}", segment(subscription_id))
}

/// All resources of a list, page after page.
pub(super) async fn all(session: &Session, path: &str) -> Result<Vec<Value>, Error> {
    let (mut all, mut path) = (Vec::new(), format!("{path}?$top=100"));
    loop {
        let mut page: Value = session.ask_only(Method::GET, &path, None::<&Value>).await?;
        if let Some(value) = page["value"].as_array_mut() {
            all.append(value);
        }
        let next = page["nextLink"].as_str().and_then(|link| Url::parse(link).ok());
        let Some(next) = next else { return Ok(all) };
        // The address is the one that we were given, whatever the server calls itself.
        path = format!("{}?{}", next.path(), next.query().unwrap_or_default());
    }
}
