//! Restarts, terms, session mode, leaving, preStop.

use elastic_pool::channel::proto::{
    Admission, Snapshot, agent_command::Command, agent_message::Message, claim,
};
use tokio::net::TcpListener;

use crate::app::{self, Held};
use crate::world::{CLIENT, Commander, Session, Sidecar, Who, soon, until};

fn states(session: &Session) -> Vec<(String, claim::State, u64, u64)> {
    let claims = session.hello.users.iter();
    let mut states: Vec<_> = claims
        .map(|c| (c.user.clone(), c.state(), c.epoch, c.r#move))
        .collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

async fn born(session: &mut Session) -> (String, String) {
    session
        .message(|m| {
            if let Message::UserBorn(b) = m {
                Some((b.user.clone(), b.client.clone()))
            } else {
                None
            }
        })
        .await
}

async fn gone(session: &mut Session) -> (String, u64) {
    session
        .message(|m| {
            if let Message::UserGone(g) = m {
                Some((g.user.clone(), g.epoch))
            } else {
                None
            }
        })
        .await
}

#[tokio::test]
async fn the_fence_survives_a_restart_of_the_agent() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    for user in ["alice", "bob", "carol"] {
        app.knobs.lock().users.insert(user.into(), Held::Live(1));
    }
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    session.assign("bob", 6).await;
    session.assign("carol", 7).await;
    session.snapshot("bob", 9).await.unwrap();
    session.snapshot("carol", 10).await.unwrap();
    session.forget("carol", 10).await.unwrap();
    let token = std::fs::read_to_string(folder.path().join("token")).unwrap();
    let first = session.hello.incarnation.clone();
    sidecar.end().await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    // The commander is still away: known users are served, and nobody else (D4).
    until("the comparison", || app.knobs.lock().users.contains_key("alice")).await;
    assert_eq!(sidecar.get("/count", Who::User("alice", 5)).await.body, "2");
    assert_eq!(
        sidecar.get("/count", Who::User("bob", 6)).await.refusal(),
        (421, Some("refused"))
    );
    assert_eq!(
        sidecar.get("/count", Who::User("carol", 7)).await.refusal(),
        (421, Some("refused"))
    );
    let session = commander.hello().await;
    assert_eq!(
        states(&session),
        [
            ("alice".into(), claim::State::Owned, 5, 0),
            ("bob".into(), claim::State::Frozen, 6, 9),
            ("carol".into(), claim::State::Past, 7, 0),
        ]
    );
    assert_eq!(
        (session.hello.term_seen, session.hello.app_instance.as_str()),
        (1, "i1")
    );
    assert_ne!(session.hello.incarnation, first);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("token")).unwrap(),
        token,
        "the app read it once"
    );
}

#[tokio::test]
async fn a_user_whom_the_app_froze_before_his_agent_restarted_is_claimed_frozen_and_thawed() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    app.knobs.lock().slow_snapshots = true;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let snapshot = Snapshot {
        user: "alice".into(),
        r#move: 9,
        join: false,
    };
    session.send(77, Command::Snapshot(snapshot)).await;
    until("the app froze her", || {
        app.knobs.lock().users["alice"] == Held::Frozen(1, 9)
    })
    .await;
    sidecar.end().await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    assert_eq!(states(&session), [("alice".into(), claim::State::Frozen, 5, 9)]);
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 5)).await.refusal(),
        (421, Some("refused"))
    );
    session.thaw("alice", 9, 10).await.unwrap();
    assert_eq!(sidecar.get("/count", Who::User("alice", 10)).await.body, "2");
}

#[tokio::test]
async fn the_fence_of_another_instance_is_dropped_at_start() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    sidecar.end().await;
    drop(app);
    let other = app::start("i2", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, other.address).await;
    let session = commander.hello().await;
    assert_eq!(session.hello.app_instance, "i2");
    // Nobody lives here; what was granted to the process before stays refused.
    assert_eq!(states(&session), [("alice".into(), claim::State::Past, 5, 0)]);
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 0)).await.refusal(),
        (421, Some("refused"))
    );
}

#[tokio::test]
async fn a_restarted_app_makes_another_worker() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let address = app.address;
    drop(app);
    let listener = soon("the port", async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let _other = app::start_on(listener, "i2", folder.path().join("token"));
    let again = commander.hello().await;
    assert_eq!(again.hello.app_instance, "i2");
    assert_ne!(again.hello.incarnation, session.hello.incarnation);
    assert_eq!(states(&again), [("alice".into(), claim::State::Past, 5, 0)]);
    let answer = sidecar.get("/count", Who::User("alice", 0)).await;
    assert_eq!(answer.refusal(), (421, Some("refused")));
}

#[tokio::test]
async fn users_whom_the_file_missed_are_claimed_as_provisional() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    app.knobs.lock().users.insert("bob".into(), Held::Frozen(1, 9));
    app.knobs.lock().users.insert("carol".into(), Held::Staged(1, 10));
    let _sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let session = commander.hello().await;
    assert_eq!(
        states(&session),
        [
            ("alice".into(), claim::State::Provisional, 0, 0),
            ("bob".into(), claim::State::Frozen, 0, 9),
            ("carol".into(), claim::State::Staged, 0, 10),
        ]
    );
}

