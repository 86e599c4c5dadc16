//! The app behind every proxy: answers from memory, echoes WebSocket messages; it is a thread of this process and parses as little as it can.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of the two answers: `/s` and `/l`.
pub(crate) const BODIES: [usize; 2] = [128, 16 * 1024];
/// Bytes of a WebSocket message.
pub(crate) const MESSAGE: usize = 64;
/// A client's frame: header, a mask of zeros, payload.
pub(crate) const FRAME: usize = 6 + MESSAGE;
const REQUEST_MAX: usize = 16 * 1024;
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// Starts it on a thread of its own, which ends with the process.
pub(crate) fn start() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen as the backend")?;
    listener
        .set_nonblocking(true)
        .context("set the backend's listener up")?;
    let address = listener.local_addr().context("read the backend's address")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("make the backend's runtime")?;
    std::thread::spawn(move || runtime.block_on(serve(listener)));
    Ok(address)
}

async fn serve(listener: std::net::TcpListener) -> anyhow::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let answers: &'static [Vec<u8>; 2] = Box::leak(Box::new(BODIES.map(answer)));
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        // How a connection ended is for the client to judge.
        tokio::spawn(async move {
            let _ = connection(stream, answers).await;
        });
    }
}

fn answer(length: usize) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.resize(bytes.len() + length, b'x');
    bytes
}

async fn connection(mut stream: TcpStream, answers: &[Vec<u8>; 2]) -> std::io::Result<()> {
    let mut buffer = vec![0; REQUEST_MAX];
    let mut have = 0;
    loop {
        let count = stream.read(&mut buffer[have..]).await?;
        if count == 0 {
            return Ok(());
        }
        have += count;
        if !buffer[..have].ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = &buffer[..have];
        have = 0;
        let answer: &[u8] = match head {
            [b'G', b'E', b'T', b' ', b'/', b's', ..] => &answers[0],
            [b'G', b'E', b'T', b' ', b'/', b'l', ..] => &answers[1],
            [b'G', b'E', b'T', b' ', b'/', b'w', ..] => break,
            _ => NOT_FOUND,
        };
        stream.write_all(answer).await?;
    }
    drop(buffer);
    stream.write_all(SWITCH).await?;
    echo(stream).await
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut frame = [0; FRAME];
    loop {
        stream.read_exact(&mut frame).await?;
        // A server's frame has no mask.
        frame[4] = 0x82;
        frame[5] = frame[1] & 0x7f;
        stream.write_all(&frame[4..]).await?;
    }
}
