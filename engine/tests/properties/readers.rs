//! What reads text from outside, under text that was right until somebody's hand slipped. The fuzz targets (fuzz/) go further.

use elastic_pool_engine::cases::Case;
use elastic_pool_engine::simulate::Trace;
use elastic_pool_engine::snapshot::Saved;
use elastic_pool_engine::{Group, Share, Snapshot};
use proptest::prelude::*;

use crate::world::{NOW, any_workers, config, policy_of_either_moves, spawns};

const DAY: &str = include_str!("../../../tests/traces/office.csv");
const CASES: &str = include_str!("../../../tests/cases/decisions.jsonl");

/// Words that mean something to a reader of JSON, or nearly.
const WORDS: [&str; 24] = [
    "null",
    "true",
    "NaN",
    "-Infinity",
    "1e999",
    "-1",
    "0",
    "0.5",
    "1.0000000001",
    "1e-320",
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "\"\"",
    "\"w1\"",
    "\"\\ud800\"",
    "\u{0}",
    "{}",
    "[]",
    "{",
    "]",
    ",",
    ":",
    "\"",
];

/// One slip: what is done, where, how far, and with which word.
type Slip = (u8, usize, usize, usize);

fn slips() -> impl Strategy<Value = Vec<Slip>> {
    prop::collection::vec((0u8..6, any::<usize>(), 0usize..40, 0..WORDS.len()), 1..5)
}

fn slipped(line: &str, slips: &[Slip]) -> String {
    let mut text: Vec<char> = line.chars().collect();
    for (kind, at, length, word) in slips {
        let at = at % (text.len() + 1);
        let end = (at + length).min(text.len());
        let word = WORDS[*word].chars();
        match kind {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..at, word)),
            2 => drop(text.splice(at..end, word)),
            3 => {
                let again = text[at..end].to_vec();
                drop(text.splice(end..end, again));
            }
            // A number becomes another one, or no number any more.
            4 => {
                let is_digit = |place: &usize| text[*place].is_ascii_digit();
                let from = (at..text.len()).find(is_digit).unwrap_or(end);
                let to = (from..text.len())
                    .find(|place| !is_digit(place))
                    .unwrap_or(text.len());
                drop(text.splice(from..to, word));
            }
            // A word between quotes becomes another one.
            _ => {
                let quotes: Vec<usize> = (at..text.len())
                    .filter(|place| text[*place] == '"')
                    .take(2)
                    .collect();
                if let [from, to] = quotes[..] {
                    drop(text.splice(from + 1..to, word));
                }
            }
        }
    }
    text.into_iter().collect()
}

fn case_is_answered_or_refused(line: &str) -> Result<(), TestCaseError> {
    match Case::parse(line) {
        Ok(case) => {
            let answer = case.answer();
            prop_assert!(
                answer.contains_key("name") && answer.contains_key("because"),
                "{:?}",
                answer
            );
            case.check(&answer);
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

fn snapshot_is_answered_or_refused(line: &str) -> Result<(), TestCaseError> {
    match Saved::parse(line) {
        Ok(saved) => {
            let written = saved.to_json();
            let again = Saved::parse(&written).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(again.answer().to_json(), saved.answer().to_json());
            prop_assert_eq!(again.to_json(), written);
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

fn trace_is_read_or_refused(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Trace::parse(bytes) {
        Ok(trace) => {
            prop_assert!(trace.rows.len() >= 2 && trace.span() >= trace.step && !trace.step.is_zero());
            for row in &trace.rows {
                prop_assert!((0.0..=1e6).contains(&row.logins), "{:?}", row);
                prop_assert!(row.cost >= Share::ZERO && row.cost <= Share::ONE, "{:?}", row);
                prop_assert!(row.mean_stay.as_secs_f64() >= 1.0, "{:?}", row);
            }
        }
        Err(error) => prop_assert!(error.line > 0 && !error.problem.is_empty(), "{:?}", error),
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_case_is_answered_or_refused_whatever_stands_there(which in any::<usize>(), slips in slips()) {
        let lines: Vec<&str> = CASES.lines().collect();
        case_is_answered_or_refused(&slipped(lines[which % lines.len()], &slips))?;
    }

    #[test]
    fn a_snapshot_is_answered_or_refused_whatever_stands_there(
        workers in any_workers(4),
        policy in policy_of_either_moves(),
        spawns in spawns(),
        slips in slips(),
    ) {
        let group: Group = workers.into_iter().collect();
        let snapshot = Snapshot { group: &group, policy: &policy, spawns: &spawns };
        let line = Saved::of("shop/blue", &snapshot, NOW, []).to_json();
        snapshot_is_answered_or_refused(&line)?;
        snapshot_is_answered_or_refused(&slipped(&line, &slips))?;
    }

    #[test]
    fn a_trace_is_read_or_refused_whatever_stands_there(rows in 0usize..12, slips in slips()) {
        let day: String = DAY.split_inclusive('\n').take(rows).collect();
        trace_is_read_or_refused(day.as_bytes())?;
        trace_is_read_or_refused(slipped(&day, &slips).as_bytes())?;
    }

    #[test]
    fn any_bytes_are_no_trace(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        trace_is_read_or_refused(&bytes)?;
    }

    #[test]
    fn any_text_is_no_case_and_no_snapshot(text in ".*") {
        case_is_answered_or_refused(&text)?;
        snapshot_is_answered_or_refused(&text)?;
    }
}
