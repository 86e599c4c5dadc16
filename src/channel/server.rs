//! The listening end: authenticates peers and turns their streams into events for the commander; it decides nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastic_pool_engine::ids::Term;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::proto::channel_server::{Channel, ChannelServer};
use super::proto::{
    AgentCommand, AgentHello, AgentMessage, GatewayCommand, GatewayHello, GatewayMessage, NotLeader,
    agent_command, agent_message, gateway_command, gateway_message,
};
use super::{LARGEST_MESSAGE, LeaderState, PROTOCOL};
use crate::net::{self, TcpListener};

const KEEPALIVE: Duration = Duration::from_secs(2);
/// A peer that opens a stream says Hello within this.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Commands that may wait for one peer; a peer that lets more pile up is cut and dials anew.
const QUEUE: usize = 4096;

/// Who a peer is, by its token and not by its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod_name: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Service account it runs under.
    pub service_account: String,
}

/// Why a token was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// Not a token of ours, or expired.
    #[error("token refused")]
    Refused,
    /// Nobody could say.
    #[error("token could not be reviewed: {0}")]
    Unavailable(String),
}

/// Says who shows a token.
pub trait Authenticator: Send + Sync + 'static {
    /// Checks the token for our audience.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>>;
}

/// One stream, numbered by the listening end; never reused within a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens on the channel, in the order of each stream.
#[derive(Debug)]
pub enum ChannelEvent {
    /// An agent said Hello; its commands go into `commands`.
    AgentUp {
        /// Its stream.
        connection: ConnectionId,
        /// Who it is.
        identity: PeerIdentity,
        /// What it said.
        hello: Box<AgentHello>,
        /// Where its commands go; bounded, only `try_send` is used.
        commands: mpsc::Sender<AgentCommand>,
    },
    /// An agent spoke.
    Agent(ConnectionId, Box<AgentMessage>),
    /// A gateway said Hello.
    GatewayUp {
        /// Its stream.
        connection: ConnectionId,
        /// Who it is.
        identity: PeerIdentity,
        /// What it said.
        hello: Box<GatewayHello>,
        /// Where its commands go.
        commands: mpsc::Sender<GatewayCommand>,
    },
    /// A gateway spoke.
    Gateway(ConnectionId, Box<GatewayMessage>),
    /// A stream of either kind ended.
    Down(ConnectionId),
}

/// The Channel service of one operator.
#[derive(Clone)]
pub struct Server {
    authenticator: Arc<dyn Authenticator>,
    leader: watch::Receiver<LeaderState>,
    events: mpsc::Sender<ChannelEvent>,
    next_connection: Arc<AtomicU64>,
    higher_term: Arc<dyn Fn(Term) + Send + Sync>,
    refused: Arc<dyn Fn(&'static str) + Send + Sync>,
}

type Commands<C> = Pin<Box<dyn Stream<Item = Result<C, Status>> + Send>>;

impl Server {
    /// A service whose events go to `events`.
    pub fn new(
        authenticator: Arc<dyn Authenticator>,
        leader: watch::Receiver<LeaderState>,
        events: mpsc::Sender<ChannelEvent>,
    ) -> Self {
        Self {
            authenticator,
            leader,
            events,
            next_connection: Arc::new(AtomicU64::new(1)),
            higher_term: Arc::new(|_| {}),
            refused: Arc::new(|_| {}),
        }
    }

    /// Calls `raise` when a peer was welcomed in a term above this leader's: its Lease was tampered with.
    #[must_use]
    pub fn on_higher_term(mut self, raise: impl Fn(Term) + Send + Sync + 'static) -> Self {
        self.higher_term = Arc::new(raise);
        self
    }

    /// Calls `count` with the reason whenever a peer is not let onto the channel.
    #[must_use]
    pub fn on_refused(mut self, count: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        self.refused = Arc::new(count);
        self
    }

