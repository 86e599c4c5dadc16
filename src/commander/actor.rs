//! The task that owns the commander: events in, orders and monitor state out, the clock read once per event.

use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Term;
use elastic_pool_engine::snapshot::Saved;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::view::MonitorState;
use super::{Commander, DecisionSink, Event, UnknownGroup};
use crate::channel::server::ChannelEvent;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::vehicle::{Fact, Orders};

/// Time's own events: timeouts are seen this late at most.
const TICK: Duration = Duration::from_millis(100);
/// Questions of the monitor that may wait.
const QUESTIONS: usize = 64;

/// Asks the commander from outside.
#[derive(Debug, Clone)]
pub struct CommanderHandle {
    questions: mpsc::Sender<Question>,
}

/// What is asked from outside, with where the answer goes.
#[derive(Debug)]
enum Question {
    State(oneshot::Sender<MonitorState>),
    Snapshot(String, oneshot::Sender<Result<Saved, UnknownGroup>>),
    Decisions(String, oneshot::Sender<Result<Vec<Arc<Saved>>, UnknownGroup>>),
    Rest(oneshot::Sender<()>),
}

impl CommanderHandle {
    /// The monitor's state; `None` when the commander has stopped.
    pub async fn state(&self) -> Option<MonitorState> {
        self.ask(Question::State).await
    }

    /// The group as it is now ([`Commander::snapshot`]); `None` when the commander has stopped.
    pub async fn snapshot(&self, group: &str) -> Option<Result<Saved, UnknownGroup>> {
        self.ask(|answer| Question::Snapshot(group.to_owned(), answer))
            .await
    }

    /// Its last decisions ([`Commander::decisions`]); `None` when the commander has stopped.
    pub async fn decisions(&self, group: &str) -> Option<Result<Vec<Arc<Saved>>, UnknownGroup>> {
        self.ask(|answer| Question::Decisions(group.to_owned(), answer))
            .await
    }

    /// Starts no move or join any more ([`Commander::rest`]); returns when none is under way, or the commander has stopped.
    pub async fn rest(&self) {
        self.ask(Question::Rest).await;
    }

    async fn ask<A>(&self, question: impl FnOnce(oneshot::Sender<A>) -> Question) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(question(answer)).await.ok()?;
        answered.await.ok()
    }
}

/// Nobody is there any more where an answer cannot go. Returns where to say that nothing is under way.
fn answer(commander: &mut Commander, question: Question) -> Option<oneshot::Sender<()>> {
    match question {
        Question::State(to) => drop(to.send(commander.monitor())),
        Question::Snapshot(group, to) => drop(to.send(commander.snapshot(&group))),
        Question::Decisions(group, to) => drop(to.send(commander.decisions(&group))),
        Question::Rest(to) => {
            commander.rest();
            return Some(to);
        }
    }
    None
}

/// Starts the commander of `term`; it runs until `stop` is cancelled or both of its sources have ended. Its decisions
/// go to `sink`, if there is one.
pub fn start(
    term: Term,
    mut channel: mpsc::Receiver<ChannelEvent>,
    mut facts: mpsc::Receiver<Fact>,
    orders: watch::Sender<Arc<Orders>>,
    sink: Option<DecisionSink>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> CommanderHandle {
    let (questions, mut asked) = mpsc::channel(QUESTIONS);
    tokio::spawn(async move {
        let clock = Clock::start();
        let mut commander = Commander::new(term, Arc::clone(&metrics), clock.now()).saving(sink);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut resting: Vec<oneshot::Sender<()>> = Vec::new();
        loop {
            if commander.is_at_rest() {
                for to in resting.drain(..) {
                    let _ = to.send(());
                }
            }
            let beat = commander.beat_at().map(|at| at.saturating_sub(clock.now()));
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(question) = asked.recv() => {
                    resting.extend(answer(&mut commander, question));
                    continue;
                }
                Some(fact) = facts.recv() => Event::Fact(fact),
                Some(event) = channel.recv() => Event::Channel(event),
                _ = tick.tick() => Event::Tick,
                () = tokio::time::sleep(beat.unwrap_or_default()), if beat.is_some() => Event::Beat,
            };
            let arrived = clock.now();
            let is_report = is_report(&event);
            commander.handle(event, arrived);
            if let Some(wanted) = commander.take_orders() {
                orders.send_replace(wanted);
            }
            if is_report {
                metrics.decided(clock.now().saturating_sub(arrived).as_secs_f64());
            }
        }
    });
    CommanderHandle { questions }
}

fn is_report(event: &Event) -> bool {
    use crate::channel::proto::agent_message::Message;
    matches!(event, Event::Channel(ChannelEvent::Agent(_, message)) if matches!(message.message, Some(Message::Report(_))))
}
