//! Reads the paged lists of the control plane.

use serde::de::DeserializeOwned;
use url::Url;

use super::client::{ClientResult, ServerClient, encode_segment};
use gridhook_api::resource::{NamedResource, Page};

pub(super) const KINDS: [&str; 3] = ["topics", "domains", "namespaces"];

/// The path of the list of a resource type in an Azure subscription.
pub(super) fn list_path(subscription_id: &str, kind: &str) -> String {
    format!(
        "/subscriptions/{}/providers/Microsoft.EventGrid/{kind}",
        encode_segment(subscription_id)
    )
}

/// All resources of a list, read page by page.
pub(super) async fn read_list<T: DeserializeOwned>(
    server: &ServerClient,
    path: &str,
) -> ClientResult<Vec<T>> {
    let mut all = Vec::new();
    let mut path = format!("{path}?$top=100");
    loop {
        let page: Page<T> = server.get_plain(&path).await?;
        all.extend(page.value);
        let next = page.next_link.and_then(|link| Url::parse(&link).ok());
        let Some(next) = next else { return Ok(all) };
        // Only the path of the link: the server may know itself by another address.
        path = format!("{}?{}", next.path(), next.query().unwrap_or_default());
    }
}

/// The ids of the resources of a list; an id is also a path, because stored names need no
/// percent-encoding.
pub(super) async fn list_ids(server: &ServerClient, path: &str) -> ClientResult<Vec<String>> {
    let all: Vec<NamedResource> = read_list(server, path).await?;
    Ok(all.into_iter().map(|resource| resource.id).collect())
}

/// The names of the resources of a list.
pub(super) async fn list_names(server: &ServerClient, path: &str) -> ClientResult<Vec<String>> {
    let all: Vec<NamedResource> = read_list(server, path).await?;
    Ok(all.into_iter().map(|resource| resource.name).collect())
}

/// The ids of the topics of all namespaces of an Azure subscription.
pub(super) async fn namespace_topics(
    server: &ServerClient,
    subscription_id: &str,
) -> ClientResult<Vec<String>> {
    let mut topic_ids = Vec::new();
    for namespace in list_ids(server, &list_path(subscription_id, "namespaces")).await? {
        topic_ids.extend(list_ids(server, &format!("{namespace}/topics")).await?);
    }
    Ok(topic_ids)
}

/// The ids of all topics, domains and namespace topics; these have a log.
pub(super) async fn list_log_ids(
    server: &ServerClient,
    subscription_id: &str,
) -> ClientResult<Vec<String>> {
    let mut log_ids = list_ids(server, &list_path(subscription_id, "topics")).await?;
    log_ids.extend(list_ids(server, &list_path(subscription_id, "domains")).await?);
    log_ids.extend(namespace_topics(server, subscription_id).await?);
    Ok(log_ids)
}
