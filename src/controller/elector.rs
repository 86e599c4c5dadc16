//! The elector: looks at the Lease, takes it, renews it, releases it; it knows no other part of the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastic_pool_engine::ids::Term;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::leader::{ADDRESS_ANNOTATION, LeaderConfig, LeaderError, Leadership, MAX_TERM, millis, next_term};
use crate::channel::LeaderState;
use crate::clock::{Clock, unix_seconds};

/// Longest duration of somebody else's lease that is waited for.
const MAX_FOREIGN_DURATION: Duration = Duration::from_mins(2);

/// What a look at the lease asks a follower to do.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// Take it, with this term.
    Acquire(u64),
    /// Somebody leads.
    Follow { address: String, term: u64 },
}

/// The version of the lease that a follower saw last, and since when.
#[derive(Debug, Clone)]
struct Seen {
    version: Option<String>,
    since: Duration,
}

/// Stands for election until it is stopped or the leadership is lost.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    config: LeaderConfig,
    clock: Clock,
    state: watch::Sender<LeaderState>,
    raise: watch::Receiver<u64>,
    valid_until: Arc<AtomicU64>,
    seen: Option<Seen>,
    highest: u64,
    /// The lease as this operator wrote it last, while it leads.
    held: Option<Lease>,
}

impl Elector {
    /// Prepares an election; `clock` is the one whose time [`Leadership::valid`] will be given.
    pub fn new(client: Client, config: LeaderConfig, clock: Clock) -> (Self, Leadership) {
        let (state, receiver) = watch::channel(LeaderState::Following {
            address: String::new(),
            term: Term(0),
        });
        let (raise, raised) = watch::channel(0);
        let valid_until = Arc::new(AtomicU64::new(0));
        let leadership = Leadership::over(receiver, raise, Arc::clone(&valid_until));
        let api = Api::namespaced(client, &config.namespace);
        let elector = Self {
            api,
            config,
            clock,
            state,
            raise: raised,
            valid_until,
            seen: None,
            highest: 0,
            held: None,
        };
        (elector, leadership)
    }

    /// Runs the election. When `stop` is cancelled the lease is released, so that the next leader need not wait.
    ///
    /// # Errors
    /// Whenever the leadership is lost; the caller ends the process.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), LeaderError> {
        loop {
            let pause = if self.held.is_some() {
                self.renew().await?
            } else {
                self.campaign().await?
            };
            tokio::select! {
                () = stop.cancelled() => break,
                changed = self.raise.changed(), if self.held.is_some() => if changed.is_err() { break },
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.release().await;
        Ok(())
    }

    /// One look of a follower; returns how long to wait for the next.
    async fn campaign(&mut self) -> Result<Duration, LeaderError> {
        let lease = match self.fetch().await {
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!(%error, "cannot read the lease");
                return Ok(self.config.retry_every);
            }
        };
        match self.look(lease.as_ref(), self.clock.now())? {
            Look::Follow { address, term } => {
                self.publish(LeaderState::Following {
                    address,
                    term: Term(term),
                });
                Ok(self.config.retry_every)
            }
            Look::Acquire(term) => {
                let wanted = self.lease_of(lease, term);
                Ok(if self.write(wanted).await {
                    self.config.renew_every
                } else {
                    self.config.retry_every
                })
            }
        }
    }

    /// Judges the lease as a follower sees it at `now`.
    fn look(&mut self, lease: Option<&Lease>, now: Duration) -> Result<Look, LeaderError> {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let term = u64::try_from(spec.and_then(|spec| spec.lease_transitions).unwrap_or(0)).unwrap_or(0);
        self.highest = self.highest.max(term);
        if self.highest >= MAX_TERM {
            return Err(LeaderError::NoMoreTerms(self.highest));
        }
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        let since = match &self.seen {
            Some(seen) if seen.version == version => seen.since,
            _ => now,
        };
        self.seen = Some(Seen { version, since });
        let holder = spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default();
        // A process of this very pod that held it is dead: the kubelet starts the next one only then.
        let ours = holder.split('/').next() == Some(&self.config.pod_uid);
        if holder.is_empty() || ours || now.saturating_sub(since) >= self.patience(spec) {
            return Ok(Look::Acquire(self.highest + 1));
        }
        let annotations = lease.and_then(|lease| lease.metadata.annotations.as_ref());
        let address = annotations
            .and_then(|all| all.get(ADDRESS_ANNOTATION))
            .cloned()
            .unwrap_or_default();
        Ok(Look::Follow { address, term })
    }