#[tokio::test]
async fn a_commander_of_a_lower_term_commands_nothing() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|welcome| welcome.term = 3).await;
    session.assign("alice", 5).await;
    drop(session);
    let mut old = commander.hello().await;
    assert_eq!(old.hello.term_seen, 3);
    let mut welcome = crate::world::welcome();
    welcome.term = 2;
    old.send(0, Command::Welcome(welcome)).await;
    let forget = elastic_pool::channel::proto::Forget {
        user: "alice".into(),
        r#move: 9,
    };
    old.send(1, Command::Forget(forget)).await;
    // It dials again instead.
    let mut new = commander.welcomed(|welcome| welcome.term = 4).await;
    new.report(|_| true).await;
    assert_eq!(sidecar.get("/count", Who::User("alice", 5)).await.body, "2");
}

#[tokio::test]
async fn a_user_leaves_after_two_lists_that_lack_him() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    app.knobs.lock().users.insert("bob".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    session.assign("bob", 6).await;
    app.knobs.lock().users.remove("alice");
    assert_eq!(gone(&mut session).await, ("alice".into(), 5));
    assert_eq!(sidecar.get("/count", Who::User("bob", 6)).await.body, "2");
}

#[tokio::test]
async fn an_app_without_contract_serves_sessions_that_expire() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().silent = true;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.hello().await;
    assert!(!session.hello.contract);
    assert!(session.hello.capabilities.is_empty());
    session
        .welcome(|welcome| {
            welcome.session_users = true;
            welcome.session_timeout_ms = 3_000;
        })
        .await;
    assert_eq!(sidecar.get("/", Who::Guest).await.status, 200);
    let report = session.report(|report| report.unconfirmed == 1).await;
    assert!(report.unconfirmed_expiry_ms > 0 && report.unconfirmed_expiry_ms <= 3_000);
    assert_eq!(sidecar.get("/", Who::User(CLIENT, 0)).await.status, 200);
    assert_eq!(born(&mut session).await, (CLIENT.into(), CLIENT.into()));
    let report = session.report(|report| report.unconfirmed == 0).await;
    assert_eq!(report.users, Some(1.0));
    let refused = session.snapshot(CLIENT, 9).await;
    assert_eq!(
        refused,
        Err(elastic_pool::channel::proto::nack::Reason::Unsupported)
    );
    session.assign(CLIENT, 8).await;
    assert_eq!(gone(&mut session).await, (CLIENT.into(), 8));
    session.report(|report| report.users == Some(0.0)).await;
}

#[tokio::test]
async fn a_closed_worker_is_empty_once_a_later_list_says_so() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    session
        .order(Command::Admission(Admission { open: false }))
        .await
        .unwrap();
    assert!(!session.report(|_| true).await.empty);
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 5)).await.body,
        "2",
        "known users are served"
    );
    assert_eq!(sidecar.get("/", Who::Guest).await.status, 200, "guests too");
    session.snapshot("alice", 9).await.unwrap();
    session.forget("alice", 9).await.unwrap();
    session.report(|report| report.empty).await;
    session
        .order(Command::Admission(Admission { open: true }))
        .await
        .unwrap();
    session.report(|report| !report.empty).await;
}

#[tokio::test]
async fn a_waiting_pre_stop_ends_at_once_when_the_pod_is_not_terminating() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let drained = sidecar.peer("/drained", &[]);
    tokio::pin!(drained);
    tokio::select! {
        _ = &mut drained => panic!("alice lives here"),
        _ = session.report(|report| report.terminating) => {}
    }
    session
        .order(Command::Admission(Admission { open: true }))
        .await
        .unwrap();
    assert_eq!(soon("preStop", drained).await.body, "released\n");
    session.report(|report| !report.terminating).await;
}

#[tokio::test]
async fn a_waiting_pre_stop_lasts_until_the_worker_is_empty() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let drained = sidecar.peer("/drained", &[]);
    tokio::pin!(drained);
    tokio::select! {
        _ = &mut drained => panic!("alice lives here"),
        _ = session.report(|report| report.terminating) => {}
    }
    let empties = async {
        session
            .order(Command::Admission(Admission { open: false }))
            .await
            .unwrap();
        session.snapshot("alice", 9).await.unwrap();
        session.forget("alice", 9).await.unwrap();
    };
    tokio::select! {
        _ = &mut drained => panic!("not before he was forgotten"),
        () = empties => {}
    }
    assert_eq!(soon("preStop", drained).await.body, "released\n");
}

#[tokio::test]
async fn a_waiting_pre_stop_ends_when_the_app_is_dead() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    drop(app);
    assert_eq!(sidecar.peer("/drained", &[]).await.body, "the app is dead\n");
}

#[tokio::test]
async fn the_probes_say_what_is_there() {
    let (folder, commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let sidecar = Sidecar::start(folder.path(), commander.address, address).await;
    assert!(folder.path().join("token").exists());
    assert_eq!(sidecar.peer("/healthz", &[]).await.status, 200);
    assert_eq!(sidecar.peer("/readyz", &[]).await.status, 503, "no app yet");
    let app = app::start_on(
        TcpListener::bind(address).await.unwrap(),
        "i1",
        folder.path().join("token"),
    );
    soon("readiness", async {
        while sidecar.peer("/readyz", &[]).await.status != 200 {}
    })
    .await;
    drop(app);
}
