//! The bytes of an event, copied and nothing else: read from a socket, appended to a file and synced,
//! written to another socket. A thread for each publisher, with a file and a connection of its own.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
};

use super::load::content_length;

/// The room for what is read at once.
const PIECE: usize = 64 * 1024;

/// Listens on loopback, and copies what is posted to a file in `folder` and to the endpoint at `to`.
/// Returns the address that it listens on.
pub(super) fn listen(to: SocketAddr, folder: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let folder = folder.to_owned();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.expect("a publisher's connection");
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(format!("copy-{number}")))
                .expect("a file");
            // An error says that the publisher went away.
            thread::spawn(move || copy_requests(stream, file, to).ok());
        }
    });
    address
}

fn copy_requests(mut publisher: TcpStream, mut file: File, to: SocketAddr) -> io::Result<()> {
    publisher.set_nodelay(true)?;
    let mut endpoint = TcpStream::connect(to)?;
    endpoint.set_nodelay(true)?;
    let mut request = Vec::new();
    let mut response = Vec::new();
    loop {
        let head = read_message(&mut publisher, &mut request)?;
        file.write_all(&request[head..])?;
        file.sync_data()?;
        publisher.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        endpoint.write_all(&request)?;
        read_message(&mut endpoint, &mut response)?;
    }
}

/// Reads a message into `message`. Returns the length of its head.
fn read_message(stream: &mut TcpStream, message: &mut Vec<u8>) -> io::Result<usize> {
    message.clear();
    loop {
        let length = message.len();
        message.resize(length + PIECE, 0);
        let read = stream.read(&mut message[length..])?;
        message.truncate(length + read);
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(head) = memchr::memmem::find(message, b"\r\n\r\n") else {
            continue;
        };
        let head = head + 4;
        if message.len() >= head + content_length(&message[..head]) {
            return Ok(head);
        }
    }
}
