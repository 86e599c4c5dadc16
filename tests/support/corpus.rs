//! Reads and runs `tests/corpus/*.txt`: what one client sends, and what must become of it at a part.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::raw::{Arrival, RawBackend, RawClient};

/// One case; the format is said at the head of the corpus.
#[derive(Debug, Default)]
struct Case {
    name: String,
    bytes: Vec<u8>,
    /// Per part: status of each answer, and whether the connection is closed after the last.
    gateway: Option<Ends>,
    agent: Option<Ends>,
    with: Vec<String>,
    without: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Ends {
    statuses: Vec<u16>,
    closed: bool,
}

/// Who is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "each test binary tries one")]
pub(crate) enum Part {
    Gateway,
    Agent,
}

fn ends(text: &str) -> Ends {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let closed = match words.pop() {
        Some("closed") => true,
        Some("open") => false,
        other => panic!("`{other:?}` is neither open nor closed"),
    };
    Ends {
        statuses: words.iter().map(|word| word.parse().unwrap()).collect(),
        closed,
    }
}

/// Unescapes one line; `true` when it continues without CRLF.
fn line(text: &str, bytes: &mut Vec<u8>) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                None => return true,
                Some('r') => bytes.push(b'\r'),
                Some('n') => bytes.push(b'\n'),
                Some('t') => bytes.push(b'\t'),
                Some('x') => {
                    let hex: String = [chars.next().unwrap(), chars.next().unwrap()].iter().collect();
                    bytes.push(u8::from_str_radix(&hex, 16).unwrap());
                }
                Some(other) => bytes.extend(other.to_string().as_bytes()),
            },
            '{' => {
                let inside: String = chars.by_ref().take_while(|c| *c != '}').collect();
                let (what, times) = inside.rsplit_once('*').unwrap();
                let mut piece = Vec::new();
                line(what, &mut piece);
                bytes.extend(piece.repeat(times.parse().unwrap()));
            }
            other => bytes.extend(other.to_string().as_bytes()),
        }
    }
    false
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for text in text
        .lines()
        .filter(|line| !line.starts_with("# ") && *line != "#")
    {
        if let Some(name) = text.strip_prefix("@ ") {
            cases.push(Case {
                name: name.to_owned(),
                ..Case::default()
            });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        if let Some(both) = text.strip_prefix("= ") {
            (case.gateway, case.agent) = (Some(ends(both)), Some(ends(both)));
        } else if let Some(gateway) = text.strip_prefix("gateway= ") {
            case.gateway = Some(ends(gateway));
        } else if let Some(agent) = text.strip_prefix("agent= ") {
            case.agent = Some(ends(agent));
        } else if let Some(with) = text.strip_prefix("+ ") {
            case.with.push(with.to_owned());
        } else if let Some(without) = text.strip_prefix("- ") {
            case.without.push(without.to_owned());
        } else if case.gateway.is_none() && case.agent.is_none() {
            if !line(text, &mut case.bytes) {
                case.bytes.extend(b"\r\n");
            }
        } else {
            assert!(text.is_empty(), "{}: `{text}` after the expectation", case.name);
        }
    }
    assert!(cases.len() > 10, "a corpus of {} cases", cases.len());
    cases
}

/// Puts `extra` behind the first line.
fn inserted(bytes: &[u8], extra: &str) -> Vec<u8> {
    let Some(at) = bytes.windows(2).position(|window| window == b"\r\n") else {
        return bytes.to_vec();
    };
    [&bytes[..at + 2], extra.as_bytes(), &bytes[at + 2..]].concat()
}

/// The text of a corpus.
pub(crate) fn read(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Runs a corpus against a part at `address` whose backend is `backend`. `extra` headers make a request one that the part
/// serves at all. Says everything that is not as the corpus says.
pub(crate) async fn run(
    corpus: &str,
    part: Part,
    address: SocketAddr,
    extra: &str,
    backend: &RawBackend,
) -> String {
    let mut faults = String::new();
    for case in parse(corpus) {
        let expected = match part {
            Part::Gateway => &case.gateway,
            Part::Agent => &case.agent,
        };
        let Some(expected) = expected else { continue };
        let before = backend.arrivals().len();
        let mut client = RawClient::connect(address).await;
        client.send(&inserted(&case.bytes, extra)).await;
        let is_head = case.bytes.starts_with(b"HEAD ");
        let mut seen = Ends {
            statuses: Vec::new(),
            closed: false,
        };
        while seen.statuses.len() < expected.statuses.len() {
            match client.try_answer(is_head).await {
                Ok(Some(answer)) => seen.statuses.push(answer.status),
                Ok(None) => break,
                Err(late) => {
                    let _ = writeln!(faults, "{part:?}: {}: no answer: {late}", case.name);
                    break;
                }
            }
        }
        if expected.closed {
            seen.closed = client.try_end().await.is_ok();
        } else {
            let after = inserted(b"GET /after HTTP/1.1\r\nHost: shop.test\r\n\r\n", extra);
            client.send(&after).await;
            seen.closed = client
                .answer(false)
                .await
                .is_none_or(|answer| answer.status != 200);
        }
        // A request of its own, so that whatever the case set off has been overtaken.
        let mut last = RawClient::connect(address).await;
        let fence = inserted(b"GET /fence HTTP/1.1\r\nHost: shop.test\r\n\r\n", extra);
        last.send(&fence).await;
        assert_eq!(
            last.answer(false).await.map(|answer| answer.status),
            Some(200),
            "{}",
            case.name
        );
        let own = |arrival: &Arrival| {
            arrival.whole
                && !arrival.head.starts_with("GET /after ")
                && !arrival.head.starts_with("GET /fence ")
        };
        let arrived: Vec<Arrival> = backend
            .arrivals()
            .split_off(before)
            .into_iter()
            .filter(own)
            .collect();
        if seen != *expected {
            let _ = writeln!(
                faults,
                "{part:?}: {}: {seen:?} instead of {expected:?}",
                case.name
            );
        }
        judge(&case, &arrived, expected, &mut faults);
    }
    faults
}

fn judge(case: &Case, arrived: &[Arrival], expected: &Ends, faults: &mut String) {
    let answered = expected.statuses.iter().filter(|status| **status == 200).count();
    if arrived.len() != answered {
        let _ = writeln!(
            faults,
            "{}: {} arrived instead of {answered}: {arrived:#?}",
            case.name,
            arrived.len()
        );
        return;
    }
    let all: String = arrived
        .iter()
        .map(|arrival| format!("{}{}", arrival.head, String::from_utf8_lossy(&arrival.body)))
        .collect();
    let all = all.to_ascii_lowercase();
    for with in case.with.iter().filter(|_| answered > 0) {
        if !all.contains(&with.to_ascii_lowercase()) {
            let _ = writeln!(faults, "{}: no `{with}` in {all}", case.name);
        }
    }
    for without in &case.without {
        if all.contains(&without.to_ascii_lowercase()) {
            let _ = writeln!(faults, "{}: `{without}` in {all}", case.name);
        }
    }
}
