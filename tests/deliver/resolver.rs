//! Name resolution: the cache, slow names, and the order of addresses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use gridhook::{
    deliver::{
        ClientOptions, WebhookClient,
        resolver::{NameResolver, Resolver},
    },
    policy::outcome::{Failure, Outcome},
};

use super::{AMPLE, options, post_to, with_names};
use crate::support::{
    endpoint::{Endpoint, respond},
    names::{NameReply, NameServer},
    port::ReservedPort,
};

/// More than any working lookup takes on a busy machine, and far less than a silent name server.
const SOON: Duration = Duration::from_secs(4);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn resolver(server: &NameServer) -> Resolver {
    Resolver::new(vec![server.address()])
}

async fn find(resolver: &Resolver, host: &str) -> io::Result<Vec<IpAddr>> {
    Ok(resolver
        .look_up(host, 80)
        .await?
        .into_iter()
        .map(|address| address.ip())
        .collect())
}

#[actix_rt::test]
async fn an_answer_is_cached_for_its_time_to_live() {
    let server = NameServer::start(|name, _| match name {
        "kept.test" => NameReply::Addresses(vec![HERE, "::1".parse().expect("an address")], 60),
        "fleeting.test" => NameReply::Addresses(vec![HERE], 0),
        _ => NameReply::NoName,
    });
    let resolver = resolver(&server);
    for _ in 0..5 {
        let mut found = find(&resolver, "Kept.test").await.expect("it is there");
        found.sort();
        assert_eq!(found, [HERE, "::1".parse().expect("an address")]);
        assert_eq!(
            find(&resolver, "fleeting.test").await.expect("it is there"),
            [HERE]
        );
        assert!(
            find(&resolver, "nobody.test")
                .await
                .expect("that is an answer")
                .is_empty()
        );
    }
    assert_eq!(
        (
            server.asked("kept.test"),
            server.asked("fleeting.test"),
            server.asked("nobody.test")
        ),
        (1, 5, 5)
    );
}

#[actix_rt::test]
async fn one_lookup_serves_all_requests_for_a_name() {
    let server = NameServer::start(|_, _| {
        std::thread::sleep(Duration::from_millis(20));
        NameReply::Addresses(vec![HERE], 0)
    });
    let resolver = resolver(&server);
    for found in join_all((0..500).map(|_| find(&resolver, "shared.test"))).await {
        assert_eq!(found.expect("it is there"), [HERE]);
    }
    assert!(
        server.asked("shared.test") <= 4,
        "resent at most: {}",
        server.asked("shared.test")
    );
}

#[actix_rt::test]
async fn stale_answers_are_used_if_name_servers_fail_but_not_if_the_name_is_gone() {
    let asked = AtomicUsize::new(0);
    let gone = AtomicUsize::new(0);
    let server = NameServer::start(move |name, v6| match (name, v6) {
        (_, true) => NameReply::NoName,
        ("failing.test", false) if asked.fetch_add(1, Ordering::SeqCst) > 0 => NameReply::Failed,
        ("gone.test", false) if gone.fetch_add(1, Ordering::SeqCst) > 0 => NameReply::NoName,
        _ => NameReply::Addresses(vec![HERE], 0),
    });
    let resolver = resolver(&server);
    for name in ["failing.test", "gone.test"] {
        assert_eq!(find(&resolver, name).await.expect("it is there"), [HERE]);
    }
    for _ in 0..3 {
        assert_eq!(
            find(&resolver, "failing.test").await.expect("it was there"),
            [HERE]
        );
        assert!(
            find(&resolver, "gone.test")
                .await
                .expect("that is an answer")
                .is_empty()
        );
    }
}

