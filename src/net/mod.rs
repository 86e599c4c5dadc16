//! Sockets as every part uses them: tokio's own, and under the feature `netsim` those of a simulated network; it speaks no protocol.
//!
//! Without the feature these are tokio's types by another name: the seam costs nothing.

#[cfg(feature = "netsim")]
pub mod sim;

use tonic::transport::{Channel, Endpoint};

#[cfg(feature = "netsim")]
pub use self::sim::{TcpListener, TcpStream, ToSocketAddrs};
#[cfg(not(feature = "netsim"))]
pub use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};

/// A protection of users that the simulation takes away to see that its checker notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// V8: an agent refuses what it does not own.
    Fence,
    /// A move is only undone while nobody can have seen its Route.
    Commit,
    /// A package is what its source announced.
    Checksum,
    /// Whether anybody still lives on a worker is looked at before it is retired.
    SecondLook,
}

/// True where the simulation took this protection away; never in a build that is shipped.
#[cfg(not(feature = "netsim"))]
pub(crate) const fn lacks(_: Protection) -> bool {
    false
}

#[cfg(feature = "netsim")]
pub(crate) use self::sim::lacks;

/// Random bytes from the operating system.
#[cfg(not(feature = "netsim"))]
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), ring::error::Unspecified> {
    use ring::rand::{SecureRandom as _, SystemRandom};

    SystemRandom::new().fill(bytes)
}

#[cfg(feature = "netsim")]
pub(crate) use self::sim::fill_random;

/// Connections as tonic's server takes them.
///
/// The builder's own tcp_nodelay does not reach connections of a listener that is handed in; with Nagle's algorithm
/// a command behind another waits for the peer's delayed acknowledgement, 40 ms.
#[cfg(not(feature = "netsim"))]
pub(crate) fn incoming(listener: TcpListener) -> tonic::transport::server::TcpIncoming {
    tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true))
}

/// Connections as tonic's server takes them.
#[cfg(feature = "netsim")]
pub(crate) fn incoming(listener: TcpListener) -> impl futures::Stream<Item = std::io::Result<TcpStream>> {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}

/// Connects as tonic's client does.
#[cfg(not(feature = "netsim"))]
pub(crate) async fn dial(endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
    endpoint.connect().await
}

/// Connects as tonic's client does.
#[cfg(feature = "netsim")]
pub(crate) async fn dial(endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(|uri: http::Uri| async move {
        let address = uri
            .authority()
            .map(http::uri::Authority::as_str)
            .unwrap_or_default()
            .to_owned();
        TcpStream::connect(address)
            .await
            .map(hyper_util::rt::TokioIo::new)
    });
    endpoint.connect_with_connector(connector).await
}
