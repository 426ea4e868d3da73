//! Namespaces: addressed by path, by host, or by neither; opened by their keys; and still there
//! after a kill. Push delivery from them, and their dead letters.

use std::{fs, time::SystemTime};

use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use super::{LONG, dead_letter::files};
use crate::{
    publish::sas::signed,
    spec::{fact, stated},
    support::{
        http::header,
        server::{Server, wait_for},
        sink::{Behavior, HandshakeReply, Sink},
    },
};

const RG: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces";

const EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T","data":{}}"#;

fn make(server: &Server, namespace: &str, topics: &[&str]) -> String {
    server.command(
        "PUT",
        &format!("{RG}/{namespace}"),
        &json!({"location": "local"}),
    );
    for topic in topics {
        server.command(
            "PUT",
            &format!("{RG}/{namespace}/topics/{topic}"),
            &json!({}),
        );
    }
    key(server, namespace)
}

fn key(server: &Server, of: &str) -> String {
    let keys = server
        .command("POST", &format!("{RG}/{of}/listKeys"), &Value::Null)
        .json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// Publishes, and tells status, body and code.
fn publish(
    server: &Server,
    host: &str,
    path: &str,
    authorization: &str,
) -> (u16, String, Option<String>) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {authorization}\r\ncontent-length: \
         {}\r\n\r\n{EVENT}",
        EVENT.len()
    );
    let response = server
        .client()
        .exchange(head.as_bytes())
        .expect("a publisher is answered");
    (
        response.status,
        response.text(),
        response.header("x-ms-error-code").map(str::to_owned),
    )
}

#[test]
fn a_topic_is_found_by_path_by_host_or_by_neither_where_there_is_one_namespace() {
    let mut server = Server::start(&[]);
    let shown = format!("SharedAccessKey {}", make(&server, "plant", &["heat"]));
    let took = (200, "{}".to_owned(), None);
    let by_path = "/namespaces/plant/topics/heat:publish?api-version=2024-06-01";
    let by_host = "/topics/heat:publish";
    assert_eq!(publish(&server, "127.0.0.1", by_path, &shown), took);
    assert_eq!(
        publish(
            &server,
            "127.0.0.1",
            "/NameSpaces/PLANT/Topics/Heat:PUBLISH",
            &shown
        ),
        took
    );
    assert_eq!(
        publish(&server, "PLANT.events.example", by_host, &shown),
        took
    );
    assert_eq!(publish(&server, "127.0.0.1", by_host, &shown), took);
    assert_eq!(
        publish(
            &server,
            "127.0.0.1",
            by_host,
            &format!("SharedAccessKey {}", key(&server, "plant/topics/heat"))
        ),
        took
    );
    // With a second one it must be said which, and its keys open nothing of the first.
    let other = format!("SharedAccessKey {}", make(&server, "other", &["heat"]));
    let (status, text, code) = publish(&server, "127.0.0.1", by_host, &shown);
    assert_eq!((status, code.as_deref()), (404, Some("NotFound")), "{text}");
    assert!(text.contains("as the first label of the host"), "{text}");
    assert_eq!(publish(&server, "127.0.0.1", by_path, &other).0, 401);
    assert_eq!(
        publish(&server, "plant.events.example", by_host, &shown),
        took
    );
    // Everything is there after a kill, keys too.
    server.kill_9();
    server.assert_sound();
    server.restart();
    assert_eq!(publish(&server, "127.0.0.1", by_path, &shown), took);
    assert_eq!(publish(&server, "other.example", by_host, &other), took);
    // A deleted namespace accepts nothing, and a new one with its name has other keys.
    server.command("DELETE", &format!("{RG}/other"), &Value::Null);
    assert_eq!(
        publish(
            &server,
            "127.0.0.1",
            "/namespaces/other/topics/heat:publish",
            &other
        )
        .0,
        404
    );
    make(&server, "other", &["heat"]);
    assert_eq!(
        publish(
            &server,
            "127.0.0.1",
            "/namespaces/other/topics/heat:publish",
            &other
        )
        .0,
        401
    );
}

