//! Moves between two agents, and what a move refuses.

use elastic_pool::channel::proto::{Activate, Discard, Fetch, Package, agent_command::Command, nack::Reason};
use elastic_pool::engine::ids::Epoch;
use tempfile::TempDir;

use crate::app::{self, Held, StopOnDrop};
use crate::world::{Commander, Session, Sidecar, Who, ticket_key};

/// A worker: app, agent and its stream.
struct Worker {
    folder: TempDir,
    app: StopOnDrop,
    sidecar: Sidecar,
    session: Session,
}

async fn worker(commander: &mut Commander, quiesce_ms: u64) -> Worker {
    let folder = tempfile::tempdir().unwrap();
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let session = commander
        .welcomed(|welcome| welcome.quiesce_timeout_ms = quiesce_ms)
        .await;
    Worker {
        folder,
        app,
        sidecar,
        session,
    }
}

impl Worker {
    async fn with_alice(mut self, epoch: u64, count: u64) -> Self {
        self.app
            .knobs
            .lock()
            .users
            .insert("alice".into(), Held::Live(count));
        self.session.assign("alice", epoch).await;
        self
    }

    fn alice(&self) -> Option<Held> {
        self.app.knobs.lock().users.get("alice").cloned()
    }

    async fn fetch(&mut self, source: String, mv: u64, package: Option<Package>) -> Result<(), Reason> {
        let pass = ticket_key().package_pass("alice", Epoch(mv));
        self.fetch_with(source, pass, mv, package).await
    }

    async fn fetch_with(
        &mut self,
        source: String,
        pass: String,
        mv: u64,
        package: Option<Package>,
    ) -> Result<(), Reason> {
        let fetch = Fetch {
            user: "alice".into(),
            r#move: mv,
            source,
            pass,
            package,
            join: false,
        };
        self.session.order(Command::Fetch(fetch)).await.map(drop)
    }

    async fn activate(&mut self, mv: u64) -> Result<(), Reason> {
        let activate = Activate {
            user: "alice".into(),
            r#move: mv,
            join: false,
        };
        self.session.order(Command::Activate(activate)).await.map(drop)
    }

    async fn discard(&mut self, mv: u64) -> Result<(), Reason> {
        let discard = Discard {
            user: "alice".into(),
            r#move: mv,
        };
        self.session.order(Command::Discard(discard)).await.map(drop)
    }
}

#[tokio::test]
async fn a_move_carries_the_user_and_leaves_one_owner() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 41).await;
    let mut target = worker(&mut commander, 10_000).await;
    let package = source.session.snapshot("alice", 9).await.unwrap();
    assert_eq!(
        source.session.snapshot("alice", 9).await.unwrap(),
        package,
        "a repeated Snapshot is the same"
    );
    assert_eq!(
        source
            .sidecar
            .get("/count", Who::User("alice", 5))
            .await
            .refusal(),
        (421, Some("refused"))
    );
    let from = source.sidecar.agent.peer.to_string();
    target.fetch(from.clone(), 9, package.clone()).await.unwrap();
    assert_eq!(target.alice(), Some(Held::Staged(41, 9)));
    assert_eq!(
        target
            .sidecar
            .get("/count", Who::User("alice", 9))
            .await
            .refusal(),
        (421, Some("refused"))
    );
    target.activate(9).await.unwrap();
    assert_eq!(
        target.sidecar.get("/count", Who::User("alice", 9)).await.body,
        "42",
        "the Route's first forward"
    );
    target.session.assign("alice", 9).await;
    assert_eq!(
        target.fetch(from, 9, package).await,
        Ok(()),
        "a Fetch after the commit was done"
    );
    assert_eq!(
        target.discard(9).await,
        Err(Reason::Refused),
        "what was routed stays"
    );
    source.session.forget("alice", 9).await.unwrap();
    source.session.forget("alice", 9).await.unwrap();
    assert_eq!(source.alice(), None);
    assert_eq!(
        source
            .sidecar
            .get("/count", Who::User("alice", 5))
            .await
            .refusal(),
        (421, Some("refused"))
    );
    assert_eq!(
        target.sidecar.get("/count", Who::User("alice", 9)).await.body,
        "43"
    );
}

