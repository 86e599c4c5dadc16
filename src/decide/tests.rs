use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::ids::{Birth, UserId};
use elastic_pool_engine::snapshot::{Saved, SavedUser};
use elastic_pool_engine::{Group, Policy, Share, Snapshot, WorkerView};
use rstest::rstest;

use super::{Args, Output, Streams, run};

const CASES: &str = include_str!("../../tests/cases/decisions.jsonl");
const RULES: &str = include_str!("../../tests/cases/rules.jsonl");

/// Exit code, answers, errors.
fn decide(args: &Args, input: &[u8]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams {
        input: &mut &*input,
        out: &mut out,
        err: &mut err,
    };
    let code = run(args, streams);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

fn checking() -> Args {
    Args {
        check: true,
        ..Args::default()
    }
}

fn cases(input: impl AsRef<[u8]>) -> (u8, String, String) {
    decide(&Args::default(), input.as_ref())
}

#[rstest]
#[case(CASES)]
#[case(RULES)]
fn the_cases_pass_their_check(#[case] lines: &str) {
    let told = format!("{} passed, 0 failed\n", lines.lines().count());
    assert_eq!(decide(&checking(), lines.as_bytes()), (0, told, String::new()));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (code, out, err) = cases(CASES);
    assert_eq!((code, out.lines().count(), err.as_str()), (0, 55, ""));
    assert_eq!(cases(CASES).1, out);
}

const LINE: &str = r#"{"name":"x","category":"scale_up","input":{"workers":[{"name":"w1","occupancy":0.6}]},"expect":{"spawn":0}}"#;

#[test]
fn a_wrong_expectation_is_counted_and_shown() {
    let (code, out, _) = decide(&checking(), LINE.as_bytes());
    assert_eq!(code, 1);
    assert_eq!(out, "x: spawn: expected 0, found 1\n0 passed, 1 failed\n");
}

#[test]
fn people_get_lines_and_programs_get_json() {
    let text = Args {
        output: Some(Output::Text),
        ..Args::default()
    };
    let (_, out, _) = decide(&text, LINE.as_bytes());
    assert_eq!(
        out,
        "x\n  reason: cannot_place\n  spawn: 1\n  G1: w1, alone, at 0.60 is not below its threshold of 0.50, so one is spawned\n"
    );
    assert!(cases(LINE).1.starts_with('{'));
}

#[rstest]
#[case::malformed(
    "{",
    "standard input:1: not JSON: EOF while parsing an object at line 1 column 1; a case is"
)]
#[case::line_number("\n\n[1,", "standard input:3: not JSON: ")]
#[case::no_object("[]", "standard input:1: the line is [], must be an object")]
#[case::no_name("{}", "standard input:1: name is missing, must be a string")]
#[case::unknown_event(
    r#"{"name":"x","input":{"event":{"type":"nap"}}}"#,
    "standard input:1: input.event.type is \"nap\", must be login, request, check_capacity, login_then_check, "
)]
#[case::unknown_state(
    r#"{"name":"x","category":"fixture","input":{"workers":[{"name":"w1","state":"sleepy"}]}}"#,
    "standard input:1: input.workers[0].state is \"sleepy\", must be routable, nascent, draining, evacuating, retiring, dead, "
)]
#[case::a_snapshot(
    r#"{"snapshot":1,"group":"shop/blue"}"#,
    "standard input:1: the line is a saved snapshot, must be a case; `elastic-pool decide --snapshot FILE` answers"
)]
#[case::empty(
    "",
    "standard input: is empty, must hold decision cases, one JSON object a line"
)]
#[case::blank("\n \r\n\t\n", "standard input: is empty, must hold decision cases")]
fn bad_input_names_source_line_and_what_would_be_right(#[case] input: &str, #[case] expected: &str) {
    let (code, out, err) = cases(input);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with(expected), "{err}");
}

#[test]
fn no_utf8_is_named_with_its_byte() {
    let (code, _, err) = cases(b"{\"name\":\"\xff\"}\n");
    assert_eq!(code, 2);
    assert_eq!(
        err,
        "standard input:1: byte 10 of the line is not UTF-8, must be: save the file as UTF-8\n"
    );
    assert!(
        cases(b"\xff\xfe{\0}\0")
            .2
            .contains("byte 1 of the line is not UTF-8")
    );
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_no_mistake() {
    let (code, out, err) = decide(
        &checking(),
        format!("\u{feff}{}", CASES.replace('\n', "\r\n")).as_bytes(),
    );
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "55 passed, 0 failed\n", "")
    );
}

#[test]
fn a_line_of_ten_megabytes_is_too_long_and_one_below_the_bound_is_read() {
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(10_000_000));
    let (code, _, err) = cases(format!("{LINE}\n{long}"));
    assert_eq!(code, 2);
    assert_eq!(
        err,
        "standard input:2: the line is longer than 8 MiB, must be shorter: one JSON object a line\n"
    );
    let (code, _, err) = cases("x".repeat(8_000_000));
    assert_eq!(code, 2);
    assert!(
        err.starts_with("standard input:1: not JSON: ") && err.len() < 1000,
        "{err}"
    );
}

