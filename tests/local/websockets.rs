//! WebSocket frames of every kind, right and wrong, through both hops and back: what goes in comes out, byte for byte. To judge them is the app's
//! and the client's business.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::run::{PATIENCE, Run, group};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A masked frame, its first byte as given.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    masked(first, payload, Some(MASK))
}

fn masked(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let flag = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(flag | u8::try_from(short).unwrap()),
        middle @ 126..=0xffff => {
            bytes.push(flag + 126);
            bytes.extend(u16::try_from(middle).unwrap().to_be_bytes());
        }
        long => {
            bytes.push(flag + 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(mask.iter().flatten());
    let key = mask.unwrap_or_default();
    bytes.extend(
        payload
            .iter()
            .zip(key.iter().cycle())
            .map(|(byte, key)| byte ^ key),
    );
    bytes
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(FIN | CLOSE, &[&code.to_be_bytes(), reason].concat())
}

/// What it is, and its bytes.
type Case = (String, Vec<u8>);

fn cases() -> Vec<Case> {
    [lengths(), fragments(), texts(), closes()].concat()
}

fn lengths() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &str, parts: &[Vec<u8>]| cases.push((name.to_owned(), parts.concat()));
    for size in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 65_537, 1 << 20] {
        let payload: Vec<u8> = (0..size).map(|at: usize| at.to_le_bytes()[0]).collect();
        case(&format!("a message of {size}"), &[frame(FIN | BINARY, &payload)]);
        case(
            &format!("the same without a mask, {size}"),
            &[masked(FIN | BINARY, &payload, None)],
        );
    }
    for mask in [[0; 4], [0xff; 4], [0, 0, 0, 1]] {
        case(
            &format!("the mask {mask:?}"),
            &[masked(FIN | TEXT, b"hello", Some(mask))],
        );
    }
    case(
        "a length longer than it needs to be",
        &[vec![FIN | BINARY, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5]],
    );
    cases
}

fn fragments() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &str, parts: &[Vec<u8>]| cases.push((name.to_owned(), parts.concat()));
    case("two fragments", &[frame(TEXT, b"hel"), frame(FIN, b"lo")]);
    case(
        "empty fragments",
        &[frame(TEXT, b""), frame(0, b""), frame(FIN, b"")],
    );
    let bytewise: Vec<Vec<u8>> = (0..200)
        .map(|at| frame(if at == 0 { BINARY } else { 0 }, b"x"))
        .collect();
    case("200 fragments", &[bytewise.concat(), frame(FIN, b"")]);
    case(
        "control frames between fragments",
        &[
            frame(TEXT, b"a"),
            frame(FIN | PING, b"1"),
            frame(0, b"b"),
            frame(FIN | PONG, b""),
            frame(FIN, b"c"),
        ],
    );
    case("many pings at once", &[frame(FIN | PING, &[7; 125]).repeat(100)]);
    case("a fragmented ping", &[frame(PING, b"a"), frame(FIN, b"b")]);
    case("a ping of 126", &[frame(FIN | PING, &[0; 126])]);
    case("an unasked pong", &[frame(FIN | PONG, b"nobody asked")]);
    case("a continuation of nothing", &[frame(FIN, b"x")]);
    case(
        "a message within a message",
        &[frame(TEXT, b"a"), frame(FIN | TEXT, b"b"), frame(FIN, b"c")],
    );
    for bits in 1..8_u8 {
        case(
            &format!("the reserved bits {bits:03b}"),
            &[frame(FIN | bits << 4 | TEXT, b"deflated")],
        );
    }
    for opcode in (3..8).chain(11..16) {
        case(
            &format!("the reserved opcode {opcode}"),
            &[frame(FIN | opcode, b"what")],
        );
    }
    cases
}

fn texts() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &str, parts: &[Vec<u8>]| cases.push((name.to_owned(), parts.concat()));
    let kosme = "κόσμε".as_bytes();
    case(
        "UTF-8 cut within a letter",
        &[
            frame(TEXT, &kosme[..1]),
            frame(0, &kosme[1..4]),
            frame(FIN, &kosme[4..]),
        ],
    );
    for wrong in [
        &b"\xc0\xaf"[..],
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xff",
        b"ok\xce",
    ] {
        case(&format!("no UTF-8: {wrong:02x?}"), &[frame(FIN | TEXT, wrong)]);
    }
    cases
}

fn closes() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &str, parts: &[Vec<u8>]| cases.push((name.to_owned(), parts.concat()));
    for code in [
        0, 999, 1000, 1001, 1003, 1004, 1005, 1006, 1007, 1011, 1012, 1015, 2999, 3000, 4999, 5000, 65_535,
    ] {
        case(
            &format!("close {code}"),
            &[frame(FIN | TEXT, b"last"), close(code, b"bye")],
        );
    }
    case("close of nothing", &[frame(FIN | CLOSE, b"")]);
    case("close of one byte", &[frame(FIN | CLOSE, b"\x03")]);
    case("close with the longest reason", &[close(1000, &[b'r'; 123])]);
    case(
        "close with a reason that is no UTF-8",
        &[close(1000, b"\xff\xfe")],
    );
    cases
}

async fn open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // RFC 6455's own example.
    assert!(
        head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{head}"
    );
    stream
}

/// Sends `bytes` in pieces of this size and reads as many back.
async fn echoed(stream: TcpStream, bytes: &[u8], piece: usize) -> Vec<u8> {
    let (mut reader, mut writer) = stream.into_split();
    let send = async {
        for piece in bytes.chunks(piece) {
            writer.write_all(piece).await.unwrap();
        }
        writer
    };
    let read = async {
        let mut got = vec![0; bytes.len()];
        let mut have = 0;
        while have < got.len() {
            match reader.read(&mut got[have..]).await {
                Ok(0) | Err(_) => break,
                Ok(some) => have += some,
            }
        }
        got.truncate(have);
        got
    };
    let both = async { tokio::join!(send, read).1 };
    tokio::time::timeout(PATIENCE, both).await.expect("it comes back")
}

#[tokio::test]
async fn every_frame_passes_both_hops_and_comes_back_byte_for_byte() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/local/raw_echo.py");
    let mut echo = group("shop", &["python3", script]);
    echo["spec"]["moves"] = json!({ "mode": "Drain" });
    let run = Run::ready(echo, 1).await;
    let all = cases();
    assert!(all.len() > 70, "{}", all.len());
    for (name, bytes) in &all {
        let got = echoed(open(run.gateway(0)).await, bytes, bytes.len()).await;
        assert!(
            got == *bytes,
            "{name}: {} of {} bytes came back",
            got.len(),
            bytes.len()
        );
    }
    // The short ones once more, a byte at a time: a frame's header may be cut anywhere.
    for (name, bytes) in all.iter().filter(|(_, bytes)| bytes.len() < 200) {
        let got = echoed(open(run.gateway(0)).await, bytes, 1).await;
        assert!(
            got == *bytes,
            "{name} by bytes: {} of {} came back",
            got.len(),
            bytes.len()
        );
    }
}
