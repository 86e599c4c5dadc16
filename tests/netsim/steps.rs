//! Reads what passes on the simulated wires: commands and answers on the channel, epochs of forwards. It changes nothing
//! but packages, when that is the fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastic_pool::channel::proto::{
    AgentCommand, AgentMessage, GatewayCommand, GatewayMessage, agent_command, agent_message,
    gateway_command, gateway_message,
};
use elastic_pool::net::sim::{Observer, Process, Segment};
use prost::Message as _;

use crate::history::Event;
use crate::world::{AGENT_PEER, AGENT_PORT, CHANNEL_PORT, Role, Shared};

/// One message on the channel.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) from: Process,
    pub(crate) to: Option<Process>,
    pub(crate) conn: u64,
}

#[derive(Default)]
struct Flow {
    preface: usize,
    frames: Vec<u8>,
    messages: Vec<u8>,
}

/// Watches all wires of a world.
pub(crate) fn observer(shared: Arc<Shared>) -> Observer {
    let mut flows: BTreeMap<(u64, bool), Flow> = BTreeMap::new();
    Box::new(move |segment| match segment.server.port() {
        CHANNEL_PORT => {
            let flow = flows
                .entry((segment.conn, segment.to_server))
                .or_insert_with(|| Flow {
                    preface: if segment.to_server { 24 } else { 0 },
                    ..Flow::default()
                });
            channel(&shared, flow, &segment);
        }
        AGENT_PORT if segment.to_server => forward(&shared, segment.bytes),
        AGENT_PEER if !segment.to_server => package(&shared, segment.bytes),
        _ => {}
    })
}

fn channel(shared: &Shared, flow: &mut Flow, segment: &Segment<'_>) {
    let mut bytes = segment.bytes.as_slice();
    let skipped = flow.preface.min(bytes.len());
    flow.preface -= skipped;
    bytes = &bytes[skipped..];
    flow.frames.extend_from_slice(bytes);
    while flow.frames.len() >= 9 {
        let length = usize::from(flow.frames[0]) << 16
            | usize::from(flow.frames[1]) << 8
            | usize::from(flow.frames[2]);
        if flow.frames.len() < 9 + length {
            break;
        }
        let frame: Vec<u8> = flow.frames.drain(..9 + length).collect();
        if frame[3] == 0 {
            flow.messages.extend_from_slice(&frame[9..]);
        }
    }
    while flow.messages.len() >= 5 {
        let length = u32::from_be_bytes([
            flow.messages[1],
            flow.messages[2],
            flow.messages[3],
            flow.messages[4],
        ]) as usize;
        if flow.messages.len() < 5 + length {
            break;
        }
        let message: Vec<u8> = flow.messages.drain(..5 + length).skip(5).collect();
        let peer = if segment.to_server {
            Some(segment.from)
        } else {
            segment.to
        };
        let role = peer.and_then(|peer| shared.role(peer));
        let Some((name, about)) = name(role.as_ref(), segment.to_server, &message) else {
            continue;
        };
        if !matches!(name, "Report" | "Totals") {
            let who = role.map_or_else(String::new, |role| role.to_string());
            shared.note(Event::Said {
                what: format!("{who} {name} {about}"),
            });
        }
        shared.step(&Step {
            name,
            from: segment.from,
            to: segment.to,
            conn: segment.conn,
        });
    }
}

fn name(role: Option<&Role>, to_server: bool, bytes: &[u8]) -> Option<(&'static str, String)> {
    match (role?, to_server) {
        (Role::Agent(_), true) => agent_message(AgentMessage::decode(bytes).ok()?.message?),
        (Role::Agent(_), false) => agent_command(AgentCommand::decode(bytes).ok()?.command?),
        (Role::Gateway(_), true) => gateway_message(GatewayMessage::decode(bytes).ok()?.message?),
        (Role::Gateway(_), false) => gateway_command(GatewayCommand::decode(bytes).ok()?.command?),
        _ => None,
    }
}

