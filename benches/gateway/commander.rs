//! A commander that tells each gateway and each agent what was written down for it, and listens to nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use elastic_pool::channel::proto::channel_server::{Channel, ChannelServer};
use elastic_pool::channel::proto::{
    AgentCommand, AgentMessage, AgentWelcome, GatewayCommand, GatewayMessage, GatewayWelcome, Group,
    Ownership, Table, Worker, agent_command, agent_message, gateway_command, gateway_message,
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

type ToGateway = Result<GatewayCommand, Status>;
type ToAgent = Result<AgentCommand, Status>;

#[derive(Default)]
struct Script {
    tables: HashMap<String, Table>,
    welcomes: HashMap<String, AgentWelcome>,
    gateways: HashMap<String, mpsc::Sender<ToGateway>>,
    /// Kept, so that the streams stay up.
    agents: Vec<mpsc::Sender<ToAgent>>,
}

/// The commander's script.
#[derive(Clone)]
pub(crate) struct Commander {
    script: Arc<Mutex<Script>>,
    pub(crate) address: SocketAddr,
}

struct Service(Arc<Mutex<Script>>);

#[tonic::async_trait]
impl Channel for Service {
    type AgentStream = ReceiverStream<ToAgent>;
    type GatewayStream = ReceiverStream<ToGateway>;

    async fn agent(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AgentStream>, Status> {
        let mut incoming = request.into_inner();
        let (commands, outgoing) = mpsc::channel(16);
        let script = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                let Some(agent_message::Message::Hello(hello)) = message.message else {
                    continue;
                };
                let mut script = script.lock();
                if let Some(welcome) = script.welcomes.get(&hello.pod_uid).cloned() {
                    let command = Some(agent_command::Command::Welcome(welcome));
                    let _ = commands.try_send(Ok(AgentCommand { id: 0, command }));
                    script.agents.push(commands.clone());
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn gateway(
        &self,
        request: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::GatewayStream>, Status> {
        let mut incoming = request.into_inner();
        let (commands, outgoing) = mpsc::channel(16);
        let script = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                let Some(gateway_message::Message::Hello(hello)) = message.message else {
                    continue;
                };
                let mut script = script.lock();
                let welcome = GatewayWelcome {
                    term: 1,
                    place_timeout_ms: 2000,
                    hold_timeout_ms: 5000,
                };
                let _ = commands.try_send(gateway_command(gateway_command::Command::Welcome(welcome)));
                if let Some(table) = script.tables.get(&hello.pod_uid).cloned() {
                    let _ = commands.try_send(gateway_command(gateway_command::Command::Table(table)));
                }
                script.gateways.insert(hello.pod_uid, commands.clone());
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the stream's items are results")]
fn gateway_command(command: gateway_command::Command) -> ToGateway {
    Ok(GatewayCommand {
        command: Some(command),
    })
}

/// A whole table with one worker, who owns all `users`.
pub(crate) fn table(pod_uid: &str, address: SocketAddr, users: Vec<Ownership>) -> Table {
    let group = Group {
        name: "blue".to_owned(),
        reception: 1,
        default_group: true,
        ..Group::default()
    };
    let worker = Worker {
        birth: 1,
        pod_uid: pod_uid.to_owned(),
        name: "blue-1".to_owned(),
        group: "blue".to_owned(),
        address: address.to_string(),
        routable: true,
        admits: true,
        generation: 1,
    };
    Table {
        version: 1 << 20,
        full: true,
        live: true,
        groups: vec![group],
        workers: vec![worker],
        dead: Vec::new(),
        users,
    }
}

impl Commander {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("listen as the commander")?;
        let address = listener.local_addr().context("read the commander's address")?;
        let script = Arc::new(Mutex::new(Script::default()));
        let server = tonic::transport::Server::builder()
            .add_service(ChannelServer::new(Service(Arc::clone(&script))))
            .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
        tokio::spawn(server);
        Ok(Self { script, address })
    }

    /// What the gateway of this pod gets after its Hello.
    pub(crate) fn write_table(&self, gateway: &str, table: Table) {
        self.script.lock().tables.insert(gateway.to_owned(), table);
    }

    /// What the agent of this pod gets after its Hello.
    pub(crate) fn write_welcome(&self, agent: &str, welcome: AgentWelcome) {
        self.script.lock().welcomes.insert(agent.to_owned(), welcome);
    }

    /// Adds users to a gateway's table.
    pub(crate) async fn add_users(&self, gateway: &str, users: Vec<Ownership>) -> anyhow::Result<()> {
        let commands = self.script.lock().gateways.get(gateway).cloned();
        let change = Table {
            version: 1 << 20,
            live: true,
            users,
            ..Table::default()
        };
        let command = gateway_command(gateway_command::Command::Table(change));
        let commands = commands.context("the gateway has not said Hello")?;
        commands.send(command).await.context("the gateway's stream ended")
    }
}
