//! The target's side of a move (V4, V5): fetch, check, stage, activate, discard.

use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{Epoch, UserId};
use http::{Request, header};

use super::{Failed, Outcome};
use crate::agent::fence::{State, Step};
use crate::agent::headers;
use crate::agent::http_client::{self, Payload};
use crate::agent::packages::{self, Intake};
use crate::agent::shared::Shared;
use crate::channel::proto::Fetch;
use crate::channel::proto::nack::Reason;
use crate::net::{Protection, lacks};

/// The source answers a Fetch's head within this time.
const SOURCE: Duration = Duration::from_secs(5);
/// A package up to this size is checked before the app sees any of it, and goes over a kept connection.
const SMALL: u64 = 64 << 10;

pub(super) async fn fetch(shared: &Shared, user: &UserId, order: &Fetch) -> Outcome {
    let mv = Epoch(order.r#move);
    let (step, stale) = {
        let inner = shared.lock();
        if !inner.app.contract {
            return Err(Failed::new(Reason::Unsupported, "the app answers no contract"));
        }
        let stale = match inner.fence.get(user).map(|record| record.state) {
            Some(State::Staged { mv: open, .. }) if open < mv => Some(open),
            _ => None,
        };
        (inner.fence.may_stage(user, mv, order.join)?, stale)
    };
    if step == Step::Done {
        return Ok(None);
    }
    if let Some(stale) = stale {
        shared.contract.discard(user, stale).await?;
    }
    let Ok(_permit) = shared.queues.packages.acquire().await else {
        return Err(Failed::new(Reason::Timeout, "stopped"));
    };
    if !order.join {
        let now = shared.now();
        let mut inner = shared.lock();
        inner.fence.staged(user, mv, false, now);
        shared.mark_dirty(&mut inner);
    }
    match stage(shared, user, order).await {
        Ok(()) => {
            shared.counters.packages_staged.add();
            let now = shared.now();
            if !order.join {
                shared.persist_change(user, |inner| inner.fence.staged(user, mv, true, now))?;
            }
            Ok(None)
        }
        Err(failed) => {
            // Nothing of a package that did not arrive whole stays in the app.
            let _ = shared.contract.discard(user, mv).await;
            if !order.join {
                let now = shared.now();
                let mut inner = shared.lock();
                inner.fence.discarded(user, mv, now);
                shared.mark_dirty(&mut inner);
            }
            Err(failed)
        }
    }
}

/// From the source's agent into the app, checked on the way.
async fn stage(shared: &Shared, user: &UserId, order: &Fetch) -> Result<(), Failed> {
    let announced = order
        .package
        .as_ref()
        .ok_or_else(|| Failed::new(Reason::Corrupt, "no package was described"))?;
    let max = shared.lock().orders.max_package;
    if announced.bytes > max {
        return Err(Failed::new(
            Reason::TooLarge,
            format!("{} bytes, allowed are {max}", announced.bytes),
        ));
    }
    let path = format!("/packages/{}/{}", headers::encode_user(user), order.r#move);
    let request = Request::get(path)
        .header(header::HOST, &order.source)
        .header(headers::PASS, &order.pass)
        .body(())
        .map_err(|_| Failed::new(Reason::Corrupt, "source or pass is malformed"))?;
    let response = shared
        .connections
        .send(&order.source, request, Payload::Whole(Bytes::new()), SOURCE)
        .await
        .map_err(|error| Failed::new(Reason::Unreachable, format!("the source: {error}")))?;
    if !response.status().is_success() {
        let status = response.status();
        return Err(Failed::new(
            Reason::Unreachable,
            format!("the source answered {status}"),
        ));
    }
    if headers::single(response.headers(), headers::FORMAT).unwrap_or_default() != announced.format {
        return Err(Failed::new(Reason::Corrupt, "the source sent another format"));
    }
    let mv = Epoch(order.r#move);
    let body = response.into_body();
    let altered = || Failed::new(Reason::Corrupt, "the package is not what was announced");
    if announced.bytes <= SMALL {
        let bytes = http_client::read(body, announced.bytes, SOURCE).await;
        let bytes = bytes
            .ok()
            .filter(|bytes| packages::is_announced(bytes, announced) || lacks(Protection::Checksum));
        let package = Payload::Whole(bytes.ok_or_else(altered)?);
        return Ok(shared
            .contract
            .stage(user, mv, &announced.format, package)
            .await?);
    }
    let (body, check) = Intake::new(body, announced.bytes);
    let package = Payload::stream(body);
    let staged = shared.contract.stage(user, mv, &announced.format, package).await;
    // The checksum speaks first: an app may have refused what was cut or altered on its way.
    if !check.holds(announced) && !lacks(Protection::Checksum) {
        return Err(altered());
    }
    Ok(staged?)
}

pub(super) async fn activate(shared: &Shared, user: &UserId, mv: Epoch, join: bool) -> Outcome {
    if shared.lock().fence.may_activate(user, mv, join)? == Step::Go {
        shared.contract.activate(user, mv).await?;
        let now = shared.now();
        shared.persist_change(user, |inner| inner.fence.activated(user, mv, now))?;
    }
    Ok(None)
}

pub(super) async fn discard(shared: &Shared, user: &UserId, mv: Epoch) -> Outcome {
    shared.lock().fence.may_discard(user, mv)?;
    shared.contract.discard(user, mv).await?;
    let now = shared.now();
    shared.persist_change(user, |inner| inner.fence.discarded(user, mv, now))?;
    Ok(None)
}
