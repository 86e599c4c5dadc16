//! The life of one request: who sent it, whither it goes, how long it waits, what the client gets; it keeps nothing afterwards.

use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Birth, Epoch, UserId};
use http::header::EXPECT;
use http::{HeaderMap, Request, Response, request};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;

use super::access::Line;
use super::answer::AnswerBody;
use super::body::Replay;
use super::forward::{Asked, Attempt, attempt};
use super::forwarded::{Forwarded, Peer};
use super::front::Front;
use super::hold::{Entry, Permit, Slot};
use super::hygiene;
use super::identity::{Visitor, Way, Who, choose};
use super::jar;
use super::metrics::Outcome;
use super::open::Row;
use super::screen;
use super::upstream::{OPEN_MAX, Upstream};
use crate::channel::proto::Ownership;
use crate::channel::proto::found::Verdict;
use crate::clock::unix_seconds;
use crate::credentials::NoRandomness;
use crate::heads::recycle;
use crate::serving::Inbound;
use crate::wire::Framing;

mod reply;

/// Pause before the commander is asked again, or a worker that took no connection is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Answers one request; never fails.
pub(crate) async fn serve(
    front: Arc<Front>,
    peer: &Peer,
    framing: Framing,
    mut request: Request<Inbound>,
) -> Response<AnswerBody> {
    front.metrics.requests.inc();
    let is_h2 = request.version() == http::Version::HTTP_2;
    if let Some(outcome) = screen::refuse(&request, framing, front.limits.max_body) {
        return front.refusal(outcome, !is_h2);
    }
    let is_h2_websocket = screen::is_h2_websocket(&request);
    let client = (is_h2_websocket || (!is_h2 && request.headers().contains_key(http::header::UPGRADE)))
        .then(|| hyper::upgrade::on(&mut request));
    let (mut head, body) = request.into_parts();
    let secure = front.style.is_secure(peer, &head.headers);
    let upgrade = client.filter(|_| is_h2_websocket || hygiene::wants_websocket(&head));
    if hygiene::strip_pool(&mut head.headers) {
        front.metrics.headers_stripped.inc();
    }
    let trailers = hygiene::wants_trailers(&head.headers);
    hygiene::strip_hop_by_hop(&mut head.headers);
    if trailers {
        hygiene::set_trailers(&mut head.headers);
    }
    hygiene::to_upstream(&mut head);
    let entry = front.access.as_ref().map(|log| log.begin(&mut head, peer));
    let forwarded = Forwarded::of(&mut head.headers, peer);
    if upgrade.is_some() {
        hygiene::set_websocket(&mut head.headers);
    }
    if is_h2_websocket && hygiene::to_http1_websocket(&mut head).is_err() {
        return front.refusal(Outcome::Unavailable, !is_h2);
    }
    let Ok(visitor) = visitor(&front, &mut head.headers, secure, is_h2) else {
        return front.refusal(Outcome::Unavailable, !is_h2);
    };
    if body.is_end_stream() {
        // Nothing follows that one could be asked for.
        head.headers.remove(EXPECT);
    }
    let body = (!body.is_end_stream()).then(|| Replay::new(body, &front.limits));
    let started = front.clock.now();
    let mut journey = Journey {
        front,
        head,
        forwarded,
        body,
        visitor,
        secure,
        upgrade,
        started,
        forwards: 0,
        permit: None,
        refused: None,
        slot: None,
        is_h1: !is_h2,
        closes: framing == Framing::Unseen,
        held: false,
        ended: false,
        entry,
    };
    journey.run().await
}

