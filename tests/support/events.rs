//! Mixed events, any number, the same ones every time: the real input of the tests.
//!
//! Sizes are 200 bytes to 64 KiB, mostly small, so that 100,000 events have about 130 MB. Their
//! `data` has what breaks a server that parses and writes it again: numbers at the edges of f64 and
//! beyond, strings with every kind of escape, text of many scripts, up to a hundred levels, white
//! space in odd places, members that come twice.

use gridhook::event::Schema;

/// One event as a publisher would send it.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) schema: Schema,
    /// The event as JSON.
    pub(crate) json: String,
    /// The value of `data`, exactly as it is in `json`.
    pub(crate) data: String,
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) subject: String,
}

/// An endless row of events in `schema`.
pub(crate) fn events(schema: Schema, seed: u64) -> impl Iterator<Item = Generated> {
    let mut jitter = SmallRng(seed);
    (0u64..).map(move |number| generate(&mut jitter, schema, &format!("{seed}-{number}")))
}

pub(crate) const TYPES: [&str; 12] = [
    "Orders.Order.Placed",
    "Orders.Order.Paid",
    "Orders.Order.Shipped",
    "Orders.Order.Canceled",
    "Users.User.SignedUp",
    "Users.User.SignedIn",
    "Users.User.Deleted",
    "Microsoft.Storage.BlobCreated",
    "Microsoft.Storage.BlobDeleted",
    "Sensors.Reading.Taken",
    "Sensors.Alarm.Raised",
    "com.example.someevent",
];

