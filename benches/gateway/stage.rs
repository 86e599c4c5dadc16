//! What every part of a run shares: the backend, the commander, a thousand users with their requests, and gateways and agents at need.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use elastic_pool::channel::proto::{AgentWelcome, Ownership};
use elastic_pool::credentials::{Key, random_bytes};
use elastic_pool::engine::ids::{ClientId, Epoch, UserId};
use elastic_pool::gateway::{Cookie, Seal};
use tempfile::TempDir;

use crate::backend;
use crate::commander::{Commander, table};
use crate::process::pin;
use crate::proxy::{Proxy, address, announced, command};

const USERS: usize = 1000;
/// Pod of the agent; the plain backend stands under the same name.
const POD: &str = "uid-worker";
const TERM: u64 = 1 << 40;

/// One run.
pub(crate) struct Stage {
    binary: PathBuf,
    cores: usize,
    pub(crate) folder: TempDir,
    pub(crate) backend: SocketAddr,
    pub(crate) commander: Commander,
    pool_key: Key,
    tickets: Key,
    owners: Vec<Ownership>,
    /// Per user: the small answer, the large one.
    pub(crate) requests: [Arc<Vec<Vec<u8>>>; 2],
    /// Per user: the upgrade to a WebSocket.
    pub(crate) upgrades: Arc<Vec<Vec<u8>>>,
}

/// What our gateway says of its other port.
pub(crate) struct Gateway {
    pub(crate) proxy: Proxy,
    pub(crate) admin: SocketAddr,
}