    fn check_hello(&self, identity: &PeerIdentity, protocol: u32, pod_uid: &str) -> Result<(), Status> {
        check_hello(identity, protocol, pod_uid).inspect_err(|status| {
            (self.refused)(match status.code() {
                Code::PermissionDenied => "other_pod",
                _ => "protocol",
            });
        })
    }

    /// A peer that knows a higher term is not served in this one.
    fn check_term(&self, seen: u64) -> Result<(), Status> {
        let present = match *self.leader.borrow() {
            LeaderState::Leading { term } | LeaderState::Following { term, .. } => term,
        };
        if seen <= present.0 {
            return Ok(());
        }
        (self.higher_term)(Term(seen));
        Err(Status::failed_precondition(format!(
            "term {seen} is above this leader's {present}: it starts anew"
        )))
    }

    /// Serves until `stop` is cancelled.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<(), tonic::transport::Error> {
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(ChannelServer::new(self).max_decoding_message_size(LARGEST_MESSAGE))
            .serve_with_incoming_shutdown(net::incoming(listener), stop.cancelled_owned())
            .await
    }

    async fn identify<T>(&self, request: &Request<T>) -> Result<PeerIdentity, Status> {
        let token = request
            .metadata()
            .get("authorization")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .ok_or_else(|| {
                (self.refused)("no_token");
                Status::unauthenticated("no bearer token")
            })?;
        self.authenticator
            .authenticate(token)
            .await
            .map_err(|error| match error {
                AuthError::Refused => {
                    (self.refused)("token");
                    Status::unauthenticated("token refused")
                }
                AuthError::Unavailable(why) => {
                    (self.refused)("unreviewed");
                    Status::unavailable(why)
                }
            })
    }

    /// The leader's address when this operator does not lead.
    fn elsewhere(&self) -> Option<NotLeader> {
        match &*self.leader.borrow() {
            LeaderState::Leading { .. } => None,
            LeaderState::Following { address, term } => Some(NotLeader {
                address: address.clone(),
                term: term.0,
            }),
        }
    }

    fn connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// The start of a stream: who speaks is checked, its Hello is told, and its messages follow.
    async fn open<P: Peer>(
        &self,
        request: Request<Streaming<P>>,
    ) -> Result<Response<Commands<P::Command>>, Status> {
        if let Some(other) = self.elsewhere() {
            return Ok(once(P::not_leader(other)));
        }
        let identity = self.identify(&request).await?;
        let mut messages = request.into_inner();
        let Some(hello) = first(&mut messages).await?.hello() else {
            return Err(Status::invalid_argument("the first message is not Hello"));
        };
        let said = P::introduction(&hello);
        self.check_hello(&identity, said.protocol, said.pod_uid)?;
        self.check_term(said.term_seen)?;
        let connection = self.connection();
        let (sender, response) = commands();
        self.events
            .send(P::up(connection, identity, hello, sender))
            .await
            .map_err(|_| Status::unavailable("stopping"))?;
        self.pump(connection, messages);
        Ok(response)
    }

    /// Feeds a stream's messages to the commander until either side ends.
    fn pump<P: Peer>(&self, connection: ConnectionId, mut messages: Streaming<P>) {
        let events = self.events.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                if events.send(P::said(connection, message)).await.is_err() {
                    return;
                }
            }
            let _ = events.send(ChannelEvent::Down(connection)).await;
        });
    }
}

/// What of a Hello is checked before anything is told.
struct Introduction<'a> {
    protocol: u32,
    pod_uid: &'a str,
    term_seen: u64,
}

/// The messages of one kind of peer: all in which the streams of agents and gateways differ.
trait Peer: Sized + Send + 'static {
    type Hello: Send;
    type Command: Send + 'static;

    fn hello(self) -> Option<Self::Hello>;
    fn introduction(hello: &Self::Hello) -> Introduction<'_>;
    fn not_leader(leader: NotLeader) -> Self::Command;
    fn up(
        connection: ConnectionId,
        identity: PeerIdentity,
        hello: Self::Hello,
        commands: mpsc::Sender<Self::Command>,
    ) -> ChannelEvent;
    fn said(connection: ConnectionId, message: Self) -> ChannelEvent;
}

