//! Credentials of the operator that a service refuses: no event is given up for them, and the cause
//! is named.

use serde_json::{Value, json};

use super::{LONG, outcomes};
use crate::{
    server::end_waits,
    support::{
        endpoint::{Endpoint, respond},
        load,
        server::{Server, SubscriptionSpec, wait_for},
    },
};

/// The kind, its properties, the settings of its service, the refusal, and the response to a
/// request that is accepted.
type Row = (
    &'static str,
    Value,
    &'static [(&'static str, &'static str)],
    (u16, &'static str),
    (u16, &'static str),
);

fn rows() -> [Row; 5] {
    let aws = &[("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret")];
    let invalid_token = r#"{"__type":"com.amazonaws.sqs#InvalidClientTokenId","message":"The security token is invalid."}"#;
    let denied = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not authorized to send"}"#;
    let sent = (200, r#"{"Successful":[{"Id":"0"}]}"#);
    let queue = json!({"resourceId": "service", "queueName": "orders"});
    [
        ("Sqs", queue.clone(), aws, (403, invalid_token), sent),
        ("Sqs", queue.clone(), aws, (400, denied), sent),
        (
            "StorageQueue",
            queue,
            &[("ACCESS_KEY", "a2V5")],
            (403, "<Error><Code>AuthenticationFailed</Code></Error>"),
            (201, ""),
        ),
        (
            "ServiceBusQueue",
            json!({"resourceId": "service/queues/orders"}),
            &[("SAS_TOKEN", "SharedAccessSignature sr=s")],
            (401, "InvalidSignature: The token has an invalid signature."),
            (201, ""),
        ),
        (
            "AzureFunction",
            json!({"resourceId": "service/functions/orders"}),
            &[("FUNCTION_KEY", "key")],
            (401, "Unauthorized"),
            (200, ""),
        ),
    ]
}

#[test]
fn an_event_waits_for_credentials_that_a_service_accepts() {
    for (kind, properties, settings, refusal, accepted) in rows() {
        let endpoint = Endpoint::start(vec![
            respond(refusal.0, "", refusal.1),
            respond(accepted.0, "", accepted.1),
        ]);
        let url = format!("http://{}", endpoint.address());
        let settings = settings.iter().copied().chain([("URL", url.as_str())]);
        let mut settings: Vec<(String, String)> = settings
            .map(|(name, value)| {
                (
                    format!("DELIVERY__RESOURCES__SERVICE__{name}"),
                    value.to_owned(),
                )
            })
            .collect();
        settings.push((
            "DELIVERY__SUSPEND_AFTER_FAILURES".to_owned(),
            "1".to_owned(),
        ));
        let settings: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let server = Server::start(&settings);
        // An edition that gives up after 401 does not give up after this.
        let key = server.topic_of(
            "orders",
            &json!({"inputSchema": "EventGridSchema", "edition": "namespace"}),
        );
        let destination = json!({"destination": {"endpointType": kind, "properties": properties}});
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new("").also(&json!({}), &destination),
        );
        server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));

        let health = || server.status("orders", "hook")["health"].clone();
        wait_for("the suspension", LONG, || health()["state"] == "suspended");
        assert_eq!(health()["cause"], "CredentialRefused", "{kind}");
        let ledger = outcomes(&server, "hook");
        assert!(
            ledger.contains("delivery.resources.service"),
            "{kind}: {ledger}"
        );
        let metrics = server.command("GET", "/metrics", &Value::Null).text();
        let counted = |line: &str| {
            line.starts_with("gridhook_subscription_attempts_total{") && line.ends_with(" 1")
        };
        let is_named =
            |line: &&str| counted(line) && line.contains("outcome=\"CredentialRefused\"");
        assert!(
            metrics.lines().any(|line| is_named(&line)),
            "{kind}: {metrics}"
        );

        server.post_verb("orders", "hook", "probe");
        end_waits(&server, "orders", "hook");
        wait_for("the delivery", LONG, || {
            server.counter("orders", "hook", "delivered") == 1
        });
        assert_eq!(server.counter("orders", "hook", "dropped"), 0, "{kind}");
    }
}
