//! The stream of a client, with TLS or without.

use actix_tls::accept::rustls_0_23::TlsStream;
use tokio_util::io::InspectReader;

use super::connection::ClientConnection;

/// A connection with TLS, and a function that is called with what is read.
pub(super) type SecureConnection =
    InspectReader<TlsStream<ClientConnection>, Box<dyn FnMut(&[u8])>>;

/// A client that closes its side says so within TLS. The HTTP library stops reading there, so that
/// the connection below never sees its end.
pub(super) fn secure_connection(stream: TlsStream<ClientConnection>) -> SecureConnection {
    let stage = stream.get_ref().0.stage();
    InspectReader::new(
        stream,
        Box::new(move |read: &[u8]| {
            if read.is_empty() {
                stage.peer().mark_closed();
            }
        }),
    )
}

/// A connection of a client or of another node, with TLS or without. It is one type: the HTTP
/// library would be compiled for each.
pub(super) type ClientStream = tokio_util::either::Either<ClientConnection, Box<SecureConnection>>;

/// The connection, below TLS where there is TLS.
pub(super) fn connection_below(stream: &ClientStream) -> &ClientConnection {
    match stream {
        ClientStream::Left(connection) => connection,
        ClientStream::Right(secure) => secure.get_ref().get_ref().0,
    }
}
