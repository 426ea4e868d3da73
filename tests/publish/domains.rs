//! Events of a domain: each names its topic.

use ::bytes::Bytes;
use actix_web::{
    App,
    http::{Method, StatusCode},
    test::{TestRequest, call_service, init_service, read_body},
};
use expect_test::expect;
use gridhook::{
    deliver::convert::convert_event,
    event::{Event, Schema},
    publish::{
        PublishLimits, Refusal,
        auth::{AuthRules, host::ServerNames},
        http,
        rate::TopicRates,
        schema::{self, EventTarget, RequestContent},
    },
    record::ingress::IngressSettings,
};

use super::{decode, sas::signed, shown};
use crate::support::publisher::{Endpoint, KEY, domain, mapping};

const ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/domains/shop";

fn read(schema: Schema, body: &str) -> Result<Vec<Event>, Refusal> {
    let content = RequestContent {
        content_type: Some("application/cloudevents-batch+json"),
        attributes: Vec::new(),
    };
    let mut record = domain("shop", schema);
    record.ingress.mapping = (schema == Schema::Custom).then(mapping);
    schema::read_events(
        &EventTarget::for_topic(&record),
        &content,
        &Bytes::copy_from_slice(body.as_bytes()),
        &PublishLimits::default(),
    )
    .map(decode)
}

fn grid(topic: &str) -> String {
    format!(
        r#"[{{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"{topic}}}]"#
    )
}

