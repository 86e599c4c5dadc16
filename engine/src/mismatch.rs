//! Compares an answer with what was expected; never computes an answer.

use std::fmt;

use serde_json::{Map, Value};

/// One field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Where, as in `ledger.H`.
    pub path: String,
    /// What was expected; `None` when the answer has a field too many.
    pub expected: Option<Value>,
    /// What came; `None` when it is missing.
    pub found: Option<Value>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| {
            value
                .as_ref()
                .map_or_else(|| "nothing".to_owned(), Value::to_string)
        };
        write!(
            f,
            "{}: expected {}, found {}",
            self.path,
            text(&self.expected),
            text(&self.found)
        )
    }
}

/// Every expected field must be there; inside a field nothing may be added, but to those that `records` names: they too need only contain
/// what is expected. Numbers are equal to 1e-9.
pub(crate) fn mismatches(
    expect: &Map<String, Value>,
    answer: &Map<String, Value>,
    records: &[&str],
) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for (name, expected) in expect {
        let answered = answer.get(name);
        match (expected, answered) {
            (Value::Object(expected), Some(Value::Object(answered))) if records.contains(&name.as_str()) => {
                for (field, value) in expected {
                    compare(
                        &format!("{name}.{field}"),
                        Some(value),
                        answered.get(field),
                        &mut found,
                    );
                }
            }
            _ => compare(name, Some(expected), answered, &mut found),
        }
    }
    found
}

fn compare(path: &str, expected: Option<&Value>, found: Option<&Value>, out: &mut Vec<Mismatch>) {
    let equal = match (expected, found) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let added = b.keys().filter(|name| !a.contains_key(*name));
            for name in a.keys().chain(added) {
                compare(&format!("{path}.{name}"), a.get(name), b.get(name), out);
            }
            true
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{i}]"), Some(a), Some(b), out);
            }
            true
        }
        (Some(Value::Number(a)), Some(Value::Number(b))) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9,
            _ => a == b,
        },
        (expected, found) => expected == found,
    };
    if !equal {
        let (expected, found) = (expected.cloned(), found.cloned());
        out.push(Mismatch {
            path: path.to_owned(),
            expected,
            found,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::mismatches;
    use serde_json::{Value, json};

    fn paths(expect: &Value, answer: &Value) -> Vec<String> {
        let found = mismatches(
            expect.as_object().unwrap(),
            answer.as_object().unwrap(),
            &["record"],
        );
        found.into_iter().map(|mismatch| mismatch.path).collect()
    }

    #[test]
    fn a_record_need_only_contain_what_is_expected() {
        let answer = json!({"record": {"a": 1, "b": 2}, "map": {"a": 1, "b": 2}});
        let expect = json!({"record": {"a": 1}, "map": {"a": 1}});
        assert_eq!(paths(&expect, &answer), ["map.b"]);
        assert_eq!(paths(&json!({"record": {"c": 1}}), &answer), ["record.c"]);
    }

    #[test]
    fn numbers_are_equal_to_a_billionth() {
        assert_eq!(
            paths(&json!({"a": 0.333_333_333_333}), &json!({"a": 1.0 / 3.0})),
            [""; 0]
        );
        assert_eq!(paths(&json!({"a": 1}), &json!({"a": 1.000_000_002})), ["a"]);
        assert_eq!(paths(&json!({"a": null}), &json!({"a": 0})), ["a"]);
    }

    #[test]
    fn a_field_more_is_welcome_beside_but_not_inside() {
        assert_eq!(
            paths(&json!({"a": {}}), &json!({"a": {}, "because": "x"})),
            [""; 0]
        );
        assert_eq!(paths(&json!({"a": {}}), &json!({"a": {"cpu": 1}})), ["a.cpu"]);
        assert_eq!(paths(&json!({"a": [1, 2]}), &json!({"a": [1, 3]})), ["a[1]"]);
        assert_eq!(paths(&json!({"a": [1, 2]}), &json!({"a": [1]})), ["a"]);
        assert_eq!(paths(&json!({"a": null}), &json!({})), ["a"]);
    }
}
