//! The flags of `elastic-pool gateway`; it starts nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::front::Limits;
use super::hygiene::Network;
use super::jwks::{JwksUrl, KeySource};
use super::named::IdentityConfig;
use super::set_cookie::{CookieConfig, CookieSameSite, CookieSecure};
use crate::api::measures::DurationText;

/// Flags of `elastic-pool gateway`.
#[derive(Debug, clap::Args)]
pub struct GatewayArgs {
    /// Pool that this gateway serves, as namespace/name.
    #[arg(long, env = "ELASTIC_POOL_POOL")]
    pub pool: String,
    /// host:port of the operator's channel.
    #[arg(long, env = "ELASTIC_POOL_CHANNEL")]
    pub channel: String,
    /// File with the service account token for the channel.
    #[arg(long, default_value = "/var/run/elastic-pool/token/token")]
    pub token_file: PathBuf,
    /// Folder with cookie-key, cookie-key-previous (may be absent) and pool-key, 64 hex digits each.
    #[arg(long, default_value = "/var/run/elastic-pool/secret")]
    pub secret_dir: PathBuf,
    /// Where clients connect.
    #[arg(long, default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Where probes and metrics are served.
    #[arg(long, default_value = "[::]:9090")]
    pub admin_listen: SocketAddr,
    /// Where /_commander/open is served; it names users, so keep it on loopback.
    #[arg(long, default_value = "127.0.0.1:9091")]
    pub monitor_listen: SocketAddr,
    /// This pod's UID.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: String,
    /// This pod's name, for the log.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,
    /// Name of the affinity cookie; with Secure it gets the prefix `__Host-`.
    #[arg(long, default_value = "pool-affinity")]
    pub cookie_name: String,
    /// When the cookie is Secure.
    #[arg(long, value_enum, default_value = "auto")]
    pub cookie_secure: CookieSecure,
    /// Domain whose hosts share the cookie; absent: the one host that set it.
    #[arg(long)]
    pub cookie_domain: Option<String>,
    /// SameSite attribute of the cookie.
    #[arg(long, value_enum, default_value = "lax")]
    pub cookie_same_site: CookieSameSite,
    /// After this time a browser forgets the cookie, such as 720h; absent: when it is closed.
    #[arg(long, value_parser = duration)]
    pub cookie_lifetime: Option<Duration>,
    /// Header that tells API clients apart; who sends it is believed.
    #[arg(long, conflicts_with = "identity_claim")]
    pub identity_header: Option<http::HeaderName>,
    /// Claim of a verified bearer token that tells API clients apart.
    #[arg(long, requires = "identity_keys")]
    pub identity_claim: Option<String>,
    /// File with the keys of bearer tokens, as a JSON Web Key Set.
    #[arg(long, group = "identity_keys")]
    pub identity_jwks: Option<PathBuf>,
    /// URL of the same, fetched every 5 min, and sooner when a token names a key that is not there.
    #[arg(long, group = "identity_keys")]
    pub identity_jwks_url: Option<http::Uri>,
    /// File with the authorities that are believed there, PEM; absent: the public ones.
    #[arg(long, requires = "identity_jwks_url")]
    pub identity_jwks_ca: Option<PathBuf>,
    /// Take keys by http too; whoever is in between may then say who anybody is.
    #[arg(long, requires = "identity_jwks_url", action = clap::ArgAction::Set, default_value_t = false)]
    pub identity_jwks_allow_http: bool,
    /// Wanted issuer of bearer tokens.
    #[arg(long)]
    pub identity_issuer: Option<String>,
    /// Wanted audience of bearer tokens.
    #[arg(long)]
    pub identity_audience: Option<String>,
    /// Networks of proxies whose X-Forwarded-* headers are believed.
    #[arg(long, value_delimiter = ',')]
    pub trusted_proxies: Vec<Network>,
    /// Folder with tls.crt and tls.key in PEM: clients then speak TLS, and nothing else. Read again when it changes.
    #[arg(long)]
    pub tls_dir: Option<PathBuf>,
    /// Client connections at once; more are closed.
    #[arg(long, default_value_t = 10_000)]
    pub max_connections: usize,
    /// For a request's head to arrive, and for an idle connection, such as 60s.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub head_timeout: Duration,
    /// For the next piece of a request's body to arrive, such as 60s.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub body_timeout: Duration,
    /// Bytes of a request's body; a longer one is answered with 413. Absent: any number.
    #[arg(long)]
    pub max_body: Option<u64>,
    /// File that gets a line of JSON per request; - is standard output. Absent: no access log.
    #[arg(long, allow_hyphen_values = true)]
    pub access_log: Option<PathBuf>,
    /// Between turning unready and taking no more connections, such as 5s.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub drain_delay: Duration,
    /// For open requests and streams to finish after that, such as 30s.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub drain_timeout: Duration,
}

impl GatewayArgs {
    /// What the cookie is to be like.
    pub(super) fn cookie(&self) -> CookieConfig {
        CookieConfig {
            name: self.cookie_name.clone(),
            domain: self.cookie_domain.clone(),
            same_site: self.cookie_same_site,
            secure: self.cookie_secure,
            lifetime: self.cookie_lifetime,
        }
    }

    /// What tells clients apart besides it.
    pub(super) fn identity(&self) -> IdentityConfig {
        let file = self.identity_jwks.clone().map(KeySource::File);
        let keys = file.or_else(|| self.identity_jwks_url.as_ref().map(|url| self.keys_at(url)));
        match (&self.identity_header, &self.identity_claim, keys) {
            (Some(name), ..) => IdentityConfig::Header(name.clone()),
            (None, Some(claim), Some(keys)) => IdentityConfig::Jwt {
                claim: claim.clone(),
                keys,
                issuer: self.identity_issuer.clone(),
                audience: self.identity_audience.clone(),
            },
            _ => IdentityConfig::Cookie,
        }
    }

    fn keys_at(&self, url: &http::Uri) -> KeySource {
        KeySource::Url(JwksUrl {
            allow_http: self.identity_jwks_allow_http,
            authorities: self.identity_jwks_ca.clone(),
            ..JwksUrl::new(url.clone())
        })
    }

    /// What a client may take.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            max_body: self.max_body,
        }
    }
}

/// A duration as in a manifest; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<u32>()
        .map(|seconds| Duration::from_secs(seconds.into()));
    let parsed = seconds.ok().or_else(|| DurationText::from(text).parse());
    parsed.ok_or_else(|| format!("`{text}` is no duration such as 5s or 1m30s"))
}