#[test]
fn a_name_that_cannot_be_a_folder_of_dead_letters_is_refused() {
    let server = Server::start(&[]);
    let topic = json!({"properties": {"edition": "namespace"}});
    let event_subscription = json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:1/hook"}},
    }});
    let namespace = json!({"location": "local"});
    let queue = json!({"properties": {"deliveryConfiguration": {
        "deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": 60},
    }}});
    let provider = "providers/Microsoft.EventGrid";
    server.command(
        "PUT",
        &format!("/subscriptions/s/resourceGroups/r/{provider}/topics/orders"),
        &topic,
    );
    make(&server, "plant", &["heat"]);
    // The last are escaped twice, with a separator of another system, and in a letter that looks
    // like a dot.
    for name in [
        "..",
        "%2e%2e",
        "%2E.",
        "...",
        "%2e%2e%2e",
        ".",
        "%252e%252e",
        "a%5cb",
        "%E2%80%A4%E2%80%A4",
    ] {
        for (path, body) in [
            (
                format!("/subscriptions/s/resourceGroups/{name}/{provider}/topics/other"),
                &topic,
            ),
            (
                format!("/subscriptions/s/resourceGroups/{name}/{provider}/domains/other"),
                &topic,
            ),
            (
                format!("/subscriptions/s/resourceGroups/{name}/{provider}/namespaces/other"),
                &namespace,
            ),
            (
                format!("/subscriptions/{name}/resourceGroups/r/{provider}/topics/other"),
                &topic,
            ),
            (
                format!("/subscriptions/s/resourceGroups/r/{provider}/topics/{name}"),
                &topic,
            ),
            (
                format!("/subscriptions/s/resourceGroups/r/{provider}/domains/{name}"),
                &topic,
            ),
            (format!("{RG}/{name}"), &namespace),
            (format!("{RG}/plant/topics/{name}"), &json!({})),
            (
                format!("{RG}/plant/topics/heat/eventSubscriptions/{name}"),
                &queue,
            ),
            (
                format!(
                    "/subscriptions/s/resourceGroups/r/{provider}/topics/orders/{provider}/eventSubscriptions/{name}"
                ),
                &event_subscription,
            ),
        ] {
            let response = server.admin("PUT", &path, body);
            assert_eq!(response.status, 400, "{path}: {}", response.text());
            assert!(
                response.text().contains("; expected "),
                "{path}: {}",
                response.text()
            );
        }
    }
    let topics = server
        .command(
            "GET",
            &format!("/subscriptions/s/{provider}/topics"),
            &Value::Null,
        )
        .json();
    assert_eq!(
        topics["value"].as_array().map(Vec::len),
        Some(1),
        "{topics}"
    );
}

