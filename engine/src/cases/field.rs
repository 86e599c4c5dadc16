//! Reading fields of a JSON value with their paths, so that a refusal names the place; knows no case.

use serde_json::{Map, Value};

use super::CaseError;

/// A place in a JSON document and what stands there; `null` and absent are the same.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    pub(super) fn get(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self.value.get(name).unwrap_or(&Value::Null);
        Self {
            path: format!("{}{dot}{name}", self.path),
            value,
        }
    }

    pub(super) fn optional(&self) -> Option<&Self> {
        (!self.value.is_null()).then_some(self)
    }

    pub(super) fn wrong<T>(&self, wanted: &str) -> Result<T, CaseError> {
        let path = if self.path.is_empty() {
            "the line"
        } else {
            &self.path
        };
        let found = if self.value.is_null() {
            "missing".to_owned()
        } else {
            shortened(self.value)
        };
        Err(CaseError::Field {
            path: path.to_owned(),
            found,
            wanted: wanted.to_owned(),
        })
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, CaseError> {
        self.value.as_object().map_or_else(|| self.wrong("an object"), Ok)
    }

    pub(super) fn text(&self) -> Result<&'a str, CaseError> {
        self.value.as_str().map_or_else(|| self.wrong("a string"), Ok)
    }

    pub(super) fn optional_text(&self) -> Result<Option<&'a str>, CaseError> {
        self.optional().map(Self::text).transpose()
    }

    pub(super) fn flag(&self) -> Result<bool, CaseError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => self.wrong("true or false"),
        }
    }

    /// The elements of an array; none when absent.
    pub(super) fn items(&self) -> Result<Vec<Self>, CaseError> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => Ok(items
                .iter()
                .enumerate()
                .map(|(i, value)| Self {
                    path: format!("{}[{i}]", self.path),
                    value,
                })
                .collect()),
            _ => self.wrong("an array"),
        }
    }

    /// A number that may be impossible (NaN, infinite): a reading (M2).
    pub(super) fn reading(&self) -> Result<Option<f64>, CaseError> {
        match self.value {
            Value::Null => Ok(None),
            Value::Number(number) => Ok(Some(number.as_f64().unwrap_or(f64::INFINITY))),
            Value::String(text) if SPECIALS.contains(&text.as_str()) => Ok(text.parse().ok()),
            _ => self.wrong("a number or null"),
        }
    }

    /// A number from `low` to `high`.
    pub(super) fn number(&self, low: f64, high: f64) -> Result<Option<f64>, CaseError> {
        match self.reading()? {
            Some(number) if !(low..=high).contains(&number) => {
                self.wrong(&format!("a number from {low} to {high}"))
            }
            number => Ok(number),
        }
    }

    /// A whole number from `low` to 10^9.
    pub(super) fn count(&self, low: u64) -> Result<Option<usize>, CaseError> {
        let whole = |number: f64| (number.fract() == 0.0).then_some(number);
        match self.value {
            Value::Null => Ok(None),
            value => {
                let number = value
                    .as_f64()
                    .and_then(whole)
                    .filter(|n| (low as f64..=1e9).contains(n));
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to 10^9"
                )]
                number.map_or_else(
                    || self.wrong(&format!("a whole number from {low} to 1000000000")),
                    |number| Ok(Some(number as usize)),
                )
            }
        }
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

const SPECIALS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// Some writers put NaN and Infinity bare into JSON; quoted they can be read, and refused as readings (M2).
pub(super) fn quote_specials(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        if !in_string && let Some(special) = SPECIALS.iter().find(|special| rest.starts_with(**special)) {
            out.extend(["\"", special, "\""]);
            rest = &rest[special.len()..];
            continue;
        }
        let mut length = first.len_utf8();
        if first == '"' {
            in_string = !in_string;
        } else if in_string && first == '\\' {
            length += rest[1..].chars().next().map_or(0, char::len_utf8);
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Field, quote_specials};
    use serde_json::json;

    #[test]
    fn bare_specials_are_quoted_and_strings_left_alone() {
        let line = r#"{"NaN \" Infinity":NaN,"b":[-Infinity, Infinity,"\\"],"é":NaN}"#;
        let quoted = r#"{"NaN \" Infinity":"NaN","b":["-Infinity", "Infinity","\\"],"é":"NaN"}"#;
        assert_eq!(quote_specials(line), quoted);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_place() {
        let value = json!({"workers": [{"occupancy": 3}]});
        let field = Field::root(&value).get("workers").items().unwrap()[0].get("occupancy");
        let error = field.number(0.0, 1.0).unwrap_err().to_string();
        assert_eq!(error, "workers[0].occupancy is 3, must be a number from 0 to 1");
    }
}
