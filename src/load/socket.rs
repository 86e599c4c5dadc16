//! The WebSocket of a virtual user: held open, opened again when it ends, its ticks checked; never sends a request of its own accord.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::browser::{CONNECT_FOR, Jar};
use super::checker::Verdict;
use super::user::Run;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
const ECHO_TIMEOUT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the server says on a WebSocket.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    user: Option<String>,
    counter: u64,
    worker: String,
}

/// How a message that was to be echoed went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Echo {
    /// It counted, and this is the counter and who counted.
    Counted(Option<String>, u64, String),
    /// The socket was not open.
    NotSent,
    /// It was sent and never answered.
    Unsure,
}

/// The user's end of his WebSocket.
pub(super) struct Socket {
    ask: mpsc::Sender<oneshot::Sender<Echo>>,
    /// Ends the socket also when its user is dropped in the middle of something.
    stop: DropGuard,
    task: tokio::task::JoinHandle<()>,
}

impl Socket {
    /// Opens a socket with the cookies of this browser, and keeps it open.
    pub(super) fn open(run: Run, jar: Jar, user: String) -> Self {
        let (ask, asked) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let keeper = Keeper {
            dial: Dial { run, jar },
            user,
            asked,
            stop: stop.clone(),
            seen: 0,
        };
        Self {
            ask,
            stop: stop.drop_guard(),
            task: tokio::spawn(keeper.keep()),
        }
    }

    /// Sends a message and waits for its echo.
    pub(super) async fn echo(&self) -> Echo {
        let (answer, answered) = oneshot::channel();
        if self.ask.send(answer).await.is_err() {
            return Echo::NotSent;
        }
        match timeout(ECHO_TIMEOUT, answered).await {
            Ok(Ok(echo)) => echo,
            _ => Echo::Unsure,
        }
    }

    /// Closes it politely and waits for its end.
    pub(super) async fn close(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// Where and as whom the socket is opened.
struct Dial {
    run: Run,
    jar: Jar,
}

impl Dial {
    async fn connect(&self) -> Option<WebSocketStream<TcpStream>> {
        self.run.tally.lock().counts.requests += 1;
        let result = timeout(HANDSHAKE_TIMEOUT, self.handshake()).await;
        let why = match result {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(Error::Http(response))) => format!("websocket: status {}", response.status().as_u16()),
            Ok(Err(error)) => format!("websocket: {error}"),
            Err(_) => "websocket: no answer in time".to_owned(),
        };
        let mut tally = self.run.tally.lock();
        tally.counts.ws_failed += 1;
        tally.fail(&why);
        None
    }

    async fn handshake(&self) -> Result<WebSocketStream<TcpStream>, Error> {
        let began = self.run.clock.now();
        let mut again = false;
        loop {
            let attempt = async {
                let stream = self.run.target.connect().await?;
                let (stream, response) = client_async(self.request()?, stream).await?;
                self.jar.keep(response.headers());
                Ok(stream)
            };
            match attempt.await {
                Err(Error::Io(_) | Error::Protocol(_))
                    if self.run.clock.now().saturating_sub(began) < CONNECT_FOR =>
                {
                    // Refused or reset before any answer: as with a request, tried again for a while, counted once.
                    if !std::mem::replace(&mut again, true) {
                        self.run.tally.lock().counts.retried += 1;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                result => return result,
            }
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let mut request = format!("ws://{}/ws", self.run.target.authority()).into_client_request()?;
        if let Some(value) = self.jar.header().and_then(|line| line.parse().ok()) {
            request.headers_mut().insert("cookie", value);
        }
        Ok(request)
    }
}

struct Keeper {
    dial: Dial,
    user: String,
    asked: mpsc::Receiver<oneshot::Sender<Echo>>,
    stop: CancellationToken,
    /// The largest counter told so far.
    seen: u64,
}

/// Why a socket ended.
enum End {
    Restart,
    Polite,
    Unclean,
    Left,
}

impl Keeper {
    async fn keep(mut self) {
        let mut after_restart = false;
        while !self.stop.is_cancelled() {
            let opened = tokio::select! {
                opened = self.dial.connect() => opened,
                () = refuse(&mut self.asked) => return,
                () = self.stop.cancelled() => return,
            };
            let Some(stream) = opened else {
                self.pause(AFTER_FAILURE).await;
                continue;
            };
            {
                let mut tally = self.dial.run.tally.lock();
                tally.counts.ws_opened += 1;
                tally.counts.ws_reconnects += u64::from(after_restart);
            }
            let end = self.hold(stream).await;
            after_restart = matches!(end, End::Restart);
            {
                let mut tally = self.dial.run.tally.lock();
                match end {
                    End::Left => return,
                    End::Restart => {}
                    End::Polite => tally.counts.ws_closed += 1,
                    End::Unclean => tally.counts.ws_unclean += 1,
                }
            }
            self.pause(AGAIN).await;
        }
    }

    /// Waits, and meanwhile says that nothing can be sent.
    async fn pause(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = refuse(&mut self.asked) => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn hold(&mut self, mut stream: WebSocketStream<TcpStream>) -> End {
        let mut waiting: Option<oneshot::Sender<Echo>> = None;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                    let _ = stream.send(Message::Close(Some(frame))).await;
                    let _ = timeout(AFTER_FAILURE, async { while let Some(Ok(_)) = stream.next().await {} }).await;
                    return End::Left;
                }
                Some(answer) = self.asked.recv() => {
                    if stream.send(Message::text("count")).await.is_err() {
                        let _ = answer.send(Echo::Unsure);
                        return End::Unclean;
                    }
                    waiting = Some(answer);
                }
                received = stream.next() => match received {
                    Some(Ok(Message::Text(text))) => self.told(text.as_str(), &mut waiting),
                    Some(Ok(Message::Close(frame))) => {
                        let _ = timeout(AFTER_FAILURE, stream.close(None)).await;
                        let restart = frame.is_some_and(|frame| frame.code == CloseCode::Restart);
                        return if restart { End::Restart } else { End::Polite };
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return End::Unclean,
                },
            }
        }
    }

    fn told(&mut self, text: &str, waiting: &mut Option<oneshot::Sender<Echo>>) {
        let Ok(told) = serde_json::from_str::<Told>(text) else {
            return;
        };
        let mut tally = self.dial.run.tally.lock();
        tally.counts.ws_messages += 1;
        match &told.user {
            Some(user) if *user != self.user => tally.counts.foreign += 1,
            // What the loss of a user does is counted where his requests are.
            None => {}
            Some(_) if told.counter < self.seen => tally.found(Verdict::Back),
            Some(_) => self.seen = told.counter,
        }
        if told.kind == "echo"
            && let Some(answer) = waiting.take()
        {
            let _ = answer.send(Echo::Counted(told.user, told.counter, told.worker));
        }
    }
}

/// Tells everybody who asks that the socket is not open.
async fn refuse(asked: &mut mpsc::Receiver<oneshot::Sender<Echo>>) {
    while let Some(answer) = asked.recv().await {
        let _ = answer.send(Echo::NotSent);
    }
}
