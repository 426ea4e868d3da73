//! Queues of SQS: moto's server. It forgets everything when it ends.

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command},
    time::Duration,
};

use serde_json::{Value, json};

use super::{LONG, Service, conform, start_server};
use crate::{
    sdk::packages::MOTO,
    support::{
        http::Client,
        load, needs,
        port::ReservedPort,
        server::{SubscriptionSpec, wait_for},
    },
};

const SECRET: &str = "aws-secret-that-nobody-sees";

/// The limit that the queues have.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The account of everybody's moto.
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
        Self { folder, port: ReservedPort::new(), child: None, names: BTreeSet::new() }
    }

    fn ask(&self, operation: &str, body: &Value) -> Value {
        let target = format!("AmazonSQS.{operation}");
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", &*target),
            ("authorization", "AWS4-HMAC-SHA256 Credential=k/20261120/us-east-1/sqs/aws4_request"),
        ];
        let answer = Client::new(self.port.address).ask("POST", "/", &headers, body.to_string().as_bytes());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text());
        answer.json()
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{ACCOUNT}/{name}", self.port.address)
    }

    fn make(&self, name: &str) {
        let mut attributes = json!({"MaximumMessageSize": MESSAGE_BYTES_MAX.to_string()});
        if name.ends_with(".fifo") {
            attributes["FifoQueue"] = "true".into();
        }
        self.ask("CreateQueue", &json!({"QueueName": name, "Attributes": attributes}));
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
                self.ask("DeleteMessage", &json!({"QueueUrl": self.url(name), "ReceiptHandle": handle}));
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

    fn resume(&mut self) {
        let log = File::create(self.folder.path().join("log")).expect("a log");
        let mut command = Command::new(&*MOTO);
        command.args(["-H", "127.0.0.1", "-p", &self.port.address.port().to_string()]);
        let command = command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
        let at = self.port.address;
        wait_for("moto to listen", START, || Client::new(at).ask("GET", "/", &[], b"").is_ok());
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

    fn settings(&self) -> Vec<(String, String)> {
        [
            ("URL", format!("http://{}/{ACCOUNT}", self.port.address)),
            ("ACCESS_KEY_ID", "key".to_owned()),
            ("SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
        .map(|(key, value)| (format!("DELIVERY__RESOURCES__SERVICE__{key}"), value))
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": "service", "queueName": name})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let body = |message: Value| serde_json::from_str(message["Body"].as_str().expect("a body")).expect("JSON");
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
    let properties =
        json!({"resourceId": "service", "queueName": "orders.fifo", "deliveryAttributeMappings": mappings});
    let destination = json!({"destination": {"endpointType": "Sqs", "properties": properties}});
    server.subscribe("orders", "queue", &SubscriptionSpec::of("").also(&json!({}), &destination));
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
        assert_eq!(message["MessageAttributes"]["tenant"]["StringValue"], "blue", "{message}");
        deduplication.insert(message["Attributes"]["MessageDeduplicationId"].to_string());
    }
    assert_eq!(deduplication.len(), ids.len());
}