#[tokio::test]
async fn a_snapshot_waits_for_the_open_request() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 1).await;
    let slow = source.sidecar.get("/slow", Who::User("alice", 5));
    tokio::pin!(slow);
    tokio::select! {
        _ = &mut slow => panic!("the gate is closed"),
        _ = source.session.report(|report| report.open_requests == 1) => {}
    }
    let id = source.session.begin(Command::Snapshot(snapshot(9))).await;
    tokio::select! {
        _ = &mut slow => panic!("the gate is closed"),
        _ = source.session.report(|_| true) => {}
    }
    assert_eq!(
        source.app.knobs.lock().users["alice"],
        Held::Live(1),
        "not while a request is open"
    );
    source.app.gate.add_permits(1);
    assert_eq!(slow.await.body, "at last");
    assert!(source.session.answer(id).await.unwrap().is_some());
    assert_eq!(source.alice(), Some(Held::Frozen(1, 9)));
}

fn snapshot(mv: u64) -> elastic_pool::channel::proto::Snapshot {
    elastic_pool::channel::proto::Snapshot {
        user: "alice".into(),
        r#move: mv,
        join: false,
    }
}

#[tokio::test]
async fn a_request_that_outlives_the_quiesce_limit_ends_the_move() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 50).await.with_alice(5, 1).await;
    let slow = source.sidecar.get("/slow", Who::User("alice", 5));
    tokio::pin!(slow);
    tokio::select! {
        _ = &mut slow => panic!("the gate is closed"),
        _ = source.session.report(|report| report.open_requests == 1) => {}
    }
    tokio::select! {
        _ = &mut slow => panic!("the gate is closed"),
        answer = source.session.snapshot("alice", 9) => assert_eq!(answer, Err(Reason::Busy)),
    }
    source.app.gate.add_permits(1);
    slow.await;
    assert_eq!(
        source.sidecar.get("/count", Who::User("alice", 5)).await.body,
        "2",
        "served as before"
    );
}

#[tokio::test]
async fn a_package_goes_to_nobody_without_its_pass() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 41).await;
    let mut target = worker(&mut commander, 10_000).await;
    let package = source.session.snapshot("alice", 9).await.unwrap();
    let from = source.sidecar.agent.peer.to_string();
    for wrong in [
        String::new(),
        "00".repeat(32),
        ticket_key().package_pass("alice", Epoch(8)),
    ] {
        assert_eq!(
            source
                .sidecar
                .peer("/packages/alice/9", &[("pool-pass", &wrong)])
                .await
                .status,
            403
        );
        let fetched = target.fetch_with(from.clone(), wrong, 9, package.clone()).await;
        assert_eq!(fetched, Err(Reason::Unreachable));
    }
    let pass = ticket_key().package_pass("alice", Epoch(9));
    assert_eq!(
        source
            .sidecar
            .peer("/packages/alice/9", &[("pool-pass", &pass)])
            .await
            .body,
        "41"
    );
    assert_eq!(target.alice(), None);
    assert_eq!(
        target.fetch(from, 9, package).await,
        Ok(()),
        "a failed Fetch may be repeated"
    );
}

#[tokio::test]
async fn a_package_that_is_not_what_was_announced_is_refused_and_discarded() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 41).await;
    let mut target = worker(&mut commander, 10_000).await;
    let package = source.session.snapshot("alice", 9).await.unwrap().unwrap();
    for (body, format) in [
        ("42", "count/1"),
        ("411", "count/1"),
        ("4", "count/1"),
        ("41", "other/1"),
    ] {
        let liar = app::liar(body, format).await.to_string();
        assert_eq!(
            target.fetch(liar, 9, Some(package.clone())).await,
            Err(Reason::Corrupt),
            "{body} {format}"
        );
        assert_eq!(target.alice(), None, "nothing stays of {body} {format}");
    }
    assert!(target.app.knobs.lock().discards > 0);
    let huge = Package {
        bytes: 1025,
        ..package
    };
    let from = source.sidecar.agent.peer.to_string();
    assert_eq!(target.fetch(from, 9, Some(huge)).await, Err(Reason::TooLarge));
    assert_eq!(
        target.activate(9).await,
        Err(Reason::NotHere),
        "nothing to activate"
    );
}

