//! The mode `Complete`: what the template does not have is deleted.

use serde_json::{Value, json};

use super::{GROUP, PROVIDER, body, deploy, operations, path, server};
use crate::support::server::Server;

fn put(server: &Server, kind: &str) {
    let body = json!({"location": "local"});
    let created = server.command("PUT", &format!("{PROVIDER}/{kind}"), &body);
    assert_eq!(created.status, 201, "{}", created.text());
}

fn status(server: &Server, kind: &str) -> u16 {
    let path = format!("{PROVIDER}/{kind}");
    server.admin("GET", &path, &Value::Null).status
}

fn topic(name: &str) -> Value {
    json!({"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": name,
        "location": "local"})
}

#[test]
fn the_mode_complete_deletes_what_the_template_does_not_have() {
    let server = server(&[]);
    for kind in [
        "topics/kept",
        "topics/old",
        "domains/parent",
        "domains/past",
        "namespaces/was",
    ] {
        put(&server, kind);
    }
    let elsewhere =
        "/subscriptions/s/resourceGroups/other/providers/Microsoft.EventGrid/topics/far";
    server.command("PUT", elsewhere, &json!({"location": "local"}));
    let template = json!({"resources": [
        topic("kept"), topic("new"),
        {"type": "Microsoft.EventGrid/domains/topics", "apiVersion": "2022-06-15",
            "name": "parent/berlin"},
    ]});
    let mut whole = body(&template, &json!({}));
    whole["properties"]["mode"] = "Complete".into();
    let preview = server.admin("POST", &format!("{}/whatIf", path("main")), &whole);
    let changes = preview.json()["properties"]["changes"].take();
    let kinds = |wanted: &str| -> Vec<String> {
        let changes = changes.as_array().expect("a list").iter();
        changes
            .filter(|one| one["changeType"] == wanted)
            .map(|one| {
                let id = one["resourceId"].as_str().expect("text");
                id.trim_start_matches(PROVIDER).to_owned()
            })
            .collect()
    };
    let gone = ["/domains/past", "/topics/old", "/namespaces/was"];
    assert_eq!(kinds("Delete"), gone, "{changes}");
    assert_eq!(
        kinds("Ignore"),
        ["/domains/parent"],
        "a parent stays: {changes}"
    );
    let deleted = changes.as_array().expect("a list");
    let deleted = deleted.iter().find(|one| one["changeType"] == "Delete");
    assert_eq!(deleted.expect("one")["before"]["name"], "past");
    assert_eq!(
        status(&server, "topics/old"),
        200,
        "a preview deletes nothing"
    );

    // A deployment that fails deletes nothing.
    let mut failing = whole.clone();
    failing["properties"]["template"]["resources"][1]["properties"] =
        json!({"inputSchema": "None"});
    let view = deploy(&server, "main", &failing);
    assert_eq!(view["properties"]["provisioningState"], "Failed", "{view}");
    assert_eq!(status(&server, "topics/old"), 200);

    let view = deploy(&server, "main", &whole);
    assert_eq!(
        view["properties"]["provisioningState"], "Succeeded",
        "{view}"
    );
    assert_eq!(view["properties"]["mode"], "Complete");
    assert_eq!(
        view["properties"]["outputResources"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    for kind in gone {
        assert_eq!(status(&server, kind.trim_start_matches('/')), 404, "{kind}");
    }
    for kind in [
        "topics/kept",
        "topics/new",
        "domains/parent",
        "domains/parent/topics/berlin",
    ] {
        assert_eq!(status(&server, kind), 200, "{kind}");
    }
    assert_eq!(server.command("GET", elsewhere, &Value::Null).status, 200);
    let steps = operations(&server, "main");
    let deletions: Vec<&str> = steps
        .iter()
        .filter(|one| one["properties"]["provisioningOperation"] == "Delete")
        .filter_map(|one| one["properties"]["targetResource"]["resourceName"].as_str())
        .collect();
    assert_eq!(deletions, ["was", "old", "past"]);
    let audit = server
        .command("GET", "/audit?search=DELETE", &Value::Null)
        .json();
    let audit = audit["value"].as_array().expect("a list");
    assert_eq!(audit.len(), 3, "{audit:?}");
    assert!(
        audit
            .iter()
            .all(|one| !one["changes"].as_array().expect("a list").is_empty())
    );
    let group = server.command("GET", GROUP, &Value::Null);
    assert_eq!(group.status, 200, "the group stays");
}
