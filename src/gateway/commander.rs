//! The gateway's end of the channel: applies what the commander says to table, holds and streams, and asks it; it decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::{ClientId, Epoch, Term, UserId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::clock::Clocks;
use super::hold::{Holds, JOIN_ANNOUNCED};
use super::metrics::Metrics;
use super::streams::Streams;
use super::table::Table;
use crate::channel::PROTOCOL;
use crate::channel::link::{GatewayPeer, Link, LinkConfig, LinkEvent, TermSeen, dial};
use crate::channel::proto::gateway_command::Command;
use crate::channel::proto::gateway_message::Message;
use crate::channel::proto::{
    Found, GatewayCommand, GatewayHello, GatewayMessage, GatewayWelcome, Held, Hold, LookUp, Ownership,
    Place, Placed, Quiet,
};
use crate::clock::Clock;

/// Questions that may be open at once.
const ASKED_MAX: usize = 8192;
const TOTALS_EVERY: Duration = Duration::from_secs(1);
/// Until a Welcome says otherwise.
const PLACE_TIMEOUT_MS: u64 = 500;
const HOLD_TIMEOUT_MS: u64 = 5000;

#[derive(Debug)]
enum Answer {
    Placed(Placed),
    Found(Found),
}

struct Question {
    answer: oneshot::Sender<Answer>,
    client: Option<ClientId>,
}

/// What a gateway tells of itself in each Hello.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) pod_uid: String,
    pub(crate) incarnation: String,
    pub(crate) pool: String,
    pub(crate) namespace: String,
}

/// Where commands take effect.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) table: Arc<Table>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

/// Questions to the commander, and what it said about timeouts.
pub(crate) struct Commander {
    messages: mpsc::Sender<GatewayMessage>,
    asked: Mutex<HashMap<u64, Question>>,
    next: AtomicU64,
    up: watch::Sender<bool>,
    place_timeout_ms: AtomicU64,
    hold_timeout_ms: AtomicU64,
    /// The next totals name everything: the commander is new.
    tell_all: AtomicBool,
}

/// Takes a question off the list when its asker gave up.
struct Asked<'a> {
    commander: &'a Commander,
    request: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.commander.asked.lock().remove(&self.request);
    }
}

/// Dials the commander and keeps serving its commands until `stop`.
pub(crate) fn connect(
    config: LinkConfig,
    identity: Identity,
    effects: Effects,
    stop: CancellationToken,
) -> Arc<Commander> {
    let term = Arc::new(TermSeen::default());
    let hello = {
        let (term, table) = (Arc::clone(&term), Arc::clone(&effects.table));
        move || GatewayHello {
            protocol: PROTOCOL,
            pod_uid: identity.pod_uid.clone(),
            incarnation: identity.incarnation.clone(),
            term_seen: term.get().0,
            pool: identity.pool.clone(),
            namespace: identity.namespace.clone(),
            users: table.ownerships(),
        }
    };
    let Link { messages, events } = dial(config, GatewayPeer(hello), stop.clone());
    let commander = Arc::new(Commander {
        messages,
        asked: Mutex::default(),
        next: AtomicU64::new(1),
        up: watch::Sender::new(false),
        place_timeout_ms: AtomicU64::new(PLACE_TIMEOUT_MS),
        hold_timeout_ms: AtomicU64::new(HOLD_TIMEOUT_MS),
        tell_all: AtomicBool::new(false),
    });
    let listener = Listener {
        commander: Arc::clone(&commander),
        effects,
        term,
        refused: false,
        welcomed_at: None,
    };
    tokio::spawn(listener.run(events, stop));
    commander
}

impl Commander {
    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    pub(crate) fn place_timeout(&self) -> Duration {
        Duration::from_millis(self.place_timeout_ms.load(Relaxed))
    }

    pub(crate) fn hold_timeout(&self) -> Duration {
        Duration::from_millis(self.hold_timeout_ms.load(Relaxed))
    }

    /// L2: where does this user live from now on? `None` when the commander cannot say within `limit`.
    pub(crate) async fn place(&self, place: Place, limit: Duration) -> Option<Placed> {
        let client = ClientId::parse(&place.client);
        let ask = |request| {
            Message::Place(Place {
                request,
                ..place.clone()
            })
        };
        match self.ask(ask, client, limit).await? {
            Answer::Placed(placed) => Some(placed),
            Answer::Found(_) => None,
        }
    }

