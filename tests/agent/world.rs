//! A scripted commander, agents under test, and requests as a gateway makes them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool::agent::{Agent, AgentConfig, AppProtocol, Measured};
use elastic_pool::channel::link::{LinkConfig, Token};
use elastic_pool::channel::proto::{self, agent_command::Command, agent_message::Message, nack::Reason};
use elastic_pool::credentials::Key;
use elastic_pool::engine::ids::Epoch;
use futures::Stream;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use proto::channel_server::{Channel, ChannelServer};
use proto::{AgentCommand, AgentHello, AgentMessage, AgentWelcome};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

/// Nothing in these tests takes longer; a wait that reaches it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const CLIENT: &str = "11111111111111111111111111111111";

pub(crate) fn ticket_key() -> Key {
    Key::from_hex(&"31".repeat(32)).unwrap()
}

pub(crate) fn hop() -> String {
    "ab".repeat(32)
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(late) => panic!("{what}: {late} ({DEADLINE:?})"),
    }
}

/// Waits until a condition holds that nothing signals.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// One stream of an agent, after its Hello.
pub(crate) struct Session {
    pub hello: AgentHello,
    commands: mpsc::Sender<Result<AgentCommand, Status>>,
    messages: mpsc::Receiver<Message>,
    put_back: VecDeque<Message>,
    next_id: u64,
}

struct Script {
    sessions: mpsc::Sender<Session>,
}

#[tonic::async_trait]
impl Channel for Script {
    type AgentStream = Pin<Box<dyn Stream<Item = Result<AgentCommand, Status>> + Send>>;
    type GatewayStream = Pin<Box<dyn Stream<Item = Result<proto::GatewayCommand, Status>> + Send>>;

    async fn agent(
        &self,
        request: tonic::Request<Streaming<AgentMessage>>,
    ) -> Result<tonic::Response<Self::AgentStream>, Status> {
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer token");
        let mut stream = request.into_inner();
        let (commands, outgoing) = mpsc::channel(64);
        let (incoming, messages) = mpsc::channel(4096);
        let sessions = self.sessions.clone();
        tokio::spawn(async move {
            let Ok(Some(AgentMessage {
                message: Some(Message::Hello(hello)),
            })) = stream.message().await
            else {
                return;
            };
            let session = Session {
                hello,
                commands,
                messages,
                put_back: VecDeque::new(),
                next_id: 0,
            };
            let _ = sessions.send(session).await;
            while let Ok(Some(message)) = stream.message().await {
                let Some(message) = message.message else { continue };
                if incoming.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }

    async fn gateway(
        &self,
        _: tonic::Request<Streaming<proto::GatewayMessage>>,
    ) -> Result<tonic::Response<Self::GatewayStream>, Status> {
        Err(Status::unimplemented("agents only"))
    }
}

pub(crate) struct Commander {
    pub address: SocketAddr,
    sessions: mpsc::Receiver<Session>,
    _stop: DropGuard,
}

impl Commander {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, sessions) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server =
            tonic::transport::Server::builder().add_service(ChannelServer::new(Script { sessions: send }));
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(async move {
            tokio::select! {
                _ = server.serve_with_incoming(incoming) => {}
                () = stopped => {}
            }
        });
        Self {
            address,
            sessions,
            _stop: stop.drop_guard(),
        }
    }

    /// The next stream that an agent opens, not welcomed yet.
    pub(crate) async fn hello(&mut self) -> Session {
        soon("a Hello", self.sessions.recv()).await.unwrap()
    }

    /// The next stream, welcomed.
    pub(crate) async fn welcomed(&mut self, change: impl FnOnce(&mut AgentWelcome)) -> Session {
        let mut session = self.hello().await;
        session.welcome(change).await;
        session
    }
}

pub(crate) fn welcome() -> AgentWelcome {
    AgentWelcome {
        term: 1,
        birth: 1 << 40,
        worker: "w1".into(),
        ticket_key: ticket_key().to_hex(),
        hops: vec![hop(), "cd".repeat(32)],
        interval_ms: 100,
        session_timeout_ms: 3_600_000,
        close_streams: true,
        quiesce_timeout_ms: 10_000,
        max_package_bytes: 1024,
        ..AgentWelcome::default()
    }
}

impl Session {
    pub(crate) async fn welcome(&mut self, change: impl FnOnce(&mut AgentWelcome)) {
        let mut welcome = welcome();
        change(&mut welcome);
        self.send(0, Command::Welcome(welcome)).await;
        // The report that follows says that it was taken.
        self.message(|message| matches!(message, Message::Report(_)).then_some(()))
            .await;
    }

    pub(crate) async fn send(&mut self, id: u64, command: Command) {
        self.commands
            .send(Ok(AgentCommand {
                id,
                command: Some(command),
            }))
            .await
            .unwrap();
    }

    /// The next message that `pick` takes; others are kept for later.
    pub(crate) async fn message<T>(&mut self, mut pick: impl FnMut(&Message) -> Option<T>) -> T {
        if let Some((at, found)) = self
            .put_back
            .iter()
            .enumerate()
            .find_map(|(at, m)| Some((at, pick(m)?)))
        {
            self.put_back.remove(at);
            return found;
        }
        let found = async {
            loop {
                let message = self.messages.recv().await.expect("the stream is up");
                if let Some(found) = pick(&message) {
                    return found;
                }
                self.put_back.push_back(message);
            }
        };
        soon("a message", found).await
    }

