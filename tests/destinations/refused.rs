//! Endpoint types that are refused by name, with the reason.

use serde_json::json;

use crate::support::server::{Server, SubscriptionSpec};

#[test]
fn destinations_that_cannot_be_are_refused_by_name() {
    let server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    for (kind, why) in [
        ("HybridConnection", "Azure Relay"),
        ("PartnerDestination", "no partners"),
        ("MonitorAlert", "no Azure Monitor"),
        ("Pigeon", "expected one of WebHook, Amqp"),
    ] {
        let destination =
            json!({"destination": {"endpointType": kind, "properties": {"resourceId": "r"}}});
        let response = server.put_subscription(
            "orders",
            "none",
            &SubscriptionSpec::new("").also(&json!({}), &destination),
        );
        let status = response.status;
        let text = response.text();
        assert!(
            status == 400 && text.contains(kind) && text.contains(why),
            "{status} {text}"
        );
    }
}
