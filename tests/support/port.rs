//! A port that is reserved for a test without a listener.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
};

use socket2::{Domain, Socket, Type};

/// A port of loopback that the system gives to no other process while this value exists.
/// Connections to it are refused until it [listens](ReservedPort::listen), or until a process that
/// is given the port listens there.
///
/// The number of a closed listener would not do: tests run beside each other, and the system gives
/// it away again.
pub(crate) struct ReservedPort {
    socket: Socket,
    /// The address with the port.
    pub(crate) address: SocketAddr,
}

impl ReservedPort {
    /// Reserves a port of 127.0.0.1.
    pub(crate) fn new() -> Self {
        Self::at_address(Ipv4Addr::LOCALHOST.into())
    }

    /// Reserves a port of this address.
    pub(crate) fn at_address(address: IpAddr) -> Self {
        Self::at(SocketAddr::new(address, 0)).expect("loopback has a free port")
    }

    /// Reserves `count` consecutive ports of 127.0.0.1.
    pub(crate) fn in_a_row(count: u16) -> Vec<Self> {
        loop {
            let first = Self::new();
            let ip = first.address.ip();
            let port = first.address.port();
            let more =
                (1..count).map(|more| Self::at(SocketAddr::new(ip, port.checked_add(more)?)).ok());
            if let Some(more) = more.collect::<Option<Vec<_>>>() {
                return std::iter::once(first).chain(more).collect();
            }
        }
    }

    fn at(address: SocketAddr) -> io::Result<Self> {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        // Without the option first: with it the system would bind a port that another test has
        // reserved.
        socket.bind(&address.into())?;
        // Now another socket with this option may bind the port by its number, and listen.
        socket.set_reuse_address(true).expect("an option");
        let address = socket
            .local_addr()
            .expect("a bound socket has an address")
            .as_socket()
            .expect("an IP address");
        Ok(Self { socket, address })
    }

    /// Accepts connections from now on.
    pub(crate) fn listen(self) -> TcpListener {
        self.socket.listen(1024).expect("nobody else listens");
        self.socket.into()
    }
}

#[test]
fn a_reserved_port_refuses_connections_until_a_listener_opens() {
    use std::{io::ErrorKind, net::TcpStream};

    let port = ReservedPort::new();
    let at = port.address;
    let refused = |at| TcpStream::connect(at).expect_err("nobody listens").kind();
    assert_eq!(refused(at), ErrorKind::ConnectionRefused);
    let other = TcpListener::bind(at).expect("a process that is given the port may listen");
    TcpStream::connect(at).expect("it listens");
    drop(other);
    assert_eq!(refused(at), ErrorKind::ConnectionRefused);
    let _listener = port.listen();
    TcpStream::connect(at).expect("it listens");
}

#[test]
fn a_reserved_port_is_reserved_once() {
    let port = ReservedPort::new();
    assert!(ReservedPort::at(port.address).is_err());
    // Nor while a process that was given the port listens, and after it.
    let listener =
        TcpListener::bind(port.address).expect("a process that is given the port may listen");
    assert!(ReservedPort::at(port.address).is_err());
    drop(listener);
    assert!(ReservedPort::at(port.address).is_err());
}
