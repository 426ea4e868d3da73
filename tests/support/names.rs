//! A scripted name server on loopback.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

/// The reply to a query.
pub(crate) enum NameReply {
    /// Returns the addresses of the requested family; they are valid for this number of seconds.
    Addresses(Vec<IpAddr>, u32),
    /// Returns that the name does not exist (NXDOMAIN).
    NoName,
    /// Returns a failure of the server.
    Failed,
    /// Sends no response.
    Silence,
}

/// A DNS server on loopback.
pub(crate) struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, bool)>>>,
    stop: Arc<AtomicBool>,
}

impl NameServer {
    /// Responds with what `say` returns for a name, and for whether IPv6 was requested.
    pub(crate) fn start(say: impl Fn(&str, bool) -> NameReply + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = socket.local_addr().expect("a socket has an address");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a socket takes its option");
        let asked = Arc::<Mutex<Vec<(String, bool)>>>::default();
        let stop = Arc::<AtomicBool>::default();
        let received = Arc::clone(&asked);
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            let mut bytes = [0; 1_500];
            while !stopped.load(Ordering::SeqCst) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else {
                    continue;
                };
                let Some((name, v6, end)) = question(&bytes[..len]) else {
                    continue;
                };
                received.lock().push((name.clone(), v6));
                if let Some(response) = answer(&bytes[..end], v6, &say(&name, v6)) {
                    socket.send_to(&response, from).ok();
                }
            }
        });
        Self {
            address,
            asked,
            stop,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of queries for a name's IPv4 addresses.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock();
        asked
            .iter()
            .filter(|(known, v6)| known == name && !v6)
            .count()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// The name of a query, whether the query is for IPv6, and where it ends.
fn question(bytes: &[u8]) -> Option<(String, bool, usize)> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let len = usize::from(*bytes.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(bytes.get(at..at + len)?).to_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
    Some((labels.join("."), kind == 28, at + 4))
}

fn answer(asked: &[u8], v6: bool, reported: &NameReply) -> Option<Vec<u8>> {
    let (code, addresses, ttl) = match reported {
        NameReply::Addresses(addresses, ttl) => (0, addresses.as_slice(), *ttl),
        NameReply::NoName => (3, &[][..], 0),
        NameReply::Failed => (2, &[][..], 0),
        NameReply::Silence => return None,
    };
    let of_family: Vec<&IpAddr> = addresses
        .iter()
        .filter(|address| address.is_ipv6() == v6)
        .collect();
    let mut response = asked.to_vec();
    // A response, with recursion; one question, its records, and nothing else.
    response[2..12].copy_from_slice(&[
        0x81,
        0x80 | code,
        0,
        1,
        0,
        of_family.len() as u8,
        0,
        0,
        0,
        0,
    ]);
    for address in of_family {
        response.extend([0xc0, 12, 0, if v6 { 28 } else { 1 }, 0, 1]);
        response.extend(ttl.to_be_bytes());
        match address {
            IpAddr::V4(address) => response.extend([&[0, 4][..], &address.octets()].concat()),
            IpAddr::V6(address) => response.extend([&[0, 16][..], &address.octets()].concat()),
        }
    }
    Some(response)
}
