//! A commander that does what a test says: records what gateways send, and sends what the test wants.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::channel::link::{LinkConfig, Token};
use elastic_pool::channel::proto::channel_server::{Channel, ChannelServer};
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::gateway_message::Message;
use elastic_pool::channel::proto::{
    AgentCommand, AgentMessage, GatewayCommand, GatewayMessage, GatewayWelcome, Group, Ownership, Table,
    Worker,
};
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Longest wait for anything in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Answered = Result<GatewayCommand, Status>;

struct Shared {
    /// Per connection, in order: what was sent to it, and how to send to it.
    messages: Mutex<Vec<Message>>,
    arrived: watch::Sender<usize>,
    streams: Mutex<Vec<mpsc::Sender<Answered>>>,
    greeting: Mutex<Vec<Command>>,
}

#[derive(Clone)]
pub(crate) struct Commander {
    shared: Arc<Shared>,
    pub(crate) address: String,
    stop: CancellationToken,
}

struct Service(Arc<Shared>, CancellationToken);

#[tonic::async_trait]
impl Channel for Service {
    type AgentStream = Pin<Box<dyn Stream<Item = Result<AgentCommand, Status>> + Send>>;
    type GatewayStream = ReceiverStream<Answered>;

    async fn agent(
        &self,
        _: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AgentStream>, Status> {
        Err(Status::unimplemented("gateways only"))
    }

    async fn gateway(
        &self,
        request: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::GatewayStream>, Status> {
        let mut incoming = request.into_inner();
        let (commands, outgoing) = mpsc::channel(64);
        let (shared, stop) = (Arc::clone(&self.0), self.1.clone());
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    () = stop.cancelled() => return,
                    next = incoming.next() => next,
                };
                let Some(Ok(GatewayMessage {
                    message: Some(message),
                })) = next
                else {
                    return;
                };
                if matches!(message, Message::Hello(_)) {
                    let greeting = shared.greeting.lock().clone();
                    for command in greeting {
                        let _ = commands
                            .send(Ok(GatewayCommand {
                                command: Some(command),
                            }))
                            .await;
                    }
                    shared.streams.lock().push(commands.clone());
                }
                shared.messages.lock().push(message);
                shared.arrived.send_modify(|count| *count += 1);
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

pub(crate) fn welcome(place_timeout_ms: u64, hold_timeout_ms: u64) -> Command {
    Command::Welcome(GatewayWelcome {
        term: 1,
        place_timeout_ms,
        hold_timeout_ms,
    })
}

pub(crate) fn group(reception: u64) -> Group {
    Group {
        name: "blue".to_owned(),
        reception,
        default_group: true,
        ..Group::default()
    }
}

pub(crate) fn worker(birth: u64, address: &str) -> Worker {
    Worker {
        birth,
        pod_uid: format!("uid-{birth}"),
        name: format!("blue-{birth}"),
        group: "blue".to_owned(),
        address: address.to_owned(),
        routable: true,
        admits: true,
        generation: 1,
    }
}

pub(crate) fn full(version: u64, reception: u64, workers: Vec<Worker>, users: Vec<Ownership>) -> Command {
    let groups = vec![group(reception)];
    Command::Table(Table {
        version,
        full: true,
        live: true,
        groups,
        workers,
        dead: Vec::new(),
        users,
    })
}

pub(crate) fn delta(version: u64, users: Vec<Ownership>) -> Command {
    Command::Table(Table {
        version,
        live: true,
        users,
        ..Table::default()
    })
}

pub(crate) fn owned(user: &str, birth: u64, epoch: u64, clients: &[&str]) -> Ownership {
    Ownership {
        user: user.to_owned(),
        birth,
        epoch,
        ticket: format!("{epoch:064x}"),
        clients: clients.iter().map(|client| (*client).to_owned()).collect(),
    }
}

impl Commander {
    /// A commander that greets each gateway with these commands.
    pub(crate) async fn start(greeting: Vec<Command>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            messages: Mutex::default(),
            arrived: watch::Sender::new(0),
            streams: Mutex::default(),
            greeting: Mutex::new(greeting),
        });
        let stop = CancellationToken::new();
        let server = tonic::transport::Server::builder()
            .add_service(ChannelServer::new(Service(Arc::clone(&shared), stop.clone())))
            .serve_with_incoming_shutdown(
                tonic::transport::server::TcpIncoming::from(listener),
                stop.clone().cancelled_owned(),
            );
        tokio::spawn(server);
        Self {
            shared,
            address,
            stop,
        }
    }

    pub(crate) fn link(&self) -> LinkConfig {
        LinkConfig {
            address: self.address.clone(),
            token: Token::Fixed("t".to_owned()),
        }
    }

    /// Sends to every gateway that said Hello.
    pub(crate) async fn send(&self, command: Command) {
        let streams = self.shared.streams.lock().clone();
        for stream in streams {
            let _ = stream
                .send(Ok(GatewayCommand {
                    command: Some(command.clone()),
                }))
                .await;
        }
    }

    /// Sends to the gateway that said Hello as the n-th.
    pub(crate) async fn send_to(&self, index: usize, command: Command) {
        let stream = self.shared.streams.lock()[index].clone();
        stream
            .send(Ok(GatewayCommand {
                command: Some(command),
            }))
            .await
            .unwrap();
    }

    /// Waits for the first message, not waited for before, that `wanted` accepts.
    pub(crate) async fn receive<T>(&self, mut wanted: impl FnMut(&Message) -> Option<T>) -> T {
        let mut arrived = self.shared.arrived.subscribe();
        let wait = async {
            loop {
                arrived.borrow_and_update();
                {
                    let mut messages = self.shared.messages.lock();
                    let found = messages
                        .iter()
                        .enumerate()
                        .find_map(|(at, m)| wanted(m).map(|found| (at, found)));
                    if let Some((at, found)) = found {
                        messages.remove(at);
                        return found;
                    }
                }
                arrived.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("the gateway did not send it in time")
    }

    /// How many messages, not waited for yet, `wanted` accepts.
    pub(crate) fn count(&self, wanted: impl Fn(&Message) -> bool) -> usize {
        self.shared
            .messages
            .lock()
            .iter()
            .filter(|message| wanted(message))
            .count()
    }

    /// Breaks all streams and is gone.
    pub(crate) fn die(&self) {
        self.stop.cancel();
        self.shared.streams.lock().clear();
    }
}
