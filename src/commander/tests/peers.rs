//! Scripted agents and gateways: they answer what they are told, unless told not to.

use tokio::sync::mpsc;

use super::world::World;
use crate::channel::proto::{
    Ack, AgentCommand, AgentMessage, GatewayCommand, GatewayMessage, Held, Nack, Package, agent_command,
    agent_message, gateway_command, gateway_message, nack,
};
use crate::channel::server::{ChannelEvent, ConnectionId};
use crate::commander::Event;

/// A scripted agent: acknowledges what it is told, unless told not to.
pub(super) struct FakeAgent {
    pub(super) connection: ConnectionId,
    pub(super) commands: mpsc::Receiver<AgentCommand>,
    pub(super) sequence: u64,
    pub(super) told: Vec<agent_command::Command>,
    /// What it does not answer.
    pub(super) ignores: fn(&agent_command::Command) -> bool,
    pub(super) nack_snapshots: bool,
    /// Size of the packages that it hands out.
    pub(super) package_bytes: u64,
    /// Its users have left, and it has no records of them.
    pub(super) knows_nobody: bool,
    pub(super) closed: bool,
}

pub(super) struct FakeGateway {
    pub(super) connection: ConnectionId,
    pub(super) commands: mpsc::Receiver<GatewayCommand>,
    pub(super) told: Vec<gateway_command::Command>,
}

impl World {
    /// Lets agents and gateways answer until nobody says anything more.
    pub(super) fn answer(&mut self) {
        loop {
            let mut said = Vec::new();
            for agent in self.agents.values_mut() {
                while let Ok(AgentCommand {
                    id,
                    command: Some(command),
                }) = agent.commands.try_recv()
                {
                    if let agent_command::Command::Admission(admission) = &command {
                        agent.closed = !admission.open;
                    }
                    let snapshot = matches!(command, agent_command::Command::Snapshot(_));
                    let ignored = (agent.ignores)(&command);
                    agent.told.push(command);
                    if id == 0 || ignored {
                        continue;
                    }
                    let of_user =
                        snapshot || matches!(agent.told.last(), Some(agent_command::Command::Thaw(_)));
                    let refusal = if of_user && agent.knows_nobody {
                        Some(nack::Reason::NotHere)
                    } else {
                        (snapshot && agent.nack_snapshots).then_some(nack::Reason::Busy)
                    };
                    let message = if let Some(reason) = refusal {
                        agent_message::Message::Nack(Nack {
                            id,
                            reason: reason.into(),
                            message: String::new(),
                        })
                    } else {
                        let package = snapshot.then(|| Package {
                            bytes: agent.package_bytes,
                            ..Package::default()
                        });
                        agent_message::Message::Ack(Ack { id, package })
                    };
                    let message = Box::new(AgentMessage {
                        message: Some(message),
                    });
                    said.push(Event::Channel(ChannelEvent::Agent(agent.connection, message)));
                }
            }
            for gateway in &mut self.gateways {
                while let Ok(GatewayCommand {
                    command: Some(command),
                }) = gateway.commands.try_recv()
                {
                    if let gateway_command::Command::Hold(hold) = &command {
                        let held = gateway_message::Message::Held(Held { r#move: hold.r#move });
                        let message = Box::new(GatewayMessage { message: Some(held) });
                        said.push(Event::Channel(ChannelEvent::Gateway(gateway.connection, message)));
                    }
                    gateway.told.push(command);
                }
            }
            if said.is_empty() {
                return;
            }
            for event in said {
                self.commander.handle(event, self.now);
            }
        }
    }
}
