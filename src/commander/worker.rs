//! What the commander holds of one worker; it judges nothing.

use std::time::Duration;

use elastic_pool_engine::Share;
use elastic_pool_engine::backoff::Backoff;
use elastic_pool_engine::forward::ForwardSum;
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::ledger::Transit;
use elastic_pool_engine::occupancy::Reading;
use elastic_pool_engine::window::Window;
use tokio::sync::mpsc;

use crate::channel::proto::{AgentCommand, agent_command};
use crate::channel::server::ConnectionId;
use crate::vehicle::{ObjectKey, WorkerFact};

/// A connected agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) connection: ConnectionId,
    pub(super) commands: mpsc::Sender<AgentCommand>,
    /// As announced; a report of another one is dropped (M3).
    pub(super) incarnation: String,
    /// The app can hand users out.
    pub(super) snapshot: bool,
}

/// One worker, from its spawn to the end of its pod.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one worker")]
pub(super) struct Worker {
    pub(super) birth: Birth,
    /// The birth number on its pod; another one than its own once its app restarted (D1).
    pub(super) label: Birth,
    pub(super) group: ObjectKey,
    /// `None` until the vehicle made it.
    pub(super) fact: Option<WorkerFact>,
    pub(super) agent: Option<Agent>,
    /// Its agent has announced in this term.
    pub(super) announced: bool,
    /// The app process that announced last; another one is another worker's memory (D1).
    pub(super) instance: String,
    pub(super) window: Window,
    pub(super) reading: Reading,
    /// Rows since it became routable in this term (G1, E5).
    pub(super) rows: usize,
    pub(super) routable_since: Option<Duration>,
    /// Load moved here that the smoothed reading does not show yet (C4).
    pub(super) transit: Vec<Transit>,
    pub(super) forwards: ForwardSum,
    /// When anything of it was last heard (D1).
    pub(super) heard: Duration,
    /// L7: said empty after its admission was closed.
    pub(super) empty: bool,
    pub(super) terminating: bool,
    /// Its time to empty runs since it was told to stop (D2).
    pub(super) going: bool,
    pub(super) open_requests: u64,
    pub(super) unconfirmed: u64,
    pub(super) open_streams: u64,
    /// When a gateway told of a request to it, or else since it is known; counts where its agent says nothing of guests.
    pub(super) asked_last: Duration,
    /// What its drain was told to wait for.
    pub(super) told_waits: std::collections::BTreeSet<&'static str>,
    /// C7: how often it could not be emptied.
    pub(super) failed_drains: u32,
    /// Swept: nobody lives there any more and nobody ever will (D1).
    pub(super) dead: bool,
    /// When this term asked for it; `None` for an adopted one.
    pub(super) asked_at: Option<Duration>,
    /// Its preStop waits though nobody deleted its pod, as far as is known.
    pub(super) stop_asked: Option<Duration>,
    /// It was said once why it does not come up (G4).
    pub(super) hindered: bool,
    /// Somebody has lived there.
    pub(super) inhabited: bool,
    /// Readings refused by M2 in its last report.
    pub(super) rejected: Vec<&'static str>,
    /// What its agent said last, and when: for how long no guest has asked it for anything.
    pub(super) guests_idle: Option<(Duration, Duration)>,
    /// It was the reception when its replacement began: it may have guests.
    pub(super) took_guests: bool,
}

impl Worker {
    pub(super) fn new(birth: Birth, group: ObjectKey, window_rows: usize, now: Duration) -> Self {
        Self {
            birth,
            label: birth,
            group,
            fact: None,
            agent: None,
            announced: false,
            instance: String::new(),
            window: Window::new(window_rows, ""),
            reading: Reading::default(),
            rows: 0,
            routable_since: None,
            transit: Vec::new(),
            forwards: ForwardSum::default(),
            heard: now,
            empty: false,
            terminating: false,
            going: false,
            open_requests: 0,
            unconfirmed: 0,
            open_streams: 0,
            asked_last: now,
            told_waits: std::collections::BTreeSet::new(),
            failed_drains: 0,
            dead: false,
            asked_at: None,
            stop_asked: None,
            hindered: false,
            inhabited: false,
            rejected: Vec::new(),
            guests_idle: None,
            took_guests: false,
        }
    }

    /// Name of its pod; its birth number before there is one.
    pub(super) fn name(&self) -> String {
        self.fact
            .as_ref()
            .map_or_else(|| format!("spawn-{}", self.birth), |fact| fact.name.clone())
    }

    pub(super) fn pod_uid(&self) -> &str {
        self.fact.as_ref().map_or("", |fact| &fact.pod_uid)
    }

    /// Its agent can be told something now.
    pub(super) fn is_connected(&self) -> bool {
        self.agent.is_some()
    }

    /// Tells its agent; false when it is not connected or does not take what it is told.
    pub(super) fn tell(&self, id: u64, command: agent_command::Command) -> bool {
        self.agent.as_ref().is_some_and(|agent| {
            agent
                .commands
                .try_send(AgentCommand {
                    id,
                    command: Some(command),
                })
                .is_ok()
        })
    }

    /// What its smoothed reading lacks of the load moved here (C4).
    pub(super) fn transit_left(&self, smoothing_rows: usize) -> Share {
        self.transit
            .iter()
            .map(|moved| moved.remaining(smoothing_rows))
            .sum()
    }

    /// The pause before it is a victim again (C7).
    pub(super) fn pause_after_failed_drain(&mut self, now: Duration) -> Duration {
        self.failed_drains = self.failed_drains.saturating_add(1);
        now + Backoff::MOVE.pause(self.failed_drains)
    }
}
