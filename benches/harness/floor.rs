//! The parts that the server is made of, alone: each in a process of its own, so that its processor
//! time can be read as the server's is.
//!
//! - The *relay* is actix-web in and awc out, on one worker, with nothing between: no journal, no
//!   filter, no retry.
//! - The *storing relay* answers once RocksDB has synced the event, sends it then, and removes it:
//!   what delivery at least once needs of the parts, with nothing between either.
//! - The *copy* moves the bytes and does nothing else: from socket to disk to socket ([`copy`]).
//! - The *caller* is awc alone, as many requests at a time as a publisher has connections, to one
//!   URL.
//! - The *callers* are awc alone too, to as many URLs and over as many connections as are asked
//!   for, or to as many endpoints.
//! - The [`client`] of another destination alone.

use std::{
    cell::Cell,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    rc::Rc,
    thread,
};

use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;

use super::{
    client, copy,
    endpoint::distinct_url,
    load::{Shape, Target, body},
    store::Store,
};

/// The variable that says what a process of the bench is: a floor.
pub(crate) const ROLE: &str = "BENCH_ROLE";

/// The beginning of a line of such a process: a test's process has other lines, too.
const LINE_PREFIX: &str = "floor: ";

/// A process of that kind.
pub(crate) struct Floor {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Floor {
    /// Hands on to `url` what is posted to it, before it answers.
    pub(crate) fn relay(again: fn() -> Command, url: &str) -> (Self, Target) {
        Self::start_relay(again(), &format!("relay {url}"))
    }

    /// Stores in `folder` what is posted to it before it answers, and hands it on to `url` then.
    pub(crate) fn storing_relay(
        again: fn() -> Command,
        url: &str,
        folder: &Path,
    ) -> (Self, Target) {
        Self::storing_relay_under(&[], again, url, folder)
    }

    /// Copies what is posted to it to a file in `folder`, and to the endpoint at `to`.
    pub(crate) fn copy(again: fn() -> Command, to: SocketAddr, folder: &Path) -> (Self, Target) {
        Self::start_relay(again(), &format!("copy {to} {}", folder.display()))
    }

    /// As [`Floor::storing_relay`], below the command `under`.
    pub(crate) fn storing_relay_under(
        under: &[&str],
        again: fn() -> Command,
        url: &str,
        folder: &Path,
    ) -> (Self, Target) {
        let role = format!("relay {url} {}", folder.display());
        Self::start_relay(wrap_command(under, again()), &role)
    }

    fn start_relay(command: Command, role: &str) -> (Self, Target) {
        let mut floor = Self::start_command(command, role);
        let at = floor.hear().parse().expect("an address");
        (
            floor,
            Target {
                at,
                path: "/".to_owned(),
                key: String::new(),
                tls: None,
            },
        )
    }

    /// Sends to the topic of a broker on request.
    pub(crate) fn kafka(again: fn() -> Command, address: &str, topic: &str) -> Self {
        Self::start(again, &format!("kafka {address} {topic}"))
    }

    /// Adds messages to a queue on request.
    pub(crate) fn queue(again: fn() -> Command, base: &str, name: &str, at_a_time: usize) -> Self {
        Self::start(again, &format!("queue {base} {name} {at_a_time}"))
    }

    /// Publishes messages to a stream of NATS on request.
    pub(crate) fn nats(
        again: fn() -> Command,
        urls: &[String],
        stream: &str,
        at_a_time: usize,
        bytes: usize,
    ) -> Self {
        Self::start(
            again,
            &format!("nats {} {stream} {at_a_time} {bytes}", urls.join(",")),
        )
    }

    /// Posts to `url` on request.
    pub(crate) fn caller(again: fn() -> Command, url: &str, at_a_time: usize) -> Self {
        Self::start(again, &format!("caller {url} {at_a_time}"))
    }

    /// Posts to `urls` URLs in turn, each `base` and a number, on request.
    pub(crate) fn callers(again: fn() -> Command, base: &str, urls: u64, at_a_time: u64) -> Self {
        Self::start(again, &format!("callers {base} {urls} {at_a_time}"))
    }

    /// Posts to as many distinct endpoints in turn, each over a connection of its own, on request.
    pub(crate) fn everywhere(
        again: fn() -> Command,
        port: u16,
        endpoints: usize,
        at_a_time: usize,
    ) -> Self {
        Self::start(again, &format!("everywhere {port} {endpoints} {at_a_time}"))
    }

    fn start(again: fn() -> Command, role: &str) -> Self {
        Self::start_command(again(), role)
    }

    fn start_command(mut command: Command, role: &str) -> Self {
        let child = command
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("this program starts again");
        let words = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            words,
            answers,
        }
    }

    /// The process id of the floor.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Makes a number of requests, and returns when the last one is answered.
    pub(crate) fn call(&mut self, requests: u64) {
        writeln!(self.words, "{requests}").expect("a process that listens");
        assert_eq!(self.hear(), "done");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self
                .answers
                .read_line(&mut line)
                .expect("a process that speaks");
            assert!(read > 0, "the process of a floor has ended");
            if let Some((_, said)) = line.split_once(LINE_PREFIX) {
                return said.trim().to_owned();
            }
        }
    }
}

/// The command below `under`, another command with its arguments; as it is if that is empty.
fn wrap_command(under: &[&str], command: Command) -> Command {
    let Some((program, arguments)) = under.split_first() else {
        return command;
    };
    let mut wrapped = Command::new(program);
    wrapped.args(arguments);
    wrapped.arg(command.get_program());
    wrapped.args(command.get_args());
    wrapped
}