#[tokio::test]
async fn an_aborted_move_serves_again_under_the_new_epoch_only() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 1).await;
    source.session.snapshot("alice", 9).await.unwrap();
    assert_eq!(
        source.session.thaw("alice", 9, 9).await,
        Err(Reason::Refused),
        "not above the move"
    );
    source.session.thaw("alice", 9, 10).await.unwrap();
    source.session.thaw("alice", 9, 10).await.unwrap();
    assert_eq!(source.alice(), Some(Held::Live(1)));
    assert_eq!(
        source
            .sidecar
            .get("/count", Who::User("alice", 5))
            .await
            .refusal(),
        (421, Some("refused"))
    );
    assert_eq!(
        source.sidecar.get("/count", Who::User("alice", 10)).await.body,
        "2"
    );
    let pass = ticket_key().package_pass("alice", Epoch(9));
    assert_eq!(
        source
            .sidecar
            .peer("/packages/alice/9", &[("pool-pass", &pass)])
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_forward_above_the_frozen_epoch_thaws_when_the_commander_cannot() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 1).await;
    source.session.snapshot("alice", 9).await.unwrap();
    drop(source.session);
    let forged = sidecar_get(&source.sidecar, Who::Forged("alice", 10, &"00".repeat(32))).await;
    assert_eq!(forged, (421, Some("refused".to_owned())));
    let both = futures::join!(
        source.sidecar.get("/count", Who::User("alice", 10)),
        source.sidecar.get("/count", Who::User("alice", 10))
    );
    let mut counts = [both.0.body, both.1.body];
    counts.sort();
    assert_eq!(counts, ["2", "3"]);
}

async fn sidecar_get(sidecar: &Sidecar, who: Who<'_>) -> (u16, Option<String>) {
    let answer = sidecar.get("/count", who).await;
    let (status, fence) = answer.refusal();
    (status, fence.map(str::to_owned))
}

#[tokio::test]
async fn a_staged_copy_that_was_not_routed_is_discarded_and_nothing_else() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await.with_alice(5, 41).await;
    let mut target = worker(&mut commander, 10_000).await;
    let package = source.session.snapshot("alice", 9).await.unwrap();
    target
        .fetch(source.sidecar.agent.peer.to_string(), 9, package)
        .await
        .unwrap();
    target.app.knobs.lock().users.insert("bob".into(), Held::Live(3));
    target.discard(9).await.unwrap();
    target.discard(9).await.unwrap();
    assert_eq!(target.alice(), None);
    assert_eq!(target.app.knobs.lock().users["bob"], Held::Live(3));
    assert_eq!(target.activate(9).await, Err(Reason::NotHere));
}

#[tokio::test]
async fn who_is_not_there_cannot_be_snapshot() {
    let mut commander = Commander::start().await;
    let mut source = worker(&mut commander, 10_000).await;
    assert_eq!(source.session.snapshot("alice", 9).await, Err(Reason::NotHere));
    source = source.with_alice(5, 1).await;
    source.app.knobs.lock().users.clear();
    assert_eq!(
        source.session.snapshot("alice", 9).await,
        Err(Reason::NotHere),
        "the app does not know him"
    );
    assert!(source.folder.path().join("state/fence.json").exists());
}

#[tokio::test]
async fn a_package_over_the_limit_stays_where_it_is() {
    let mut commander = Commander::start().await;
    let folder = tempfile::tempdir().unwrap();
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(12_345));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|welcome| welcome.max_package_bytes = 4).await;
    session.assign("alice", 5).await;
    assert_eq!(session.snapshot("alice", 9).await, Err(Reason::TooLarge));
    assert_eq!(sidecar.get("/count", Who::User("alice", 5)).await.body, "12346");
}
