//! Sessions of the dashboard.

use std::{future::poll_fn, pin::Pin, time::Duration};

use actix_web::{body::MessageBody, http::Method, test::TestRequest};
use gridhook::{
    admin::ChaosMode,
    control::sessions::{IDLE, LIFETIME, SESSIONS_MAX},
    event::{
        PartitionId, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    publish::auth::bearer::ClaimRule,
    record::{
        session::SessionOwner,
        token::{Grant, TokenRole},
    },
    subscription::event_feed::FeedEvent,
};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::control::{ControlFixture, RG, Response, TOKEN};
use crate::{
    publish::bearer::{Signer, bearer},
    support::{chunks::sealed, http::session_bearer},
};

/// Longer than a stream needs to end or to send a line.
const LONG: Duration = Duration::from_secs(60);

async fn ask(control: &ControlFixture, method: Method, path: &str, token: &str) -> Response {
    let request = TestRequest::with_uri(path).method(method);
    control
        .send(request.insert_header(("Authorization", format!("Bearer {token}"))))
        .await
}

fn bearer_of(sign_in: &Response) -> String {
    let cookie = sign_in.headers.get("Set-Cookie");
    let cookie = cookie.map(|cookie| cookie.to_str().expect("text"));
    session_bearer(cookie, &sign_in.json())
}

async fn signed_in(control: &ControlFixture) -> String {
    let response = control.call("POST", "/ui/session", Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.text);
    bearer_of(&response)
}

#[actix_web::test]
async fn a_session_opens_every_path_that_its_token_opens_until_it_is_ended() {
    let control = ControlFixture::new(ChaosMode::Enabled).with_topic().await;
    let session = signed_in(&control).await;
    assert!(
        session.starts_with("ghs_") && session.len() >= 40,
        "{session}"
    );
    for path in [
        format!("{RG}/topics/orders"),
        "/top".to_owned(),
        "/metrics".to_owned(),
        "/chaos".to_owned(),
    ] {
        let response = ask(&control, Method::GET, &path, &session).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text);
        assert_eq!(
            response.headers.get("Cache-Control").expect("it is there"),
            "no-store",
            "{path}"
        );
    }
    let view = ask(&control, Method::GET, "/ui/session", &session)
        .await
        .json();
    assert_eq!(
        (&view["name"], &view["identityType"], &view["key"]),
        (&"admin".into(), &"Key".into(), &Value::Null)
    );
    assert!(view["expires"].is_string());
    let again = ask(&control, Method::POST, "/ui/session", &session).await;
    assert_eq!(
        again.status, 400,
        "a session would live for ever: {}",
        again.text
    );
    assert_eq!(
        ask(&control, Method::DELETE, "/ui/session", TOKEN)
            .await
            .status,
        400
    );
    assert_eq!(
        ask(&control, Method::DELETE, "/ui/session", &session)
            .await
            .status,
        204
    );
    let over = ask(&control, Method::GET, "/top", &session).await;
    assert_eq!(
        (
            over.status,
            over.headers
                .get("Cache-Control")
                .expect("it is there")
                .as_bytes()
        ),
        (401, &b"no-store"[..])
    );
    assert!(over.text.contains("sign in again"), "{}", over.text);
}

#[actix_web::test]
async fn a_session_ends_after_half_an_hour_without_use_and_after_twelve_hours_with_it() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let used = signed_in(&control).await;
    let unused = signed_in(&control).await;
    let minute = Duration::from_secs(60);
    control.hand.advance(IDLE - minute);
    assert_eq!(ask(&control, Method::GET, "/top", &used).await.status, 200);
    control.hand.advance(minute);
    assert_eq!(
        ask(&control, Method::GET, "/top", &unused).await.status,
        401
    );
    let mut uses = 0;
    while ask(&control, Method::GET, "/top", &used).await.status == 200 {
        control.hand.advance(IDLE - minute);
        uses += 1;
        assert!(uses < 100, "it never ends");
    }
    assert_eq!(
        uses, 24,
        "half an hour after the first use, in steps of 29 minutes, until 12 h have passed"
    );
}

#[actix_web::test]
async fn an_open_stream_counts_as_a_use_until_twelve_hours_have_passed() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let sessions = control.registry.sessions();
    let begin = Timestamp(1_000_000);
    sessions.start("one", "token", admin(), begin);
    let (_, stream) = sessions.find_token("one", begin).expect("it is there");
    let minute = Duration::from_secs(60);
    let mut now = begin;
    while now.after(IDLE - minute) < begin.after(LIFETIME) {
        now = now.after(IDLE - minute);
        stream.note_use(now);
    }
    assert!(
        sessions.find_token("one", now.after(minute)).is_some(),
        "the last request was half a day before"
    );
    stream.note_use(begin.after(LIFETIME));
    assert!(sessions.find_token("one", begin.after(LIFETIME)).is_none());
    sessions.start("two", "token", admin(), begin);
    let (_, stream) = sessions.find_token("two", begin).expect("it is there");
    drop(stream);
    assert!(sessions.find_token("two", begin.after(IDLE)).is_none());
}

