//! Namespaces: addressed by path, by host, or by neither; opened by their keys; and still there after a kill.

use serde_json::{Value, json};

use crate::support::server::Server;

const RG: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces";

const EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#;

fn make(server: &Server, namespace: &str, topics: &[&str]) -> String {
    server.command("PUT", &format!("{RG}/{namespace}"), &json!({"location": "local"}));
    for topic in topics {
        server.command("PUT", &format!("{RG}/{namespace}/topics/{topic}"), &json!({}));
    }
    key(server, namespace)
}

fn key(server: &Server, of: &str) -> String {
    let keys = server.command("POST", &format!("{RG}/{of}/listKeys"), &Value::Null).json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// Publishes, and tells status, body and code.
fn publish(server: &Server, host: &str, path: &str, authorization: &str) -> (u16, String, Option<String>) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {authorization}\r\ncontent-length: {}\r\n\r\n{EVENT}",
        EVENT.len()
    );
    let answer = server.client().exchange(head.as_bytes()).expect("a publisher is answered");
    (answer.status, answer.text(), answer.header("x-ms-error-code").map(str::to_owned))
}

#[test]
fn a_topic_is_found_by_path_by_host_or_by_neither_where_there_is_one_namespace() {
    let mut server = Server::start(&[]);
    let shown = format!("SharedAccessKey {}", make(&server, "plant", &["heat"]));
    let took = (200, "{}".to_owned(), None);
    let (by_path, by_host) = ("/namespaces/plant/topics/heat:publish?api-version=2024-06-01", "/topics/heat:publish");
    assert_eq!(publish(&server, "127.0.0.1", by_path, &shown), took);
    assert_eq!(publish(&server, "127.0.0.1", "/NameSpaces/PLANT/Topics/Heat:publish", &shown), took);
    assert_eq!(publish(&server, "PLANT.events.example", by_host, &shown), took);
    assert_eq!(publish(&server, "127.0.0.1", by_host, &shown), took);
    assert_eq!(
        publish(&server, "127.0.0.1", by_host, &format!("SharedAccessKey {}", key(&server, "plant/topics/heat"))),
        took
    );
    // With a second one it must be said which, and its keys open nothing of the first.
    let other = format!("SharedAccessKey {}", make(&server, "other", &["heat"]));
    let (status, text, code) = publish(&server, "127.0.0.1", by_host, &shown);
    assert_eq!((status, code.as_deref()), (404, Some("NotFound")), "{text}");
    assert!(text.contains("as the first label of the host"), "{text}");
    assert_eq!(publish(&server, "127.0.0.1", by_path, &other).0, 401);
    assert_eq!(publish(&server, "plant.events.example", by_host, &shown), took);
    // Everything is there after a kill, keys too.
    server.kill_9();
    server.assert_sound();
    server.restart();
    assert_eq!(publish(&server, "127.0.0.1", by_path, &shown), took);
    assert_eq!(publish(&server, "other.example", by_host, &other), took);
    // What was deleted takes nothing, and a new one of its name has other keys.
    server.command("DELETE", &format!("{RG}/other"), &Value::Null);
    assert_eq!(publish(&server, "127.0.0.1", "/namespaces/other/topics/heat:publish", &other).0, 404);
    make(&server, "other", &["heat"]);
    assert_eq!(publish(&server, "127.0.0.1", "/namespaces/other/topics/heat:publish", &other).0, 401);
}

#[test]
fn who_may_not_is_told_in_the_words_of_namespaces() {
    let server = Server::start(&[]);
    let key = make(&server, "plant", &["heat"]);
    let told = |path: &str, authorization: &str| {
        let (status, text, code) = publish(&server, "127.0.0.1", path, authorization);
        let body: Value = serde_json::from_str(&text).expect("an error is JSON");
        assert_eq!(body["error"]["code"].as_str(), code.as_deref(), "{text}");
        (status, code.unwrap_or_default(), body["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let good = format!("SharedAccessKey {key}");
    let path = "/topics/heat:publish";
    for (path, authorization, status, code, says) in [
        (path, "", 401, "Unauthorized", "SharedAccessKey, SharedAccessSignature or Bearer"),
        (path, "Basic x", 401, "Unauthorized", "SharedAccessKey, SharedAccessSignature or Bearer"),
        (path, "SharedAccessKey AAAA", 401, "Unauthorized", "not one of the topic's keys"),
        (path, "SharedAccessKey ", 400, "BadRequest", "must have a value"),
        (path, "SharedAccessSignature r=a&e=b&s=cc", 401, "Unauthorized", "SAS token"),
        ("/topics/cold:publish", &good, 410, "Gone", "no topic 'cold' in the namespace 'plant'"),
        ("/namespaces/none/topics/heat:publish", &good, 404, "NotFound", "names one that is not there"),
        ("/topics/heat:publish?api-version=1999-01-01", &good, 400, "BadRequest", "2024-06-01"),
    ] {
        let (is, is_code, message) = told(path, authorization);
        assert_eq!((is, is_code.as_str()), (status, code), "{path} {authorization}: {message}");
        assert!(message.contains(says), "{path} {authorization}: {message}");
    }
    let counts = server.command("GET", &format!("{RG}/plant/topics/heat/status"), &Value::Null).json();
    assert!(counts.is_object(), "{counts}");
}
