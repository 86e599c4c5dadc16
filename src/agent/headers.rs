//! Headers between gateway, agent and app: what is stripped, set and read; it decides nothing about users.

use elastic_pool_engine::ids::{ClientId, Epoch, UserId};
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) const HOP: &str = "pool-hop";
pub(crate) const CLIENT: &str = "pool-client";
pub(crate) const USER: &str = "pool-user";
pub(crate) const GUEST: &str = "pool-guest";
pub(crate) const WORKER: &str = "pool-worker";
pub(crate) const EPOCH: &str = "pool-epoch";
pub(crate) const TICKET: &str = "pool-ticket";
pub(crate) const FENCE: &str = "pool-fence";
pub(crate) const GROUP: &str = "pool-group";
pub(crate) const FORMAT: &str = "pool-format";
pub(crate) const TOKEN: &str = "pool-token";
pub(crate) const PASS: &str = "pool-pass";
pub(crate) const SENDER: &str = "pool-sender";
pub(crate) const SEQUENCE: &str = "pool-sequence";
/// Set by a gateway when its client sent the Expect header itself.
pub(crate) const EXPECTS: &str = "pool-expects";

const USER_IN_HEADER: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A user id as headers and paths carry it.
pub(crate) fn encode_user(user: &UserId) -> String {
    utf8_percent_encode(user.as_str(), USER_IN_HEADER).to_string()
}

/// Reads what [`encode_user`] writes, and any other percent-encoding within the bounds of a user id.
pub(crate) fn decode_user(text: &str) -> Option<UserId> {
    // Every byte may be encoded by three; more is not looked at.
    if text.len() > 3 * UserId::MAX_BYTES {
        return None;
    }
    UserId::new(&percent_decode_str(text).decode_utf8().ok()?).ok()
}

/// What a gateway says of a request. Everything in it was checked for form only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) client: Option<ClientId>,
    pub(crate) user: Option<UserId>,
    pub(crate) epoch: Epoch,
    pub(crate) ticket: String,
    /// The line that tells the app who it is.
    pub(crate) person: Option<(&'static str, HeaderValue)>,
}

/// A header that a gateway would not have written.
#[derive(Debug, thiserror::Error)]
#[error("header {0} is malformed")]
pub(crate) struct Malformed(&'static str);

/// The only value of a header; two values or bytes that are no text are none.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// Takes in a value that may stand once only.
fn once<T>(
    slot: &mut Option<T>,
    name: &'static str,
    value: &HeaderValue,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<(), Malformed> {
    let read = value.to_str().ok().and_then(read);
    match read.filter(|_| slot.is_none()) {
        Some(value) => *slot = Some(value),
        None => return Err(Malformed(name)),
    }
    Ok(())
}

/// Reads whose request it is, in one pass.
pub(crate) fn read_named(headers: &HeaderMap) -> Result<Named, Malformed> {
    let (mut epoch, mut ticket, mut client, mut user) = (None, None, None, None);
    for (name, value) in headers {
        match name.as_str() {
            EPOCH => once(&mut epoch, EPOCH, value, |text| {
                text.bytes()
                    .all(|b| b.is_ascii_digit())
                    .then(|| text.parse().ok())?
                    .map(Epoch)
            })?,
            TICKET => once(&mut ticket, TICKET, value, |text| {
                (text.len() <= 64).then(|| text.to_owned())
            })?,
            CLIENT => once(&mut client, CLIENT, value, |text| {
                Some((ClientId::parse(text)?, value.clone()))
            })?,
            USER => once(&mut user, USER, value, |text| {
                Some((decode_user(text)?, value.clone()))
            })?,
            _ => {}
        }
    }
    let person = match (&user, &client) {
        (Some((_, header)), _) => Some((USER, header.clone())),
        (None, Some((_, header))) => Some((GUEST, header.clone())),
        (None, None) => None,
    };
    Ok(Named {
        client: client.map(|(client, _)| client),
        user: user.map(|(user, _)| user),
        epoch: epoch.unwrap_or(Epoch::PROVISIONAL),
        ticket: ticket.unwrap_or_default(),
        person,
    })
}

/// Of a request that goes to the app: what the gateway said, also with underscores, which some servers take for the same.
pub(crate) fn is_pool(name: &str) -> bool {
    name.strip_prefix("pool")
        .is_some_and(|rest| rest.starts_with(['-', '_']))
}

/// That, and the gateway's own expectation: it waits for the fence, not for the app.
pub(crate) fn is_for_us(name: &str) -> bool {
    is_pool(name) || name == EXPECT.as_str()
}

/// Takes out every `pool-*` header.
pub(crate) fn strip_pool(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_pool(name.as_str()))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}

fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "proxy-authenticate"
    )
}