#[actix_rt::test]
async fn an_answer_for_one_family_does_not_wait_for_the_other() {
    let server = NameServer::start(|_, v6| {
        if v6 {
            NameReply::Silence
        } else {
            NameReply::Addresses(vec![HERE], 60)
        }
    });
    let start = Instant::now();
    assert_eq!(
        find(&resolver(&server), "half.test")
            .await
            .expect("it is there"),
        [HERE]
    );
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[actix_rt::test]
async fn localhost_and_the_hosts_file_need_no_name_server() {
    let server = NameServer::start(|_, _| NameReply::Silence);
    let resolver = resolver(&server);
    for name in ["localhost", "LocalHost", "localhost.", "db.localhost"] {
        let found = find(&resolver, name).await.expect("it is there");
        assert!(
            found.contains(&HERE) && found.iter().all(IpAddr::is_loopback),
            "{name}: {found:?}"
        );
    }
    let listed = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    for line in listed
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
    {
        let mut words = line.split_whitespace();
        let Some(address) = words
            .next()
            .and_then(|address| address.parse::<IpAddr>().ok())
        else {
            continue;
        };
        for name in words {
            let found = find(&resolver, name).await.expect("it is there");
            assert!(found.contains(&address), "{name}: {found:?}");
        }
    }
    assert_eq!(server.asked("localhost"), 0);
}

#[actix_rt::test]
async fn unanswered_names_do_not_delay_others() {
    let server = NameServer::start(|name, _| match name {
        name if name.starts_with("silent") => NameReply::Silence,
        _ => NameReply::Addresses(vec![HERE], 0),
    });
    let resolver = resolver(&server);
    let silent = (0..300).map(|number| {
        let resolver = resolver.clone();
        actix_rt::spawn(async move { find(&resolver, &format!("silent{number}.test")).await })
    });
    let silent: Vec<_> = silent.collect();
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(
            find(&resolver, "neighbour.test")
                .await
                .expect("it is there"),
            [HERE]
        );
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
    silent.into_iter().for_each(|task| task.abort());
}

#[actix_rt::test]
async fn an_unanswered_name_fails_with_its_cause() {
    let server = NameServer::start(|name, _| {
        if name == "broken.test" {
            NameReply::Failed
        } else {
            NameReply::NoName
        }
    });
    let client = WebhookClient::new(ClientOptions {
        names: std::sync::Arc::new(resolver(&server)),
        ..options()
    });
    for (name, detail) in [
        ("broken.test", "cannot resolve the name broken.test"),
        ("no.test", "has no address"),
    ] {
        let response = post_to(&client, &format!("http://{name}/"), AMPLE).await;
        assert_eq!(
            response.outcome,
            Outcome::Failed(Failure::ResolutionError),
            "{}",
            response.detail
        );
        assert!(response.detail.contains(detail), "{}", response.detail);
    }
}

/// A listener whose queue is full: connections get no reply.
fn deaf() -> (TcpListener, Vec<TcpStream>) {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(HERE, 0).into())
        .expect("loopback has a free port");
    socket.listen(0).expect("it listens");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("a listener has an address");
    let fill = || TcpStream::connect_timeout(&address, Duration::from_millis(50)).ok();
    let queued: Vec<_> = std::iter::from_fn(fill).take(16).collect();
    assert!(queued.len() < 16, "the queue is full");
    (listener, queued)
}

#[actix_rt::test]
async fn an_unresponsive_address_does_not_delay_the_next() {
    let endpoint = Endpoint::start(vec![respond(200, "connection: close\r\n", "")]);
    let (deaf, _queued) = deaf();
    let deaf = deaf.local_addr().expect("an address");
    let at = endpoint.address();
    for found in [vec![deaf, at], vec![deaf, deaf, deaf, at]] {
        let client = WebhookClient::new(with_names(move |_, _| Some(Ok(found.clone()))));
        let start = Instant::now();
        let response = post_to(&client, "http://two.test/", AMPLE).await;
        assert_eq!(response.outcome, Outcome::Delivered, "{}", response.detail);
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[actix_rt::test]
async fn addresses_are_called_ipv6_first_and_in_turns() {
    let v4 = Endpoint::start(vec![respond(200, "", "")]);
    let v6 = Endpoint::start_at("::1", vec![respond(201, "", "")]);
    let four = v4.address();
    let six = v6.address();
    let closed6 = [(); 2].map(|()| ReservedPort::at_address(Ipv6Addr::LOCALHOST.into()));
    let closed4 = ReservedPort::new();
    let refused6 = closed6.each_ref().map(|port| port.address);
    let refused4 = closed4.address;
    for (found, status) in [
        (vec![four, six], 201),
        (vec![refused6[0], four], 200),
        (vec![refused6[0], refused6[1], refused4, four], 200),
        (vec![refused4, refused6[0], refused6[1], six], 201),
    ] {
        let shown = format!("{found:?}");
        let client = WebhookClient::new(with_names(move |_, _| Some(Ok(found.clone()))));
        let response = post_to(&client, "http://both.test/", AMPLE).await;
        assert_eq!(
            response.status,
            Some(status),
            "{shown}: {}",
            response.detail
        );
    }
    let first = refused6[0];
    let last = refused4;
    let client = WebhookClient::new(with_names(move |_, _| Some(Ok(vec![last, first]))));
    let response = post_to(&client, "http://none.test/", AMPLE).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::SocketError));
    assert!(
        response
            .detail
            .contains(&format!("no connection to {last}: Connection refused")),
        "{}",
        response.detail
    );
}