#[test]
fn an_unauthorized_caller_is_refused_with_the_errors_of_namespaces() {
    let server = Server::start(&[]);
    let key = make(&server, "plant", &["heat"]);
    let shown = |path: &str, authorization: &str| {
        let (status, text, code) = publish(&server, "127.0.0.1", path, authorization);
        let body: Value = serde_json::from_str(&text).expect("an error is JSON");
        assert_eq!(body["error"]["code"].as_str(), code.as_deref(), "{text}");
        (
            status,
            code.unwrap_or_default(),
            body["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let good = format!("SharedAccessKey {key}");
    let path = "/topics/heat:publish";
    for (path, authorization, status, code, says) in [
        (
            path,
            "",
            401,
            "Unauthorized",
            "SharedAccessKey, SharedAccessSignature or Bearer",
        ),
        (
            path,
            "Basic x",
            401,
            "Unauthorized",
            "SharedAccessKey, SharedAccessSignature or Bearer",
        ),
        (
            path,
            "SharedAccessKey AAAA",
            401,
            "Unauthorized",
            "not one of the topic's keys",
        ),
        (
            path,
            "SharedAccessKey ",
            400,
            "BadRequest",
            "must have a value",
        ),
        (
            path,
            "SharedAccessSignature r=a&e=b&s=cc",
            401,
            "Unauthorized",
            "SAS token",
        ),
        (
            "/topics/cold:publish",
            &good,
            410,
            "Gone",
            "no topic 'cold' in the namespace 'plant'",
        ),
        (
            "/namespaces/none/topics/heat:publish",
            &good,
            404,
            "NotFound",
            "names no namespace, or one that does not exist",
        ),
        (
            "/topics/heat:publish?api-version=latest",
            &good,
            400,
            "BadRequest",
            "2018-01-01",
        ),
    ] {
        let (is, is_code, message) = shown(path, authorization);
        assert_eq!(
            (is, is_code.as_str()),
            (status, code),
            "{path} {authorization}: {message}"
        );
        assert!(message.contains(says), "{path} {authorization}: {message}");
    }
    let counts = server
        .command(
            "GET",
            &format!("{RG}/plant/topics/heat/status"),
            &Value::Null,
        )
        .json();
    assert!(counts.is_object(), "{counts}");
}

/// Publishes to `path`, or receives there, with a SAS token and these headers; tells the status.
fn with_token(server: &Server, path: &str, token: &str, headers: &[(&str, &str)]) -> u16 {
    let mut client = server.client();
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let body = if path.ends_with(":publish") {
        EVENT
    } else {
        ""
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nauthorization: SharedAccessSignature {token}\r\ncontent-length: \
         {}\r\n{lines}\r\n{body}",
        body.len()
    );
    client
        .exchange(head.as_bytes())
        .expect("a client is answered")
        .status
}

const HEAT: &str = "/namespaces/plant/topics/heat";
const COLD: &str = "/namespaces/plant/topics/cold";

fn publish_path(topic: &str) -> String {
    format!("{topic}:publish")
}

fn receive_path(topic: &str, queue: &str) -> String {
    format!("{topic}/eventsubscriptions/{queue}:receive?maxWaitTime=10")
}

/// A namespace with two topics, each with two queues.
struct PlantWithQueues<'a> {
    server: &'a Server,
    key: String,
    /// The address of the server.
    own: String,
}

impl<'a> PlantWithQueues<'a> {
    fn new(server: &'a Server) -> Self {
        let key = make(server, "plant", &["heat", "cold"]);
        let queue = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
        for topic in ["heat", "cold"] {
            for name in ["work", "rest"] {
                let path = format!("{RG}/plant/topics/{topic}/eventSubscriptions/{name}");
                server.command("PUT", &path, &queue);
            }
        }
        Self {
            server,
            key,
            own: server.address().to_string(),
        }
    }

    fn token(&self, resource: &str) -> String {
        let resource: String = byte_serialize(resource.as_bytes()).collect();
        signed(&self.key, &resource, "2099-01-02T03%3A04%3A05Z")
    }

    fn below(&self, path: &str) -> String {
        format!("http://{}{path}", self.own)
    }

    fn status(&self, path: &str, token: &str) -> u16 {
        with_token(self.server, path, token, &[("host", self.own.as_str())])
    }

    /// A token opens its resource and all resources below it.
    fn assert_tokens_open_what_they_name(&self) {
        let token = self.token(&self.below(COLD));
        assert_eq!(self.status(&publish_path(COLD), &token), 200);
        for (path, resource) in [
            (publish_path(HEAT), self.below(HEAT)),
            (publish_path(HEAT), self.below("/NameSpaces/plant")),
            (publish_path("/topics/heat"), self.below("/topics/heat")),
            (receive_path(HEAT, "work"), self.below(HEAT)),
            (
                receive_path(HEAT, "work"),
                self.below(&format!("{HEAT}/eventSubscriptions/work")),
            ),
        ] {
            let status = self.status(&path, &self.token(&resource));
            assert_eq!(status, 200, "{path} with a token for {resource}");
        }
    }

    /// A token does not open another topic, another event subscription, or the topic of its event
    /// subscription.
    fn assert_tokens_open_nothing_else(&self) {
        for (path, resource) in [
            (publish_path(COLD), self.below(HEAT)),
            (publish_path("/topics/cold"), self.below("/topics/heat")),
            (receive_path(COLD, "work"), self.below(HEAT)),
            (
                receive_path(HEAT, "rest"),
                self.below(&format!("{HEAT}/eventSubscriptions/work")),
            ),
            (
                publish_path(HEAT),
                self.below(&format!("{HEAT}/eventSubscriptions/work")),
            ),
            (
                publish_path("/topics/cold"),
                "http://heat.example.com/topics/heat".to_owned(),
            ),
        ] {
            let token = self.token(&resource);
            assert_eq!(
                self.status(&path, &token),
                401,
                "{path} with a token for {resource}"
            );
            for forged in [
                format!("{}{HEAT}?", self.own),
                format!("{}{HEAT}/eventsubscriptions/work?", self.own),
                format!("{}/topics/heat#", self.own),
                "heat.example.com/topics/heat?".to_owned(),
                "heat.example.com".to_owned(),
                format!("x@{}{HEAT}", self.own),
            ] {
                self.assert_forged_hosts_open_nothing(&path, &token, &forged);
            }
        }
    }

    /// Sends a forged name of the server in each header that may have one.
    fn assert_forged_hosts_open_nothing(&self, path: &str, token: &str, forged: &str) {
        let quoted = format!("host=\"{forged}\";proto=http");
        for headers in [
            vec![("host", forged)],
            vec![("host", self.own.as_str()), ("x-forwarded-host", forged)],
            vec![("host", self.own.as_str()), ("forwarded", quoted.as_str())],
            vec![
                ("host", self.own.as_str()),
                ("x-forwarded-proto", "http://h/"),
                ("x-forwarded-host", forged),
            ],
        ] {
            let status = with_token(self.server, path, token, &headers);
            assert!(
                [400, 401, 404].contains(&status),
                "{path} with the token {token} and {headers:?}: {status}"
            );
            let is_host = headers.len() == 1 && forged != "heat.example.com";
            assert!(!is_host || status == 400, "{headers:?}: {status}");
        }
    }
}

#[test]
fn a_token_for_one_topic_opens_no_other_whatever_the_headers_say() {
    for proxies in ["", "127.0.0.0/8"] {
        // Each refusal is expected, so none is held back.
        let limits = ("LIMITS__FAILED_KEYS", "1000000");
        let server = Server::start(&[
            ("AUTH__TRUSTED_PROXIES", proxies),
            ("SERVER__HOST_NAMES", "*.example.com"),
            limits,
        ]);
        let plant = PlantWithQueues::new(&server);
        plant.assert_tokens_open_what_they_name();
        plant.assert_tokens_open_nothing_else();
    }
}

/// A server with the namespace `plant` and the topic `heat`, whose edition has milliseconds for
/// minutes, and its key.
fn plant() -> (Server, String) {
    let server = Server::start(&[("CHAOS__ENABLED", "true")]);
    make(&server, "plant", &[]);
    let topic = json!({"properties": {"edition": "namespaces"}});
    server.command("PUT", &format!("{RG}/plant/topics/heat"), &topic);
    let key = key(&server, "plant");
    (server, key)
}

fn subscription(name: &str) -> String {
    format!("{RG}/plant/topics/heat/eventSubscriptions/{name}")
}

/// An event subscription that pushes to `url` with the headers of the documents, and a secret one;
/// its dead letters go to `mycontainer`.
fn pushed(url: &str, attempts: u32) -> Value {
    let header = |name: &str, value: &str, secret: bool| json!({"name": name, "type": "Static", "properties": {"value": value, "isSecret": secret}});
    let headers = [
        header("Custom-Header-1", "value1", false),
        header("Custom-Header-2", "34", false),
        header("Authorization", "Basic hidden", true),
    ];
    json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push", "push": {
        "maxDeliveryCount": attempts,
        "destination": {"endpointType": "WebHook", "properties": {
            "endpointUrl": url, "deliveryAttributeMappings": headers}},
        "deadLetterDestinationWithResourceIdentity": {
            "deliveryRetryPeriodInDays": 2,
            "endpointType": "StorageBlob",
            "StorageBlob": {"blobContainerName": "mycontainer", "resourceId": "/r"},
            "identity": {"type": "SystemAssigned"},
        },
    }}}})
}

