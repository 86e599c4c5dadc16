//! The Set-Cookie line of our cookie: its name, its attributes, and when it is Secure; it seals nothing.

use std::time::Duration;

use http::HeaderMap;

use super::forwarded::Peer;
use super::jar::Names;

/// When the cookie carries Secure and the name that only Secure cookies may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CookieSecure {
    /// When the client speaks TLS with the gateway, or a trusted proxy says that it spoke https.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// With which requests of other sites the cookie is sent along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CookieSameSite {
    /// With navigation.
    Lax,
    /// With none.
    Strict,
    /// With all. Where the cookie is not Secure browsers refuse that, and it is Lax.
    None,
}

/// What the affinity cookie is like.
#[derive(Debug, Clone)]
pub struct CookieConfig {
    /// Its name, without prefix.
    pub name: String,
    /// Hosts below this domain share it; absent: the one host that set it.
    pub domain: Option<String>,
    /// SameSite attribute.
    pub same_site: CookieSameSite,
    /// Secure attribute.
    pub secure: CookieSecure,
    /// After this time a browser forgets it, whether used or not; absent: when the browser is closed.
    pub lifetime: Option<Duration>,
}

impl Default for CookieConfig {
    fn default() -> Self {
        Self {
            name: "pool-affinity".to_owned(),
            domain: None,
            same_site: CookieSameSite::Lax,
            secure: CookieSecure::Auto,
            lifetime: None,
        }
    }
}

/// A cookie that no browser would take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}: {remedy}")]
pub struct CookieError {
    /// The flag that is wrong.
    pub field: &'static str,
    /// What it says.
    pub value: String,
    /// What would be right.
    pub remedy: &'static str,
}

/// How cookies are written and under which names they are read.
#[derive(Debug)]
pub(crate) struct Style {
    pub(crate) names: Names,
    secure: CookieSecure,
    /// All that follows the value, on a connection that is not secure.
    plain_end: String,
    secure_end: String,
}

impl Style {
    pub(crate) fn new(config: &CookieConfig) -> Result<Self, CookieError> {
        let wrong = |field, value: &str, remedy| {
            Err(CookieError {
                field,
                value: value.to_owned(),
                remedy,
            })
        };
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if config.name.is_empty() || config.name.len() > 64 || !config.name.bytes().all(is_token) {
            return wrong(
                "cookie-name",
                &config.name,
                "write 1 to 64 letters, digits, - or _",
            );
        }
        if config.same_site == CookieSameSite::None && config.secure == CookieSecure::Never {
            let remedy = "browsers take it from Secure cookies only; set cookie-secure to auto or always";
            return wrong("cookie-same-site", "none", remedy);
        }
        let domain = config
            .domain
            .as_deref()
            .map(|domain| domain.strip_prefix('.').unwrap_or(domain));
        let is_name = |domain: &str| {
            domain
                .split('.')
                .all(|label| !label.is_empty() && label.bytes().all(is_token))
                && domain.len() <= 253
        };
        if let Some(wrong_domain) = domain.filter(|domain| !is_name(domain)) {
            return wrong(
                "cookie-domain",
                wrong_domain,
                "write a DNS name such as shop.example",
            );
        }
        if config.lifetime.is_some_and(|lifetime| lifetime.as_secs() == 0) {
            return wrong("cookie-lifetime", "0", "write at least 1s, or leave it out");
        }
        let end = |secure: bool| {
            let same_site = match config.same_site {
                CookieSameSite::Strict => "Strict",
                CookieSameSite::None if secure => "None",
                CookieSameSite::Lax | CookieSameSite::None => "Lax",
            };
            let domain = domain
                .map(|domain| format!("; Domain={domain}"))
                .unwrap_or_default();
            let age = config
                .lifetime
                .map(|lifetime| format!("; Max-Age={}", lifetime.as_secs()));
            let secure = if secure { "; Secure" } else { "" };
            format!(
                "; Path=/{domain}{}; HttpOnly; SameSite={same_site}{secure}",
                age.unwrap_or_default()
            )
        };
        Ok(Self {
            names: Names::new(&config.name, domain.is_some()),
            secure: config.secure,
            plain_end: end(false),
            secure_end: end(true),
        })
    }

    /// True when the cookie of a request of `peer` with these headers is Secure.
    pub(crate) fn is_secure(&self, peer: &Peer, headers: &HeaderMap) -> bool {
        match self.secure {
            CookieSecure::Always => true,
            CookieSecure::Never => false,
            CookieSecure::Auto => peer.is_https(headers),
        }
    }

