//! The login protocol (L1 to L7) under concurrency, with real agents and a real commander.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::browser::{AFFINITY, Answer, Browser};
use crate::run::{PATIENCE, Run, row, rows, shop, signal, until};

/// A pool of two workers behind two gateways.
async fn pair() -> Run {
    let mut shop = shop();
    shop["spec"]["workers"] = json!({ "min": 2, "max": 3 });
    let run = Run::start(&[shop], 2).await;
    run.settled(2).await;
    run
}

/// The workers that hold somebody, by the surface.
fn homes(state: &Value) -> Vec<String> {
    let held = rows(state).iter().filter(|row| row["users"].as_u64() > Some(0));
    held.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

fn user(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["user"].clone()
}

#[tokio::test]
async fn requests_beside_a_login_are_all_answered_and_the_older_cookie_is_the_user_s_afterwards() {
    let run = Run::ready(shop(), 1).await;
    let mut guest = Browser::new(run.gateway(0));
    guest.look().await;
    let before = guest.jar[AFFINITY].clone();
    let beside = (0..8).map(|_| {
        let mut tab = guest.clone();
        async move {
            tab.exchange("GET", "/work?counter=0&hold_ms=150", String::new())
                .await
        }
    });
    let mut first = guest.clone();
    let (login, beside) = tokio::join!(first.login("alice"), join_all(beside));
    assert_eq!(user(&login), "alice");
    for answer in beside {
        assert_eq!((answer.status, answer.affinities()), (200, 0));
    }
    assert_eq!(first.count().await["counter"], 1);
    // L4: a tab that still sends the affinity of before, beside the app's new session.
    let mut tab = first.clone();
    tab.jar.insert(AFFINITY.to_owned(), before);
    assert_eq!(
        (
            tab.count().await["counter"].clone(),
            tab.count().await["user"].clone()
        ),
        (json!(2), json!("alice"))
    );
}

#[tokio::test]
async fn logins_as_one_user_at_once_through_two_gateways_share_one_life() {
    let run = pair().await;
    for round in 0..4 {
        let name = format!("user-{round}");
        let ends = [run.gateway(0), run.gateway(1), run.gateway(0), run.gateway(1)];
        let mut browsers = join_all(ends.map(|address| Browser::logged_in(address, &name))).await;
        // Whatever joins there were are over when all of them count in one row.
        let mut counts = Vec::new();
        let mut workers = Vec::new();
        for browser in &mut browsers {
            let answer = browser.count().await;
            assert_eq!(answer["user"], json!(name));
            counts.push(answer["counter"].as_u64().unwrap());
            workers.push(answer["worker"].clone());
        }
        assert_eq!(counts, [1, 2, 3, 4], "{name} at {workers:?}");
        assert!(workers.iter().all(|worker| *worker == workers[0]), "{workers:?}");
    }
}

#[tokio::test]
async fn a_logout_in_one_browser_leaves_the_other_and_an_old_cookie_is_nobody_s_in_the_next_life() {
    let run = pair().await;
    let mut first = Browser::logged_in(run.gateway(0), "alice").await;
    let mut second = Browser::logged_in(run.gateway(1), "alice").await;
    assert_eq!(first.count().await["counter"], 1);
    let kept = second.clone();
    assert_eq!(first.exchange("POST", "/logout", String::new()).await.status, 200);
    assert_eq!(user(&first.look().await), Value::Null);
    let answer = second.count().await;
    assert_eq!(
        (&answer["user"], &answer["counter"]),
        (&json!("alice"), &json!(2))
    );
    assert_eq!(
        second.exchange("POST", "/logout", String::new()).await.status,
        200
    );
    // L7: the app's own list lacks her, twice.
    run.until("she has left", |state| homes(state).is_empty()).await;
    let mut old = kept.clone();
    assert_eq!(user(&old.look().await), Value::Null);
    // The next life begins anew, and the cookie of the one before is not hers (L6).
    let mut new = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(new.count().await["counter"], 1);
    let mut old = kept;
    assert_eq!(user(&old.look().await), Value::Null);
    assert_eq!(new.count().await["counter"], 2);
}

#[tokio::test]
async fn a_login_while_the_commander_is_away_is_served_and_becomes_an_ordinary_one() {
    let run = pair().await;
    let mut known = Browser::logged_in(run.gateway(0), "bob").await;
    assert_eq!(known.count().await["counter"], 1);
    // The commander stops where it stands; gateways, agents and apps are processes of their own.
    signal("-STOP", run.pid());
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    let first = alice.count().await;
    assert_eq!((&first["user"], &first["counter"]), (&json!("alice"), &json!(1)));
    // L6: through the other gateway too, which has heard of her from her cookie alone.
    alice.address = run.gateway(1);
    assert_eq!(alice.count().await["counter"], 2);
    assert_eq!(known.count().await["counter"], 2);
    signal("-CONT", run.pid());
    run.until("both live somewhere", |state| {
        rows(state)
            .iter()
            .filter_map(|row| row["users"].as_u64())
            .sum::<u64>()
            == 2
    })
    .await;
    for address in [run.gateway(0), run.gateway(1)] {
        alice.address = address;
        let answer = alice.count().await;
        assert_eq!(answer["user"], "alice");
    }
    assert_eq!(alice.count().await["counter"], 5);
    assert_eq!(known.count().await["counter"], 3);
}

#[tokio::test]
async fn a_login_of_who_is_being_moved_takes_nothing_from_her_and_forks_nobody() {
    let run = pair().await;
    let mut first = Browser::logged_in(run.gateway(0), "alice").await;
    let mut counter = 0;
    for _ in 0..3 {
        let home = homes(&run.state().await).pop().unwrap();
        run.drain(&home).await;
        // Logins and work at the same time, while her worker is emptied.
        let mut others: Vec<Browser> = (0..3)
            .map(|number| Browser::new(run.gateway(number % 2)))
            .collect();
        let logins = join_all(others.iter_mut().map(|browser| browser.login("alice")));
        let (logins, answer) = tokio::join!(logins, first.count());
        counter += 1;
        assert_eq!(
            (&answer["user"], &answer["counter"]),
            (&json!("alice"), &json!(counter))
        );
        for login in &logins {
            assert_eq!(user(login), "alice");
        }
        // P5: a join that fails leaves its client a guest, who logs in once more; it forks nobody.
        let mut guests = Vec::new();
        for mut browser in others {
            let answer = browser.count().await;
            if answer["user"].is_null() {
                guests.push(browser);
                continue;
            }
            counter += 1;
            assert_eq!(
                (&answer["user"], &answer["counter"]),
                (&json!("alice"), &json!(counter))
            );
        }
        until("the drained one is gone", PATIENCE, async || {
            let state = run.state().await;
            row(&state, &home).is_null() && state["groups"][0]["view"]["ready_workers"] == 2
        })
        .await;
        for mut browser in guests {
            assert_eq!(user(&browser.login("alice").await), "alice");
            counter += 1;
            assert_eq!(browser.count().await["counter"], counter);
        }
    }
}