#[test]
fn deep_nesting_is_refused_and_does_not_overflow() {
    let deep = "[".repeat(1_000_000);
    let (code, _, err) = cases(format!("{{\"name\":\"x\",\"input\":{deep}"));
    assert_eq!(code, 2);
    assert!(
        err.starts_with("standard input:1: not JSON: recursion limit exceeded"),
        "{err}"
    );
}

#[test]
fn a_line_that_cannot_be_read_does_not_keep_the_others_from_their_answers() {
    let (code, out, err) = cases(format!("{LINE}\n{{\n{LINE}\n"));
    assert_eq!((code, out.lines().count(), err.lines().count()), (2, 2, 1));
    let (code, out, _) = decide(&checking(), format!("nonsense\n{CASES}").as_bytes());
    assert_eq!((code, out.as_str()), (2, "55 passed, 1 failed\n"));
}

#[test]
fn a_file_of_another_kind_is_given_up_early() {
    let (code, _, err) = cases("time,logins,stay,cost\n".repeat(1000));
    assert_eq!((code, err.lines().count()), (2, 21));
    assert!(err.ends_with(
        "standard input:20: too many lines are wrong, the rest is not read; is it the right file?\n"
    ));
}

#[test]
fn a_case_that_expects_nothing_cannot_be_checked() {
    let line = LINE.replace(r#","expect":{"spawn":0}"#, "");
    let (code, out, err) = decide(&checking(), line.as_bytes());
    assert_eq!((code, out.as_str()), (2, "0 passed, 1 failed\n"));
    assert!(err.contains("expect is missing, must be an object"), "{err}");
}

#[test]
fn a_directory_and_a_missing_file_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let with = |path: PathBuf| Args {
        files: vec![path],
        ..Args::default()
    };
    let (code, _, err) = decide(&with(folder.path().to_owned()), b"");
    assert_eq!(code, 2);
    assert_eq!(
        err,
        format!(
            "{}: cannot open: is a directory; give a file of decision cases, one JSON object a line\n",
            folder.path().display()
        )
    );
    let (code, _, err) = decide(&with(folder.path().join("none.jsonl")), b"");
    assert_eq!(code, 2);
    assert!(
        err.contains("none.jsonl: cannot open: No such file or directory"),
        "{err}"
    );
}

fn saved() -> Saved {
    let worker = |birth, percent| WorkerView {
        occupancy: Share::from_percent(percent),
        users: 1,
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    };
    let group: Group = [worker(1, 10), worker(2, 20), worker(3, 0)].into_iter().collect();
    let snapshot = Snapshot {
        group: &group,
        policy: &Policy::default(),
        spawns: &SpawnHistory::default(),
    };
    let ann = SavedUser {
        worker: Birth(3),
        user: UserId::new("ann").unwrap(),
        open_requests: 0,
        stays: None,
    };
    Saved::of(
        "shop/shop-blue",
        &snapshot,
        std::time::Duration::from_mins(1),
        [ann],
    )
}

fn snapshots(check: bool) -> Args {
    Args {
        snapshot: vec!["-".into()],
        check,
        ..Args::default()
    }
}

#[test]
fn a_snapshot_is_answered_and_its_answer_replays_to_the_same_bytes() {
    let line = saved().answered().to_json();
    let (code, out, _) = decide(&snapshots(false), line.as_bytes());
    assert_eq!((code, out.trim_end()), (0, saved().answer().to_json().as_str()));
    let lines = format!("{line}\n{line}\n");
    let (code, out, _) = decide(&snapshots(true), lines.as_bytes());
    assert_eq!((code, out.as_str()), (0, "2 passed, 0 failed\n"));
}

#[test]
fn a_snapshot_that_answers_otherwise_today_fails_its_check() {
    let line = saved()
        .answered()
        .to_json()
        .replace("\"reason\":\"room\"", "\"reason\":\"rain\"");
    let (code, out, _) = decide(&snapshots(true), line.as_bytes());
    assert_eq!(code, 1);
    assert!(
        out.contains("shop/shop-blue at 60.000 s: growth.reason: expected \"rain\", found \"room\""),
        "{out}"
    );
    assert!(out.ends_with("0 passed, 1 failed\n"));
    let (code, _, err) = decide(&snapshots(true), saved().to_json().as_bytes());
    assert_eq!(code, 2);
    assert!(
        err.starts_with("standard input:1: answer is missing, must be"),
        "{err}"
    );
}

/// A commander that answers one request with `response`, and what it was asked.
fn commander(response: String) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 2048];
        let length = stream.read(&mut asked).unwrap();
        stream.write_all(response.as_bytes()).unwrap();
        String::from_utf8_lossy(&asked[..length])
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    (address, std::thread::spawn(serve))
}

fn live(commander: String, group: &str) -> Args {
    Args {
        group: Some(group.to_owned()),
        commander,
        ..Args::default()
    }
}