#[actix_web::test]
async fn an_open_tail_counts_as_a_use_of_its_session() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let watching = signed_in(&control).await;
    let unused = signed_in(&control).await;
    let request = TestRequest::with_uri("/tail")
        .insert_header(("Authorization", format!("Bearer {watching}")));
    let response = control.respond(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let mut lines = response.into_body();
    for first in [1, 2, 3] {
        control.hand.advance(IDLE - Duration::from_secs(60));
        let sealed = sealed(&[("a", 1)]).pop().expect("a chunk");
        let chunk = Chunk::decode(
            Seq(first),
            sealed.stamp_record(Timestamp(1), RunningTotals::default()),
        )
        .expect("sound");
        control
            .registry
            .feed()
            .publish_item(|| FeedEvent::Published(PartitionId(1), chunk));
        let line = poll_fn(|cx| Pin::new(&mut lines).poll_next(cx));
        let line = timeout(LONG, line)
            .await
            .expect("in time")
            .expect("it is open")
            .expect("a line");
        assert!(line.starts_with(b"{"), "{line:?}");
    }
    assert_eq!(
        ask(&control, Method::GET, "/top", &unused).await.status,
        401
    );
    assert_eq!(
        ask(&control, Method::GET, "/top", &watching).await.status,
        200,
        "its tail was open"
    );
}

#[actix_web::test]
async fn a_tail_ends_when_its_access_token_expires_and_so_does_that_of_its_session() {
    let signer = Signer::new();
    let mut issuer = bearer(&signer).issuer.expect("it has one");
    let grant = Grant::for_server(TokenRole::Read);
    issuer.rules = vec![ClaimRule {
        claim: "scp".to_owned(),
        value: "Grid.Read".to_owned(),
        grant,
    }];
    let control = ControlFixture::new(ChaosMode::Disabled).with_issuer(issuer);
    let now = control.clock.now().since(Timestamp(0)).as_secs_f64();
    let token = |expires: f64| {
        // The clocks of two machines may differ by a minute.
        let exp = now - 60.0 + expires;
        let claims = json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": exp, "scp": "Grid.Read"});
        signer.sign(Some("ec"), Algorithm::ES256, &claims)
    };
    let short = token(0.05);
    let long = token(3600.0);
    let session = bearer_of(&ask(&control, Method::POST, "/ui/session", &short).await);
    for token in [&short, &session] {
        let response = timeout(LONG, ask(&control, Method::GET, "/tail", token))
            .await
            .expect("the tail ends");
        assert_eq!(response.status, 200, "{}", response.text);
    }
    let open = timeout(
        Duration::from_millis(50),
        ask(&control, Method::GET, "/tail", &long),
    )
    .await;
    assert!(open.is_err(), "a tail is open until its token expires");
}

fn admin() -> SessionOwner {
    SessionOwner {
        is_administrator: true,
        ..reader("admin")
    }
}

fn reader(name: &str) -> SessionOwner {
    SessionOwner {
        key: name.to_owned(),
        is_administrator: false,
        name: name.to_owned(),
        role: "read".to_owned(),
        from: None,
        browser: None,
    }
}

#[actix_web::test]
async fn a_caller_ends_its_own_sessions_and_never_those_of_administrators() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let sessions = control.registry.sessions();
    let begin = Timestamp(1_000_000);
    for number in 0..16 {
        sessions.start(&format!("admin {number}"), "token", admin(), begin);
    }
    for number in 0..100 {
        sessions.start(
            &format!("one {number}"),
            "token",
            reader("one"),
            begin.after(Duration::from_secs(number)),
        );
    }
    let later = begin.after(Duration::from_secs(200));
    let open = |prefix: &str, count: u64| {
        (0..count)
            .filter(|number| {
                sessions
                    .find_token(&format!("{prefix} {number}"), later)
                    .is_some()
            })
            .count()
    };
    assert_eq!(
        (open("admin", 16), open("one", 100)),
        (16, 8),
        "a caller has a share"
    );
    for caller in 0..20 {
        for number in 0..8 {
            sessions.start(
                &format!("of {caller} {number}"),
                "token",
                reader(&caller.to_string()),
                later,
            );
        }
    }
    let others: usize = (0..20).map(|caller| open(&format!("of {caller}"), 8)).sum();
    assert_eq!(
        open("admin", 16),
        16,
        "many callers do not end those of administrators"
    );
    assert_eq!(others + open("one", 100), 48);
    sessions.start("admin 16", "token", admin(), later);
    assert_eq!(open("admin", 17), 17, "an administrator always gets one");
}

#[actix_web::test]
async fn there_are_64_sessions_and_the_longest_unused_gives_way() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let sessions = control.registry.sessions();
    let begin = Timestamp(1_000_000);
    let at = |second: u64| begin.after(Duration::from_secs(second));
    for (number, second) in (0..SESSIONS_MAX).zip(0..) {
        let ends = sessions.start(&number.to_string(), "token", admin(), at(second));
        assert_eq!(ends, Some(at(second).after(LIFETIME)));
    }
    assert!(sessions.find_token("0", at(100)).is_some());
    sessions.start("one more", "token", admin(), at(101));
    assert!(
        sessions.find_token("1", at(102)).is_none(),
        "it was unused for longest"
    );
    for number in (0..SESSIONS_MAX).filter(|number| *number != 1) {
        assert_eq!(
            sessions
                .find_token(&number.to_string(), at(102))
                .expect("it is there")
                .0,
            "token",
            "{number}"
        );
    }
    assert!(
        sessions.end_session("0")
            && !sessions.end_session("0")
            && sessions.find_token("0", at(103)).is_none()
    );
}
