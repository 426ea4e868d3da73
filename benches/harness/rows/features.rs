//! What a feature of a topic, of an event subscription or of a publisher's request costs an event:
//! the same load on the same server with it and without it, in turn.

use serde_json::{Value, json};

use crate::{
    harness::{
        Bench,
        endpoint::Endpoint,
        load::{Amount, Form, Shape, Target, closed},
        row::Row,
        stage::{Cost, Stage},
    },
    support::server::SubscriptionSpec,
};

/// Long enough that no id ends during a run.
const WINDOW: &str = "PT10M";

/// A row: a topic with a feature, and the shapes of the requests with it and without it.
struct Feature {
    number: &'static str,
    what: &'static str,
    floor_is: &'static str,
    budget: f64,
    stretch: f64,
    topic: Value,
    subscription: Value,
    shape: Shape,
    plain_shape: Shape,
}

impl Feature {
    /// A feature of single events, with nothing on but what all rows have.
    fn new(number: &'static str, what: &'static str, (budget, stretch): (f64, f64)) -> Self {
        Self {
            number,
            what,
            floor_is: "the same without it",
            budget,
            stretch,
            topic: json!({"inputSchema": "EventGridSchema"}),
            subscription: json!({}),
            shape: Shape::ONE,
            plain_shape: Shape::ONE,
        }
    }

    /// A form of CloudEvents, over as many events of Event Grid's schema.
    fn cloud_events(number: &'static str, what: &'static str, form: Form, plain: Shape) -> Self {
        Self {
            floor_is: "the same in Event Grid's schema",
            topic: json!({"inputSchema": "CloudEventSchemaV1_0"}),
            shape: Shape { form, ..plain },
            plain_shape: plain,
            ..Self::new(number, what, (1.1, 1.0))
        }
    }
}

fn features() -> Vec<Feature> {
    let duplicates = json!({
        "inputSchema": "EventGridSchema",
        "duplicateDetectionHistoryTimeWindow": WINDOW,
    });
    // Each event has a key of its own.
    let timed = Shape {
        stamp: None,
        ..Shape::ONE
    };
    vec![
        Feature {
            topic: duplicates.clone(),
            ..Feature::new(
                "1d",
                "duplicate detection, one new id a request",
                (1.15, 1.05),
            )
        },
        Feature {
            subscription: json!({"transform": {"body": "{at: data.at, pad: data.pad}"}}),
            ..Feature::new("1e", "a transformation of the body", (1.5, 1.2))
        },
        Feature {
            subscription: json!({"ordering": {"key": "data.at"}}),
            shape: timed,
            plain_shape: timed,
            ..Feature::new("1f", "order by key, a key for each event", (1.25, 1.1))
        },
        Feature {
            topic: duplicates,
            shape: Shape::HUNDRED,
            plain_shape: Shape::HUNDRED,
            ..Feature::new(
                "27",
                "duplicate detection, 100 new ids a request",
                (2.0, 1.5),
            )
        },
        Feature::cloud_events(
            "28a",
            "a CloudEvent in structured mode",
            Form::Structured,
            Shape::ONE,
        ),
        Feature::cloud_events(
            "28b",
            "a CloudEvent in binary mode",
            Form::Binary,
            Shape::ONE,
        ),
        Feature::cloud_events(
            "28c",
            "a batch of 100 CloudEvents",
            Form::Batch,
            Shape::HUNDRED,
        ),
    ]
}

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let stage = Stage::start();
    features()
        .into_iter()
        .map(|feature| measure_feature(bench, &endpoint, &stage, feature))
        .collect()
}

fn measure_feature(bench: &Bench, endpoint: &Endpoint, stage: &Stage, feature: Feature) -> Row {
    let Feature {
        number,
        what,
        floor_is,
        budget,
        stretch,
        topic,
        subscription,
        shape,
        plain_shape,
    } = feature;
    let add_topic = |name: &str, topic: &Value, subscription: &Value| {
        let target = stage.topic_with(name, topic);
        stage.subscribe(
            name,
            "billing",
            &endpoint.url("/billing"),
            |spec: SubscriptionSpec| {
                spec.batch(shape.events as u32)
                    .also(&json!({}), subscription)
            },
        );
        target
    };
    let usual = json!({"inputSchema": "EventGridSchema"});
    let plain = add_topic(&format!("plain-{number}"), &usual, &json!({}));
    let featured = add_topic(&format!("featured-{number}"), &topic, &subscription);
    let cost = |target: &Target, shape, time| {
        let load = || {
            closed(
                std::slice::from_ref(target),
                shape,
                bench.scale.connections,
                Amount::For(time),
            )
        };
        Cost::measure(stage.server.id(), endpoint, 1, load)
    };
    let pair = |time| {
        (
            cost(&plain, plain_shape, time),
            cost(&featured, shape, time),
        )
    };
    pair(bench.scale.time / 4);
    let (floors, figures): (Vec<Cost>, Vec<Cost>) = (0..bench.scale.runs)
        .map(|_| pair(bench.scale.time))
        .unzip();
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect();
    let beside = figures.last().map(Cost::beside).unwrap_or_default();
    let costs = (each(&floors), each(&figures));
    Row {
        beside,
        ..Row::from_processor_time(number, what, floor_is, (budget, stretch), costs)
    }
}
