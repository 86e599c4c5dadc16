//! Who the app is and who lives there: compares instances, follows the lists (L7); it never guesses when the app is silent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Epoch, UserId};
use tokio_util::sync::CancellationToken;

use super::contract::{AppUser, AppUserState, AppUsers, ContractError};
use super::fence::{Fence, State};
use super::http_client;
use super::shared::{AppView, Inner, Shared, new_incarnation};
use super::unconfirmed::Unconfirmed;
use crate::channel::proto::{UserGone, agent_message};

/// Between two questions while an answer is missing, or while a second list is wanted.
const AGAIN: Duration = Duration::from_millis(200);
/// Instance of an app whose processes are not seen.
const UNSEEN: &str = "unseen";
/// Looks at the processes before an app that takes connections counts as unseen.
const LOOKS: u32 = 10;
/// Lists in a row that must lack a user (L7).
const LISTS: u8 = 2;

/// Asks the app at start, each list interval, and when told to.
pub(crate) async fn watch(shared: Arc<Shared>, stop: CancellationToken) {
    let mut silent = 0;
    loop {
        let known = ask(&shared, silent).await;
        silent = if known { 0 } else { silent + 1 };
        if silent == 50 {
            tracing::warn!(app = %shared.upstream.app(), "the app does not answer yet");
        }
        let again = !known || shared.lock().ask_list;
        let pause = if again { AGAIN } else { shared.config.list_interval };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = shared.ask_app.notified(), if !again => {}
        }
    }
}

/// True when the app said who it is.
async fn ask(shared: &Shared, silent: u32) -> bool {
    let asked = shared.now();
    let known_plain = {
        let app = &shared.lock().app;
        app.compared && !app.doubt && !app.contract
    };
    if !shared.contract.is_asked() || known_plain {
        return ask_plain(shared, silent).await;
    }
    match shared.contract.users().await {
        Ok(list) => {
            take_list(shared, list, asked);
            true
        }
        Err(ContractError::NoContract) => ask_plain(shared, silent).await,
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the app is not asked yet"
            );
            false
        }
    }
}

/// Without a contract the app's instance is the start time of its oldest process.
async fn ask_plain(shared: &Shared, silent: u32) -> bool {
    if http_client::connect(shared.upstream.app()).await.is_err() {
        return false;
    }
    let instance = {
        let inner = shared.lock();
        match inner.sensor.started() {
            Some(started) => format!("start-{started}"),
            None if inner.sensor.looks() && silent < LOOKS => return false,
            // Seen once and not now: it restarted, and its new container is not known yet.
            None if inner.app.instance.as_deref().is_some_and(|known| known != UNSEEN) => return false,
            None => UNSEEN.to_owned(),
        }
    };
    let view = AppView {
        instance: Some(instance),
        ..AppView::default()
    };
    compare(shared, view, &[]);
    shared.lock().ask_list = false;
    true
}

fn take_list(shared: &Shared, list: AppUsers, asked: Duration) {
    let AppUsers {
        instance,
        capabilities,
        users,
    } = list;
    let view = AppView {
        instance: Some(instance),
        contract: true,
        capabilities,
        list: Some((asked, users.len())),
        ..AppView::default()
    };
    compare(shared, view, &users);
    let named: HashSet<UserId> = users.into_iter().map(|user| user.id).collect();
    note_list(shared, &named, asked);
}

/// The app's instance against the one for which the records hold; only then is anybody served.
fn compare(shared: &Shared, view: AppView, users: &[AppUser]) {
    let now = shared.now();
    let mut guard = shared.lock();
    let inner = &mut *guard;
    let first = !inner.app.compared;
    let before = if first {
        shared.kept_instance()
    } else {
        inner.app.instance.as_deref()
    };
    let same = before == view.instance.as_deref();
    // Seen only now: the same app, under a better name.
    let refined = !first && before == Some(UNSEEN) && !view.contract && !inner.app.doubt;
    if !same && !refined {
        let lost = inner.fence.living();
        if !first || lost > 0 {
            shared.counters.app_restarts.add();
            tracing::warn!(users = lost, "the app is another instance: its users are gone");
        }
        start_over(inner, now);
    }
    if !same && !first {
        inner.incarnation = new_incarnation().unwrap_or_default();
        inner.link_stop.cancel();
        inner.uplink = None;
    }
    inner.app = AppView {
        compared: true,
        ..view
    };
    if first || !same {
        adopt(&mut inner.fence, users, !same, now);
        shared.mark_dirty(inner);
    }
    drop(guard);
    if first || !same {
        // Before anybody is served.
        if let Err(error) = shared.persist() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the fence file is not written"
            );
        }
    }
    shared.changed.notify_waiters();
}

fn start_over(inner: &mut Inner, now: Duration) {
    inner.fence.app_restarted(now);
    inner.packages.clear();
    inner.unconfirmed = Unconfirmed::default();
    inner.closed_since = None;
}

/// What the app holds and the table does not say: changes that came after the file was written.
fn adopt(fence: &mut Fence, users: &[AppUser], restarted: bool, now: Duration) {
    for user in users {
        let state = fence.get(&user.id).map(|record| record.state);
        match (user.state, user.mv(), state) {
            (AppUserState::Live, _, None) => {
                fence.login(&user.id, None, now);
            }
            // He logged in to the new process before it was known as one.
            (AppUserState::Live, _, Some(State::Past { .. })) if restarted => {
                fence.login(&user.id, None, now);
            }
            (AppUserState::Frozen, Some(mv), None | Some(State::Provisional | State::Owned { .. })) => {
                fence.login(&user.id, None, now);
                // Refused only for a newer ownership, which the commander's Thaw or a forward settles.
                let _ = fence.freeze(&user.id, mv, now);
            }
            (AppUserState::Staged, Some(mv), None) => fence.staged(&user.id, mv, true, now),
            _ => {}
        }
    }
}

/// L7: who was missing in two lists in a row, both asked for after his last sign of life, has left.
fn note_list(shared: &Shared, named: &HashSet<UserId>, asked: Duration) {
    let mut gone: Vec<(UserId, Epoch)> = Vec::new();
    let mut once_missing = false;
    {
        let mut guard = shared.lock();
        let inner = &mut *guard;
        if inner.orders.session_users {
            inner.ask_list = false;
            return;
        }
        for (user, record) in inner.fence.iter_mut().filter(|(_, record)| record.is_served()) {
            if named.contains(user) {
                record.missing = 0;
            } else if record.touched < asked && !inner.open.any_of(user) {
                record.missing = record.missing.saturating_add(1);
                once_missing |= record.missing < LISTS;
                if record.missing >= LISTS {
                    gone.push((user.clone(), record.epoch()));
                }
            }
        }
        inner.ask_list = once_missing && (inner.ask_list || inner.closed_since.is_some());
    }
    for (user, epoch) in gone {
        leave(shared, &user, epoch);
    }
    shared.changed.notify_waiters();
}

/// Tells the commander that a user left, and drops his record once that is on its way.
pub(crate) fn leave(shared: &Shared, user: &UserId, epoch: Epoch) {
    let gone = UserGone {
        user: user.as_str().to_owned(),
        epoch: epoch.0,
    };
    if shared.tell(agent_message::Message::UserGone(gone)) {
        let mut inner = shared.lock();
        if inner.epoch_of(user) == Some(epoch) {
            inner.fence.remove(user);
            shared.mark_dirty(&mut inner);
        }
    }
}
