//! Two gateways of one pool: a cookie of one is good at the other, at once and during moves.

use serde_json::json;

use crate::browser::Browser;
use crate::run::{Run, row, rows, shop};

/// Logins that are followed at the other gateway without any pause.
const LOGINS: usize = 12;

#[tokio::test]
async fn a_login_at_one_gateway_is_known_at_the_other_at_once() {
    let run = Run::start(&[shop()], 2).await;
    run.settled(1).await;
    let ends = [run.gateway(0), run.gateway(1)];
    for number in 0..LOGINS {
        let user = format!("user-{number}");
        let mut browser = Browser::logged_in(ends[number % 2], &user).await;
        browser.address = ends[(number + 1) % 2];
        let answer = browser.count().await;
        assert_eq!((&answer["user"], &answer["counter"]), (&json!(user), &json!(1)));
        browser.address = ends[number % 2];
        assert_eq!(browser.count().await["counter"], 2);
    }
}

#[tokio::test]
async fn browsers_at_two_gateways_share_their_user_through_a_move() {
    let mut shop = shop();
    shop["spec"]["workers"] = json!({ "min": 2, "max": 3 });
    let run = Run::start(&[shop], 2).await;
    run.settled(2).await;
    let mut first = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(first.count().await["counter"], 1);
    let mut second = Browser::logged_in(run.gateway(1), "alice").await;
    assert_eq!(second.count().await["counter"], 2);
    let mut counter = 2;
    for _ in 0..2 {
        let state = run.state().await;
        let home = rows(&state).iter().find(|row| row["users"] == 1).unwrap()["name"].clone();
        let home = home.as_str().unwrap();
        run.drain(home).await;
        // Both browsers work all the time, at their own gateways.
        loop {
            for browser in [&mut first, &mut second] {
                counter += 1;
                let answer = browser.count().await;
                assert_eq!(
                    (&answer["user"], &answer["counter"]),
                    (&json!("alice"), &json!(counter))
                );
            }
            let state = run.state().await;
            if row(&state, home).is_null() && state["groups"][0]["view"]["ready_workers"] == 2 {
                break;
            }
        }
        for browser in [&mut first, &mut second] {
            counter += 1;
            let answer = browser.count().await;
            assert_eq!(answer["counter"], counter);
            assert_ne!(answer["worker"], home);
        }
    }
    assert!(run.metric("elastic_pool_moves_total{result=\"moved\"}").await >= 2.0);
}