    /// L6 and V8: who owns this user? `None` when the commander cannot say within `limit`.
    pub(crate) async fn look_up(
        &self,
        user: &UserId,
        client: ClientId,
        epoch: Epoch,
        limit: Duration,
    ) -> Option<Found> {
        let ask = |request| {
            let (user, client) = (user.as_str().to_owned(), client.to_string());
            Message::LookUp(LookUp {
                request,
                user,
                client,
                epoch: epoch.0,
            })
        };
        match self.ask(ask, None, limit).await? {
            Answer::Found(found) => Some(found),
            Answer::Placed(_) => None,
        }
    }

    /// L3: the login's answer is finished.
    pub(crate) fn quiet(&self, user: &UserId, client: ClientId) {
        self.tell(Message::Quiet(Quiet {
            user: user.as_str().to_owned(),
            client: client.to_string(),
        }));
    }

    /// A message that nobody waits for; when the queue is full or the stream down it is lost, and the commander's
    /// own timeouts take over.
    fn tell(&self, message: Message) -> bool {
        self.messages
            .try_send(GatewayMessage {
                message: Some(message),
            })
            .is_ok()
    }

    async fn ask(
        &self,
        question: impl Fn(u64) -> Message,
        client: Option<ClientId>,
        limit: Duration,
    ) -> Option<Answer> {
        tokio::time::timeout(limit, self.ask_on(question, client))
            .await
            .ok()
            .flatten()
    }

    /// Asks, and asks again on the next stream when one breaks.
    async fn ask_on(&self, question: impl Fn(u64) -> Message, client: Option<ClientId>) -> Option<Answer> {
        let mut up = self.up.subscribe();
        loop {
            up.wait_for(|up| *up).await.ok()?;
            let request = self.next.fetch_add(1, Relaxed);
            let (answer, answered) = oneshot::channel();
            {
                let mut asked = self.asked.lock();
                if asked.len() >= ASKED_MAX {
                    return None;
                }
                asked.insert(request, Question { answer, client });
            }
            let _asked = Asked {
                commander: self,
                request,
            };
            if !self.tell(question(request)) {
                return None;
            }
            if let Ok(answer) = answered.await {
                return Some(answer);
            }
        }
    }

    fn answer(&self, request: u64, answer: Answer) {
        let asker = self.asked.lock().remove(&request);
        if let Some(asker) = asker {
            // An asker that hung up needs no answer.
            let _ = asker.answer.send(answer);
        }
    }
}

struct Listener {
    commander: Arc<Commander>,
    effects: Effects,
    term: Arc<TermSeen>,
    /// The present stream was welcomed in a term that is over.
    refused: bool,
    /// When the present stream was welcomed, until its first full table came.
    welcomed_at: Option<Duration>,
}

