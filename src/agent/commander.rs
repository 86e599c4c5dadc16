//! The agent's end of the channel: says Hello, takes orders, hands commands to the queues; it executes none itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{ClientId, Epoch, UserId};
use tokio_util::sync::CancellationToken;

use super::fence;
use super::shared::Shared;
use super::transfer::{self, Job, Order};
use crate::channel::PROTOCOL;
use crate::channel::link::{AgentPeer, Link, LinkEvent, dial};
use crate::channel::proto::{
    Ack, AgentCommand, AgentHello, AgentMessage, Deposited, StateReply, agent_command::Command, agent_message,
};

/// Between two links, so that a commander of a lower term is not dialled in a busy loop.
const REDIAL: Duration = Duration::from_millis(100);
/// A deposit's longest body.
pub(super) const MAX_DEPOSIT: usize = 1 << 20;

/// Keeps a link to whoever leads; a new one for each instance of the app, since each is another worker (D1).
pub(crate) async fn serve(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        // Hello names the app's instance, so it waits for it.
        let known = shared.wait_until(Duration::from_hours(1), |inner| inner.app.compared);
        tokio::select! {
            () = stop.cancelled() => return,
            known = known => if !known { continue },
        }
        let link_stop = stop.child_token();
        shared.lock().link_stop = link_stop.clone();
        let hello = Arc::clone(&shared);
        let link = dial(
            shared.config.link.clone(),
            AgentPeer(move || say_hello(&hello)),
            link_stop.clone(),
        );
        follow(&shared, link, &link_stop).await;
        shared.lock().uplink = None;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(REDIAL) => {}
        }
    }
}

async fn follow(shared: &Arc<Shared>, mut link: Link<AgentMessage, AgentCommand>, stop: &CancellationToken) {
    // 0: no Welcome on this stream yet, or one of a lower term.
    let mut stream = 0;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = link.events.recv() => event,
        };
        match event {
            None => return,
            Some(LinkEvent::Down) => {
                stream = 0;
                shared.lock().uplink = None;
            }
            Some(LinkEvent::Command(AgentCommand {
                command: Some(Command::Welcome(welcome)),
                ..
            })) => {
                let Some(number) = shared.welcomed(&welcome, &link.messages) else {
                    // This one will not lead us; the link dials whoever the Service names.
                    tracing::warn!(term = welcome.term, "a commander of a lower term is refused");
                    shared.counters.commands_refused.add();
                    stop.cancel();
                    return;
                };
                stream = number;
                tracing::info!(term = welcome.term, birth = welcome.birth, "welcomed");
                shared.report_now.notify_one();
                shared.offer_deposits();
            }
            Some(LinkEvent::Command(command)) if stream != 0 => take(shared, stream, command),
            Some(LinkEvent::Command(_)) => shared.counters.commands_refused.add(),
        }
    }
}

fn say_hello(shared: &Shared) -> AgentHello {
    let inner = shared.lock();
    AgentHello {
        protocol: PROTOCOL,
        capabilities: inner.app.capabilities.clone(),
        pod_uid: shared.config.pod_uid.clone(),
        incarnation: inner.incarnation.clone(),
        app_instance: inner.app.instance.clone().unwrap_or_default(),
        term_seen: inner.orders.term.0,
        users: fence::claims(&inner.fence),
        contract: inner.app.contract,
    }
}

/// What a command is about: a user, or the agent itself.
enum Taken {
    User(String, Order),
    Admission(bool),
    State,
    Deposited(Deposited),
    Unknown,
}

fn read(command: Option<Command>) -> Taken {
    let Some(command) = command else {
        return Taken::Unknown;
    };
    match command {
        Command::Assign(assign) => {
            let clients = assign
                .clients
                .iter()
                .filter_map(|client| ClientId::parse(client))
                .collect();
            let order = Order::Assign {
                epoch: Epoch(assign.epoch),
                ticket: assign.ticket,
                clients,
            };
            Taken::User(assign.user, order)
        }
        Command::Snapshot(order) => Taken::User(
            order.user,
            Order::Snapshot {
                mv: Epoch(order.r#move),
            },
        ),
        Command::Fetch(order) => Taken::User(order.user.clone(), Order::Fetch(order)),
        Command::Activate(order) => Taken::User(
            order.user,
            Order::Activate {
                mv: Epoch(order.r#move),
                join: order.join,
            },
        ),
        Command::Thaw(order) => {
            let (mv, epoch) = (Epoch(order.r#move), Epoch(order.epoch));
            Taken::User(
                order.user,
                Order::Thaw {
                    mv,
                    epoch,
                    ticket: order.ticket,
                },
            )
        }
        Command::Discard(order) => Taken::User(
            order.user,
            Order::Discard {
                mv: Epoch(order.r#move),
            },
        ),
        Command::Forget(order) => Taken::User(
            order.user,
            Order::Forget {
                mv: Epoch(order.r#move),
            },
        ),
        Command::Deposit(order) if order.body.len() <= MAX_DEPOSIT => Taken::User(
            order.user,
            Order::Deposit {
                body: Bytes::from(order.body),
                kind: order.content_type,
                sender: order.sender,
                sequence: order.sequence,
            },
        ),
        Command::Deposit(_) | Command::Welcome(_) | Command::NotLeader(_) => Taken::Unknown,
        Command::Admission(admission) => Taken::Admission(admission.open),
        Command::State(_) => Taken::State,
        Command::Deposited(deposited) => Taken::Deposited(deposited),
    }
}

fn take(shared: &Arc<Shared>, stream: u64, command: AgentCommand) {
    let id = command.id;
    match read(command.command) {
        Taken::User(user, order) => match UserId::new(&user) {
            Ok(user) => transfer::enqueue(shared, user, Job { stream, id, order }),
            Err(error) => {
                tracing::warn!(%error, "a command names no user");
                shared.counters.commands_refused.add();
            }
        },
        Taken::Admission(open) => {
            admission(shared, open);
            if id != 0 {
                shared.tell_stream(stream, agent_message::Message::Ack(Ack { id, package: None }));
            }
        }
        Taken::State => {
            tokio::spawn(tell_state(Arc::clone(shared), stream, id));
        }
        Taken::Deposited(deposited) => shared.outbox.lock().answered(&deposited),
        Taken::Unknown => shared.counters.unknown_commands.add(),
    }
}

fn admission(shared: &Shared, open: bool) {
    let now = shared.now();
    {
        let mut inner = shared.lock();
        inner.admissions += 1;
        inner.closed_since = if open {
            None
        } else {
            inner.closed_since.or(Some(now))
        };
        // L7: empty is what a list says that was asked for after the closing.
        inner.ask_list |= !open;
    }
    shared.changed.notify_waiters();
    shared.ask_app.notify_one();
}

async fn tell_state(shared: Arc<Shared>, stream: u64, id: u64) {
    let json = match shared.contract.state().await {
        Ok(state) => state,
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    shared.tell_stream(
        stream,
        agent_message::Message::State(StateReply {
            id,
            json: json.to_string(),
        }),
    );
}
