//! The source's side of a move (V2, V3, V6): quiesce, freeze, hand out, thaw, forget.

use elastic_pool_engine::ids::{Epoch, UserId};

use super::{Failed, Outcome};
use crate::agent::contract::ContractError;
use crate::agent::fence::{Refusal, Shown, Step};
use crate::agent::packages::KeptPackage;
use crate::agent::shared::Shared;
use crate::agent::streams::APP_END;
use crate::channel::proto::nack::Reason;

pub(super) async fn snapshot(shared: &Shared, user: &UserId, mv: Epoch, stream: u64) -> Outcome {
    let (step, kept, max) = {
        let inner = shared.lock();
        if !inner.app.contract {
            return Err(Failed::new(Reason::Unsupported, "the app answers no contract"));
        }
        let kept = inner.packages.get(user, mv).map(KeptPackage::describe);
        (inner.fence.may_freeze(user, mv)?, kept, inner.orders.max_package)
    };
    if step == Step::Done && kept.is_some() {
        return Ok(kept);
    }
    if step == Step::Go {
        quiesce(shared, user, mv, stream).await?;
    }
    let taken = take_package(shared, user, mv, max).await;
    if taken.is_err() {
        // What the app froze for nothing; if it does not hear us now, the commander's Thaw repeats it.
        let _ = shared.contract.thaw(user, mv).await;
        unfreeze(shared, user, mv);
    }
    taken
}

async fn take_package(shared: &Shared, user: &UserId, mv: Epoch, max: u64) -> Outcome {
    let package = match shared.contract.snapshot(user, mv, max).await {
        Ok(package) => KeptPackage::new(mv, package.bytes, package.sha256, package.format),
        Err(error) => {
            if matches!(error, ContractError::NotHere) {
                // L7 decides whether he left.
                shared.lock().ask_list = true;
                shared.ask_app.notify_one();
            }
            return Err(error.into());
        }
    };
    let described = package.describe();
    let mut kept = false;
    shared.persist_change(user, |inner| kept = inner.packages.keep(user, package, max))?;
    if kept {
        Ok(Some(described))
    } else {
        Err(Failed::new(Reason::Busy, "too many packages wait here"))
    }
}

fn unfreeze(shared: &Shared, user: &UserId, mv: Epoch) {
    let now = shared.now();
    let mut inner = shared.lock();
    inner.fence.unfreeze(user, mv, now);
    inner.packages.drop_of(user);
    shared.mark_dirty(&mut inner);
}

/// V2: no open request, then frozen under the same lock, then no stream.
async fn quiesce(shared: &Shared, user: &UserId, mv: Epoch, stream: u64) -> Result<(), Failed> {
    let limit = {
        let inner = shared.lock();
        if !inner.orders.close_streams && !inner.open.streams_of(user).is_empty() {
            return Err(Failed::new(Reason::Stream, "an open stream pins the user"));
        }
        inner.orders.quiesce_timeout
    };
    let now = shared.now();
    let mut frozen = Err(Refusal::Refused);
    let mut ends = Vec::new();
    let quiet = shared
        .wait_until(limit, |inner| {
            if inner.open.requests_of(user) > 0 {
                return false;
            }
            if inner
                .uplink
                .as_ref()
                .is_some_and(|uplink| uplink.stream == stream)
            {
                frozen = inner.fence.freeze(user, mv, now);
                ends = inner.open.streams_of(user);
            }
            true
        })
        .await;
    if !quiet {
        return Err(Failed::new(
            Reason::Busy,
            "an open request outlived the quiesce limit",
        ));
    }
    frozen?;
    if !shared.lock().orders.close_streams && !ends.is_empty() {
        unfreeze(shared, user, mv);
        return Err(Failed::new(Reason::Stream, "an open stream pins the user"));
    }
    for end in &ends {
        end.cancel.cancel();
    }
    let ended = futures::future::join_all(ends.iter().map(|end| end.ended.cancelled()));
    // The relay gives the app its time; a little more for the relay.
    if tokio::time::timeout(APP_END + APP_END / 2, ended).await.is_err() {
        unfreeze(shared, user, mv);
        return Err(Failed::new(Reason::Stream, "the app did not end a stream"));
    }
    Ok(())
}

pub(super) async fn thaw(shared: &Shared, user: &UserId, mv: Epoch, epoch: Epoch, ticket: &str) -> Outcome {
    let shown = Shown { epoch, ticket };
    let step = {
        let inner = shared.lock();
        inner.fence.may_thaw(user, mv, shown, inner.key.as_ref())?
    };
    if step == Step::Go {
        shared.contract.thaw(user, mv).await?;
        let now = shared.now();
        shared.persist_change(user, |inner| {
            inner.fence.thawed(user, shown, now);
            inner.packages.drop_of(user);
        })?;
    }
    Ok(None)
}

pub(super) async fn forget(shared: &Shared, user: &UserId, mv: Epoch) -> Outcome {
    let (step, contract, ends) = {
        let inner = shared.lock();
        (
            inner.fence.may_forget(user, mv)?,
            inner.app.contract,
            inner.open.streams_of(user),
        )
    };
    if step == Step::Go {
        for end in &ends {
            end.cancel.cancel();
        }
        if contract {
            shared.contract.forget(user).await?;
        }
        let now = shared.now();
        shared.persist_change(user, |inner| {
            inner.fence.forgotten(user, mv, now);
            inner.packages.drop_of(user);
        })?;
    }
    Ok(None)
}