    /// How long somebody else's unchanged lease is respected.
    fn patience(&self, spec: Option<&LeaseSpec>) -> Duration {
        let stated = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|secs| u64::try_from(secs).ok());
        let stated = Duration::from_secs(stated.unwrap_or(0)).min(MAX_FOREIGN_DURATION);
        stated.max(self.config.lease_duration)
    }

    /// One renewal of the leader; returns how long to wait for the next.
    async fn renew(&mut self) -> Result<Duration, LeaderError> {
        let Some(held) = self.held.clone() else {
            return Ok(self.config.retry_every);
        };
        let term = transitions(&held);
        let asked = *self.raise.borrow_and_update();
        let wanted = next_term(term, asked);
        let lease = self.lease_of(Some(held), wanted);
        if self.write(lease).await {
            return Ok(self.config.renew_every);
        }
        self.recover(term).await?;
        if millis(self.clock.now()) >= self.valid_until.load(Ordering::Acquire) {
            return Err(LeaderError::Expired);
        }
        Ok(self.config.retry_every.min(self.left()))
    }

    /// Time until this leadership ends unless a renewal is confirmed.
    fn left(&self) -> Duration {
        let until = Duration::from_millis(self.valid_until.load(Ordering::Acquire));
        until.saturating_sub(self.clock.now())
    }

    /// After a renewal that failed: is the lease still ours, and in which version?
    async fn recover(&mut self, term: u64) -> Result<(), LeaderError> {
        match self.fetch().await {
            Ok(Some(lease)) if holder(&lease) == self.config.identity() => {
                // A raise whose answer was lost has happened: the next write goes on from there.
                self.highest = self.highest.max(transitions(&lease));
                self.held = Some(lease);
                Ok(())
            }
            Ok(Some(lease)) => {
                self.valid_until.store(0, Ordering::Release);
                Err(LeaderError::Taken(holder(&lease)))
            }
            Ok(None) => {
                // Somebody deleted the Lease: it is made again under a higher term, for another may have done so too.
                self.highest = self.highest.max(term);
                let fresh = self.lease_of(None, self.highest + 1);
                self.write(fresh).await;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the lease");
                Ok(())
            }
        }
    }

    /// The lease with this operator as its holder; `from` carries the resourceVersion to compare with.
    fn lease_of(&self, from: Option<Lease>, term: u64) -> Lease {
        let now = k8s_openapi::jiff::Timestamp::from_second(i64::try_from(unix_seconds()).unwrap_or(0)).ok();
        let now = now.map(MicroTime);
        let mut lease = from.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let renews = self.held.is_some() && transitions(&lease) == term;
        let acquired = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.acquire_time.clone())
            .filter(|_| renews);
        lease.metadata.managed_fields = None;
        lease
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(ADDRESS_ANNOTATION.to_owned(), self.config.address.clone());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.config.identity()),
            lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
            lease_transitions: i32::try_from(term).ok(),
            acquire_time: acquired.or_else(|| now.clone()),
            renew_time: now,
            ..LeaseSpec::default()
        });
        lease
    }

    /// Writes the lease by compare-and-swap; true when it was confirmed and this operator leads.
    async fn write(&mut self, lease: Lease) -> bool {
        let sent = self.clock.now();
        let term = transitions(&lease);
        let params = PostParams::default();
        let creates = lease.metadata.resource_version.is_none();
        let call = async {
            if creates {
                self.api.create(&params, &lease).await
            } else {
                self.api.replace(&self.config.name, &params, &lease).await
            }
        };
        match self.bounded(call).await {
            Ok(written) => {
                self.held = Some(written);
                self.highest = self.highest.max(term);
                self.valid_until
                    .store(millis(sent + self.config.renew_deadline()), Ordering::Release);
                self.publish(LeaderState::Leading { term: Term(term) });
                true
            }
            Err(error) => {
                tracing::warn!(%error, term, "cannot write the lease");
                false
            }
        }
    }

    /// Empties the holder, so that the next leader takes over at once.
    async fn release(&mut self) {
        self.valid_until.store(0, Ordering::Release);
        let Some(mut lease) = self.held.take() else { return };
        let term = transitions(&lease);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.remove(ADDRESS_ANNOTATION);
        }
        lease.metadata.managed_fields = None;
        let params = PostParams::default();
        if let Err(error) = self
            .bounded(self.api.replace(&self.config.name, &params, &lease))
            .await
        {
            tracing::warn!(%error, "cannot release the lease");
        }
        // Last: who sees this ends the process.
        self.publish(LeaderState::Following {
            address: String::new(),
            term: Term(term),
        });
    }

    async fn fetch(&self) -> Result<Option<Lease>, CallError> {
        self.bounded(self.api.get_opt(&self.config.name)).await
    }

    /// No call may hang longer than a third of the lease.
    async fn bounded<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        match tokio::time::timeout(self.config.lease_duration / 3, call).await {
            Ok(done) => done.map_err(CallError::Api),
            Err(_) => Err(CallError::Timeout),
        }
    }

    fn publish(&self, state: LeaderState) {
        self.state.send_if_modified(|present| {
            let changed = *present != state;
            if changed {
                tracing::info!(?state, "leadership");
                *present = state;
            }
            changed
        });
    }
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the API server did not answer in time")]
    Timeout,
    #[error("{0}")]
    Api(#[source] kube::Error),
}

fn holder(lease: &Lease) -> String {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.clone())
        .unwrap_or_default()
}

fn transitions(lease: &Lease) -> u64 {
    let count = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or(0);
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
#[path = "elector_tests.rs"]
mod tests;
