//! The token of this machine's server is sent to this machine only.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use expect_test::expect;
use parking_lot::Mutex;

use super::Folder;

/// A server that records the `Authorization` headers that it receives, and refuses everything.
struct Stranger {
    at: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Stranger {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("its address");
        let received = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&received);
        // It ends with the process of the test.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let reader = BufReader::new(stream.try_clone().expect("a second handle"));
                let head = reader
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty());
                let credentials =
                    head.filter(|line| line.to_ascii_lowercase().starts_with("authorization:"));
                log.lock().extend(credentials);
                stream
                    .write_all(
                        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    )
                    .ok();
            }
        });
        Self { at, received }
    }

    /// Its address on this machine by a name that is not known to be one of this machine.
    fn foreign(&self) -> String {
        format!("http://0.0.0.0:{}", self.at.port())
    }

    fn take_received(&self) -> Vec<String> {
        std::mem::take(&mut *self.received.lock())
    }
}

/// The arguments and the variables of a command.
type CommandRun<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

#[test]
fn the_token_of_this_machine_is_not_sent_to_strangers() {
    let stranger = Stranger::listen();
    let folder = Folder::with_token("the-local-token");
    let foreign = stranger.foreign();
    folder.run(&["context", "add", "prod", "--server", &foreign], &[]);
    let runs: [CommandRun<'_>; 5] = [
        (&["topics", "list", "--server", &foreign], &[]),
        (&["topics", "list"], &[("GRIDHOOK_SERVER", &foreign)]),
        (&["topics", "list", "--context", "prod"], &[]),
        (&["topics", "list"], &[]),
        (&["publish", "orders", "--server", &foreign], &[]),
    ];
    for (arguments, variables) in runs {
        let ended = folder.run(arguments, variables);
        let said = ended.error.replace(&foreign, "http://STRANGER");
        expect![
            "gridhook: http://STRANGER/: no token for this server; use --token-file, set \
             GRIDHOOK_TOKEN, or add a context with --token-file. The token in data/admin-token is \
             sent only to a server of this machine"
        ]
        .assert_eq(&said);
        assert_ne!(ended.code, Some(0), "{arguments:?}");
    }
    assert_eq!(
        stranger.take_received(),
        [""; 0],
        "a stranger received a credential"
    );

    // A publisher's address beside that of the control plane.
    let local = format!("http://{}", stranger.at);
    let ended = folder.run(
        &["chaos", "--server", &local, "--publish-to", &foreign],
        &[],
    );
    assert!(
        ended.error.contains("no token for this server"),
        "{}",
        ended.error
    );
    assert_eq!(
        stranger.take_received(),
        [""; 0],
        "a stranger received a credential"
    );
}

#[test]
fn a_loopback_server_gets_the_token_of_this_machine_and_others_a_named_one() {
    let stranger = Stranger::listen();
    let folder = Folder::with_token("the-local-token");
    let local = |host: &str| format!("http://{host}:{}", stranger.at.port());
    for host in ["127.0.0.1", "localhost"] {
        let ended = folder.run(&["topics", "list", "--server", &local(host)], &[]);
        assert_eq!(
            stranger.take_received(),
            ["authorization: Bearer the-local-token"],
            "{host}: {}",
            ended.error
        );
        assert!(!ended.error.contains("warning"), "{}", ended.error);
    }
    // The address that the server of this environment listens on.
    let listen = stranger.at.to_string();
    folder.run(&["topics", "list"], &[("GRIDHOOK_SERVER__LISTEN", &listen)]);
    assert_eq!(
        stranger.take_received(),
        ["authorization: Bearer the-local-token"]
    );

    folder.write("named", "a-named-token");
    let foreign = stranger.foreign();
    for (flags, variables) in [
        (&["--token-file", "named"][..], &[][..]),
        (&[], &[("GRIDHOOK_TOKEN", "a-named-token")]),
    ] {
        let ended = folder.run(
            &[&["topics", "list", "--server", &foreign], flags].concat(),
            variables,
        );
        assert_eq!(
            stranger.take_received(),
            ["authorization: Bearer a-named-token"]
        );
        expect![[r#"
            gridhook: warning: the token is sent to 0.0.0.0 without encryption; use https://
            gridhook: the server responded 403 Forbidden: the response has no body"#]]
        .assert_eq(&ended.error);
    }
    let url = format!("{foreign}/topics/orders/api/events");
    let ended = folder.run(&["publish", &url], &[("GRIDHOOK_KEY", "a-key")]);
    assert!(
        ended
            .error
            .starts_with("gridhook: warning: the access key is sent to 0.0.0.0 without encryption"),
        "{}",
        ended.error
    );
}
