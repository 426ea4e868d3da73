//! Reads the paged lists of the control plane.

use awc::http::Method;
use serde_json::Value;
use url::Url;

use super::client::{ClientError, ServerClient, segment};

/// The top-level resource types.
pub(super) const KINDS: [&str; 3] = ["topics", "domains", "namespaces"];

/// The path of the list of a resource type in an Azure subscription.
pub(super) fn path(subscription_id: &str, kind: &str) -> String {
    format!("/subscriptions/{}/providers/Microsoft.EventGrid/{kind}", segment(subscription_id))
}

/// All resources of a list, read page by page.
pub(super) async fn all(session: &ServerClient, path: &str) -> Result<Vec<Value>, ClientError> {
    let (mut all, mut path) = (Vec::new(), format!("{path}?$top=100"));
    loop {
        let mut page: Value = session.fetch_plain(Method::GET, &path, None::<&Value>).await?;
        if let Some(value) = page["value"].as_array_mut() {
            all.append(value);
        }
        let next = page["nextLink"].as_str().and_then(|link| Url::parse(link).ok());
        let Some(next) = next else { return Ok(all) };
        // Only the path of the link: the server may know itself by another address.
        path = format!("{}?{}", next.path(), next.query().unwrap_or_default());
    }
}

/// The topics of all namespaces of an Azure subscription.
pub(super) async fn namespace_topics(session: &ServerClient, subscription_id: &str) -> Result<Vec<Value>, ClientError> {
    let mut found = Vec::new();
    for namespace in all(session, &path(subscription_id, "namespaces")).await? {
        found.extend(all(session, &format!("{}/topics", id(&namespace))).await?);
    }
    Ok(found)
}

/// The resource ids of all topics, domains and namespace topics; these have a log.
pub(super) async fn logs(session: &ServerClient, subscription_id: &str) -> Result<Vec<String>, ClientError> {
    let mut found = Vec::new();
    for kind in ["topics", "domains"] {
        found.extend(all(session, &path(subscription_id, kind)).await?);
    }
    found.extend(namespace_topics(session, subscription_id).await?);
    Ok(found.iter().map(|resource| id(resource).to_owned()).collect())
}

/// The resource id, which is also its path: stored names need no percent-encoding.
pub(super) fn id(resource: &Value) -> &str {
    resource["id"].as_str().unwrap_or_default()
}