/// Publishes a body with these headers.
fn publish_as(server: &Server, key: &str, headers: &[(&str, &str)], body: &[u8]) {
    let authorization = format!("SharedAccessKey {key}");
    let headers = [&[("authorization", authorization.as_str())], headers].concat();
    let response = server.client().ask(
        "POST",
        "/namespaces/plant/topics/heat:publish",
        &headers,
        body,
    );
    let response = response.expect("a publisher is answered");
    assert_eq!((response.status, response.text().as_str()), (200, "{}"));
}

/// The letters of the only file, once it is there, and its path below the folder of all.
fn letters(server: &Server) -> (Vec<Value>, Vec<String>) {
    wait_for("a file", LONG, || !files(server).is_empty());
    let found = files(server);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = fs::read_to_string(&found[0]).expect("a file of text");
    let below = found[0]
        .strip_prefix(server.data_dir().join("dead-letters"))
        .expect("it is below");
    let parts = below
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    (serde_json::from_str(&text).expect("letters"), parts)
}

#[test]
fn an_event_that_a_push_endpoint_refuses_is_a_dead_letter_of_its_namespace() {
    let _rows = crate::spec::shows(&[
        "S001-001: Dead-lettering exists for event subscriptions of namespace topics.",
        "S001-002: Dead-lettering moves events of an event subscription that could not be \
         delivered or processed to a supported dead-letter destination.",
        "S001-012: The listed causes (poison message, lock or retention expiry, attempts or retry \
         time used up) are introduced as some of the cases in which dead-lettering happens, so the \
         list is not stated to be complete.",
        "S001-032: Custom delivery properties are headers configured on the event subscription \
         that go out with every outgoing HTTP push delivery request.",
        "S001-090: A dead-letter blob is a JSON file whose file name is a globally unique \
         identifier (GUID).",
        "S001-114: Dead-lettering is configured per event subscription.",
        "S001-118: Configuration step 3 for dead-lettering is to configure the dead-letter \
         destination on the event subscription.",
        "S001-120: In the configuration template the dead-letter destination is the object \
         deadLetterDestinationWithResourceIdentity.",
        "S001-130: Dead-lettering can be enabled and configured while an event subscription is \
         being created.",
    ]);
    let (server, key) = plant();
    let sink = Sink::start();
    sink.set("/alarm", Behavior::Respond(401));
    server.command(
        "PUT",
        &subscription("MyEventSubscription"),
        &pushed(&sink.url("/alarm"), 3),
    );
    // The event of the documentation in binary mode.
    let event = [
        ("ce-specversion", "1.0"),
        ("ce-type", "com.example.someevent"),
        ("ce-source", "/mycontext"),
        ("ce-id", "A234-1234-1234"),
        ("ce-time", "2018-04-05T17:31:00Z"),
        ("ce-comexampleextension1", "value"),
        ("content-type", "application/vnd.apache.thrift.binary"),
    ];
    publish_as(&server, &key, &event, b"\x00\xff{");
    let (letters, parts) = letters(&server);
    assert_file_is_named_as_documented(&parts);
    let [letter] = letters.as_slice() else {
        panic!("{letters:?}")
    };
    assert_dead_letter_has_the_event(letter);
    assert_request_had_all_headers(&sink);
}

