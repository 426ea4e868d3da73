//! Queues of SQS, on moto's server, which keeps nothing after its end.

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command},
    time::Duration,
};

use ring::{digest, hmac};
use serde_json::{Value, json};

use super::{LONG, Service, conform, start_server};
use crate::{
    sdk::packages::MOTO,
    server::end_waits,
    support::{
        endpoint::{Endpoint, Received, respond},
        http::Client,
        load, needs,
        port::ReservedPort,
        server::{Server, SubscriptionSpec, wait_for},
    },
};

const SECRET: &str = "aws-secret-that-nobody-sees";

/// The limit that the queues have.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The default account of moto.
const ACCOUNT: &str = "123456789012";

/// An interpreter that starts on a machine with other work.
const START: Duration = Duration::from_secs(120);

struct Queues {
    folder: tempfile::TempDir,
    port: ReservedPort,
    child: Option<Child>,
    names: BTreeSet<String>,
}

impl Queues {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            folder,
            port: ReservedPort::new(),
            child: None,
            names: BTreeSet::new(),
        }
    }

    fn ask(&self, operation: &str, body: &Value) -> Value {
        let target = format!("AmazonSQS.{operation}");
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", &*target),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=k/20261120/us-east-1/sqs/aws4_request",
            ),
        ];
        let response =
            Client::new(self.port.address).ask("POST", "/", &headers, body.to_string().as_bytes());
        let response = response.expect("a response");
        assert_eq!(response.status, 200, "{operation}: {}", response.text());
        response.json()
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{ACCOUNT}/{name}", self.port.address)
    }

    fn make(&self, name: &str) {
        let mut attributes = json!({"MaximumMessageSize": MESSAGE_BYTES_MAX.to_string()});
        if name.ends_with(".fifo") {
            attributes["FifoQueue"] = "true".into();
        }
        self.ask(
            "CreateQueue",
            &json!({"QueueName": name, "Attributes": attributes}),
        );
    }

    /// Takes all messages out of a queue.
    fn messages(&self, name: &str) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let received = self.ask(
                "ReceiveMessage",
                &json!({"QueueUrl": self.url(name), "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"],
                    "AttributeNames": ["All"]}),
            );
            let found = received["Messages"].as_array().cloned().unwrap_or_default();
            if found.is_empty() {
                return messages;
            }
            for message in &found {
                let handle = &message["ReceiptHandle"];
                self.ask(
                    "DeleteMessage",
                    &json!({"QueueUrl": self.url(name), "ReceiptHandle": handle}),
                );
            }
            messages.extend(found);
        }
    }
}

impl Service for Queues {
    const KIND: &'static str = "Sqs";
    const SECRET: &'static str = SECRET;
    const IS_DURABLE: bool = false;
    const TOO_LARGE: usize = MESSAGE_BYTES_MAX;
    const EVENTS_MAX: u64 = 10;

    fn resume(&mut self) {
        let log = File::create(self.folder.path().join("log")).expect("a log");
        let mut command = Command::new(&*MOTO);
        command.args([
            "-H",
            "127.0.0.1",
            "-p",
            &self.port.address.port().to_string(),
        ]);
        let command = command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
        let at = self.port.address;
        wait_for("moto to listen", START, || {
            Client::new(at).ask("GET", "/", &[], b"").is_ok()
        });
        self.names.iter().for_each(|name| self.make(name));
    }

    fn stop(&mut self) {
        let mut child = self.child.take().expect("a server that runs");
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }

    fn create(&mut self, name: &str) {
        self.make(name);
        self.names.insert(name.to_owned());
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", format!("http://{}/{ACCOUNT}", self.port.address)),
            ("ACCESS_KEY_ID", "key".to_owned()),
            ("SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": "service", "queueName": name})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let body = |message: Value| {
            serde_json::from_str(message["Body"].as_str().expect("a body")).expect("JSON")
        };
        self.messages(name).into_iter().map(body).collect()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
    }
}

#[test]
fn an_sqs_queue_keeps_what_every_destination_promises() {
    if needs::python() {
        conform(Queues::new());
    }
}

