//! The pool and the group that scenarios are about.

use std::time::Duration;

use elastic_pool_engine::UpdateType;

use crate::vehicle::{GroupSpec, Mode, ObjectKey};

pub(super) fn pool() -> ObjectKey {
    ObjectKey {
        namespace: "test".into(),
        name: "shop".into(),
    }
}

pub(super) fn group() -> ObjectKey {
    ObjectKey {
        namespace: "test".into(),
        name: "shop-blue".into(),
    }
}

pub(super) fn spec() -> GroupSpec {
    GroupSpec {
        key: group(),
        uid: "group-uid".into(),
        pool: pool(),
        version: "blue".into(),
        snapshot_format: String::new(),
        generation: 1,
        default_group: true,
        mode: Mode::Active,
        session_users: false,
        session_timeout: Duration::from_mins(30),
        min: 1,
        max: Some(4),
        max_surge: 1,
        spawn_timeout: Duration::from_mins(2),
        reception_threshold: 0.5,
        admission_threshold: 0.8,
        margin_workers: 1.5,
        smoothing_rows: 2,
        memory_limit: None,
        cpu_capacity: 1.0,
        interval: Duration::from_secs(5),
        dead_timeout: Duration::from_mins(1),
        live_moves: true,
        hold_timeout: Duration::from_secs(5),
        quiesce_timeout: Duration::from_secs(2),
        drain_timeout: Duration::from_mins(2),
        max_package: 1 << 24,
        parallelism: 2,
        close_streams: true,
        template_hash: "t1".into(),
        agent_hash: String::new(),
        update: UpdateType::Move,
        guest_timeout: Duration::from_mins(10),
    }
}
