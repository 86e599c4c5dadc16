//! Reading fields of a JSON value with their paths, so that a refusal names the place; knows neither cases nor snapshots.

use serde_json::{Map, Value};

/// A field that is missing, has an impossible value or is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {found}, must be {wanted}")]
pub struct FieldError {
    /// Where, as in `input.workers[1].occupancy`.
    pub path: String,
    /// What stands there.
    pub found: String,
    /// What would be right.
    pub wanted: String,
}

/// A place in a JSON document and what stands there; `null` and absent are the same.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self.value.get(name).unwrap_or(&Value::Null);
        Self {
            path: format!("{}{dot}{name}", self.path),
            value,
        }
    }

    pub(crate) fn optional(&self) -> Option<&Self> {
        (!self.value.is_null()).then_some(self)
    }

    pub(crate) fn wrong<T>(&self, wanted: &str) -> Result<T, FieldError> {
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
        Err(FieldError {
            path: path.to_owned(),
            found,
            wanted: wanted.to_owned(),
        })
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Value>, FieldError> {
        self.value.as_object().map_or_else(|| self.wrong("an object"), Ok)
    }

    /// An object without other fields than `known`.
    pub(crate) fn object_of(&self, known: &[&str]) -> Result<&'a Map<String, Value>, FieldError> {
        let object = self.object()?;
        match object.keys().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => self.get(unknown).unknown(known),
            None => Ok(object),
        }
    }

    fn unknown<T>(&self, known: &[&str]) -> Result<T, FieldError> {
        let found = format!("{}, which is not known here", shortened(self.value));
        Err(FieldError {
            path: self.path.clone(),
            found,
            wanted: format!("left out; known are {}", known.join(", ")),
        })
    }

    /// Paths of the fields that are not among `known`; none when this is no object.
    pub(crate) fn others(&self, known: &[&str]) -> Vec<String> {
        let Some(object) = self.value.as_object() else {
            return Vec::new();
        };
        let others = object.keys().filter(|name| !known.contains(&name.as_str()));
        others.map(|name| self.get(name).path).collect()
    }

    pub(crate) fn optional_object(&self) -> Result<(), FieldError> {
        self.optional().map_or(Ok(()), |field| field.object().map(drop))
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    pub(crate) fn text(&self) -> Result<&'a str, FieldError> {
        self.value.as_str().map_or_else(|| self.wrong("a string"), Ok)
    }

    pub(crate) fn optional_text(&self) -> Result<Option<&'a str>, FieldError> {
        self.optional().map(Self::text).transpose()
    }

    pub(crate) fn flag(&self) -> Result<bool, FieldError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => self.wrong("true or false"),
        }
    }

    /// The elements of an array; none when absent.
    pub(crate) fn items(&self) -> Result<Vec<Self>, FieldError> {
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
    pub(crate) fn reading(&self) -> Result<Option<f64>, FieldError> {
        match self.value {
            Value::Null => Ok(None),
            // A whole number above 2^53 must not round down to one that is possible.
            Value::Number(number) if number.as_u64().is_some_and(|whole| whole > 1 << 53) => {
                Ok(Some(f64::INFINITY))
            }
            Value::Number(number) => Ok(Some(number.as_f64().unwrap_or(f64::INFINITY))),
            Value::String(text) if SPECIALS.contains(&text.as_str()) => Ok(text.parse().ok()),
            _ => self.wrong("a number or null"),
        }
    }

    /// A number from `low` to `high`.
    pub(crate) fn number(&self, low: f64, high: f64) -> Result<Option<f64>, FieldError> {
        match self.reading()? {
            Some(number) if !(low..=high).contains(&number) => {
                self.wrong(&format!("a number from {low} to {high}"))
            }
            number => Ok(number),
        }
    }

    /// A decimal of at most `places` decimals, in units of its last place: exact where a float is not.
    ///
    /// A string, as snapshots write it, or a plain JSON number.
    pub(crate) fn decimal(&self, places: usize) -> Result<Option<i128>, FieldError> {
        let text = match self.value {
            Value::Null => return Ok(None),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        parse_decimal(&text, places).map_or_else(
            || self.wrong(&format!("a decimal of at most {places} places, such as \"0.25\"")),
            |units| Ok(Some(units)),
        )
    }

    /// A whole number from 0 to `most`, exact to 2^64.
    pub(crate) fn whole(&self, most: u64) -> Result<Option<u64>, FieldError> {
        match self.value {
            Value::Null => Ok(None),
            value => match value.as_u64().filter(|number| *number <= most) {
                Some(number) => Ok(Some(number)),
                None => self.wrong(&format!("a whole number from 0 to {most}")),
            },
        }
    }

    /// A whole number from `low` to 10^9.
    pub(crate) fn count(&self, low: u64) -> Result<Option<usize>, FieldError> {
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

/// The decimal that [`write_decimal`] writes; `None` for anything else and beyond 38 digits.
fn parse_decimal(text: &str, places: usize) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || fraction.len() > places {
        return None;
    }
    let units: i128 = format!("{whole}{fraction:0<places$}").parse().ok()?;
    Some(sign * units)
}

/// `units` of the last of `places` decimals as a decimal, without trailing zeros: `0.25`, `-3`.
pub(crate) fn write_decimal(units: i128, places: usize) -> String {
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", units.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

const SPECIALS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// Some writers put NaN and Infinity bare into JSON, or numbers beyond any float: quoted they can be read, and refused as readings (M2).
pub(crate) fn quote_specials(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        if !in_string && let Some((length, special)) = special(rest) {
            out.extend(["\"", special, "\""]);
            rest = &rest[length..];
            continue;
        }
        let mut length = first.len_utf8();
        if first == '"' {
            in_string = !in_string;
        } else if in_string && first == '\\' {
            length += rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if !in_string && (first == '-' || first.is_ascii_digit()) {
            length = number_length(rest);
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Length and name of a special at the start of `rest`.
fn special(rest: &str) -> Option<(usize, &'static str)> {
    if let Some(special) = SPECIALS.iter().find(|special| rest.starts_with(**special)) {
        return Some((special.len(), special));
    }
    if !rest.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let length = number_length(rest);
    let number: f64 = rest[..length].parse().ok()?;
    match number {
        f64::INFINITY => Some((length, "Infinity")),
        f64::NEG_INFINITY => Some((length, "-Infinity")),
        _ => None,
    }
}

/// How many bytes at the start of `rest` are a number's; at least one.
fn number_length(rest: &str) -> usize {
    let ends = |byte: u8| !(byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    rest.bytes().position(ends).unwrap_or(rest.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::{Field, parse_decimal, quote_specials, write_decimal};
    use serde_json::json;

    #[test]
    fn bare_specials_are_quoted_and_strings_left_alone() {
        let line = r#"{"NaN \" Infinity":NaN,"b":[-Infinity, Infinity,"\\"],"é":NaN}"#;
        let quoted = r#"{"NaN \" Infinity":"NaN","b":["-Infinity", "Infinity","\\"],"é":"NaN"}"#;
        assert_eq!(quote_specials(line), quoted);
        assert_eq!(
            quote_specials(r#"[1e400,-2.5E+999, 12,"1e400",-1]"#),
            r#"["Infinity","-Infinity", 12,"1e400",-1]"#
        );
        assert_eq!(quote_specials("é\u{feff}{-é"), "é\u{feff}{-é");
    }

    #[test]
    fn a_decimal_reads_back_exactly_what_was_written() {
        for units in [
            0,
            1,
            -1,
            250,
            1000,
            -12_345,
            i128::from(i64::MAX),
            i128::from(i64::MIN),
        ] {
            assert_eq!(parse_decimal(&write_decimal(units, 3), 3), Some(units), "{units}");
        }
        assert_eq!(
            [250, -1000, 5].map(|units| write_decimal(units, 3)),
            ["0.25", "-1", "0.005"]
        );
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "1e3",
            "+1",
            "0.1234",
            "1 ",
            "NaN",
            &"9".repeat(60),
        ] {
            assert_eq!(parse_decimal(text, 3), None, "{text}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_place() {
        let value = json!({"workers": [{"occupancy": 3}]});
        let field = Field::root(&value).get("workers").items().unwrap()[0].get("occupancy");
        let error = field.number(0.0, 1.0).unwrap_err().to_string();
        assert_eq!(error, "workers[0].occupancy is 3, must be a number from 0 to 1");
    }
}