#[test]
fn delivery_properties_become_attributes_and_groups_of_sqs_messages() {
    if !needs::python() {
        return;
    }
    let mut queues = Queues::new();
    queues.resume();
    queues.create("orders.fifo");
    let server = start_server(&queues);
    let key = server.topic("orders", "EventGridSchema");
    let mappings = json!([
        {"name": "MessageGroupId", "type": "Dynamic", "properties": {"sourceField": "subject"}},
        {"name": "tenant", "type": "Static", "properties": {"value": "blue", "isSecret": false}},
    ]);
    let properties = json!({"resourceId": "service", "queueName": "orders.fifo", "deliveryAttributeMappings": mappings});
    let destination = json!({"destination": {"endpointType": "Sqs", "properties": properties}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    let ids: Vec<String> = (0..25).map(|number| number.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "blue"));
    let mut messages = Vec::new();
    wait_for("the messages", LONG, || {
        messages.extend(queues.messages("orders.fifo"));
        messages.len() == ids.len()
    });
    let mut deduplication = BTreeSet::new();
    for message in messages {
        assert_eq!(message["Attributes"]["MessageGroupId"], "blue", "{message}");
        assert_eq!(
            message["MessageAttributes"]["tenant"]["StringValue"], "blue",
            "{message}"
        );
        deduplication.insert(message["Attributes"]["MessageDeduplicationId"].to_string());
    }
    assert_eq!(deduplication.len(), ids.len());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The signature that AWS would compute of a request as it came (Signature Version 4), and the one
/// that it has.
fn signatures(request: &Received) -> (String, String) {
    let header = |name: &str| {
        request
            .header(name)
            .unwrap_or_else(|| panic!("no {name} in {}", request.head))
    };
    let authorization = header("authorization");
    let part = |name: &str| {
        let found = authorization
            .split([' ', ','])
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {authorization}"))
    };
    let (_, scope) = part("Credential").split_once('/').expect("a scope");
    let signed = part("SignedHeaders");
    for name in ["host", "x-amz-date", "x-amz-target"] {
        assert!(
            signed.split(';').any(|signed| signed == name),
            "{name} is not signed: {signed}"
        );
    }
    let headers: String = signed
        .split(';')
        .map(|name| format!("{name}:{}\n", header(name)))
        .collect();
    let hash = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    let canonical = format!("POST\n/\n\n{headers}\n{signed}\n{}", hash(&request.body));
    let text = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        header("x-amz-date"),
        hash(canonical.as_bytes())
    );
    let sign = |key: &[u8], text: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    };
    let key = scope
        .split('/')
        .fold(format!("AWS4{SECRET}").into_bytes(), |key, part| {
            sign(&key, part)
        });
    (hex(&sign(&key, &text)), part("Signature").to_owned())
}

#[test]
fn a_request_to_sqs_has_the_signature_that_aws_computes() {
    let endpoint = Endpoint::start(vec![respond(200, "", r#"{"Successful":[{"Id":"0"}]}"#)]);
    let server = Server::start(&[
        (
            "DELIVERY__RESOURCES__SERVICE__URL",
            &format!("http://{}/{ACCOUNT}", endpoint.address()),
        ),
        ("DELIVERY__RESOURCES__SERVICE__ACCESS_KEY_ID", "key"),
        ("DELIVERY__RESOURCES__SERVICE__SECRET_ACCESS_KEY", SECRET),
        ("DELIVERY__RESOURCES__SERVICE__SESSION_TOKEN", "session"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let destination = json!({"destination": {"endpointType": "Sqs",
        "properties": {"resourceId": "service", "queueName": "orders"}}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    wait_for("the delivery", LONG, || {
        server.counter("orders", "queue", "delivered") == 1
    });
    let requests = endpoint.requests();
    assert_eq!(requests[0].header("x-amz-security-token"), Some("session"));
    let (computed, sent) = signatures(&requests[0]);
    assert_eq!(sent, computed);
}

/// Of three messages one is stored, one can never be, and one failed for a reason of the service.
#[test]
fn each_message_of_a_request_to_sqs_has_a_result_of_its_own() {
    let failed = [
        r#"{"Id":"1","SenderFault":true,"Code":"InvalidMessageContents","Message":"characters"}"#,
        r#"{"Id":"2","SenderFault":false,"Code":"InternalError","Message":"again"}"#,
    ];
    for failed in [failed, [failed[1], failed[0]]] {
        let parts = format!(
            r#"{{"Successful":[{{"Id":"0"}}],"Failed":[{}]}}"#,
            failed.join(",")
        );
        let endpoint = Endpoint::start(vec![
            respond(200, "", &parts),
            respond(200, "", r#"{"Successful":[{"Id":"0"}]}"#),
        ]);
        let server = Server::start(&[
            (
                "DELIVERY__RESOURCES__SERVICE__URL",
                &format!("http://{}/{ACCOUNT}", endpoint.address()),
            ),
            ("DELIVERY__RESOURCES__SERVICE__ACCESS_KEY_ID", "key"),
            ("DELIVERY__RESOURCES__SERVICE__SECRET_ACCESS_KEY", SECRET),
        ]);
        let key = server.topic("orders", "EventGridSchema");
        let destination = json!({"destination": {"endpointType": "Sqs",
            "properties": {"resourceId": "service", "queueName": "orders"}}});
        server.subscribe(
            "orders",
            "queue",
            &SubscriptionSpec::new("").also(&json!({}), &destination),
        );
        server.post_verb("orders", "queue", "hold");
        let ids = ["stored", "bad", "again"].map(str::to_owned);
        server.publish("orders", &key, &load::body(&ids, "/a"));
        server.post_verb("orders", "queue", "resume");
        let counts = || {
            ["delivered", "dropped", "pending"].map(|name| server.counter("orders", "queue", name))
        };
        wait_for("the results", LONG, || counts() == [1, 1, 1]);
        end_waits(&server, "orders", "queue");
        wait_for("the repeated message", LONG, || counts() == [2, 1, 0]);
        let requests: Vec<Value> = endpoint
            .requests()
            .iter()
            .map(|request| serde_json::from_slice(&request.body).expect("JSON"))
            .collect();
        let sent = |request: &Value| request["Entries"].as_array().expect("a list").len();
        assert_eq!(requests.iter().map(sent).collect::<Vec<_>>(), [3, 1]);
        let repeated = requests[1]["Entries"][0]["MessageBody"]
            .as_str()
            .expect("a body");
        assert!(repeated.contains("\"again\""), "{repeated}");
    }
}