impl Stage {
    /// `cores` is how many this machine has.
    pub(crate) async fn set(binary: &Path, cores: usize) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let backend = backend::start()?;
        let commander = Commander::start().await?;
        let (cookie_key, pool_key) = (Key::random()?, Key::random()?);
        let secret = folder.path().join("secret");
        std::fs::create_dir(&secret).context("make the folder of keys")?;
        for (name, text) in [
            ("secret/cookie-key", cookie_key.to_hex()),
            ("secret/pool-key", pool_key.to_hex()),
            ("token", "token".to_owned()),
        ] {
            std::fs::write(folder.path().join(name), text).with_context(|| format!("write {name}"))?;
        }
        let tickets = Key::random()?;
        let seal = Seal::new(&cookie_key, None)?;
        let (mut owners, mut cookies) = (Vec::new(), Vec::new());
        for number in 0..USERS {
            let (owner, client) = owner(&tickets, number)?;
            let cookie = Cookie {
                client,
                group: Arc::from("blue"),
                user: Some(UserId::new(&owner.user)?),
                epoch: Epoch(owner.epoch),
                reception: None,
            };
            cookies.push(seal.seal(&cookie)?);
            owners.push(owner);
        }
        // Envoy's cookie is the address of the backend.
        let envoy = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, backend.to_string());
        let all = |path: &str, more: &str| {
            let each = cookies.iter().enumerate();
            let each = each.map(|(number, cookie)| request(path, number, cookie, &envoy, more));
            Arc::new(each.collect::<Vec<_>>())
        };
        let switch = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        Ok(Self {
            binary: binary.to_owned(),
            cores,
            backend,
            commander,
            pool_key,
            tickets,
            requests: [all("/s", ""), all("/l", "")],
            upgrades: all("/w", switch),
            owners,
            folder,
        })
    }

    /// A gateway whose only worker listens at `worker`, and whose users are known when `named`.
    pub(crate) async fn gateway(
        &self,
        binary: Option<&Path>,
        uid: &'static str,
        worker: SocketAddr,
        named: bool,
    ) -> anyhow::Result<Gateway> {
        let users = if named { self.owners.clone() } else { Vec::new() };
        self.commander.write_table(uid, table(POD, worker, users));
        let folder = self.folder.path();
        let mut command = command(binary.unwrap_or(&self.binary));
        command
            .args(["gateway", "--pool=bench/shop", "--listen=127.0.0.1:0"])
            .args(["--admin-listen=127.0.0.1:0", "--monitor-listen=127.0.0.1:0"])
            .args([
                "--max-connections=20000",
                "--drain-delay=0s",
                "--drain-timeout=0s",
            ])
            .args([
                format!("--channel={}", self.commander.address),
                format!("--pod-uid={uid}"),
            ])
            .arg("--secret-dir")
            .arg(folder.join("secret"))
            .arg("--token-file")
            .arg(folder.join("token"));
        let (child, said) = announced(command).await.context("gateway")?;
        let proxy = Proxy {
            name: uid,
            address: address(&said, "/listen")?,
            children: vec![child],
        };
        let gateway = Gateway {
            proxy: proxy.until_ready().await?,
            admin: address(&said, "/admin")?,
        };
        gateway
            .until("/readyz", |answer| answer.starts_with("HTTP/1.1 200"))
            .await?;
        Ok(gateway)
    }

    /// An agent in front of the backend, known to the commander under `uid`.
    pub(crate) async fn agent(&self, uid: &'static str) -> anyhow::Result<Proxy> {
        self.commander.write_welcome(uid, self.welcome());
        let folder = self.folder.path();
        let mut command = command(&self.binary);
        command
            .args([
                "agent",
                "--listen=127.0.0.1:0",
                "--peer-listen=127.0.0.1:0",
                "--loopback-listen=127.0.0.1:0",
            ])
            .args([
                format!("--channel={}", self.commander.address),
                format!("--pod-uid={uid}"),
            ])
            .args([
                format!("--app-port={}", self.backend.port()),
                "--contract=none".to_owned(),
            ])
            .arg(format!("--app-pid={}", std::process::id()))
            .arg("--token-file")
            .arg(folder.join("token"))
            .arg("--app-token-file")
            .arg(folder.join(uid).join("token"))
            .arg("--state-dir")
            .arg(folder.join(uid).join("state"));
        let (child, said) = announced(command).await.context("agent")?;
        let proxy = Proxy {
            name: uid,
            address: address(&said, "/agent/traffic")?,
            children: vec![child],
        };
        proxy.until_ready().await
    }

    /// Gateway and agent, as one.
    pub(crate) async fn path(&self, named: bool) -> anyhow::Result<Proxy> {
        let agent = self.agent("agent-of-path").await?;
        let gateway = self
            .gateway(None, "gateway-of-path", agent.address, named)
            .await?
            .proxy;
        let children = gateway.children.into_iter().chain(agent.children).collect();
        Ok(Proxy {
            name: "path",
            address: gateway.address,
            children,
        })
    }

    /// The first core is the proxies'; this process, that is client and backend, has the rest.
    pub(crate) async fn pin(&self, proxy: &Proxy) -> anyhow::Result<()> {
        if self.cores < 2 {
            return Ok(());
        }
        for pid in proxy.pids() {
            pin(pid, "0").await?;
        }
        pin(std::process::id(), &format!("1-{}", self.cores - 1)).await
    }

    fn welcome(&self) -> AgentWelcome {
        AgentWelcome {
            term: 1,
            birth: 1,
            worker: "blue-1".to_owned(),
            ticket_key: self.tickets.to_hex(),
            hops: vec![self.pool_key.hop(POD, 1)],
            interval_ms: 5000,
            session_timeout_ms: 1_800_000,
            close_streams: true,
            quiesce_timeout_ms: 2000,
            max_package_bytes: 1 << 24,
            ..AgentWelcome::default()
        }
    }

    /// Somebody more.
    pub(crate) fn owner(&self, number: usize) -> anyhow::Result<Ownership> {
        Ok(owner(&self.tickets, number)?.0)
    }
}

impl Gateway {
    /// Waits until its other port answers like this.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let waiting = async {
            loop {
                let answer = get(self.admin, path).await?;
                if holds(&answer) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), waiting)
            .await
            .with_context(|| format!("the gateway's {path} does not come to what it should"))?
    }
}

/// One answer as text, on a connection of its own.
async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = crate::client::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("ask")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.context("read")?;
    Ok(text)
}

fn owner(tickets: &Key, number: usize) -> anyhow::Result<(Ownership, ClientId)> {
    let (user, client) = (format!("user-{number}@shop.test"), ClientId(random_bytes()?));
    let epoch = Epoch(TERM + 1 + number as u64);
    let owner = Ownership {
        ticket: tickets.ticket(&user, epoch),
        user,
        birth: 1,
        epoch: epoch.0,
        clients: vec![client.to_string()],
    };
    Ok((owner, client))
}

/// As a browser sends it: the app's session cookie first, ours and Envoy's behind it. All proxies get the same bytes.
fn request(path: &str, number: usize, cookie: &str, envoy: &str, more: &str) -> Vec<u8> {
    format!(
        "GET {path}?item={number} HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0\r\n\
         Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.5\r\n\
         Accept-Encoding: gzip, deflate, br\r\n{more}Cookie: session={number:032x}; theme=dark; pool-affinity={cookie}; \
         envoy-affinity={envoy}\r\n\r\n"
    )
    .into_bytes()
}
