//! Why requests use HTTP/1.1 only: what awc does with HTTP/2. With HTTP/1.1 the same endpoints cost
//! no attempt (`tls::a_stale_tls_connection_costs_no_attempt`), and their status is read
//! (`failures::a_rejection_is_read_while_the_request_is_still_being_written`). If a test fails
//! here, awc has changed, and HTTP/2 can be considered again.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use awc::error::SendRequestError;
use bytes::Bytes;
use rustls::{ClientConfig, ServerConfig};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::support::certificates::Authority;

/// More than loopback needs.
const MOMENT: Duration = Duration::from_millis(50);

type Connection = h2::server::Connection<TlsStream<TcpStream>, Bytes>;

/// An endpoint of HTTP/2.
struct Http2 {
    url: String,
    connections: Rc<AtomicUsize>,
    /// A connection has ended.
    ended: Rc<Notify>,
}

impl Http2 {
    /// Serves each connection so.
    async fn start(authority: &Authority, serve: impl AsyncFn(Connection) + 'static) -> Self {
        let mut tls = ServerConfig::clone(&authority.endpoint("localhost", rustls::ALL_VERSIONS));
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let url = format!(
            "https://localhost:{}/",
            listener.local_addr().expect("an address").port()
        );
        let connections = Rc::new(AtomicUsize::new(0));
        let ended = Rc::new(Notify::new());
        let counted = Rc::clone(&connections);
        let notified = Rc::clone(&ended);
        actix_rt::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let Ok(stream) = acceptor.accept(tcp).await else {
                    continue;
                };
                let Ok(connection) = h2::server::handshake(stream).await else {
                    continue;
                };
                serve(connection).await;
                notified.notify_one();
            }
        });
        Self {
            url,
            connections,
            ended,
        }
    }
}

/// awc, which speaks HTTP/2 where an endpoint offers it.
fn awc(authority: &Authority) -> awc::Client {
    let mut tls = ClientConfig::clone(&authority.client());
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = awc::Connector::new().rustls_0_23(Arc::new(tls));
    awc::Client::builder()
        .connector(connector)
        .timeout(Duration::from_secs(10))
        .finish()
}

async fn post(client: &awc::Client, url: &str, body: Bytes) -> Result<u16, SendRequestError> {
    Ok(client.post(url).send_body(body).await?.status().as_u16())
}

fn response(status: u16) -> http::Response<()> {
    http::Response::builder()
        .status(status)
        .body(())
        .expect("a response")
}

#[actix_rt::test]
async fn awc_fails_a_request_on_an_http_2_connection_that_the_endpoint_closed_while_it_was_idle() {
    let authority = Authority::new();
    // Answers one request, says goodbye, and closes the connection, as servers do after their
    // keep-alive time.
    let endpoint = Http2::start(&authority, async |mut connection| {
        if let Some(Ok((_, mut respond))) = connection.accept().await {
            respond
                .send_response(response(200), true)
                .expect("a response is sent");
        }
        connection.graceful_shutdown();
        // Sends that, and waits for the client no longer than this.
        tokio::time::timeout(MOMENT, connection.accept()).await.ok();
    })
    .await;
    let client = awc(&authority);
    assert_eq!(
        post(&client, &endpoint.url, Bytes::from_static(b"[{}]"))
            .await
            .expect("a response"),
        200
    );
    endpoint.ended.notified().await;
    // The client has time to see the end.
    tokio::time::sleep(MOMENT).await;
    let second = post(&client, &endpoint.url, Bytes::from_static(b"[{}]")).await;
    assert!(matches!(second, Err(SendRequestError::H2(_))), "{second:?}");
    assert_eq!(
        endpoint.connections.load(Ordering::SeqCst),
        1,
        "awc made no other connection"
    );
}

#[actix_rt::test]
async fn awc_loses_an_http_2_response_that_arrives_before_the_whole_request_is_sent() {
    let authority = Authority::new();
    // Refuses a large request when it has its head, and wants no more of it (RFC 9113, section
    // 8.1).
    let endpoint = Http2::start(&authority, async |mut connection| {
        if let Some(Ok((_request, mut respond))) = connection.accept().await {
            respond
                .send_response(response(413), true)
                .expect("a response is sent");
            respond.send_reset(h2::Reason::NO_ERROR);
        }
        while connection.accept().await.is_some() {}
    })
    .await;
    let body = Bytes::from(vec![b' '; 1_000_000]);
    let lost = post(&awc(&authority), &endpoint.url, body.clone()).await;
    assert!(lost.is_err(), "{lost:?}");
}
