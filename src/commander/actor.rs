//! The task that owns the commander: events in, orders and monitor state out, the clock read once per event.

use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Term;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::view::MonitorState;
use super::{Commander, Event};
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
    questions: mpsc::Sender<oneshot::Sender<MonitorState>>,
}

impl CommanderHandle {
    /// The monitor's state; `None` when the commander has stopped.
    pub async fn state(&self) -> Option<MonitorState> {
        let (answer, state) = oneshot::channel();
        self.questions.send(answer).await.ok()?;
        state.await.ok()
    }
}

/// Starts the commander of `term`; it runs until `stop` is cancelled or both of its sources have ended.
pub fn start(
    term: Term,
    mut channel: mpsc::Receiver<ChannelEvent>,
    mut facts: mpsc::Receiver<Fact>,
    orders: watch::Sender<Arc<Orders>>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> CommanderHandle {
    let (questions, mut asked) = mpsc::channel::<oneshot::Sender<MonitorState>>(QUESTIONS);
    tokio::spawn(async move {
        let clock = Clock::start();
        let mut commander = Commander::new(term, Arc::clone(&metrics), clock.now());
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(answer) = asked.recv() => {
                    let _ = answer.send(commander.monitor());
                    continue;
                }
                Some(fact) = facts.recv() => Event::Fact(fact),
                Some(event) = channel.recv() => Event::Channel(event),
                _ = tick.tick() => Event::Tick,
            };
            let arrived = clock.now();
            let is_report = is_report(&event);
            commander.handle(event, arrived);
            if let Some(wanted) = commander.take_orders() {
                orders.send_if_modified(|present| {
                    let changed = **present != wanted;
                    if changed {
                        *present = Arc::new(wanted);
                    }
                    changed
                });
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
