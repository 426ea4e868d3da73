//! Sessions of the dashboard: their cookie, their key, and what of them is on disk.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::tokens::{RG, token};
use crate::support::{
    http::{Client, Response, session_bearer},
    server::Server,
};

/// A signed-in browser: its cookie as it sends it, and the key that its page keeps.
struct Browser {
    cookie: String,
    key: String,
}

impl Browser {
    fn sign_in(server: &Server, token: &str, origin: &str) -> (Self, Response) {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("origin", origin),
            ("user-agent", "Firefox/130"),
        ];
        let response = server.request_without_token("POST", "/ui/session", &headers);
        assert_eq!(response.status, 200, "{}", response.text());
        let cookie = response.header("set-cookie").expect("a cookie");
        let pair = cookie.split(';').next().expect("a pair");
        let key = response.json()["key"].as_str().expect("a key").to_owned();
        let cookie = format!("theme=dark; {pair}; other=1");
        (Self { cookie, key }, response)
    }

    /// A request of the page.
    fn ask(&self, server: &Server, method: &str, path: &str) -> Response {
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("gridhook-session-key", self.key.as_str()),
        ];
        server.request_without_token(method, path, &headers)
    }

    /// A request that another page, or another program of the host, could make.
    fn forge(&self, server: &Server, method: &str, path: &str, key: Option<&str>) -> u16 {
        let mut headers = vec![("cookie", self.cookie.as_str())];
        headers.extend(key.map(|key| ("gridhook-session-key", key)));
        server.request_without_token(method, path, &headers).status
    }
}

fn count_files_with(folder: &Path, text: &str) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            count += count_files_with(&path, text);
        } else {
            let bytes = fs::read(&path).expect("a file");
            let needle = text.as_bytes();
            count += usize::from(bytes.windows(needle.len()).any(|window| window == needle));
        }
    }
    count
}

#[test]
fn a_session_is_a_cookie_and_a_key_and_neither_is_enough() {
    let server = Server::start(&[]);
    let admin = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let (browser, response) = Browser::sign_in(&server, admin.trim(), "http://localhost:8080");
    let cookie = response.header("set-cookie").expect("a cookie").to_owned();
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    // Without a path the browser takes the folder of the request, which is that of the page.
    for attribute in ["Path", "Domain", "Secure"] {
        assert!(!cookie.contains(attribute), "{cookie}");
    }
    assert!(!response.text().contains("ghs_") && response.json()["token"].is_null());
    let (_, secure) = Browser::sign_in(&server, admin.trim(), "https://grid.example");
    assert!(
        secure
            .header("set-cookie")
            .expect("one")
            .ends_with("; Secure")
    );

    assert_eq!(browser.ask(&server, "GET", "/ui/api/top").status, 200);
    let history = browser.ask(&server, "GET", "/ui/api/history?range=1y");
    assert_eq!(history.status, 400, "the query is part of the request");
    let escaped = format!("/ui/api{RG}/topics/%6frders");
    assert_eq!(browser.ask(&server, "GET", &escaped).status, 404);
    server.topic("orders", "EventGridSchema");
    let escaped = escaped.replace("/s/resourceGroups", "/%73/resourceGroups");
    assert_eq!(browser.ask(&server, "GET", &escaped).status, 200);
    let topic = format!("/ui/api{RG}/topics/orders");
    let other_key = "A".repeat(43);
    for (method, path) in [
        ("GET", "/ui/api/top"),
        ("DELETE", topic.as_str()),
        ("DELETE", "/ui/session"),
    ] {
        for key in [None, Some(""), Some(other_key.as_str())] {
            assert_eq!(
                browser.forge(&server, method, path, key),
                401,
                "{method} {path} {key:?}"
            );
        }
    }
    // The cookie is for the page only.
    assert_eq!(browser.ask(&server, "GET", "/top").status, 401);
    let key_only = [("gridhook-session-key", browser.key.as_str())];
    assert_eq!(
        server
            .request_without_token("GET", "/ui/api/top", &key_only)
            .status,
        401
    );

    let ended = browser.ask(&server, "DELETE", "/ui/session");
    let removal = ended.header("set-cookie").expect("a cookie");
    assert!(
        ended.status == 204 && removal.contains("; Max-Age=0"),
        "{removal}"
    );
    assert_eq!(browser.ask(&server, "GET", "/ui/api/top").status, 401);
}

#[test]
fn a_session_survives_a_kill_and_neither_its_secret_nor_its_token_is_on_disk() {
    let mut server = Server::start(&[]);
    let reader = token(&server, &["reader", "--role", "read"]);
    let (browser, response) = Browser::sign_in(&server, &reader, "http://localhost");
    let (other, _) = Browser::sign_in(&server, &reader, "http://localhost");
    assert_eq!(other.ask(&server, "DELETE", "/ui/session").status, 204);
    // Nobody waits for the record of a session; the next write of the control plane is after it.
    server.topic("orders", "EventGridSchema");
    server.kill_9();
    let data = server.data_dir();
    let bearer = session_bearer(response.header("set-cookie"), &response.json());
    for (what, secret) in [
        ("token", reader.as_str()),
        ("key", &browser.key),
        ("cookie", &bearer[4..47]),
    ] {
        assert_eq!(count_files_with(&data, secret), 0, "the {what} is on disk");
    }
    assert!(
        count_files_with(&data, "Firefox/130") > 0,
        "the session is not on disk"
    );
    server.restart();
    assert_eq!(browser.ask(&server, "GET", "/ui/api/top").status, 200);
    assert_eq!(
        other.ask(&server, "GET", "/ui/api/top").status,
        401,
        "it was ended"
    );

    let list = server.command("GET", "/sessions", &Value::Null).json();
    let [session] = list["value"].as_array().expect("a list").as_slice() else {
        panic!("{list}");
    };
    for (field, expected) in [
        ("name", "reader"),
        ("role", "read"),
        ("browser", "Firefox/130"),
        ("from", "127.0.0.1"),
    ] {
        assert_eq!(session[field], expected, "{list}");
    }
    let own = browser.ask(&server, "GET", "/ui/api/sessions").json();
    assert_eq!(
        (&session["isOwn"], &own["value"][0]["isOwn"]),
        (&json!(false), &json!(true))
    );
    let path = format!("/sessions/{}", session["id"].as_str().expect("an id"));
    assert_eq!(
        browser
            .ask(&server, "DELETE", &format!("/ui/api{path}"))
            .status,
        403
    );
    assert_eq!(server.admin("DELETE", &path, &Value::Null).status, 204);
    assert_eq!(server.admin("DELETE", &path, &Value::Null).status, 404);
    assert_eq!(browser.ask(&server, "GET", "/ui/api/top").status, 401);
    server.terminate();
    server.restart();
    assert_eq!(browser.ask(&server, "GET", "/ui/api/top").status, 401);
}

#[test]
fn the_page_reaches_the_api_at_the_operators_address_only() {
    let server = Server::start(&[("SERVER__ADMIN_LISTEN", "127.0.0.1:0")]);
    let logs = server.logs();
    let (_, rest) = logs
        .split_once("the control plane is at http://")
        .expect("it is said");
    let address = rest
        .lines()
        .next()
        .expect("an address")
        .parse()
        .expect("one");
    let ask = |mut client: Client| {
        client
            .ask("GET", "/ui/api/healthz", &[], b"")
            .expect("it")
            .status
    };
    assert_eq!(ask(Client::with_tls(address, None)), 200);
    assert_eq!(ask(server.client()), 404);
}