fn assert_file_is_named_as_documented(parts: &[String]) {
    let [
        container,
        namespace,
        topic,
        subscription,
        year,
        month,
        day,
        hour,
        name,
    ] = parts
    else {
        panic!("{parts:?}")
    };
    assert_eq!(
        [container, namespace, topic, subscription],
        ["mycontainer", "plant", "heat", "MyEventSubscription"]
    );
    for number in [year, month, day, hour] {
        assert!(
            number
                .parse::<u16>()
                .is_ok_and(|parsed| parsed.to_string() == *number),
            "{parts:?}"
        );
    }
    assert!(
        name.strip_suffix(".json")
            .is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()),
        "{name}"
    );
}

fn assert_dead_letter_has_the_event(letter: &Value) {
    let keys: Vec<_> = letter
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert_eq!(
        letter["event"],
        json!({
            "id": "A234-1234-1234", "source": "/mycontext", "type": "com.example.someevent", "specversion": "1.0",
            "time": "2018-04-05T17:31:00Z", "comexampleextension1": "value",
            "datacontenttype": "application/vnd.apache.thrift.binary", "data_base64": "AP97",
        })
    );
    assert_eq!(
        letter["customDeliveryProperties"],
        json!({"Custom-Header-1": "value1", "Custom-Header-2": "34"})
    );
    let fate = &letter["deadletterProperties"];
    assert_eq!(
        fate["deadletterreason"],
        "Undeliverable due to client error"
    );
    assert_eq!(
        (&fate["deliveryresult"], &fate["deliveryattempts"]),
        (&json!("Unauthorized"), &json!(1))
    );
    assert!(
        fate["publishutc"].as_str() <= fate["deliveryattemptutc"].as_str(),
        "{fate}"
    );
}

/// The request had all headers, the secret one included.
fn assert_request_had_all_headers(sink: &Sink) {
    let heads = sink.heads("/alarm");
    assert_eq!(heads.len(), 1, "{heads:?}");
    for (name, value) in [
        ("custom-header-1", "value1"),
        ("custom-header-2", "34"),
        ("authorization", "Basic hidden"),
    ] {
        assert_eq!(header(&heads[0], name), Some(value), "{}", heads[0]);
    }
    assert_eq!(
        header(&heads[0], "content-type"),
        Some("application/cloudevents+json; charset=utf-8")
    );
}

