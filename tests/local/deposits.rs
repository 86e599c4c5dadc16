//! Messages between users (V10) while senders and receivers are moved from worker to worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;
use crate::run::{PATIENCE, Run, row, rows, shop, until};

const SENDERS: usize = 3;
const RECEIVERS: usize = 6;
const DRAINS: usize = 3;
/// Emptying a worker and starting another takes at most this long.
const SOON: Duration = Duration::from_mins(1);

/// Numbers by sender and receiver, in order.
type Letters = BTreeMap<(usize, usize), Vec<u64>>;

/// Sends numbered messages to everybody in turn; what was taken.
async fn send_all(mut browser: Browser, sender: usize, stop: CancellationToken) -> Letters {
    let mut sent = Letters::new();
    for number in 0.. {
        for receiver in 0..RECEIVERS {
            if stop.is_cancelled() {
                return sent;
            }
            let path = format!("/send/receiver-{receiver}");
            let answer = browser
                .exchange("POST", &path, format!("{sender} {number}"))
                .await;
            let outcome = answer.json()["outcome"].clone();
            assert!(outcome == "delivered" || outcome == "held", "{answer:?}");
            sent.entry((sender, receiver)).or_default().push(number);
        }
    }
    sent
}

/// Takes what has come, again and again.
async fn receive_all(
    mut browser: Browser,
    receiver: usize,
    got: Arc<Mutex<Letters>>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let answer = browser.exchange("GET", "/deposits", String::new()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        for text in answer.json()["deposits"].as_array().unwrap() {
            let (sender, number) = text.as_str().unwrap().split_once(' ').unwrap();
            let key = (sender.parse().unwrap(), receiver);
            got.lock().entry(key).or_default().push(number.parse().unwrap());
        }
        tokio::task::yield_now().await;
    }
}

fn fullest(state: &Value) -> String {
    let fullest = rows(state).iter().max_by_key(|row| row["users"].as_u64());
    fullest.unwrap()["name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn messages_to_users_who_are_moved_arrive_all_once_and_in_order() {
    let mut shop = shop();
    shop["spec"]["workers"] = json!({ "min": 2, "max": 4 });
    let run = Run::ready(shop, 2).await;
    let got = Arc::new(Mutex::new(Letters::new()));
    let (sending, receiving) = (CancellationToken::new(), CancellationToken::new());
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for receiver in 0..RECEIVERS {
        let browser = Browser::logged_in(run.gateway(0), &format!("receiver-{receiver}")).await;
        receivers.push(tokio::spawn(receive_all(
            browser,
            receiver,
            Arc::clone(&got),
            receiving.clone(),
        )));
    }
    for sender in 0..SENDERS {
        let browser = Browser::logged_in(run.gateway(0), &format!("sender-{sender}")).await;
        senders.push(tokio::spawn(send_all(browser, sender, sending.clone())));
    }
    for _ in 0..DRAINS {
        let home = fullest(&run.state().await);
        run.drain(&home).await;
        run.within(
            SOON,
            "the drained worker is gone, another in its place",
            |state| row(state, &home).is_null() && state["groups"][0]["view"]["ready_workers"] == 2,
        )
        .await;
    }
    sending.cancel();
    let mut sent = Letters::new();
    for sender in senders {
        sent.append(&mut sender.await.unwrap());
    }
    until("every message has come", PATIENCE, async || {
        let count = |letters: &Letters| letters.values().map(Vec::len).sum::<usize>();
        count(&got.lock()) >= count(&sent)
    })
    .await;
    receiving.cancel();
    for receiver in receivers {
        receiver.await.unwrap();
    }
    assert_eq!(*got.lock(), sent, "in the order of each sender, once");
    let moved = run.metric("elastic_pool_moves_total{result=\"moved\"}").await;
    // At least half of them live on the fuller one of two workers.
    assert!(moved * 2.0 >= (DRAINS * (SENDERS + RECEIVERS)) as f64, "{moved}");
}
