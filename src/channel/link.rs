//! The dialling end: keeps one stream to whoever leads, says Hello on each, and hands commands up; it keeps no state of users.

use std::path::PathBuf;
use std::time::Duration;

use elastic_pool_engine::ids::Term;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use super::proto::channel_client::ChannelClient;
use super::proto::{
    AgentCommand, AgentHello, AgentMessage, GatewayCommand, GatewayHello, GatewayMessage, NotLeader,
    agent_command, agent_message, gateway_command, gateway_message,
};
use crate::net;

const KEEPALIVE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A Service goes on naming a lost node's pods for some time: the next dial may find a living one, and a new leader
/// waits for its peers for 5 s only (D3).
const CONNECT: Duration = Duration::from_millis(750);
/// Messages and commands that may wait; a slow peer is felt by the sender.
const QUEUE: usize = 1024;

/// Where to dial and what to show.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// host:port of the channel's Service.
    pub address: String,
    /// File with the projected token, read again at each dial (it rotates); or a fixed token.
    pub token: Token,
}

/// Source of the bearer token.
#[derive(Debug, Clone)]
pub enum Token {
    /// Re-read at each dial.
    File(PathBuf),
    /// Local vehicle and tests.
    Fixed(String),
}

/// What comes up from the link, in order.
#[derive(Debug)]
pub enum LinkEvent<C> {
    /// A command of the present stream; the first one after each dial is Welcome.
    Command(C),
    /// The stream ended; what was not answered by now is void. The link dials again by itself.
    Down,
}

/// One end's handle: send messages, receive events. Messages sent while the stream is down are dropped:
/// the next Hello says all that matters.
#[derive(Debug)]
pub struct Link<M, C> {
    /// Messages for the commander; bounded, use `try_send` on a path that must not wait.
    pub messages: mpsc::Sender<M>,
    /// Commands and breaks, bounded.
    pub events: mpsc::Receiver<LinkEvent<C>>,
}

/// The two kinds of peers, as the link sees them.
pub trait Peer: Send + 'static {
    /// Sent up.
    type Message: Send + 'static;
    /// Received.
    type Command: Send + 'static;

    /// The first message of a stream, made anew for each.
    fn hello(&self) -> Self::Message;
    /// Leader's word in a command, if it is that.
    fn not_leader(command: &Self::Command) -> Option<&NotLeader>;
    /// Opens the stream.
    fn open(
        client: ChannelClient<Channel>,
        request: Request<ReceiverStream<Self::Message>>,
    ) -> impl Future<Output = Result<Streaming<Self::Command>, Status>> + Send;
}

/// An agent's side of the link; the closure makes each Hello.
#[derive(Debug)]
pub struct AgentPeer<F>(pub F);

impl<F: Fn() -> AgentHello + Send + Sync + 'static> Peer for AgentPeer<F> {
    type Message = AgentMessage;
    type Command = AgentCommand;

    fn hello(&self) -> AgentMessage {
        AgentMessage {
            message: Some(agent_message::Message::Hello((self.0)())),
        }
    }

    fn not_leader(command: &AgentCommand) -> Option<&NotLeader> {
        match &command.command {
            Some(agent_command::Command::NotLeader(other)) => Some(other),
            _ => None,
        }
    }

    async fn open(
        mut client: ChannelClient<Channel>,
        request: Request<ReceiverStream<AgentMessage>>,
    ) -> Result<Streaming<AgentCommand>, Status> {
        Ok(client.agent(request).await?.into_inner())
    }
}

/// A gateway's side of the link; the closure makes each Hello.
#[derive(Debug)]
pub struct GatewayPeer<F>(pub F);

impl<F: Fn() -> GatewayHello + Send + Sync + 'static> Peer for GatewayPeer<F> {
    type Message = GatewayMessage;
    type Command = GatewayCommand;

    fn hello(&self) -> GatewayMessage {
        GatewayMessage {
            message: Some(gateway_message::Message::Hello((self.0)())),
        }
    }

    fn not_leader(command: &GatewayCommand) -> Option<&NotLeader> {
        match &command.command {
            Some(gateway_command::Command::NotLeader(other)) => Some(other),
            _ => None,
        }
    }

    async fn open(
        mut client: ChannelClient<Channel>,
        request: Request<ReceiverStream<GatewayMessage>>,
    ) -> Result<Streaming<GatewayCommand>, Status> {
        Ok(client.gateway(request).await?.into_inner())
    }
}