fn cloud(source: &str) -> String {
    format!(r#"[{{"specversion":"1.0","id":"1","type":"T","source":"{source}","subject":"/s"}}]"#)
}

fn custom(topic: &str) -> String {
    format!(r#"[{{"eventId":"1","myEventTypeField":"T","path":"/s","ver":"1"{topic}}}]"#)
}

fn topic_of(result: Result<Vec<Event>, Refusal>) -> String {
    let events = result.expect("it is taken");
    let [event] = events.as_slice() else {
        panic!("one event")
    };
    assert_eq!(
        (event.id(), event.event_type(), event.subject()),
        ("1".into(), "T".into(), "/s".into())
    );
    event.domain_topic().into_owned()
}

#[test]
fn an_event_grid_event_names_its_topic_and_is_stamped_with_its_id() {
    for (given, topic) in [
        ("north".to_owned(), "north"),
        (format!("{ID}/topics/north"), "north"),
        (format!("{}/topics/North", ID.to_uppercase()), "North"),
        (r"a\u0062c".to_owned(), "abc"),
        (
            "no domain topic is called /so".to_owned(),
            "no domain topic is called /so",
        ),
        (ID.to_owned(), ID),
        (format!("{ID}/topics/"), &format!("{ID}/topics/")),
    ] {
        assert_eq!(
            topic_of(read(
                Schema::EventGrid,
                &grid(&format!(r#","topic":"{given}""#))
            )),
            topic,
            "{given}"
        );
    }
    let wire = shown(read(
        Schema::EventGrid,
        &grid(r#","topic":"north","data":1"#),
    ));
    expect![[r#"{"id":"1","topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/domains/shop/topics/north","subject":"/s","data":1,"eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#]].assert_eq(&wire);
}

#[test]
fn an_event_grid_event_without_a_topic_is_refused() {
    let mut lines = Vec::new();
    for topic in ["", r#","topic":null"#, r#","topic":"""#, r#","topic":[5]"#] {
        lines.push(shown(read(Schema::EventGrid, &grid(topic))));
    }
    expect![[r#"
        requires 'topic' property to be set.
        requires 'topic' property to be set.
        requires 'topic' property to be set.
        nonconforming. Property 'topic' is not a string."#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_source_of_a_cloud_event_names_its_topic_and_stays_as_it_was_sent() {
    let long = format!("{ID}/topics/north");
    for (source, topic) in [
        ("north", "north"),
        ("/a/b", "/a/b"),
        (long.as_str(), "north"),
    ] {
        let body = cloud(source);
        assert_eq!(
            topic_of(read(Schema::CloudEvents, &body)),
            topic,
            "{source}"
        );
        assert_eq!(
            shown(read(Schema::CloudEvents, &body)),
            body[1..body.len() - 1]
        );
    }
}

#[test]
fn the_mapped_topic_of_a_custom_event_names_its_topic() {
    for (given, topic) in [
        (r#""north""#.to_owned(), "north"),
        (format!(r#""{ID}/topics/north""#), "north"),
        (r#""a\u0062c""#.to_owned(), "abc"),
        ("17".to_owned(), "17"),
    ] {
        let body = custom(&format!(r#","t":{given}"#));
        assert_eq!(topic_of(read(Schema::Custom, &body)), topic, "{given}");
        assert_eq!(shown(read(Schema::Custom, &body)), body[1..body.len() - 1]);
        let event = read(Schema::Custom, &body).expect("it is taken").remove(0);
        for (schema, property) in [
            (Schema::EventGrid, "topic"),
            (Schema::CloudEvents, "source"),
        ] {
            let form = convert_event(&event.detach_from_chunk(), schema).expect("there is a way");
            let form: serde_json::Value = serde_json::from_slice(&form).expect("it is JSON");
            assert_eq!(form[property], format!("{ID}/topics/{topic}"), "{given}");
        }
        assert_eq!(event.detach_from_chunk().domain_topic(), topic);
    }
    let mut lines = Vec::new();
    for topic in ["", r#","t":null"#, r#","t":"""#, r#","t":{}"#] {
        lines.push(shown(read(Schema::Custom, &custom(topic))));
    }
    expect![[r#"
        requires 't' property to be set.
        requires 't' property to be set.
        requires 't' property to be set.
        nonconforming. Property 't', which is the event's 'topic', is not a string, a number or a boolean."#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_domain_has_one_address_for_all_of_its_topics() {
    let endpoint = Endpoint::new(PublishLimits::default());
    let app = init_service(
        App::new()
            .app_data(endpoint.publisher.clone())
            .configure(http::configure),
    )
    .await;
    let mut lines = Vec::new();
    for (path, body) in [
        ("/domains/orders/api/events", grid(r#","topic":"north""#)),
        (
            "/Domains/ORDERS/API/Events/",
            grid(r#","topic":"nobody-asks-for-it""#),
        ),
        ("/domains/orders/api/events", grid("")),
        ("/domains/clouds/api/events", cloud("north")),
        ("/domains/custom/api/events", custom(r#","t":"north""#)),
        ("/domains/none/api/events", grid("")),
        ("/topics/orders/api/events", grid(r#","topic":"north""#)),
        (
            "/topics/domain:orders/api/events",
            grid(r#","topic":"north""#),
        ),
    ] {
        let request = TestRequest::post()
            .uri(path)
            .insert_header(("aeg-sas-key", KEY));
        let request = request
            .insert_header(("content-type", "application/cloudevents-batch+json"))
            .set_payload(body);
        let response = call_service(&app, request.to_request()).await;
        let status = response.status();
        let body = String::from_utf8_lossy(&read_body(response).await).into_owned();
        let reported = body
            .split(" Request '")
            .next()
            .unwrap_or_default()
            .to_owned();
        lines.push(format!("{path} {} {reported}", status.as_u16()));
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    expect![[r#"
        /domains/orders/api/events 200 
        /Domains/ORDERS/API/Events/ 200 
        /domains/orders/api/events 400 {"error":{"code":"BadRequest","message":"This resource is configured for 'EventGridEvent' schema and requires 'topic' property to be set.
        /domains/clouds/api/events 200 
        /domains/custom/api/events 200 
        /domains/none/api/events 404 {"error":{"code":"NotFound","message":"No HTTP resource was found that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Fdomains%2Fnone%2Fapi%2Fevents'.
        /topics/orders/api/events 401 {"error":{"code":"Unauthorized","message":"The 'topic' property of an event must be absent or '/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders'.
        /topics/domain:orders/api/events 404 {"error":{"code":"NotFound","message":"No HTTP resource was found that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Ftopics%2Fdomain%3Aorders%2Fapi%2Fevents'."#]].assert_eq(&lines.join("\n"));
    assert_eq!(endpoint.stored(), 4);
}

#[actix_web::test]
async fn a_domain_is_published_to_by_the_rules_of_topics() {
    let names = ServerNames {
        public_url: Some("https://events.example.com/grid".parse().expect("a URL")),
        ..ServerNames::default()
    };
    let rates = TopicRates {
        events_per_second: 3,
        ..TopicRates::default()
    };
    let endpoint = Endpoint::with(
        PublishLimits {
            rates,
            ..PublishLimits::default()
        },
        AuthRules {
            names,
            ..AuthRules::default()
        },
        &IngressSettings::default(),
    );
    let app = init_service(
        App::new()
            .app_data(endpoint.publisher.clone())
            .configure(http::configure),
    )
    .await;
    let token = |kind: &str| {
        let resource =
            format!("https%3a%2f%2fevents.example.com%2fgrid%2f{kind}%2fshop%2fapi%2fevents");
        signed(KEY, &resource, "2030-01-02T03%3A04%3A05Z")
    };
    let post = |path: &str| {
        TestRequest::post()
            .uri(path)
            .set_payload(grid(r#","topic":"north""#))
    };
    let path = "/domains/shop/api/events";
    let mut lines = Vec::new();
    for (what, request) in [
        ("nothing", post(path)),
        (
            "a token for the domain",
            post(path).insert_header(("aeg-sas-token", token("domains"))),
        ),
        (
            "a token for a topic",
            post(path).insert_header(("aeg-sas-token", token("topics"))),
        ),
        (
            "the host",
            post("/api/events")
                .insert_header(("host", "SHOP.localhost"))
                .insert_header(("aeg-sas-key", KEY)),
        ),
        (
            "a version",
            post(&format!("{path}?api-version=2019")).insert_header(("aeg-sas-key", KEY)),
        ),
        (
            "options",
            TestRequest::with_uri(path).method(Method::OPTIONS),
        ),
        ("another", TestRequest::with_uri(path).method(Method::PUT)),
        ("a key", post(path).insert_header(("aeg-sas-key", KEY))),
        ("too much", post(path).insert_header(("aeg-sas-key", KEY))),
    ] {
        let response = call_service(&app, request.to_request()).await;
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        lines.push(format!(
            "{what}: {} {}",
            response.status().as_u16(),
            header("aeg-input-event-schema")
        ));
    }
    expect![[r#"
        nothing: 401 
        a token for the domain: 200 
        a token for a topic: 401 
        the host: 200 
        a version: 400 
        options: 200 EventGridEvent
        another: 405 
        a key: 200 
        too much: 429 "#]]
    .assert_eq(&lines.join("\n"));
    assert_eq!(endpoint.stored(), 3);
}