/// Who asks, by our cookie, which is taken out; without one of ours a new guest.
fn visitor(
    front: &Front,
    headers: &mut HeaderMap,
    secure: bool,
    join: bool,
) -> Result<Visitor, NoRandomness> {
    if cfg!(feature = "bare") {
        return Ok(Visitor::nobody(&front.table.topology()));
    }
    let named = front.named.client(headers, unix_seconds);
    let known = jar::take(headers, &front.style.names, secure, join, |value| {
        let known = front.opened.open(&front.seal, value);
        if known.is_none() {
            front.metrics.cookies_rejected.inc();
        }
        known
    });
    match (named, known) {
        (Some(client), _) => Ok(Visitor::named(client)),
        (None, Some(known)) => Ok(Visitor::known(&known)),
        (None, None) => Visitor::guest(Arc::from("")),
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Journey {
    front: Arc<Front>,
    head: request::Parts,
    forwarded: Forwarded,
    body: Option<Arc<Replay>>,
    visitor: Visitor,
    secure: bool,
    upgrade: Option<OnUpgrade>,
    started: Duration,
    /// Attempts so far.
    forwards: u32,
    /// A released request's turn.
    permit: Option<Permit>,
    /// What an agent refused, until the commander has said what to do.
    refused: Option<(Birth, Epoch)>,
    /// A place among the waiting, once it had to wait for something else than a turn.
    slot: Option<Slot>,
    is_h1: bool,
    /// The connection ends with this answer.
    closes: bool,
    /// It waited for a move's end.
    held: bool,
    /// Its outcome is counted, or will be by the answer's end.
    ended: bool,
    /// The line of the access log, until the answer has it.
    entry: Option<Box<Line>>,
}

impl Drop for Journey {
    fn drop(&mut self) {
        if !self.ended {
            self.front.metrics.ended(Outcome::Abandoned);
        }
        recycle(std::mem::take(&mut self.head.headers));
    }
}

impl Journey {
    async fn run(&mut self) -> Response<AnswerBody> {
        match self.travel().await {
            Ok(response) => response,
            Err(outcome) => {
                self.ended = true;
                let response = self.front.refusal(outcome, self.is_h1);
                if let Some(entry) = &mut self.entry {
                    entry.ends(outcome, response.status());
                    entry.took(self.front.clock.now().saturating_sub(self.started));
                }
                response
            }
        }
    }

    async fn travel(&mut self) -> Result<Response<AnswerBody>, Outcome> {
        loop {
            let is_up = self.front.commander.is_up();
            match choose(&self.front.table, &mut self.visitor, is_up) {
                Way::Forward(upstream, who) => {
                    if self.take_turn(&who).await? {
                        continue;
                    }
                    if self.refused == Some((upstream.birth, who.epoch())) {
                        self.ask_about(&who).await?;
                        continue;
                    }
                    if let Some(response) = self.forward(&upstream, &who).await? {
                        return Ok(response);
                    }
                }
                Way::Ask(user, epoch) => self.ask(&user, epoch).await?,
                // V7: whose worker died in a move may still be saved; its end says where he lives.
                Way::Gone if self.wait_for_move().await? => {}
                Way::Gone => self.become_guest()?,
                Way::Nobody => self.wait_for_change().await?,
                Way::Closed => return Err(Outcome::Closed),
            }
        }
    }

    /// True when the request waited: the table has changed meanwhile.
    async fn take_turn(&mut self, who: &Who) -> Result<bool, Outcome> {
        if self.front.holds.is_empty() {
            return Ok(false);
        }
        match who.user() {
            Some(user) => self.wait_in_turn(&user).await,
            None => Ok(false),
        }
    }

    /// The same for a user whom the table names no more.
    async fn wait_for_move(&mut self) -> Result<bool, Outcome> {
        match self.visitor.user.clone() {
            Some(user) => self.wait_in_turn(&user).await,
            None => Ok(false),
        }
    }

    async fn wait_in_turn(&mut self, user: &UserId) -> Result<bool, Outcome> {
        if self.permit.is_some() {
            return Ok(false);
        }
        let now = self.front.clock.now();
        match self.front.holds.enter(user, self.visitor.client, now) {
            Entry::Pass => Ok(false),
            Entry::Full => Err(Outcome::Overflow),
            Entry::Wait(waiting) => {
                let turn = waiting.turn(self.front.left(self.started)).await;
                let waited = self.front.clock.now().saturating_sub(now);
                self.front.metrics.hold_seconds.observe(waited.as_secs_f64());
                self.permit = Some(turn.ok_or(Outcome::HeldTooLong)?);
                self.held = true;
                Ok(true)
            }
        }
    }

    /// `None` when the request has to find another way.
    async fn forward(
        &mut self,
        upstream: &Arc<Upstream>,
        who: &Who,
    ) -> Result<Option<Response<AnswerBody>>, Outcome> {
        if upstream.open.load(std::sync::atomic::Ordering::Relaxed) >= OPEN_MAX {
            return Err(Outcome::Overflow);
        }
        // The first attempt begins with the request, unless something was waited for.
        let began = match self.forwards {
            0 if self.slot.is_none() && self.permit.is_none() => self.started,
            _ => self.front.clock.now(),
        };
        self.forwards += 1;
        let open = self.front.open.open(Row {
            upstream: Arc::clone(upstream),
            who: who.clone(),
            client: self.visitor.client,
            since: began,
        });
        let asked = Asked {
            head: &self.head,
            forwarded: &self.forwarded,
            visitor: &self.visitor,
            who,
            body: self.body.as_ref(),
        };
        match attempt(upstream, &asked, began, self.permit.take()).await {
            Attempt::Answered(head, reply) => {
                self.slot = None;
                self.answer(head, reply, open, who, began).await.map(Some)
            }
            Attempt::Refused => {
                self.front.metrics.refused.inc();
                self.refused = Some((upstream.birth, who.epoch()));
                self.ask_about(who).await?;
                Ok(None)
            }
            Attempt::Unsent | Attempt::Broken | Attempt::NotReplayable if self.fault().is_some() => {
                Err(self.fault().unwrap_or(Outcome::Malformed))
            }
            Attempt::Unsent => {
                // The table will say whether that worker is dead; until then it may come back.
                self.wait(AGAIN_AFTER).await?;
                Ok(None)
            }
            Attempt::Broken => {
                upstream
                    .clock
                    .add(self.front.clock.now().saturating_sub(began), true);
                Err(Outcome::Broken)
            }
            Attempt::NotReplayable => Err(Outcome::NotReplayable),
        }
    }

    /// What the client did wrong with its body: no worker is to blame for that.
    fn fault(&self) -> Option<Outcome> {
        self.body.as_ref().and_then(|body| body.fault())
    }

    /// After a refusal: whoever is nobody in particular tries again, a user is asked for.
    async fn ask_about(&mut self, who: &Who) -> Result<(), Outcome> {
        let Some(user) = who.user() else {
            self.refused = None;
            return self.wait(AGAIN_AFTER).await;
        };
        self.ask(&user, who.epoch()).await
    }

    /// L6, V8: has the commander say who owns the user.
    async fn ask(&mut self, user: &UserId, epoch: Epoch) -> Result<(), Outcome> {
        self.keep_slot()?;
        // Whoever has to ask is not under way: the next of his requests may go.
        self.permit = None;
        let left = self.front.left(self.started);
        let found = self
            .front
            .commander
            .look_up(user, self.visitor.client, epoch, left)
            .await;
        let found = found.ok_or(Outcome::Unavailable)?;
        match Verdict::try_from(found.verdict).unwrap_or(Verdict::Unknown) {
            Verdict::Owned => {
                let Some(ownership) = found.user.as_ref().filter(|owner| owner.birth != 0) else {
                    return self.become_guest();
                };
                if self.refused.is_none() && self.is_of_an_earlier_life(ownership) {
                    return self.become_guest();
                }
                self.front.table.bind(self.visitor.client, user);
                if self.refused == Some((Birth(ownership.birth), Epoch(ownership.epoch))) {
                    // Granted, and the agent has not heard of it yet; a refusal is nothing executed.
                    self.wait(AGAIN_AFTER).await?;
                }
                self.refused = None;
                Ok(())
            }
            Verdict::Gone => {
                self.front.table.release_client(self.visitor.client, user);
                self.become_guest()
            }
            // An agent that refused a provisional user whom nobody owns has made him a guest.
            Verdict::Provisional if self.visitor.reception.is_some() && self.refused.is_none() => {
                self.visitor.unowned = true;
                Ok(())
            }
            Verdict::Provisional => self.become_guest(),
            Verdict::Wait | Verdict::Unknown => self.wait(AGAIN_AFTER).await,
        }
    }

    /// L6: the user lives, and this browser's login is none of the present life. A provisional login (P6) is
    /// always of the present one; where no client id is known at all, the commander has yet to hear them.
    fn is_of_an_earlier_life(&self, ownership: &Ownership) -> bool {
        let client = self.visitor.client.to_string();
        self.visitor.epoch != Epoch::PROVISIONAL
            && !ownership.clients.is_empty()
            && !ownership.clients.contains(&client)
    }

    fn become_guest(&mut self) -> Result<(), Outcome> {
        self.visitor = if self.visitor.named {
            Visitor::named(self.visitor.client)
        } else {
            Visitor::guest(Arc::clone(&self.visitor.group)).map_err(|_| Outcome::Unavailable)?
        };
        self.refused = None;
        self.permit = None;
        Ok(())
    }

    fn keep_slot(&mut self) -> Result<(), Outcome> {
        if self.slot.is_none() {
            self.slot = Some(self.front.holds.slot().ok_or(Outcome::Overflow)?);
        }
        Ok(())
    }

    async fn wait(&mut self, pause: Duration) -> Result<(), Outcome> {
        self.keep_slot()?;
        if self.front.left(self.started) <= pause {
            return Err(Outcome::Unavailable);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    async fn wait_for_change(&mut self) -> Result<(), Outcome> {
        self.keep_slot()?;
        let mut changes = self.front.table.changes();
        // Subscribed first, then looked again: no change is missed in between.
        if !matches!(
            choose(&self.front.table, &mut self.visitor, self.front.commander.is_up()),
            Way::Nobody
        ) {
            return Ok(());
        }
        let change = tokio::time::timeout(self.front.left(self.started), changes.changed()).await;
        change
            .map_err(|_| Outcome::Unavailable)?
            .map_err(|_| Outcome::Unavailable)
    }
}
