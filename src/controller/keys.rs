//! A pool's keys: read from its Secrets, made once where they are absent, and never overwritten.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt;
use serde_json::Value;

use super::build::{self, PoolSecrets};
use super::writer::collection;
use super::{Context, ReconcileError};
use crate::api::{Pool, labels};
use crate::credentials::Key;
use crate::vehicle::{Fact, ObjectKey, PoolKeys};

/// How often the Secrets are looked at.
const LOOK_EVERY: Duration = Duration::from_mins(10);

/// The keys of a pool, once they are known.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    known: Option<PoolSecrets>,
    looked: Duration,
    told: Option<PoolKeys>,
}

/// Reads the keys where that is due, makes what is absent, and tells the commander; returns when to look again.
pub(crate) async fn keep(
    context: &Context,
    pool: &Pool,
    keys: &mut Keys,
    now: Duration,
) -> Result<Duration, ReconcileError> {
    if keys.known.is_some() && now < keys.looked + LOOK_EVERY {
        return Ok(keys.looked + LOOK_EVERY);
    }
    let known = look(context, pool, keys.known.take()).await?;
    let told = PoolKeys {
        pool: known.pool.clone(),
        ticket: known.ticket.clone(),
    };
    keys.known = Some(known);
    keys.looked = now;
    if keys.told.as_ref() != Some(&told) {
        let key = ObjectKey {
            namespace: pool.namespace().unwrap_or_default(),
            name: pool.name_any(),
        };
        context
            .facts
            .send(Fact::Keys(key, told.clone()))
            .await
            .map_err(|_| ReconcileError::Stopped)?;
        keys.told = Some(told);
    }
    Ok(now + LOOK_EVERY)
}

/// The keys as the Secrets hold them. A Secret that somebody deleted is made again with the keys that were known.
async fn look(
    context: &Context,
    pool: &Pool,
    known: Option<PoolSecrets>,
) -> Result<PoolSecrets, ReconcileError> {
    let path = collection("v1", &pool.namespace().unwrap_or_default(), "secrets");
    let name = pool.name_any();
    let gateway = context
        .writer
        .get(&format!("{path}/{}", labels::gateway_name(&name)))
        .await?;
    let tickets = context
        .writer
        .get(&format!("{path}/{}", labels::tickets_name(&name)))
        .await?;
    let mut keys = match known {
        Some(known) => known,
        None => PoolSecrets {
            cookie: Key::random()?,
            cookie_previous: None,
            pool: Key::random()?,
            ticket: Key::random()?,
        },
    };
    if let Some(secret) = &gateway {
        keys.cookie = read(secret, labels::COOKIE_KEY)?;
        keys.pool = read(secret, labels::POOL_KEY)?;
        let previous = !secret["data"][labels::COOKIE_KEY_PREVIOUS].is_null();
        keys.cookie_previous = if previous {
            Some(read(secret, labels::COOKIE_KEY_PREVIOUS)?)
        } else {
            None
        };
    }
    if let Some(secret) = &tickets {
        keys.ticket = read(secret, labels::TICKET_KEY)?;
    }
    // A create, never an apply: who loses a race reads what the other made.
    if gateway.is_none() {
        context
            .writer
            .create(&path, &build::gateway_secret(pool, &keys))
            .await?;
    }
    if tickets.is_none() {
        context
            .writer
            .create(&path, &build::tickets_secret(pool, &keys))
            .await?;
    }
    Ok(keys)
}

fn read(secret: &Value, name: &str) -> Result<Key, ReconcileError> {
    let bytes = secret["data"][name]
        .as_str()
        .and_then(|text| STANDARD.decode(text).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| Key::from_hex(&text))
        .ok_or_else(|| ReconcileError::BadKey {
            secret: secret["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            key: name.to_owned(),
        })
}
