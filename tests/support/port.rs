//! A port that belongs to a test although nobody listens there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// A port of loopback that the system gives to nobody else while this value lives. Connections to it are refused until
/// it [listens](ReservedPort::listen), or until a process that was told the port listens there.
///
/// The number of a closed listener would not do: tests run beside each other, and the system gives it away again.
pub(crate) struct ReservedPort {
    socket: Socket,
    /// The address with the port.
    pub(crate) address: SocketAddr,
}

impl ReservedPort {
    /// A port of 127.0.0.1.
    pub(crate) fn new() -> Self {
        Self::of(Ipv4Addr::LOCALHOST.into())
    }

    /// A port of this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        // Another socket with this option may bind the port by its number, and listen.
        socket.set_reuse_address(true).expect("an option");
        socket.bind(&address.into()).expect("loopback has a free port");
        let address = socket.local_addr().expect("a bound socket has an address").as_socket().expect("an IP address");
        Self { socket, address }
    }

    /// Accepts connections from now on.
    pub(crate) fn listen(self) -> TcpListener {
        self.socket.listen(1024).expect("nobody else listens");
        self.socket.into()
    }
}

#[test]
fn a_reserved_port_refuses_connections_until_somebody_listens() {
    use std::{io::ErrorKind, net::TcpStream};

    let port = ReservedPort::new();
    let at = port.address;
    let refused = |at| TcpStream::connect(at).expect_err("nobody listens").kind();
    assert_eq!(refused(at), ErrorKind::ConnectionRefused);
    let other = TcpListener::bind(at).expect("a process that was told the port may listen");
    TcpStream::connect(at).expect("it listens");
    drop(other);
    assert_eq!(refused(at), ErrorKind::ConnectionRefused);
    let _listener = port.listen();
    TcpStream::connect(at).expect("it listens");
}