fn response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_live_group_answers_as_its_saved_snapshot_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.jsonl");
    let (address, asked) = commander(response("200 OK", &(saved().to_json() + "\n")));
    let args = Args {
        namespace: Some("shop".to_owned()),
        save: Some(file.clone()),
        ..live(address, "shop-blue")
    };
    let (code, out, err) = decide(&args, b"");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.trim_end(), saved().answer().to_json());
    assert_eq!(
        asked.join().unwrap(),
        "GET /_commander/snapshot?group=shop/shop-blue HTTP/1.1"
    );
    let again = Args {
        snapshot: vec![file],
        check: true,
        ..Args::default()
    };
    assert_eq!(decide(&again, b"").1, "1 passed, 0 failed\n");
}

#[test]
fn an_answer_of_nothing_is_no_snapshot() {
    let (address, asked) = commander(response("200 OK", "\n"));
    let (code, out, err) = decide(&live(address.clone(), "shop-blue"), b"");
    asked.join().unwrap();
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.starts_with(&format!("{address} sends nothing instead of a snapshot")),
        "{err}"
    );
}

#[test]
fn open_requests_beside_many_workers_are_read_once() {
    let workers: Vec<_> = (0..2000)
        .map(|n| serde_json::json!({"name": format!("w{n}")}))
        .collect();
    let open: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("u{n}"), 1.into())).collect();
    let case = serde_json::json!({
        "name": "many", "category": "fixture", "input": {"workers": workers, "open_requests": open}
    });
    let (code, out, err) = decide(&Args::default(), case.to_string().as_bytes());
    assert_eq!((code, err.as_str(), out.lines().count()), (0, "", 1));
}

#[test]
fn the_last_decisions_of_a_group_are_told_in_brief() {
    let two = format!(
        "{}\n{}\n",
        saved().answered().to_json(),
        saved().answered().to_json()
    );
    let (address, asked) = commander(response("200 OK", &two));
    let args = Args {
        past: true,
        output: Some(Output::Text),
        ..live(address, "shop-blue")
    };
    let (code, out, err) = decide(&args, b"");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out.matches("shop/shop-blue, 60.0 s after its commander's start\n")
            .count(),
        2
    );
    assert_eq!(out.matches("decided      drain w3\n").count(), 2, "{out}");
    assert_eq!(
        asked.join().unwrap(),
        "GET /_commander/decisions?group=shop-blue HTTP/1.1"
    );
}

#[test]
fn an_unknown_group_is_told_with_those_there_are() {
    let (address, asked) = commander(response(
        "404 Not Found",
        "no group shop-red; there are shop/shop-blue\n",
    ));
    let (code, out, err) = decide(&live(address.clone(), "shop-red"), b"");
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(
        err,
        format!("{address} answers 404 Not Found: no group shop-red; there are shop/shop-blue\n")
    );
    assert_eq!(
        asked.join().unwrap(),
        "GET /_commander/snapshot?group=shop-red HTTP/1.1"
    );
}

#[test]
fn where_nobody_listens_the_way_there_is_told() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = decide(&live(format!("http://{free}"), "shop-blue"), b"");
    assert_eq!(code, 2);
    assert!(
        err.starts_with(&format!("nobody answers at http://{free}: Connection refused")),
        "{err}"
    );
    assert!(
        err.contains(&format!("port-forward pod/POD {}:7070", free.port())),
        "{err}"
    );
}

#[rstest]
#[case(
    "https://127.0.0.1:7070",
    "shop-blue",
    "--commander is \"https://127.0.0.1:7070\", must be http://HOST:PORT"
)]
#[case(
    "http://127.0.0.1:99999",
    "shop-blue",
    "--commander is \"http://127.0.0.1:99999\", must be http://HOST:PORT"
)]
#[case(
    "127.0.0.1:7070",
    "shop-blue",
    "--commander is \"127.0.0.1:7070\", must be http://HOST:PORT"
)]
#[case(
    "http://127.0.0.1:1",
    "Shop Blue",
    "--group is \"Shop Blue\", must be a name of lower-case letters"
)]
#[case("http://127.0.0.1:1", "a/b/c", "--group is \"b/c\", must be a name")]
fn a_bad_address_or_name_is_refused_before_anybody_is_asked(
    #[case] commander: &str,
    #[case] group: &str,
    #[case] expected: &str,
) {
    let (code, _, err) = decide(&live(commander.to_owned(), group), b"");
    assert_eq!(code, 2);
    assert!(err.starts_with(expected), "{err}");
}

#[test]
fn a_case_among_snapshots_is_told_apart() {
    let (code, _, err) = decide(&snapshots(false), LINE.as_bytes());
    assert_eq!(code, 2);
    assert!(
        err.starts_with("standard input:1: snapshot is missing, must be 1, the version"),
        "{err}"
    );
}

#[test]
fn flags_of_a_live_group_are_refused_without_one() {
    let args = Args {
        save: Some("x".into()),
        ..Args::default()
    };
    let (code, _, err) = decide(&args, LINE.as_bytes());
    assert_eq!(
        (code, err.as_str()),
        (
            2,
            "--save is given without --group, must be left out or used with it\n"
        )
    );
}