/// Why one stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("read token {path}")]
    Token { path: PathBuf, source: std::io::Error },
    #[error("the token holds characters that a header cannot")]
    TokenForm,
    #[error("dial {address}")]
    Dial {
        address: String,
        source: tonic::transport::Error,
    },
    #[error("open the stream")]
    Open(#[source] Box<Status>),
    #[error("receive")]
    Receive(#[source] Box<Status>),
    #[error("closed by the commander")]
    Closed,
    #[error("{0} leads")]
    Elsewhere(String),
    #[error("stopped")]
    Stopped,
}

/// Starts the link; it runs until `stop` is cancelled or both of the handle's ends are dropped.
pub fn dial<P: Peer + Sync>(
    config: LinkConfig,
    peer: P,
    stop: CancellationToken,
) -> Link<P::Message, P::Command> {
    let (messages, outgoing) = mpsc::channel(QUEUE);
    let (events, incoming) = mpsc::channel(QUEUE);
    tokio::spawn(run(config, peer, outgoing, events, stop));
    Link {
        messages,
        events: incoming,
    }
}

async fn run<P: Peer + Sync>(
    config: LinkConfig,
    peer: P,
    mut outgoing: mpsc::Receiver<P::Message>,
    events: mpsc::Sender<LinkEvent<P::Command>>,
    stop: CancellationToken,
) {
    let mut address = config.address.clone();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut welcomed = false;
        let end = tokio::select! {
            () = stop.cancelled() => StreamEnd::Stopped,
            end = stream(&config, &address, &peer, &mut outgoing, &events, &mut welcomed) => end,
        };
        if matches!(end, StreamEnd::Stopped) || events.is_closed() {
            return;
        }
        tracing::debug!(%address, error = &end as &dyn std::error::Error, "channel stream ended");
        if welcomed {
            pause = FIRST_PAUSE;
            if events.send(LinkEvent::Down).await.is_err() {
                return;
            }
        }
        let redirected = match end {
            StreamEnd::Elsewhere(leader) if !leader.is_empty() && leader != address => Some(leader),
            _ => None,
        };
        address = redirected.unwrap_or_else(|| config.address.clone());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(jitter(pause)) => {}
        }
        // What was meant for the stream that broke is void: the next Hello says it all.
        while outgoing.try_recv().is_ok() {}
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Between half and the whole of `pause`, so that many peers do not dial in step.
fn jitter(pause: Duration) -> Duration {
    let [byte] = crate::credentials::random_bytes::<1>().unwrap_or([128]);
    pause.mul_f64(0.5 + f64::from(byte) / 512.0)
}

/// One stream from dial to end.
async fn stream<P: Peer>(
    config: &LinkConfig,
    address: &str,
    peer: &P,
    outgoing: &mut mpsc::Receiver<P::Message>,
    events: &mpsc::Sender<LinkEvent<P::Command>>,
    welcomed: &mut bool,
) -> StreamEnd {
    let mut commands = match open(config, address, peer).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    loop {
        tokio::select! {
            command = commands.receive.next() => match command {
                None => return StreamEnd::Closed,
                Some(Err(status)) => return StreamEnd::Receive(Box::new(status)),
                Some(Ok(command)) => {
                    if let Some(other) = P::not_leader(&command) {
                        return StreamEnd::Elsewhere(other.address.clone());
                    }
                    *welcomed = true;
                    if events.send(LinkEvent::Command(command)).await.is_err() {
                        return StreamEnd::Stopped;
                    }
                }
            },
            message = outgoing.recv() => match message {
                None => return StreamEnd::Stopped,
                Some(message) => if commands.send.send(message).await.is_err() {
                    return StreamEnd::Closed;
                },
            },
        }
    }
}

struct Opened<P: Peer> {
    send: mpsc::Sender<P::Message>,
    receive: Streaming<P::Command>,
}

async fn open<P: Peer>(config: &LinkConfig, address: &str, peer: &P) -> Result<Opened<P>, StreamEnd> {
    let token = match &config.token {
        Token::Fixed(token) => token.clone(),
        Token::File(path) => tokio::fs::read_to_string(path)
            .await
            .map_err(|source| StreamEnd::Token {
                path: path.clone(),
                source,
            })?,
    };
    let mut bearer =
        MetadataValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| StreamEnd::TokenForm)?;
    bearer.set_sensitive(true);
    let dialled = |source| StreamEnd::Dial {
        address: address.to_owned(),
        source,
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(dialled)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    let channel = net::dial(endpoint).await.map_err(dialled)?;
    let (send, messages) = mpsc::channel(QUEUE);
    // The first message is already waiting when the stream opens.
    let _ = send.try_send(peer.hello());
    let mut request = Request::new(ReceiverStream::new(messages));
    request.metadata_mut().insert("authorization", bearer);
    let receive = P::open(
        ChannelClient::new(channel).max_decoding_message_size(super::LARGEST_MESSAGE),
        request,
    )
    .await
    .map_err(|status| StreamEnd::Open(Box::new(status)))?;
    Ok(Opened { send, receive })
}

/// Highest term that this process was welcomed in; a lower one is refused.
#[derive(Debug, Default)]
pub struct TermSeen(std::sync::atomic::AtomicU64);

impl TermSeen {
    /// The highest term so far, 0 before any.
    pub fn get(&self) -> Term {
        Term(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Takes note of a Welcome; false when its term is lower than one seen before.
    pub fn welcome(&self, term: Term) -> bool {
        self.0.fetch_max(term.0, std::sync::atomic::Ordering::Relaxed) <= term.0
    }
}
