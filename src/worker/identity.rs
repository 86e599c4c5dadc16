//! Names of users and moves, and the app's own signed session cookie; the proxy's headers never authenticate anybody here.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Name of the app's own cookie.
pub(super) const COOKIE: &str = "session";
const MAX_USER_BYTES: usize = 256;
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A user's name: 1..256 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct UserId(String);

impl UserId {
    /// The name, if it is one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fits = (1..=MAX_USER_BYTES).contains(&text.len());
        (fits && !text.chars().any(char::is_control)).then(|| Self(text.to_owned()))
    }

    /// The name as it is shown.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as it stands in headers and paths.
    pub(super) fn encoded(&self) -> String {
        utf8_percent_encode(&self.0, UNRESERVED).to_string()
    }
}

/// The id of a move: the epoch that it will grant, a decimal number; newer moves have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MoveId(u64);

impl MoveId {
    /// The id, if the text is 1..20 decimal digits that fit.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok().map(Self))
            .flatten()
    }
}

impl fmt::Display for MoveId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Who a session cookie speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// A logged-in browser of a user.
    User {
        /// The user.
        user: UserId,
        /// Names this browser's login.
        nonce: String,
    },
    /// A browser of somebody not logged in.
    Guest(String),
}

/// Signs and checks session cookies with the key that all workers share.
pub(super) struct Sessions {
    key: hmac::Key,
}

impl Sessions {
    /// Sessions under this secret.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    /// The cookie's value.
    pub(super) fn seal(&self, session: &Session) -> String {
        let (kind, name, nonce) = match session {
            Session::User { user, nonce } => ("u", URL_SAFE_NO_PAD.encode(user.as_str()), nonce.as_str()),
            Session::Guest(id) => ("g", String::new(), id.as_str()),
        };
        let body = format!("{kind}.{name}.{nonce}");
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, body.as_bytes()));
        format!("{body}.{tag}")
    }

    /// The session of a cookie's value; none when anything about it is wrong.
    pub(super) fn open(&self, value: &str) -> Option<Session> {
        let (body, tag) = value.rsplit_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, body.as_bytes(), &tag).ok()?;
        let mut parts = body.split('.');
        let (kind, name, nonce) = (parts.next()?, parts.next()?, parts.next()?.to_owned());
        match kind {
            "g" => Some(Session::Guest(nonce)),
            "u" => {
                let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
                Some(Session::User {
                    user: UserId::parse(&name)?,
                    nonce,
                })
            }
            _ => None,
        }
    }
}

/// A random id of 128 bits as 32 hexadecimal digits.
pub(super) fn random_id() -> String {
    use fmt::Write;
    let mut bytes = [0_u8; 16];
    // The system's source fails only where there is none; a worker without randomness must not hand out ids.
    assert!(
        SystemRandom::new().fill(&mut bytes).is_ok(),
        "the system has no source of randomness"
    );
    bytes.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
