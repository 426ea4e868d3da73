//! Suggests similar names for a mistyped name.

use percent_encoding::percent_decode_str;

use super::{client::ServerClient, format, list};
use gridhook_api::resource::NamedResource;

/// The maximum number of suggested names.
const SUGGESTIONS_MAX: usize = 3;

/// The minimum Jaro-Winkler similarity of a suggested name; 1 is equality.
const SIMILARITY_MIN: f64 = 0.75;

/// Maximum number of names that are listed if none is similar.
const LISTED_MAX: usize = 8;

/// The suggestion to append to a 404 for `path`; empty if the names cannot be listed.
pub(super) async fn suggest_for(server: &ServerClient, path: &str) -> String {
    find_suggestion(server, path).await.unwrap_or_default()
}

async fn find_suggestion(server: &ServerClient, path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let at = segments
        .iter()
        .position(|segment| segment.eq_ignore_ascii_case("Microsoft.EventGrid"))?;
    let kind = segments.get(at + 1)?;
    let name = segments.get(at + 2)?;
    let subscription_id = segments.get(1)?;
    let existing: Vec<NamedResource> =
        list::read_list(server, &list::list_path(subscription_id, kind))
            .await
            .ok()?;
    let id = segments[..=at + 2]
        .iter()
        .map(|segment| format!("/{segment}"))
        .collect::<String>();
    if !existing
        .iter()
        .any(|resource| resource.id.eq_ignore_ascii_case(&id))
    {
        if let Some(elsewhere) = existing
            .iter()
            .find(|resource| resource.name.eq_ignore_ascii_case(name))
        {
            return Some(format!(
                " It exists in another resource group; use its resource id, {}",
                elsewhere.id
            ));
        }
        return Some(format_suggestion(kind, name, &existing));
    }
    // A topic of a domain or a namespace, before its event subscriptions.
    if let (Some(word), Some(topic)) = (segments.get(at + 3), segments.get(at + 4))
        && word.eq_ignore_ascii_case("topics")
    {
        let existing: Vec<NamedResource> = list::read_list(server, &format!("{id}/topics"))
            .await
            .ok()?;
        if !existing
            .iter()
            .any(|resource| resource.name.eq_ignore_ascii_case(topic))
        {
            return Some(format_suggestion(
                &format!("topics of {kind}/{name}"),
                topic,
                &existing,
            ));
        }
    }
    let at = segments
        .iter()
        .position(|segment| segment.eq_ignore_ascii_case("eventSubscriptions"))?;
    let list = format::join(path.split('/').take(at + 2), "/");
    let name = segments.get(at + 1)?;
    let existing: Vec<NamedResource> = list::read_list(server, &list).await.ok()?;
    let exists = existing
        .iter()
        .any(|resource| resource.name.eq_ignore_ascii_case(name));
    (!exists).then(|| format_suggestion("event subscriptions", name, &existing))
}

fn format_suggestion(kind: &str, wanted: &str, resources: &[NamedResource]) -> String {
    let names: Vec<&str> = resources
        .iter()
        .map(|resource| resource.name.as_str())
        .collect();
    let similar = similar_names(wanted, &names);
    match (similar.is_empty(), names.len()) {
        (_, 0) => format!(" There are no {kind}."),
        (false, _) => format!(" Did you mean {}?", similar.join(", ")),
        (true, count) if count <= LISTED_MAX => format!(" Existing names: {}.", names.join(", ")),
        (true, _) => String::new(),
    }
}

/// The names similar to `wanted`, the most similar first.
pub fn similar_names<'a>(wanted: &str, names: &[&'a str]) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut similar: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), *name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .collect();
    similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    similar
        .into_iter()
        .take(SUGGESTIONS_MAX)
        .map(|(_, name)| name)
        .collect()
}
