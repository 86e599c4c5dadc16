//! The gateways of the local vehicle: one process each, started anew when it dies, as a Deployment would.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::PartRow;
use super::auth::LocalTokens;
use super::process::{Child, free_addresses};
use crate::channel::gateway_account;
use crate::channel::server::PeerIdentity;
use crate::clock::Clock;
use crate::credentials::{Key, hex_encode, random_bytes};
use crate::vehicle::{ObjectKey, PoolKeys};

/// A gateway that keeps ending is started once in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// All gateways of one run.
#[derive(Debug)]
pub(super) struct Gateways {
    folder: PathBuf,
    channel: String,
    tokens: Arc<LocalTokens>,
    tls_dir: Option<PathBuf>,
    secrets: BTreeMap<ObjectKey, PathBuf>,
    parts: Vec<Part>,
    clock: Clock,
}

#[derive(Debug)]
struct Part {
    pool: ObjectKey,
    name: String,
    listen: SocketAddr,
    child: Child,
    /// Not started anew before this.
    again: Duration,
}

impl Gateways {
    pub(super) fn new(
        folder: PathBuf,
        channel: String,
        tokens: Arc<LocalTokens>,
        tls_dir: Option<PathBuf>,
    ) -> Self {
        Self {
            folder,
            channel,
            tokens,
            tls_dir,
            secrets: BTreeMap::new(),
            parts: Vec::new(),
            clock: Clock::start(),
        }
    }

    /// Makes a pool's secrets, as files in the layout of the pool's Secret.
    pub(super) async fn secrets(&mut self, pool: &ObjectKey) -> anyhow::Result<PoolKeys> {
        let keys = PoolKeys {
            pool: Key::random()?,
            ticket: Key::random()?,
        };
        let folder = self
            .folder
            .join(format!("secrets-{}-{}", pool.namespace, pool.name));
        tokio::fs::create_dir_all(&folder).await?;
        tokio::fs::write(folder.join("pool-key"), keys.pool.to_hex()).await?;
        tokio::fs::write(folder.join("cookie-key"), Key::random()?.to_hex()).await?;
        self.secrets.insert(pool.clone(), folder);
        Ok(keys)
    }

    /// Starts `each` gateways per pool, the first at `first` and the others at the ports after it.
    pub(super) async fn start(
        &mut self,
        pools: &BTreeSet<ObjectKey>,
        first: SocketAddr,
        each: u16,
    ) -> anyhow::Result<()> {
        let mut next = first;
        for pool in pools {
            for number in 0..each {
                let listen = if first.port() == 0 {
                    let [free] = free_addresses().await?;
                    free
                } else {
                    next
                };
                next.set_port(next.port().wrapping_add(1));
                let name = format!("{}-gateway-{number}", pool.name);
                let child = self.launch(pool, &name, listen).await?;
                self.parts.push(Part {
                    pool: pool.clone(),
                    name,
                    listen,
                    child,
                    again: self.clock.now(),
                });
            }
        }
        Ok(())
    }

    async fn launch(&self, pool: &ObjectKey, name: &str, listen: SocketAddr) -> anyhow::Result<Child> {
        let uid = format!("{name}-{}", hex_encode(&random_bytes::<4>()?));
        let token = self.tokens.issue(PeerIdentity {
            namespace: pool.namespace.clone(),
            pod_name: name.to_owned(),
            pod_uid: uid.clone(),
            service_account: gateway_account(&pool.name),
        })?;
        let token_file = self.folder.join(format!("{name}.token"));
        tokio::fs::write(&token_file, token).await?;
        let secrets = self.secrets.get(pool).cloned().unwrap_or_default();
        let mut arguments = vec![
            "gateway".to_owned(),
            format!("--pool={pool}"),
            format!("--channel={}", self.channel),
            format!("--token-file={}", token_file.display()),
            format!("--secret-dir={}", secrets.display()),
            format!("--listen={listen}"),
            "--admin-listen=127.0.0.1:0".to_owned(),
            "--monitor-listen=127.0.0.1:0".to_owned(),
            "--drain-delay=0s".to_owned(),
        ];
        let tls_dir = self.tls_dir.iter();
        arguments.extend(tls_dir.map(|folder| format!("--tls-dir={}", folder.display())));
        let environment = [
            ("POD_UID".to_owned(), uid),
            ("POD_NAME".to_owned(), name.to_owned()),
        ];
        Child::start(&std::env::current_exe()?, &arguments, &environment, None)
    }

    /// Starts what died anew, at its old address.
    pub(super) async fn look_after(&mut self) -> anyhow::Result<()> {
        for index in 0..self.parts.len() {
            if !self.parts[index].child.ended() || self.clock.now() < self.parts[index].again {
                continue;
            }
            let part = &self.parts[index];
            tracing::warn!(gateway = %part.name, "a gateway ended and is started anew");
            let child = self.launch(&part.pool, &part.name, part.listen).await?;
            self.parts[index].child = child;
            self.parts[index].again = self.clock.now() + PAUSE;
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> Vec<PartRow> {
        let row = |part: &Part| PartRow {
            pool: part.pool.name.clone(),
            address: part.listen.to_string(),
            pid: part.child.pid(),
        };
        self.parts.iter().map(row).collect()
    }

    /// Where people find them.
    pub(super) fn lines(&self) -> Vec<String> {
        let scheme = if self.tls_dir.is_some() { "https" } else { "http" };
        self.parts
            .iter()
            .map(|part| format!("pool {:<12} {scheme}://{}/", part.pool.name, part.listen))
            .collect()
    }

    pub(super) async fn end(self) {
        futures::future::join_all(self.parts.into_iter().map(|part| part.child.end())).await;
    }
}
