//! Signatures: the vectors of Standard Webhooks, and what must hold between attempts.

use gridhook::{
    deliver::{
        OutgoingRequest,
        signature::{SECRETS_MAX, Signer, SigningKeyError},
    },
    event::{Event, Schema, Seq, Timestamp, WallTime},
};

use super::event;

/// From the specification and its reference libraries. Verified with the Python library (`v1`) and
/// with another implementation of ed25519 (`v1a`).
const VECTORS: [(&str, &str, u64, &str, &str); 3] = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    (
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1_649_367_553,
        r#"{"email":"test@example.com","username":"test_user"}"#,
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
    ),
    (
        "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
    ),
];

fn signer(secrets: &[&str]) -> Result<Signer, SigningKeyError> {
    Signer::new(secrets.iter().copied())
}

#[test]
fn the_vectors_of_the_specification_hold() {
    for (secret, id, seconds, body, expected) in VECTORS {
        assert_eq!(
            signer(&[secret])
                .expect("a secret")
                .signatures(id, seconds, body.as_bytes()),
            expected
        );
    }
    // The secret half is enough.
    let seed = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";
    let (_, id, seconds, body, expected) = VECTORS[2];
    assert_eq!(
        signer(&[seed])
            .expect("a seed")
            .signatures(id, seconds, body.as_bytes()),
        expected
    );
}

#[test]
fn several_secrets_give_several_signatures_in_their_order() {
    let (first, id, seconds, body, one) = VECTORS[0];
    let (last, .., two) = VECTORS[2];
    let both =
        signer(&[first, last])
            .expect("two secrets")
            .signatures(id, seconds, body.as_bytes());
    assert_eq!(both, format!("{one} {two}"));
}

#[test]
fn an_invalid_secret_is_refused_and_not_repeated() {
    let good = VECTORS[0].0;
    let long = format!("whsec_{}", "A".repeat(88));
    for bad in [
        "",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsec_[hidden]",
        &long,
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        "whsk_c2hvcnQ=",
        // The public half belongs to another key.
        "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvw==",
    ] {
        let error = signer(&[good, bad]).expect_err(bad);
        assert_eq!(error, SigningKeyError::Secret(1), "{bad}");
        let reported = error.to_string();
        assert!(
            reported.starts_with("signing.secrets[1] cannot be used; expected whsec_"),
            "{reported}"
        );
        assert!(bad.len() < 8 || !reported.contains(bad), "{reported}");
    }
    assert_eq!(signer(&[]).expect_err("none"), SigningKeyError::Count(0));
    assert_eq!(
        signer(&[good; SECRETS_MAX + 1]).expect_err("too many"),
        SigningKeyError::Count(SECRETS_MAX + 1)
    );
    assert!(
        !format!(
            "{:?}",
            signer(&[good; SECRETS_MAX]).expect("as many as may be")
        )
        .contains("MfKQ")
    );
}

fn one(seq: u64, appended: u64, id: &str) -> Event {
    let wire = format!(r#"{{"id":"{id}","data":1}}"#);
    let mut event = event(Schema::EventGrid, &wire, id, "");
    (event.seq, event.appended) = (Seq(seq), Timestamp(appended));
    event
}

fn signed(events: &[Event], seconds: u64) -> [String; 3] {
    let mut outgoing = OutgoingRequest {
        body: "[]".into(),
        ..OutgoingRequest::default()
    };
    signer(&[VECTORS[0].0]).expect("a secret").sign_request(
        &mut outgoing,
        events,
        WallTime(seconds * 1_000_000),
    );
    let names: Vec<_> = outgoing.headers.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        ["webhook-id", "webhook-timestamp", "webhook-signature"]
    );
    outgoing
        .headers
        .into_iter()
        .map(|(_, value)| value.into_owned())
        .collect::<Vec<_>>()
        .try_into()
        .expect("three")
}

#[test]
fn an_id_is_the_same_at_every_attempt_and_another_for_every_other_batch() {
    let batch = [one(1, 5, "a"), one(2, 5, "b")];
    let [id, time, signature] = signed(&batch, 1_614_265_330);
    let [again, later, other] = signed(&batch, 1_614_265_340);
    assert_eq!(
        (id.as_str(), time.as_str(), later.as_str()),
        (again.as_str(), "1614265330", "1614265340")
    );
    assert_ne!(signature, other, "the timestamp is signed");
    assert!(
        id.len() == 36 && id.starts_with("msg_") && !id.contains('.'),
        "{id}"
    );

    let others = [
        vec![one(1, 5, "a")],
        vec![one(2, 5, "b"), one(1, 5, "a")],
        vec![one(1, 5, "a"), one(3, 5, "b")],
        // The same position and id in another store, or after this one was recreated.
        vec![one(1, 6, "a"), one(2, 5, "b")],
        vec![one(1, 5, "c"), one(2, 5, "b")],
    ];
    let mut ids: Vec<String> = others
        .iter()
        .map(|events| signed(events, 1)[0].clone())
        .chain([id])
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), others.len() + 1);
}