impl Drop for Floor {
    fn drop(&mut self) {
        // The process may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Is what this process is to be, until its parent is gone. False where it is to be none of these.
pub(crate) fn is_one() -> bool {
    let Ok(role) = std::env::var(ROLE) else {
        return false;
    };
    let words: Vec<String> = role.split(' ').map(str::to_owned).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["relay", url] => actix_rt::System::new().block_on(relay(url.to_owned(), None)),
        ["relay", url, folder] => {
            let store = Store::create(Path::new(folder));
            actix_rt::System::new().block_on(relay(url.to_owned(), Some(store)));
        }
        ["copy", to, folder] => {
            let to = to.parse().expect("an address");
            say(&copy::listen(to, Path::new(folder)).to_string());
            wait_for_parent();
        }
        ["caller", url, at_a_time] => {
            let at_a_time = at_a_time.parse().expect("a number");
            actix_rt::System::new().block_on(caller(vec![url.to_owned()], at_a_time));
        }
        ["callers", base, urls, at_a_time] => {
            let [urls, at_a_time] =
                [urls, at_a_time].map(|number| number.parse().expect("a number"));
            let urls = (0..urls).map(|number| format!("{base}{number}")).collect();
            actix_rt::System::new().block_on(caller(urls, at_a_time));
        }
        ["everywhere", port, endpoints, at_a_time] => {
            let port = port.parse().expect("a port");
            let [endpoints, at_a_time] =
                [endpoints, at_a_time].map(|number| number.parse().expect("a number"));
            let urls = (0..endpoints)
                .map(|number| distinct_url(port, number))
                .collect();
            actix_rt::System::new().block_on(caller(urls, at_a_time));
        }
        ["kafka", address, topic] => {
            actix_rt::System::new().block_on(client::kafka(address, topic))
        }
        ["queue", base, name, at_a_time] => {
            let at_a_time = at_a_time.parse().expect("a number");
            actix_rt::System::new().block_on(client::queue(base, name, at_a_time));
        }
        ["nats", urls, stream, at_a_time, bytes] => {
            let [at_a_time, bytes] =
                [at_a_time, bytes].map(|number| number.parse().expect("a number"));
            actix_rt::System::new().block_on(client::nats(urls, stream, at_a_time, bytes));
        }
        _ => panic!("{ROLE} is {role:?}"),
    }
    true
}

fn say(what: &str) {
    println!("{LINE_PREFIX}{what}");
}

/// The least that awc can do: no timeout, no redirects.
pub(super) fn awc_client() -> awc::Client {
    awc::Client::builder()
        .connector(awc::Connector::new().limit(0))
        .disable_timeout()
        .disable_redirects()
        .no_default_headers()
        .finish()
}

async fn post(client: &awc::Client, url: &str, body: Bytes) {
    let request = client
        .post(url)
        .insert_header(("content-type", "application/json"));
    let mut response = request
        .send_body(body)
        .await
        .expect("an endpoint that answers");
    assert_eq!(response.status().as_u16(), 200);
    response.body().await.expect("an answer's end");
}

async fn relay(url: String, store: Option<Store>) {
    let app = move || {
        let client = Rc::new(awc_client());
        let url = url.clone();
        let store = store.clone();
        let hand_on = web::to(move |body: Bytes| {
            let client = Rc::clone(&client);
            let url = url.clone();
            let store = store.clone();
            async move {
                let Some(store) = store else {
                    post(&client, &url, body).await;
                    return HttpResponse::Ok().finish();
                };
                let number = store.put(body.clone()).await;
                actix_rt::spawn(async move {
                    post(&client, &url, body).await;
                    store.delete(number);
                });
                HttpResponse::Ok().finish()
            }
        });
        App::new().default_service(hand_on)
    };
    let server = HttpServer::new(app).workers(1).disable_signals();
    let server = server
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .expect("loopback has a free port");
    say(&server.addrs()[0].to_string());
    thread::spawn(|| {
        wait_for_parent();
        std::process::exit(0);
    });
    server.run().await.expect("a server");
}

/// Returns when the process that started this one is gone, or needs it no longer: it sends nothing.
fn wait_for_parent() {
    std::io::stdin().read_line(&mut String::new()).ok();
}

async fn caller(urls: Vec<String>, at_a_time: usize) {
    let client = awc_client();
    let body = Bytes::from(body(Shape::ONE));
    let urls = Rc::<[String]>::from(urls);
    serve(async |requests| {
        let left = Rc::new(Cell::new(requests));
        let callers = (0..at_a_time).map(|_| {
            let client = client.clone();
            let urls = Rc::clone(&urls);
            let body = body.clone();
            let left = Rc::clone(&left);
            actix_rt::spawn(async move {
                while let Some(rest) = left.get().checked_sub(1) {
                    left.set(rest);
                    let url = &urls[rest as usize % urls.len()];
                    post(&client, url, body.clone()).await;
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller does not panic");
        }
    })
    .await;
}

/// Works as much as each line says, and answers when it is done.
pub(super) async fn serve(mut work: impl AsyncFnMut(u64)) {
    let mut line = String::new();
    while std::io::stdin()
        .read_line(&mut line)
        .is_ok_and(|read| read > 0)
    {
        let amount = line.trim().parse().expect("a number");
        line.clear();
        work(amount).await;
        say("done");
    }
}