    /// A report that `pick` takes and that was sent after this call.
    pub(crate) async fn report(&mut self, mut pick: impl FnMut(&proto::Report) -> bool) -> proto::Report {
        self.put_back
            .retain(|message| !matches!(message, Message::Report(_)));
        self.message(|message| match message {
            Message::Report(report) if pick(report) => Some(*report),
            _ => None,
        })
        .await
    }

    /// Sends a command and returns its number.
    pub(crate) async fn begin(&mut self, command: Command) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(id, command).await;
        id
    }

    /// The answer to a command.
    pub(crate) async fn answer(&mut self, id: u64) -> Result<Option<proto::Package>, Reason> {
        self.message(|message| match message {
            Message::Ack(ack) if ack.id == id => Some(Ok(ack.package.clone())),
            Message::Nack(nack) if nack.id == id => Some(Err(nack.reason())),
            _ => None,
        })
        .await
    }

    pub(crate) async fn order(&mut self, command: Command) -> Result<Option<proto::Package>, Reason> {
        let id = self.begin(command).await;
        self.answer(id).await
    }

    pub(crate) async fn assign(&mut self, user: &str, epoch: u64) {
        let ticket = ticket_key().ticket(user, Epoch(epoch));
        let assign = proto::Assign {
            user: user.into(),
            epoch,
            ticket,
            clients: Vec::new(),
        };
        self.order(Command::Assign(assign)).await.unwrap();
    }

    pub(crate) async fn snapshot(&mut self, user: &str, mv: u64) -> Result<Option<proto::Package>, Reason> {
        self.order(Command::Snapshot(proto::Snapshot {
            user: user.into(),
            r#move: mv,
            join: false,
        }))
        .await
    }

    pub(crate) async fn forget(&mut self, user: &str, mv: u64) -> Result<Option<proto::Package>, Reason> {
        self.order(Command::Forget(proto::Forget {
            user: user.into(),
            r#move: mv,
        }))
        .await
    }

    pub(crate) async fn thaw(
        &mut self,
        user: &str,
        mv: u64,
        epoch: u64,
    ) -> Result<Option<proto::Package>, Reason> {
        let ticket = ticket_key().ticket(user, Epoch(epoch));
        self.order(Command::Thaw(proto::Thaw {
            user: user.into(),
            r#move: mv,
            epoch,
            ticket,
        }))
        .await
    }
}

/// An agent under test; it stops when dropped.
pub(crate) struct Sidecar {
    pub agent: Agent,
    stop: CancellationToken,
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Sidecar {
    pub(crate) async fn start(folder: &Path, commander: SocketAddr, app: SocketAddr) -> Self {
        Self::start_with(folder, commander, app, |_| {}).await
    }

    pub(crate) async fn start_with(
        folder: &Path,
        commander: SocketAddr,
        app: SocketAddr,
        change: impl FnOnce(&mut AgentConfig),
    ) -> Self {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut config = AgentConfig {
            link: LinkConfig {
                address: commander.to_string(),
                token: Token::Fixed("token".into()),
            },
            listen: free,
            peer_listen: free,
            loopback_listen: free,
            app,
            app_protocol: AppProtocol::Http1,
            contract: Some(app),
            app_token_file: folder.join("token"),
            state_dir: folder.join("state"),
            pod_uid: "uid-1".into(),
            worker: "pod-1".into(),
            measured: Measured::Nothing,
            proc_root: "/proc".into(),
            drain_wait: DEADLINE * 2,
            list_interval: Duration::from_millis(50),
        };
        change(&mut config);
        let stop = CancellationToken::new();
        let agent = Agent::start(config, stop.clone()).await.unwrap();
        Self { agent, stop }
    }

    /// As a kill would, but in order: all ports are closed when this returns.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        soon("the agent's end", self.agent.stopped()).await;
    }

    /// A request as a gateway makes it, with its whole answer.
    pub(crate) async fn get(&self, path: &str, who: Who<'_>) -> Answer {
        Answer::read(send(self.agent.traffic, who.request(path)).await).await
    }

    pub(crate) async fn peer(&self, path: &str, headers: &[(&'static str, &str)]) -> Answer {
        let mut request = Request::get(path).header("host", "agent");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::read(send(self.agent.peer, request.body(Empty::new()).unwrap()).await).await
    }
}

/// Whose request it is.
#[derive(Clone, Copy)]
pub(crate) enum Who<'a> {
    Guest,
    User(&'a str, u64),
    /// With a ticket of its own choice.
    Forged(&'a str, u64, &'a str),
    /// Without a hop.
    Stranger,
}

impl Who<'_> {
    pub(crate) fn request(self, path: &str) -> Request<Empty<Bytes>> {
        let mut request = Request::get(path)
            .header("host", "shop.example")
            .header("pool-client", CLIENT);
        if !matches!(self, Who::Stranger) {
            request = request.header("pool-hop", hop());
        }
        if let Who::User(user, epoch) | Who::Forged(user, epoch, _) = self {
            let made = ticket_key().ticket(user, Epoch(epoch));
            let ticket = if let Who::Forged(_, _, ticket) = self {
                ticket.to_owned()
            } else {
                made
            };
            request = request
                .header("pool-user", user)
                .header("pool-epoch", epoch.to_string());
            request = request.header("pool-ticket", ticket);
        }
        request.body(Empty::new()).unwrap()
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Empty<Bytes>>) -> Response<Incoming> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    soon("an answer", sender.send_request(request)).await.unwrap()
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = soon("a body", body.collect()).await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Self {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Status and fence mark.
    pub(crate) fn refusal(&self) -> (u16, Option<&str>) {
        (self.status.as_u16(), self.header("pool-fence"))
    }
}
