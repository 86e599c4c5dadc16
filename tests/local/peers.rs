//! Peers of the channel that are not what they say: they are refused and counted, and never own anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use elastic_pool::channel::PROTOCOL;
use elastic_pool::channel::link::{AgentPeer, Link, LinkConfig, LinkEvent, Token, dial};
use elastic_pool::channel::proto::{
    AgentCommand, AgentHello, AgentMessage, Claim, agent_command, agent_message, claim,
};
use elastic_pool::channel::proto::{UserBorn, UserGone};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::browser::Browser;
use crate::run::{PATIENCE, Run, Worker, rows, shop, until};

/// What a worker's agent was started with: arguments and environment.
struct Told {
    arguments: Vec<String>,
    uid: String,
}

impl Told {
    fn of(worker: &Worker) -> Self {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", worker.agent_pid)).unwrap();
        let uid = read("environ")
            .split('\0')
            .find_map(|pair| pair.strip_prefix("POD_UID=").map(str::to_owned));
        Self {
            arguments: read("cmdline").split('\0').map(str::to_owned).collect(),
            uid: uid.unwrap(),
        }
    }

    fn argument(&self, name: &str) -> String {
        let start = format!("--{name}=");
        let found = self
            .arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(&start));
        found.unwrap().to_owned()
    }

    fn token(&self) -> Token {
        Token::File(self.argument("token-file").into())
    }
}

type Liar = (Link<AgentMessage, AgentCommand>, DropGuard, Arc<AtomicUsize>);

/// Dials the channel as an agent would; counts how often it said Hello.
fn pretend(told: &Told, token: Token, hello: AgentHello) -> Liar {
    let stop = CancellationToken::new();
    let hellos = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hellos);
    let peer = AgentPeer(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        hello.clone()
    });
    let config = LinkConfig {
        address: told.argument("channel"),
        token,
    };
    let link = dial(config, peer, stop.clone());
    (link, stop.drop_guard(), hellos)
}

fn hello(uid: &str, users: Vec<Claim>) -> AgentHello {
    AgentHello {
        protocol: PROTOCOL,
        capabilities: vec!["snapshot".to_owned()],
        pod_uid: uid.to_owned(),
        incarnation: "liar".to_owned(),
        app_instance: String::new(),
        term_seen: 0,
        users,
        contract: true,
    }
}

fn forged(state: claim::State, epoch: u64) -> Claim {
    Claim {
        user: "alice".to_owned(),
        epoch,
        state: state.into(),
        r#move: epoch,
        complete: true,
        ticket: "ab".repeat(32),
        clients: Vec::new(),
    }
}

/// Alice where the reception is, and the worker that would like to have her.
async fn alice_and_a_rival(run: &Run) -> (Browser, Value, Worker) {
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    let home = alice.count().await["worker"].clone();
    let rival = run
        .workers()
        .into_iter()
        .find(|worker| home != worker.name.as_str());
    (alice, home, rival.unwrap())
}

fn two() -> Value {
    let mut shop = shop();
    shop["spec"]["workers"] = json!({ "min": 2, "max": 2 });
    shop
}

#[tokio::test]
async fn a_peer_with_a_wrong_token_or_of_another_pod_is_refused_and_counted() {
    let run = Run::ready(two(), 2).await;
    let (mut alice, home, rival) = alice_and_a_rival(&run).await;
    let (mine, his) = (Told::of(&rival), Told::of(&run.worker(home.as_str().unwrap())));
    for (reason, token, uid) in [
        ("token", Token::Fixed("no-such-token".to_owned()), &his.uid),
        ("other_pod", mine.token(), &his.uid),
    ] {
        let (mut link, _stop, hellos) = pretend(&mine, token, hello(uid, Vec::new()));
        let series = format!("elastic_pool_peers_refused_total{{reason=\"{reason}\"}}");
        until("refused and counted, again and again", PATIENCE, async || {
            hellos.load(Ordering::Relaxed) >= 2 && run.metric(&series).await >= 2.0
        })
        .await;
        assert!(link.events.try_recv().is_err(), "a word was said to a stranger");
    }
    let state = run.state().await;
    assert!(
        rows(&state).iter().all(|row| row["connected"] == true),
        "{state:#}"
    );
    assert_eq!(alice.count().await["counter"], 2);
}

#[tokio::test]
async fn an_agent_that_claims_somebody_with_a_forged_ticket_does_not_get_her() {
    let run = Run::ready(two(), 2).await;
    let (mut alice, home, rival) = alice_and_a_rival(&run).await;
    let told = Told::of(&rival);
    let mut counter = 1;
    let highest = 1_u64 << 60;
    for claims in [
        vec![forged(claim::State::Owned, highest)],
        vec![forged(claim::State::Staged, highest)],
        vec![forged(claim::State::Frozen, highest)],
        vec![forged(claim::State::Past, highest)],
        // Past what any term can grant.
        vec![forged(claim::State::Owned, u64::MAX)],
    ] {
        let (mut link, _stop, _) = pretend(&told, told.token(), hello(&told.uid, claims));
        let event = tokio::time::timeout(PATIENCE, link.events.recv()).await.unwrap();
        let Some(LinkEvent::Command(AgentCommand {
            command: Some(command),
            ..
        })) = event
        else {
            panic!("not welcomed: {event:?}");
        };
        assert!(
            matches!(command, agent_command::Command::Welcome(_)),
            "{command:?}"
        );
        // A worker's own claim to a login elsewhere, and its word that she has left, are worth nothing either.
        let born = UserBorn {
            user: "alice".to_owned(),
            client: "11".repeat(16),
        };
        let gone = UserGone {
            user: "alice".to_owned(),
            epoch: highest,
        };
        for message in [
            agent_message::Message::UserBorn(born),
            agent_message::Message::UserGone(gone),
        ] {
            let message = AgentMessage {
                message: Some(message),
            };
            link.messages.send(message).await.unwrap();
        }
        for _ in 0..5 {
            counter += 1;
            let answer = alice.count().await;
            assert_eq!(
                (&answer["user"], &answer["worker"], &answer["counter"]),
                (&json!("alice"), &home, &json!(counter))
            );
        }
        let state = run.state().await;
        for row in rows(&state) {
            assert_eq!(row["users"], u64::from(row["name"] == home), "{state:#}");
        }
    }
    // The true agent is let in again.
    run.until("both agents are connected", |state| {
        rows(state).iter().all(|row| row["connected"] == true)
    })
    .await;
    counter += 1;
    assert_eq!(alice.count().await["counter"], counter);
}