/// JSON string literals, and the texts that they encode.
pub(crate) const SUBJECTS: [(&str, &str); 8] = [
    (r#""/orders/eu/1""#, "/orders/eu/1"),
    (r#""/orders/us/2""#, "/orders/us/2"),
    (r#""/users/42""#, "/users/42"),
    (r#""/blobs/photo.jpg""#, "/blobs/photo.jpg"),
    (r#""\/blobs\/escaped.jpg""#, "/blobs/escaped.jpg"),
    (r#""/straße/東京/🚀""#, "/straße/東京/🚀"),
    (r#""/stra\u00dfe/\ud83d\ude80""#, "/straße/🚀"),
    (r#""/quote/\"/backslash/\\""#, r#"/quote/"/backslash/\"#),
];

const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1E+2",
    "1e-7",
    "1e308",
    "1.7976931348623157e308",
    "5e-324",
    "2.2250738585072014e-308",
    "1e400",
    "9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    "-12.50",
];

const PIECES: [&str; 20] = [
    "plain text ",
    "lorem ipsum dolor sit amet ",
    "/a/b/c",
    r"\u0000",
    r"\u001f",
    r"\ud83d\ude00",
    r"\uD834\uDD1E",
    r"\/",
    r#"\""#,
    r"\\",
    r"\n\r\t\b\f",
    "ÄÖÜß",
    "Привет",
    "你好",
    "こんにちは",
    "👩‍👩‍👧",
    "e\u{301}",
    "\u{feff}",
    "\u{2028}",
    "\u{7f}",
];

const SPACES: [&str; 6] = ["", "", "", " ", "\n    ", "\t \r\n"];

/// SplitMix64: small, and the same everywhere.
pub(crate) struct SmallRng(pub(crate) u64);

impl SmallRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A random size between the two; every doubling is as likely as another.
    fn size(&mut self, from: f64, to: f64) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (from * (to / from).powf(unit)) as usize
    }
}

fn generate(jitter: &mut SmallRng, schema: Schema, id: &str) -> Generated {
    let size = match jitter.below(100) {
        0 => jitter.size(8_192.0, 64_000.0),
        1..=7 => jitter.size(2_048.0, 8_192.0),
        _ => jitter.size(200.0, 2_048.0),
    };
    let event_type = jitter.one(&TYPES);
    let (subject_literal, subject) = jitter.one(&SUBJECTS);
    let data = data(jitter, size.saturating_sub(200));
    let mut members = vec![
        ("id", format!("\"{id}\"")),
        ("subject", subject_literal.to_owned()),
        ("data", data.clone()),
    ];
    match schema {
        Schema::EventGrid => {
            members.push(("eventType", format!("\"{event_type}\"")));
            members.push(("eventTime", "\"2026-11-20T17:18:13.1647262Z\"".to_owned()));
            if jitter.below(2) == 0 {
                members.push(("dataVersion", "\"1.\\u0030\"".to_owned()));
            }
        }
        Schema::CloudEvents => {
            members.push(("type", format!("\"{event_type}\"")));
            members.push(("source", "\"urn:example:generated\"".to_owned()));
            members.push(("specversion", "\"1.0\"".to_owned()));
            if jitter.below(2) == 0 {
                members.push(("comexampleothervalue", "-5".to_owned()));
            }
        }
        Schema::Custom => members.push(("myEventType", format!("\"{event_type}\""))),
    }
    for last in (1..members.len()).rev() {
        members.swap(last, jitter.below(last + 1));
    }
    let json = object(jitter, &members);
    let id = id.to_owned();
    let event_type = event_type.to_owned();
    let subject = subject.to_owned();
    Generated {
        schema,
        json,
        data,
        id,
        event_type,
        subject,
    }
}

fn object(jitter: &mut SmallRng, members: &[(&str, String)]) -> String {
    let mut json = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json += jitter.one(&SPACES);
        json += &format!(
            "\"{name}\"{}:{}{value}{}",
            jitter.one(&SPACES),
            jitter.one(&SPACES),
            jitter.one(&SPACES)
        );
    }
    json.push('}');
    json
}

/// A value of about `size` bytes.
fn data(jitter: &mut SmallRng, size: usize) -> String {
    let mut out = String::new();
    if jitter.below(30) == 0 {
        let levels = 20 + jitter.below(80);
        deep(jitter, levels, &mut out);
        return out;
    }
    if size < 60 && jitter.below(4) == 0 {
        scalar(jitter, &mut out);
        return out;
    }
    out.push('{');
    let mut first = true;
    while out.len() < size {
        if !first {
            out.push(',');
        }
        first = false;
        out += jitter.one(&SPACES);
        // Names come twice now and then: the last one wins in most parsers, and none must be lost.
        out += &format!("\"p{}\":", jitter.below(200));
        value(jitter, 4, &mut out);
    }
    out.push('}');
    out
}

fn value(jitter: &mut SmallRng, levels: usize, out: &mut String) {
    match jitter.below(8) {
        0 if levels > 0 => {
            out.push('[');
            for index in 0..jitter.below(5) {
                if index > 0 {
                    *out += " ,";
                }
                value(jitter, levels - 1, out);
            }
            out.push(']');
        }
        1 if levels > 0 => {
            *out += "{\"\":";
            value(jitter, levels - 1, out);
            *out += ",\"naïve\\u0000\":";
            value(jitter, levels - 1, out);
            out.push('}');
        }
        _ => scalar(jitter, out),
    }
}

fn scalar(jitter: &mut SmallRng, out: &mut String) {
    match jitter.below(6) {
        0 => *out += jitter.one(&["true", "false", "null", "{}", "[]", "\"\""]),
        1 | 2 => *out += jitter.one(&NUMBERS),
        _ => {
            out.push('"');
            for _ in 0..=jitter.below(6) {
                *out += jitter.one(&PIECES);
            }
            out.push('"');
        }
    }
}

fn deep(jitter: &mut SmallRng, levels: usize, out: &mut String) {
    let is_object = |level: usize| level.is_multiple_of(3);
    for level in 0..levels {
        *out += if is_object(level) { "{\"k\":" } else { "[" };
    }
    scalar(jitter, out);
    for level in (0..levels).rev() {
        *out += if is_object(level) { "}" } else { "]" };
    }
}
