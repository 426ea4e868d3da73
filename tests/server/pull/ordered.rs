//! Order by key with pull delivery.

use super::*;

fn publish_with_subjects(server: &Server, shown: &str, events: &[(&str, &str)]) {
    let events: Vec<Value> = events
        .iter()
        .map(|(id, subject)| json!({"specversion": "1.0", "id": id, "source": "/oven", "type": "hot", "subject": subject}))
        .collect();
    let headers = [
        ("authorization", shown),
        ("content-type", "application/cloudevents-batch+json"),
    ];
    let body = serde_json::to_vec(&events).expect("JSON");
    let response = server
        .client()
        .ask("POST", &format!("{TOPIC}:publish"), &headers, &body)
        .expect("a response");
    assert_eq!(response.status, 200, "{}", response.text());
}

fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(Received::id).collect()
}

#[test]
fn a_locked_event_blocks_the_later_ones_of_its_key_also_after_a_kill() {
    let (mut server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[]);
    let queue = json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": 60}});
    let properties = json!({"deliveryConfiguration": queue, "ordering": {"key": "subject"}});
    let path = format!("{RG}/plant/topics/heat/eventSubscriptions/work");
    let put = server
        .command("PUT", &path, &json!({"properties": properties}))
        .json();
    assert_eq!(
        put["properties"]["ordering"],
        json!({"key": "subject", "onFailure": "skip"}),
        "{put}"
    );

    let mut client = Consumer::new(&server, &shown, "work");
    publish_with_subjects(
        &server,
        &shown,
        &[
            ("a1", "a"),
            ("a2", "a"),
            ("b1", "b"),
            ("a3", "a"),
            ("b2", "b"),
        ],
    );
    let first = client.receive(10);
    assert_eq!(ids(&first), ["a1", "b1"], "one of each key");
    assert_eq!(succeeded(&client.settle("release", &[&first[0].token])), 1);
    let again = client.receive(10);
    assert_eq!(
        (ids(&again), again[0].count),
        (vec!["a1"], 2),
        "it comes before those that it holds back"
    );

    server.kill_9();
    server.restart();
    let mut client = Consumer::new(&server, &shown, "work");
    assert_eq!(
        succeeded(&client.settle("acknowledge", &[&first[1].token])),
        1
    );
    let next = client.receive(10);
    assert_eq!(ids(&next), ["b2"], "a1 is locked");
    assert_eq!(
        succeeded(&client.settle("acknowledge", &[&again[0].token, &next[0].token])),
        2
    );
    for id in ["a2", "a3"] {
        let next = client.receive(10);
        assert_eq!(ids(&next), [id]);
        assert_eq!(
            succeeded(&client.settle("acknowledge", &[&next[0].token])),
            1
        );
    }
}