    /// The line that sets the cookie to `value`.
    pub(crate) fn line(&self, secure: bool, value: &str) -> String {
        let end = if secure { &self.secure_end } else { &self.plain_end };
        format!("{}={value}{end}", self.names.of(secure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn config() -> CookieConfig {
        CookieConfig {
            name: "shop".to_owned(),
            ..CookieConfig::default()
        }
    }

    #[rstest]
    #[case(CookieSameSite::Lax, false, "shop=v; Path=/; HttpOnly; SameSite=Lax")]
    #[case(
        CookieSameSite::Lax,
        true,
        "__Host-shop=v; Path=/; HttpOnly; SameSite=Lax; Secure"
    )]
    #[case(CookieSameSite::Strict, false, "shop=v; Path=/; HttpOnly; SameSite=Strict")]
    #[case(
        CookieSameSite::Strict,
        true,
        "__Host-shop=v; Path=/; HttpOnly; SameSite=Strict; Secure"
    )]
    #[case(CookieSameSite::None, false, "shop=v; Path=/; HttpOnly; SameSite=Lax")]
    #[case(
        CookieSameSite::None,
        true,
        "__Host-shop=v; Path=/; HttpOnly; SameSite=None; Secure"
    )]
    fn same_site_none_is_only_written_beside_secure(
        #[case] same_site: CookieSameSite,
        #[case] secure: bool,
        #[case] line: &str,
    ) {
        let style = Style::new(&CookieConfig {
            same_site,
            ..config()
        })
        .unwrap();
        assert_eq!(style.line(secure, "v"), line);
    }

    #[test]
    fn a_domain_and_a_lifetime_are_written_and_a_domain_cannot_have_the_host_name() {
        let style = Style::new(&CookieConfig {
            domain: Some(".shop.example".to_owned()),
            lifetime: Some(Duration::from_hours(1)),
            ..config()
        });
        let style = style.unwrap();
        let end = "; Path=/; Domain=shop.example; Max-Age=3600; HttpOnly; SameSite=Lax";
        assert_eq!(style.line(false, "v"), format!("shop=v{end}"));
        assert_eq!(style.line(true, "v"), format!("__Secure-shop=v{end}; Secure"));
    }

    #[rstest]
    #[case(CookieSecure::Auto, false, false, None, false)]
    #[case(CookieSecure::Auto, true, false, None, false)]
    #[case(CookieSecure::Auto, false, false, Some("https"), false)]
    #[case(CookieSecure::Auto, true, false, Some("https"), true)]
    #[case(CookieSecure::Auto, true, false, Some("HTTPS"), true)]
    #[case(CookieSecure::Auto, true, false, Some("http"), false)]
    #[case(CookieSecure::Auto, true, false, Some("https, http"), false)]
    #[case(CookieSecure::Auto, false, true, None, true)]
    #[case(CookieSecure::Auto, false, true, Some("http"), true)]
    #[case(CookieSecure::Auto, true, true, None, true)]
    #[case(CookieSecure::Auto, true, true, Some("http"), false)]
    #[case(CookieSecure::Always, false, false, Some("http"), true)]
    #[case(CookieSecure::Never, true, true, Some("https"), false)]
    fn the_scheme_of_a_stranger_s_header_is_not_believed(
        #[case] secure: CookieSecure,
        #[case] trusted: bool,
        #[case] tls: bool,
        #[case] proto: Option<&'static str>,
        #[case] expected: bool,
    ) {
        let style = Style::new(&CookieConfig { secure, ..config() }).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(proto) = proto {
            headers.insert("x-forwarded-proto", http::HeaderValue::from_static(proto));
        }
        let network = if trusted { "10.0.0.0/8" } else { "192.168.0.0/16" };
        let peer = Peer::new("10.0.0.1".parse().unwrap(), &[network.parse().unwrap()], tls);
        assert_eq!(style.is_secure(&peer, &headers), expected);
    }

    #[test]
    fn what_no_browser_takes_is_refused_by_name() {
        let refused = |config: CookieConfig| Style::new(&config).unwrap_err().to_string();
        let none = CookieConfig {
            same_site: CookieSameSite::None,
            secure: CookieSecure::Never,
            ..config()
        };
        assert!(refused(none).starts_with("cookie-same-site: none: "));
        for name in ["", "a b", "a;b", "a=b"] {
            let wrong = CookieConfig {
                name: name.to_owned(),
                ..config()
            };
            assert!(refused(wrong).starts_with("cookie-name: "), "{name}");
        }
        for domain in ["a..b", "a;b", "", "a/b"] {
            let wrong = CookieConfig {
                domain: Some(domain.to_owned()),
                ..config()
            };
            assert!(refused(wrong).starts_with("cookie-domain: "), "{domain}");
        }
    }
}
