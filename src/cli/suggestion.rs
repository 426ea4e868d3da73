//! Whoever mistypes a name is told the names that are like it.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{client::ServerClient, list};

/// So many names are told at the most.
const TOLD: usize = 3;

/// Names as like as this are told: 1 is the same.
const LIKE: f64 = 0.75;

/// Where all there are, are no more than so many, they are told where none is like the one that was typed.
const FEW: usize = 8;

/// What is said behind a refusal that there is nothing at `path`; nothing where the names cannot be asked for.
pub(super) async fn suggestion(session: &ServerClient, path: &str) -> String {
    find_suggestion(session, path).await.unwrap_or_default()
}

async fn find_suggestion(session: &ServerClient, path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<String> =
        path.split('/').skip(1).map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect();
    let at = segments.iter().position(|segment| segment.eq_ignore_ascii_case("Microsoft.EventGrid"))?;
    let (kind, name) = (segments.get(at + 1)?, segments.get(at + 2)?);
    let subscription_id = segments.get(1)?;
    let there = list::all(session, &list::path(subscription_id, kind)).await.ok()?;
    let id = segments[..=at + 2].iter().map(|segment| format!("/{segment}")).collect::<String>();
    if !there.iter().any(|resource| is(&resource["id"], &id)) {
        if let Some(elsewhere) = there.iter().find(|resource| is(&resource["name"], name)) {
            let id = elsewhere["id"].as_str()?;
            return Some(format!(" It is in another resource group: name it by its whole id, {id}"));
        }
        return Some(format_suggestion(kind, name, &there));
    }
    // A topic of a domain or of a namespace, before the event subscriptions below it.
    if let (Some(word), Some(topic)) = (segments.get(at + 3), segments.get(at + 4))
        && word.eq_ignore_ascii_case("topics")
    {
        let there = list::all(session, &format!("{id}/topics")).await.ok()?;
        if !there.iter().any(|resource| is(&resource["name"], topic)) {
            return Some(format_suggestion(&format!("topics of {kind}/{name}"), topic, &there));
        }
    }
    let of = segments.iter().position(|segment| segment.eq_ignore_ascii_case("eventSubscriptions"))?;
    let (source, name) = (path.split('/').take(of + 2).collect::<Vec<_>>().join("/"), segments.get(of + 1)?);
    let there = list::all(session, &source).await.ok()?;
    let is_there = there.iter().any(|resource| is(&resource["name"], name));
    (!is_there).then(|| format_suggestion("event subscriptions", name, &there))
}

fn is(value: &Value, text: &str) -> bool {
    value.as_str().is_some_and(|value| value.eq_ignore_ascii_case(text))
}

fn format_suggestion(kind: &str, wanted: &str, there: &[Value]) -> String {
    let names: Vec<&str> = there.iter().filter_map(|resource| resource["name"].as_str()).collect();
    let like = like(wanted, &names);
    match (like.is_empty(), names.len()) {
        (_, 0) => format!(" There are no {kind} there."),
        (false, _) => format!(" Did you mean {}?", like.join(", ")),
        (true, count) if count <= FEW => format!(" There are {}.", names.join(", ")),
        (true, _) => String::new(),
    }
}

/// Those of `names` that are like `wanted`, the likest first.
pub fn like<'a>(wanted: &str, names: &[&'a str]) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut like: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), *name))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .collect();
    like.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    like.into_iter().take(TOLD).map(|(_, name)| name).collect()
}
