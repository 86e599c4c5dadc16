//! The groups of a manifest as facts, told again when the file changes, as an API server's watch would.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use tokio::sync::mpsc;

use super::worker::App;
use crate::api::manifest::{self, Manifests};
use crate::api::pool_group::Mode;
use crate::api::{PoolGroup, resolve};
use crate::vehicle::{Fact, GroupSpec, ObjectKey};

/// A manifest file and what was told of it.
#[derive(Debug)]
pub(super) struct Groups {
    file: PathBuf,
    seen: Option<SystemTime>,
    told: HashMap<ObjectKey, GroupSpec>,
}

/// What a change of the file came to.
#[derive(Debug)]
pub(super) struct Change {
    /// What each group of the file runs.
    pub(super) apps: HashMap<ObjectKey, App>,
    /// Groups that are not in it any more.
    pub(super) gone: Vec<ObjectKey>,
}

impl Groups {
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            seen: None,
            told: HashMap::new(),
        }
    }

    /// Tells the groups of `manifests`, those that changed alone; what each of them runs.
    pub(super) async fn tell(
        &mut self,
        manifests: &Manifests,
        facts: &mpsc::Sender<Fact>,
    ) -> anyhow::Result<Change> {
        self.seen = modified(&self.file).await;
        let (mut apps, mut specs) = (HashMap::new(), Vec::new());
        for group in &manifests.groups {
            let spec = resolve::group_spec(group, is_default(manifests, group))?;
            let app = App {
                pool: spec.pool.clone(),
                run: resolve::local_app(group)?,
                template_hash: spec.template_hash.clone(),
            };
            apps.insert(spec.key.clone(), app);
            specs.push(spec);
        }
        let kept: HashSet<&ObjectKey> = specs.iter().map(|spec| &spec.key).collect();
        let gone: Vec<ObjectKey> = self
            .told
            .keys()
            .filter(|key| !kept.contains(key))
            .cloned()
            .collect();
        for key in &gone {
            self.told.remove(key);
            facts.send(Fact::GroupGone(key.clone())).await?;
        }
        for spec in specs {
            if self.told.get(&spec.key) != Some(&spec) {
                self.told.insert(spec.key.clone(), spec.clone());
                facts.send(Fact::Group(Box::new(spec))).await?;
            }
        }
        Ok(Change { apps, gone })
    }

    /// What is new in the file; `None` while it is as it was, or cannot be used: then nothing changes, and people are told.
    pub(super) async fn news(&mut self, facts: &mpsc::Sender<Fact>) -> Option<Change> {
        let now = modified(&self.file).await;
        if now.is_none() || now == self.seen {
            return None;
        }
        self.seen = now;
        match self.read_again(facts).await {
            Ok(change) => {
                tracing::info!(file = %self.file.display(), "the manifest changed");
                Some(change)
            }
            Err(error) => {
                tracing::error!(file = %self.file.display(), error = format!("{error:#}"), "the manifest is not used");
                None
            }
        }
    }

    async fn read_again(&mut self, facts: &mpsc::Sender<Fact>) -> anyhow::Result<Change> {
        let text = tokio::fs::read_to_string(&self.file).await.context("read it")?;
        let manifests = manifest::read(&text)?;
        let pools: HashSet<ObjectKey> = self.told.values().map(|spec| spec.pool.clone()).collect();
        for group in &manifests.groups {
            let pool = resolve::group_spec(group, false)?.pool;
            if !pools.contains(&pool) {
                bail!("pool {pool} has no gateway: start anew for another pool");
            }
        }
        self.tell(&manifests, facts).await
    }
}

async fn modified(file: &Path) -> Option<SystemTime> {
    tokio::fs::metadata(file).await.ok()?.modified().ok()
}

/// As in a cluster: the group that the Pool names, else the first, and of those that take newcomers if there is one.
fn is_default(manifests: &Manifests, group: &PoolGroup) -> bool {
    let pool = manifests.pools.iter().find(|pool| {
        pool.metadata.name.as_deref() == Some(&group.spec.pool)
            && pool.metadata.namespace == group.metadata.namespace
    });
    let named = pool.and_then(|pool| pool.spec.default_group.as_deref());
    let of_pool = |other: &&PoolGroup| {
        other.spec.pool == group.spec.pool && other.metadata.namespace == group.metadata.namespace
    };
    let first = |open: bool| {
        let mut groups = manifests.groups.iter().filter(of_pool);
        let fits = |other: &&PoolGroup| !open || other.spec.mode != Mode::Evacuate;
        let by_name = groups
            .clone()
            .filter(fits)
            .find(|other| named.is_some() && other.metadata.name.as_deref() == named);
        by_name.or_else(|| groups.find(fits))
    };
    let default = first(true).or_else(|| first(false));
    default.is_some_and(|default| default.metadata.name == group.metadata.name)
}