fn agent_message(message: agent_message::Message) -> Option<(&'static str, String)> {
    use agent_message::Message;
    Some(match message {
        Message::Hello(hello) => {
            let users: Vec<String> = hello
                .users
                .iter()
                .map(|claim| {
                    format!(
                        "{} {:?} {} {}",
                        claim.user,
                        claim.state(),
                        claim.epoch,
                        claim.r#move
                    )
                })
                .collect();
            ("AgentHello", users.join(", "))
        }
        Message::Report(_) => ("Report", String::new()),
        Message::Ack(ack) => ("Ack", ack.id.to_string()),
        Message::Nack(nack) => (
            "Nack",
            format!("{} {:?} {}", nack.id, nack.reason(), nack.message),
        ),
        Message::UserBorn(born) => ("UserBorn", born.user),
        Message::UserGone(gone) => ("UserGone", format!("{} {}", gone.user, gone.epoch)),
        Message::Resolve(open) => ("Resolve", format!("{} {}", open.user, open.r#move)),
        _ => return None,
    })
}

fn agent_command(command: agent_command::Command) -> Option<(&'static str, String)> {
    use agent_command::Command;
    let of = |user: String, mv: u64| format!("{user} {mv}");
    Some(match command {
        Command::Welcome(welcome) => ("AgentWelcome", format!("{} {}", welcome.term, welcome.birth)),
        Command::Assign(assign) => ("Assign", of(assign.user, assign.epoch)),
        Command::Snapshot(order) => ("Snapshot", of(order.user, order.r#move)),
        Command::Fetch(order) => ("Fetch", of(order.user, order.r#move)),
        Command::Activate(order) => ("Activate", of(order.user, order.r#move)),
        Command::Thaw(order) => (
            "Thaw",
            format!("{} {} under {}", order.user, order.r#move, order.epoch),
        ),
        Command::Discard(order) => ("Discard", of(order.user, order.r#move)),
        Command::Forget(order) => ("Forget", of(order.user, order.r#move)),
        Command::Admission(admission) => ("Admission", admission.open.to_string()),
        _ => return None,
    })
}

fn gateway_message(message: gateway_message::Message) -> Option<(&'static str, String)> {
    use gateway_message::Message;
    Some(match message {
        Message::Hello(hello) => {
            let users: Vec<String> = hello
                .users
                .iter()
                .map(|user| format!("{} {} {}", user.user, user.birth, user.epoch))
                .collect();
            ("GatewayHello", users.join(", "))
        }
        Message::Place(place) => ("Place", format!("{} at {}", place.user, place.birth)),
        Message::LookUp(asked) => ("LookUp", format!("{} {}", asked.user, asked.epoch)),
        Message::Held(held) => ("Held", held.r#move.to_string()),
        Message::Quiet(quiet) => ("Quiet", quiet.user),
        Message::Totals(_) => ("Totals", String::new()),
    })
}

fn gateway_command(command: gateway_command::Command) -> Option<(&'static str, String)> {
    use gateway_command::Command;
    let owner = |user: Option<elastic_pool::channel::proto::Ownership>| {
        user.map_or_else(String::new, |user| {
            format!("{} {} {}", user.user, user.birth, user.epoch)
        })
    };
    Some(match command {
        Command::Welcome(welcome) => ("GatewayWelcome", welcome.term.to_string()),
        Command::Table(table) => {
            let users: Vec<String> = table.users.into_iter().map(|user| owner(Some(user))).collect();
            (
                "Table",
                format!("live {} full {}: {}", table.live, table.full, users.join(", ")),
            )
        }
        Command::Hold(hold) => ("Hold", format!("{} {} {}", hold.user, hold.r#move, hold.client)),
        Command::Route(route) => ("Route", owner(route.user)),
        Command::Cancel(cancel) => ("Cancel", owner(cancel.user)),
        Command::Placed(placed) => ("Placed", owner(placed.user)),
        Command::Found(found) => ("Found", format!("{:?} {}", found.verdict(), owner(found.user))),
        Command::NotLeader(_) => return None,
    })
}

/// Which request goes to the app under which epoch.
fn forward(shared: &Shared, bytes: &[u8]) {
    let value = |name: &str| {
        let text = std::str::from_utf8(bytes).ok()?;
        let line = text.lines().find(|line| {
            line.get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
        })?;
        line.get(name.len()..)?.trim().parse::<u64>().ok()
    };
    if let (Some(request), Some(epoch)) = (value("x-sim-id:"), value("pool-epoch:")) {
        shared.note(Event::Forwarded { request, epoch });
    }
}

/// A package on its way to its target: its last digit becomes another, when that is the fault.
fn package(shared: &Shared, bytes: &mut [u8]) {
    let is_package = bytes.windows(7).any(|part| part.eq_ignore_ascii_case(b"count/1"));
    if is_package
        && let Some(last) = bytes.last_mut().filter(|last| last.is_ascii_digit())
        && shared.take_corruption()
    {
        *last = if *last == b'9' { b'0' } else { *last + 1 };
        shared.note(Event::Fault {
            what: "a package is altered".into(),
        });
    }
}