impl Listener {
    async fn run(mut self, mut events: mpsc::Receiver<LinkEvent<GatewayCommand>>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TOTALS_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.recv() => match event {
                    None => return,
                    Some(LinkEvent::Down) => self.down(),
                    Some(LinkEvent::Command(command)) => self.command(command),
                },
                _ = tick.tick() => self.tick(),
            }
        }
    }

    fn down(&mut self) {
        self.refused = false;
        self.effects.metrics.channel_connected.set(0);
        self.commander.up.send_replace(false);
        // Askers see their question void and ask again on the next stream.
        self.commander.asked.lock().clear();
    }

    fn tick(&self) {
        let now = self.effects.clock.now();
        self.effects.holds.expire(now);
        for upstream in self.effects.table.topology().workers.values() {
            upstream.prune(now);
        }
        if self.commander.is_up() {
            let everything = self.commander.tell_all.swap(false, Relaxed);
            let held = u64::try_from(self.effects.holds.waiting()).unwrap_or(0);
            let mut totals = self.effects.clocks.totals(everything, held);
            totals.users = self.effects.table.user_totals(everything);
            if !self.commander.tell(Message::Totals(totals)) {
                self.commander.tell_all.store(true, Relaxed);
            }
        }
    }

    fn command(&mut self, command: GatewayCommand) {
        let Some(command) = command.command else {
            self.effects.metrics.unknown_commands.inc();
            return;
        };
        if let Command::Welcome(welcome) = &command {
            self.welcome(welcome);
            return;
        }
        if self.refused {
            return;
        }
        let Effects { table, holds, .. } = &self.effects;
        match command {
            // The link dials elsewhere by itself.
            Command::Welcome(_) | Command::NotLeader(_) => {}
            Command::Table(change) => {
                table.apply(&change);
                if change.full
                    && let Some(since) = self.welcomed_at.take()
                {
                    holds.release_older(since);
                }
            }
            Command::Hold(hold) => self.hold(&hold),
            Command::Route(route) => self.settle(route.r#move, route.user.as_ref()),
            Command::Cancel(cancel) => {
                // A join that failed leaves its client a guest; birth 0 speaks of that client, not of the user.
                if let Some(client) = ClientId::parse(&cancel.client) {
                    self.cancel_client(cancel.r#move, cancel.user.as_ref(), client);
                } else {
                    self.settle(cancel.r#move, cancel.user.as_ref());
                }
            }
            Command::Placed(placed) => {
                self.placed(&placed);
                self.commander.answer(placed.request, Answer::Placed(placed));
            }
            Command::Found(found) => {
                // Here and not at the request that asked, which may come to it after a later command took the user out.
                if let Some(ownership) = found.user.as_ref().filter(|ownership| ownership.birth != 0) {
                    table.apply_owner(ownership);
                }
                self.commander.answer(found.request, Answer::Found(found));
            }
        }
    }

    fn welcome(&mut self, welcome: &GatewayWelcome) {
        self.refused = !self.term.welcome(Term(welcome.term));
        if self.refused {
            tracing::warn!(
                term = welcome.term,
                seen = self.term.get().0,
                "a commander of an earlier term is ignored"
            );
            return;
        }
        let millis = |wanted: u64, default: u64| if wanted == 0 { default } else { wanted.min(600_000) };
        self.commander
            .place_timeout_ms
            .store(millis(welcome.place_timeout_ms, PLACE_TIMEOUT_MS), Relaxed);
        self.commander
            .hold_timeout_ms
            .store(millis(welcome.hold_timeout_ms, HOLD_TIMEOUT_MS), Relaxed);
        self.commander.tell_all.store(true, Relaxed);
        self.welcomed_at = Some(self.effects.clock.now());
        self.effects.metrics.channel_connected.set(1);
        self.commander.up.send_replace(true);
    }

    fn hold(&self, hold: &Hold) {
        let Effects {
            table,
            holds,
            streams,
            clock,
            ..
        } = &self.effects;
        if let Ok(user) = UserId::new(&hold.user) {
            let client = ClientId::parse(&hold.client);
            holds.flag(&user, client, hold.r#move, clock.now());
            if let Some(client) = client {
                streams.close_client(&client);
            } else {
                let clients = table.resident(&user).map(|resident| resident.clients());
                streams.close_user(&user, &clients.unwrap_or_default());
            }
        }
        self.commander.tell(Message::Held(Held { r#move: hold.r#move }));
    }

    /// The end of a move either way: the owner first, then the requests that waited.
    fn settle(&self, id: u64, ownership: Option<&Ownership>) {
        let Some(ownership) = ownership else { return };
        self.effects.table.apply_owner(ownership);
        if let Ok(user) = UserId::new(&ownership.user) {
            self.effects.holds.release(&user, id);
        }
    }

    fn cancel_client(&self, id: u64, ownership: Option<&Ownership>, client: ClientId) {
        let Some(user) = ownership.and_then(|ownership| UserId::new(&ownership.user).ok()) else {
            return;
        };
        self.effects.table.release_client(client, &user);
        if let Some(ownership) = ownership.filter(|ownership| ownership.birth != 0) {
            self.effects.table.apply_owner(ownership);
        }
        self.effects.holds.release(&user, id);
    }

    /// Here and not at the waiting login, so that it takes effect before any command that follows it.
    fn placed(&self, placed: &Placed) {
        let Some(ownership) = placed.user.as_ref().filter(|ownership| ownership.birth != 0) else {
            return;
        };
        self.effects.table.apply_owner(ownership);
        let client = self
            .commander
            .asked
            .lock()
            .get(&placed.request)
            .and_then(|question| question.client);
        if let (Some(client), Ok(user)) = (client, UserId::new(&ownership.user)) {
            self.effects.table.bind(client, &user);
            if placed.join_follows {
                self.effects
                    .holds
                    .flag(&user, Some(client), JOIN_ANNOUNCED, self.effects.clock.now());
            }
        }
    }
}