#[test]
fn an_event_at_its_last_push_attempt_is_a_dead_letter_and_so_is_a_poison_message() {
    let _rows = crate::spec::shows(&[
        "S001-005: A poison message is a cause of dead-lettering in push delivery.",
        "S001-010: In push delivery, an event that has reached the maximum number of delivery \
         attempts is dead-lettered.",
    ]);
    let (server, key) = plant();
    let sink = Sink::start();
    sink.set("/alarm", Behavior::Respond(503));
    server.command(
        "PUT",
        &subscription("alarm"),
        &pushed(&sink.url("/alarm"), 2),
    );
    publish_as(&server, &key, &[], EVENT.as_bytes());
    let (found, _) = letters(&server);
    assert_eq!(
        found[0]["event"],
        serde_json::from_str::<Value>(EVENT).expect("JSON")
    );
    let fate = &found[0]["deadletterProperties"];
    assert_eq!(
        fate["deadletterreason"],
        "Maximum delivery attempts was exceeded."
    );
    assert_eq!(
        (&fate["deliveryresult"], &fate["deliveryattempts"]),
        (&json!("Busy"), &json!(2))
    );
    // The other one makes the actor that sends it panic.
    let poison = json!({"topic": "namespace:plant:heat", "subscription": "alarm", "eventId": "bad", "times": 100});
    server.command("POST", "/chaos/poison", &poison);
    publish_as(
        &server,
        &key,
        &[],
        EVENT.replace(r#""1""#, r#""bad""#).as_bytes(),
    );
    wait_for("a second file", LONG, || files(&server).len() == 2);
    let texts = files(&server)
        .into_iter()
        .map(|file| fs::read_to_string(file).expect("a file of text"));
    let bad: Vec<String> = texts.filter(|text| text.contains(r#""bad""#)).collect();
    assert!(
        bad.len() == 1 && bad[0].contains("Event is a poison message."),
        "{bad:?}"
    );
}

#[test]
fn an_endpoint_of_a_namespace_says_yes_at_once_or_there_is_no_subscription() {
    let (server, key) = plant();
    let sink = Sink::start();
    let spec = |path: &str| pushed(&sink.url(path), 3);
    sink.greet("/late", HandshakeReply::Defer);
    let refused = server.admin("PUT", &subscription("alarm"), &spec("/late"));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("WebHook-Allowed-Origin"),
        "{}",
        refused.text()
    );
    assert_eq!(
        server
            .admin("GET", &subscription("alarm"), &Value::Null)
            .status,
        404
    );
    // A rate that it allows is nothing that was asked for.
    sink.greet("/alarm", HandshakeReply::AcceptRate("7"));
    let response = server
        .command("PUT", &subscription("alarm"), &spec("/alarm"))
        .json();
    assert_eq!(response["properties"]["provisioningState"], "Succeeded");
    let webhook =
        &response["properties"]["deliveryConfiguration"]["push"]["destination"]["properties"];
    assert!(webhook["allowedRate"].is_null(), "{response}");
    let reported = sink.handshakes("/alarm");
    assert_eq!(
        header(&reported[0].head, "webhook-request-origin"),
        Some("eventgrid.azure.net")
    );
    for absent in ["webhook-request-callback", "webhook-request-rate"] {
        assert_eq!(
            header(&reported[0].head, absent),
            None,
            "{}",
            reported[0].head
        );
    }
    publish_as(&server, &key, &[], format!("[{EVENT}]").as_bytes());
    wait_for("the event", LONG, || sink.taken("/alarm") == 1);
}

/// The bytes of the event in the documentation.
const SOME_EVENT: &str = include_str!("../data/someevent.cloud-event.json");

#[test]
fn the_events_of_the_documents_are_dead_letters_as_they_were_published_in_either_mode() {
    let _rows = crate::spec::shows(&[
        "S001-028: HTTP 200 OK is given as the example of the response by which the broker accepts \
         a published event, and publishutc is the UTC time of that acceptance.",
        "S001-058: The structured-mode publish example addresses the topic as /topics/mytopic1 \
         (form /topics/<topic_name>), written after the host name on the HOST line.",
        "S001-060: The structured-mode publish example uses the request header content-type: \
         application/cloudevents+json.",
        "S001-061: The body of the structured-mode publish example is one JSON object with exactly \
         these properties: specversion, type, source, id, time, comexampleextension1, \
         comexampleothervalue, datacontenttype, data.",
        "S001-062: The body of the structured-mode publish example has specversion \"1.0\", type \
         \"com.example.someevent\", source \"/mycontext\", id \"A234-1234-1234\", time \
         \"2018-04-05T17:31:00Z\", comexampleextension1 \"value\", comexampleothervalue 5, \
         datacontenttype \"application/json\" and an object as data.",
        "S001-071: The binary-mode publish example addresses the topic as /topics/mytopic1 (form \
         /topics/<topic_name>), written after the host name on the HOST line.",
        "S001-073: The binary-mode publish example carries the context attributes as request \
         headers: ce-specversion: 1.0, ce-type: com.example.someevent, ce-source: /mycontext, \
         ce-id: A234-1234-1234, ce-time: 2018-04-05T17:31:00Z.",
        "S001-074: The binary-mode publish example carries extension attributes as request headers \
         with the same ce- prefix: ce-comexampleextension1: value and ce-comexampleothervalue: 5.",
        "S001-075: The binary-mode publish example has the request header content-type: \
         application/vnd.apache.thrift.binary and no datacontenttype header.",
        "S001-076: The body of the binary-mode publish example is the raw binary data, encoded by \
         the rules of the media type application/vnd.apache.thrift.binary.",
        "S001-078: The blob for an event published in binary mode is written in JSON, in the same \
         format as for structured mode.",
        "S001-082: The blob of the binary-mode example has exactly three root properties in this \
         order: event, customDeliveryProperties, deadletterProperties.",
        "S001-083: The event object in the blob of the binary-mode example has exactly these \
         properties: specversion, type, source, id, time, comexampleextension1, \
         comexampleothervalue, datacontenttype, data_base64, and no data property.",
        "S001-084: In the blob of the binary-mode example the ce- header values become attributes \
         without the ce- prefix: specversion \"1.0\", type \"com.example.someevent\", source \
         \"/mycontext\", id \"A234-1234-1234\", time \"2018-04-05T17:31:00Z\", \
         comexampleextension1 \"value\".",
        "S001-087: In the blob of the binary-mode example data_base64 is a JSON string holding the \
         base64 encoding of the published binary body.",
    ]);
    let server = Server::start(&[]);
    let sink = Sink::start();
    make(&server, "jfgnspsc2", &[]);
    let topic = format!("{RG}/jfgnspsc2/topics/mytopic1");
    server.command(
        "PUT",
        &topic,
        &json!({"properties": {"edition": "namespaces"}}),
    );
    sink.set("/alarm", Behavior::Respond(401));
    server.command(
        "PUT",
        &format!("{topic}/eventSubscriptions/alarm"),
        &pushed(&sink.url("/alarm"), 3),
    );
    let shown = format!("SharedAccessKey {}", key(&server, "jfgnspsc2"));
    let now = || humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    let post = |headers: &str, body: &[u8]| {
        let head = format!(
            "POST /topics/mytopic1:publish HTTP/1.1\r\nhost: \
             jfgnspsc2.eastus-1.eventgrid.azure.net\r\n\
             authorization: {shown}\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        let response = server
            .client()
            .exchange(&[head.as_bytes(), body].concat())
            .expect("a publisher is answered");
        assert_eq!((response.status, response.text().as_str()), (200, "{}"));
    };
    let before = now();
    post(
        "content-type: application/cloudevents+json\r\n",
        SOME_EVENT.as_bytes(),
    );
    let after = now();
    let (found, _) = letters(&server);
    let published = found[0]["deadletterProperties"]["publishutc"]
        .as_str()
        .expect("a time");
    let digits = before.len() - 1;
    assert!(
        (&before[..digits]..=&after[..digits]).contains(&&published[..digits]),
        "{before} {published} {after}"
    );
    assert_eq!(
        found[0]["event"],
        serde_json::from_str::<Value>(SOME_EVENT).expect("JSON")
    );
    let text = fs::read_to_string(&files(&server)[0]).expect("a file of text");
    assert!(text.contains(SOME_EVENT.trim()), "byte for byte: {text}");
    let given =
        ["S001-073", "S001-074", "S001-075"].map(|id| stated(id).as_object().expect("headers"));
    let given = given
        .into_iter()
        .flatten()
        .map(|(name, value)| (name, value.as_str().expect("text")));
    post(
        &given
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect::<String>(),
        &[0, 159, 146, 150],
    );
    wait_for("a second file", LONG, || files(&server).len() == 2);
    let mut texts = files(&server)
        .into_iter()
        .map(|file| fs::read_to_string(file).expect("a file of text"));
    let text = texts
        .find(|text| text.contains("data_base64"))
        .expect("the event that came in binary mode");
    let [letter]: [Value; 1] = serde_json::from_str(&text).expect("one letter");
    // A header is text: its 5 is no number.
    let expected = json!({
        "specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "id": "A234-1234-1234",
        "time": "2018-04-05T17:31:00Z", "comexampleextension1": "value", "comexampleothervalue": "5",
        "datacontenttype": "application/vnd.apache.thrift.binary", "data_base64": "AJ+Slg=="});
    assert_eq!(letter["event"], expected);
    fact(
        "S001-086",
        &json!({"datacontenttype": letter["event"]["datacontenttype"]}),
    );
    let at = [
        "\"event\":",
        "\"customDeliveryProperties\":",
        "\"deadletterProperties\":",
    ]
    .map(|key| text.find(key));
    assert!(at[0].is_some() && at.is_sorted(), "{text}");
    assert_eq!(
        letter.as_object().map(serde_json::Map::len),
        Some(3),
        "{letter}"
    );
}

#[test]
fn dead_letters_of_a_namespace_are_read_sent_again_one_by_one_or_left() {
    let _rows = crate::spec::shows(&[
        "S001-015: A dead-lettered event may be rehydrated: sent back into the event broker so \
         that it is then delivered as first intended or in the way now judged fitting.",
        "S001-016: Rehydration is a choice of the user per event: dead-lettered events judged not \
         business critical may be left in the dead-letter store and not put back.",
        "S001-017: Dead-lettered events may serve as an archive that is read and analysed later, \
         for example for audit.",
    ]);
    let (server, key) = plant();
    let sink = Sink::start();
    sink.set("/alarm", Behavior::Respond(401));
    let place = subscription("alarm");
    server.command("PUT", &place, &pushed(&sink.url("/alarm"), 3));
    let event = |id: &str| EVENT.replace(r#""1""#, &format!(r#""{id}""#));
    publish_as(
        &server,
        &key,
        &[],
        format!("[{},{}]", event("one"), event("two")).as_bytes(),
    );
    let listed = || {
        let response = server
            .command(
                "GET",
                &format!("{place}/deadLetters?stage=written"),
                &Value::Null,
            )
            .json();
        response["value"].as_array().cloned().unwrap_or_default()
    };
    wait_for("both to be in files", LONG, || listed().len() == 2);
    for letter in listed() {
        assert_eq!(
            letter["deadLetterReason"], "Undeliverable due to client error",
            "{letter}"
        );
    }
    sink.set("/alarm", Behavior::Respond(200));
    server.command(
        "POST",
        &format!("{place}/deadLetters/redrive"),
        &json!({"filter": {"id": "one"}}),
    );
    wait_for("one to arrive", LONG, || sink.taken("/alarm") == 1);
    wait_for("the other one to be left", LONG, || listed().len() == 1);
    assert_eq!(listed()[0]["id"], "two");
    assert!(
        sink.ledger("/alarm")["two"]
            .iter()
            .all(|arrival| !arrival.is_taken())
    );
}

#[test]
fn an_event_that_clients_reject_or_release_too_often_is_a_dead_letter() {
    let _rows = crate::spec::shows(&[
        "S001-004: A poison message is a cause of dead-lettering in pull delivery.",
        "S001-009: In pull delivery, an event that has reached the maximum number of delivery \
         attempts is dead-lettered.",
    ]);
    let (server, key) = plant();
    let queue = json!({
        "maxDeliveryCount": 1,
        "deadLetterDestinationWithResourceIdentity": {
            "endpointType": "StorageBlob",
            "StorageBlob": {"blobContainerName": "mycontainer", "resourceId": "/r"},
        },
    });
    let body =
        json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue", "queue": queue}}});
    server.command("PUT", &subscription("work"), &body);
    let event = |id: &str| EVENT.replace(r#""1""#, &format!(r#""{id}""#));
    publish_as(
        &server,
        &key,
        &[],
        format!("[{},{}]", event("bad"), event("late")).as_bytes(),
    );
    let authorization = format!("SharedAccessKey {key}");
    let ask = |verb: &str, body: &str| {
        let path = format!("/namespaces/plant/topics/heat/eventsubscriptions/work:{verb}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        let response = server
            .client()
            .ask("POST", &path, &headers, body.as_bytes())
            .expect("a client is answered");
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    let mut held: Vec<(String, String)> = Vec::new();
    wait_for("both to be received", LONG, || {
        for one in ask("receive?maxEvents=10", "")["value"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let text = |at: &str| {
                one.pointer(at)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            held.push((text("/event/id"), text("/brokerProperties/lockToken")));
        }
        held.len() == 2
    });
    for (id, token) in &held {
        let verb = if id == "bad" { "reject" } else { "release" };
        ask(verb, &json!({"lockTokens": [token]}).to_string());
    }
    let all = || -> Vec<Value> {
        let texts = files(&server)
            .into_iter()
            .map(|file| fs::read_to_string(file).expect("a file of text"));
        texts
            .flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).expect("letters"))
            .collect()
    };
    wait_for("both to be dead letters", LONG, || all().len() == 2);
    for letter in all() {
        let expected = match letter["event"]["id"].as_str() {
            Some("bad") => "Event was rejected.",
            _ => "Maximum delivery attempts was exceeded.",
        };
        assert_eq!(
            letter["deadletterProperties"]["deadletterreason"], expected,
            "{letter}"
        );
        assert_eq!(
            letter["deadletterProperties"]["deliveryattempts"], 1,
            "{letter}"
        );
        assert!(
            letter["customDeliveryProperties"].is_null(),
            "nothing is sent, so no header is: {letter}"
        );
    }
}