/// Takes out what belongs to one connection; an upgrade keeps its two headers.
pub(crate) fn strip_connection(headers: &mut HeaderMap, upgrade: bool) {
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_of_connection(name))
        .cloned()
        .collect();
    if found.is_empty() {
        return;
    }
    let protocol = headers.remove(UPGRADE);
    if let Some(listed) = headers
        .get(CONNECTION)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
    {
        for name in listed
            .split(',')
            .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        {
            // Framing is hyper's; a client may not talk it away.
            if name != http::header::CONTENT_LENGTH && name != http::header::HOST {
                headers.remove(name);
            }
        }
    }
    for name in found {
        headers.remove(name);
    }
    if let (true, Some(protocol)) = (upgrade, protocol) {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// True when whoever asks takes trailers after an answer.
pub(crate) fn wants_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// What an answer of the app says of its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// No header, or one that breaks the bounds.
    Nothing,
    /// `Pool-User: U`.
    In(UserId),
    /// `Pool-User:` empty.
    Out,
}

/// Takes every `pool-*` header out of an answer of the app, and puts back the two that pass.
pub(crate) fn take_login(headers: &mut HeaderMap) -> Login {
    if !headers.keys().any(|name| name.as_str().starts_with("pool-")) {
        return Login::Nothing;
    }
    let login = match single(headers, USER) {
        None => Login::Nothing,
        Some("") => Login::Out,
        Some(text) => decode_user(text).map_or(Login::Nothing, Login::In),
    };
    let group = headers.remove(GROUP);
    strip_pool(headers);
    if let Some(group) = group {
        headers.insert(HeaderName::from_static(GROUP), group);
    }
    match &login {
        Login::Nothing => {}
        Login::Out => {
            headers.insert(HeaderName::from_static(USER), HeaderValue::from_static(""));
        }
        Login::In(user) => set(headers, USER, &encode_user(user)),
    }
    login
}

/// Sets a header to text that is known to be a legal value; anything else is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// True for every spelling of a path below `/_pool/`: encoded, with empty or dot segments.
pub(crate) fn is_contract_path(path: &str) -> bool {
    let names_it = path
        .as_bytes()
        .windows(5)
        .any(|part| part.eq_ignore_ascii_case(b"_pool"));
    if !names_it && !path.contains('%') {
        return false;
    }
    let mut text = path.to_owned();
    // Twice: an app's framework may decode what a proxy before it decoded already.
    for _ in 0..2 {
        text = percent_decode_str(&text).decode_utf8_lossy().into_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split(['/', '\\']) {
        // A path parameter (`;x`) is no part of the name, of a dot segment neither.
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    segments
        .first()
        .is_some_and(|first| first.eq_ignore_ascii_case("_pool"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("/_pool/v1/users", true)]
    #[case("//_pool/v1", true)]
    #[case("/%5fpool/v1", true)]
    #[case("/%255Fpool/v1", true)]
    #[case("/a/../_pool/v1", true)]
    #[case("/./_POOL/v1", true)]
    #[case("/_pool;x=1/v1", true)]
    #[case("/a/..;x/_pool/v1", true)]
    #[case("/_pool", true)]
    #[case("/_pools", false)]
    #[case("/a/_pool/v1", false)]
    #[case("/", false)]
    fn the_contract_is_recognised_in_every_spelling(#[case] path: &str, #[case] is: bool) {
        assert_eq!(is_contract_path(path), is);
    }

    #[test]
    fn nothing_of_ours_passes_the_agent_from_the_app_but_user_and_group() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("pool-user", "al%69ce"),
            ("pool-group", "canary"),
            ("pool-fence", "refused"),
            ("x-app", "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert_eq!(take_login(&mut headers), Login::In(UserId::new("alice").unwrap()));
        assert_eq!(headers.get(USER).unwrap(), "alice");
        assert_eq!(headers.get(GROUP).unwrap(), "canary");
        assert!(headers.get(FENCE).is_none());
        assert!(headers.get("x-app").is_some());
    }

    #[test]
    fn a_user_id_that_breaks_its_bounds_is_no_login() {
        let mut headers = HeaderMap::new();
        headers.insert(USER, HeaderValue::from_static("a%0Ab"));
        assert_eq!(take_login(&mut headers), Login::Nothing);
        assert!(headers.get(USER).is_none());
    }

    #[test]
    fn a_header_sent_twice_is_malformed() {
        let mut headers = HeaderMap::new();
        headers.append(USER, HeaderValue::from_static("alice"));
        headers.append(USER, HeaderValue::from_static("bob"));
        assert!(read_named(&headers).is_err());
    }

    #[test]
    fn connection_headers_stay_on_their_connection() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "x-secret, upgrade, content-length"),
            ("x-secret", "1"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut kept = headers.clone();
        strip_connection(&mut headers, false);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["content-length"]
        );
        strip_connection(&mut kept, true);
        assert_eq!(kept.get(CONNECTION).unwrap(), "upgrade");
        assert_eq!(kept.get(UPGRADE).unwrap(), "websocket");
    }
}