impl Peer for AgentMessage {
    type Hello = AgentHello;
    type Command = AgentCommand;

    fn hello(self) -> Option<AgentHello> {
        match self.message {
            Some(agent_message::Message::Hello(hello)) => Some(hello),
            _ => None,
        }
    }

    fn introduction(hello: &AgentHello) -> Introduction<'_> {
        Introduction {
            protocol: hello.protocol,
            pod_uid: &hello.pod_uid,
            term_seen: hello.term_seen,
        }
    }

    fn not_leader(leader: NotLeader) -> AgentCommand {
        AgentCommand {
            id: 0,
            command: Some(agent_command::Command::NotLeader(leader)),
        }
    }

    fn up(
        connection: ConnectionId,
        identity: PeerIdentity,
        hello: AgentHello,
        commands: mpsc::Sender<AgentCommand>,
    ) -> ChannelEvent {
        ChannelEvent::AgentUp {
            connection,
            identity,
            hello: Box::new(hello),
            commands,
        }
    }

    fn said(connection: ConnectionId, message: Self) -> ChannelEvent {
        ChannelEvent::Agent(connection, Box::new(message))
    }
}

impl Peer for GatewayMessage {
    type Hello = GatewayHello;
    type Command = GatewayCommand;

    fn hello(self) -> Option<GatewayHello> {
        match self.message {
            Some(gateway_message::Message::Hello(hello)) => Some(hello),
            _ => None,
        }
    }

    fn introduction(hello: &GatewayHello) -> Introduction<'_> {
        Introduction {
            protocol: hello.protocol,
            pod_uid: &hello.pod_uid,
            term_seen: hello.term_seen,
        }
    }

    fn not_leader(leader: NotLeader) -> GatewayCommand {
        GatewayCommand {
            command: Some(gateway_command::Command::NotLeader(leader)),
        }
    }

    fn up(
        connection: ConnectionId,
        identity: PeerIdentity,
        hello: GatewayHello,
        commands: mpsc::Sender<GatewayCommand>,
    ) -> ChannelEvent {
        ChannelEvent::GatewayUp {
            connection,
            identity,
            hello: Box::new(hello),
            commands,
        }
    }

    fn said(connection: ConnectionId, message: Self) -> ChannelEvent {
        ChannelEvent::Gateway(connection, Box::new(message))
    }
}

/// The first message of a stream, within its time.
async fn first<P>(messages: &mut Streaming<P>) -> Result<P, Status> {
    match tokio::time::timeout(HELLO_LIMIT, messages.next()).await {
        Ok(Some(message)) => message,
        Ok(None) => Err(Status::invalid_argument("the stream ended before Hello")),
        Err(_) => Err(Status::deadline_exceeded("no Hello within 5 s")),
    }
}

fn check_hello(identity: &PeerIdentity, protocol: u32, pod_uid: &str) -> Result<(), Status> {
    if protocol != PROTOCOL {
        let text =
            format!("protocol {protocol} is not spoken here, {PROTOCOL} is: use one release of all parts");
        return Err(Status::failed_precondition(text));
    }
    if identity.pod_uid != pod_uid {
        return Err(Status::permission_denied("the token belongs to another pod"));
    }
    Ok(())
}

fn once<C: Send + 'static>(command: C) -> Response<Commands<C>> {
    Response::new(Box::pin(futures::stream::once(async { Ok(command) })))
}

fn commands<C: Send + 'static>() -> (mpsc::Sender<C>, Response<Commands<C>>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (
        sender,
        Response::new(Box::pin(ReceiverStream::new(receiver).map(Ok))),
    )
}

#[tonic::async_trait]
impl Channel for Server {
    type AgentStream = Commands<AgentCommand>;
    type GatewayStream = Commands<GatewayCommand>;

    async fn agent(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AgentStream>, Status> {
        self.open(request).await
    }

    async fn gateway(
        &self,
        request: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::GatewayStream>, Status> {
        self.open(request).await
    }
}
