//! Durations and quantities as people write them, with bounds and errors that name the field; it never guesses a unit.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A field of a manifest that cannot be used: condition TemplateInvalid, or the refusal of a local run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}: {remedy}")]
pub struct FieldError {
    /// Path of the field, as `spec.workers.min`.
    pub field: String,
    /// What stands there, shortened; `not set` when nothing does.
    pub value: String,
    /// What would be right.
    pub remedy: String,
}

impl FieldError {
    /// An error about `field`, which holds `value`; values over 80 characters are cut.
    pub fn new(field: impl Into<String>, value: impl fmt::Display, remedy: impl Into<String>) -> Self {
        let mut value = value.to_string();
        if let Some((cut, _)) = value.char_indices().nth(80) {
            value.truncate(cut);
            value.push_str("...");
        }
        Self {
            field: field.into(),
            value,
            remedy: remedy.into(),
        }
    }

    /// An error about a field that is missing.
    pub fn absent(field: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(field, "not set", remedy)
    }
}

/// A duration such as `30m`, `1m30s` or `250ms`; units h, m, s, ms, whole numbers only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

/// Regular expression of a [`DurationText`]; short enough that no sum overflows.
const DURATION_PATTERN: &str = "^([0-9]{1,5}(ms|s|m|h)){1,4}$";

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl DurationText {
    /// The duration; `None` where the text is none.
    pub fn parse(&self) -> Option<Duration> {
        let mut rest = self.0.as_str();
        let mut total = Duration::ZERO;
        for _ in 0..4 {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u32 = rest
                .get(..digits)
                .filter(|_| (1..=5).contains(&digits))?
                .parse()
                .ok()?;
            rest = &rest[digits..];
            let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let one = match &rest[..unit] {
                "ms" => Duration::from_millis(1),
                "s" => Duration::from_secs(1),
                "m" => Duration::from_mins(1),
                "h" => Duration::from_hours(1),
                _ => return None,
            };
            total += one * number;
            rest = &rest[unit..];
            if rest.is_empty() {
                return Some(total);
            }
        }
        None
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "DurationText".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": DURATION_PATTERN, "maxLength": 28})
    }
}

/// Bounds of one duration field, for the CRD's rule and for runs without an API server alike.
#[derive(Debug, Clone, Copy)]
pub struct DurationBounds {
    /// Path of the field.
    pub field: &'static str,
    /// Least allowed, as text.
    pub min: &'static str,
    /// Most allowed, as text.
    pub max: &'static str,
}

impl DurationBounds {
    fn remedy(&self) -> String {
        format!(
            "write a duration from {} to {}, such as 30s, 5m or 1m30s",
            self.min, self.max
        )
    }

    /// The CEL rules of the field, for `x-kubernetes-validations`.
    pub fn rules(&self) -> Value {
        json!([{
            "rule": format!("duration(self) >= duration('{}') && duration(self) <= duration('{}')", self.min, self.max),
            "message": format!("{}: {}", self.field, self.remedy()),
        }])
    }

    /// Reads the field's text within the bounds.
    pub fn read(&self, text: &DurationText) -> Result<Duration, FieldError> {
        let limit = |text: &str| DurationText::from(text).parse().unwrap_or_default();
        text.parse()
            .filter(|value| (limit(self.min)..=limit(self.max)).contains(value))
            .ok_or_else(|| FieldError::new(self.field, format!("{:?}", text.0), self.remedy()))
    }
}

/// A Kubernetes quantity such as `512Mi`, `200m` or `1`; whole numbers may stand without quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

/// Regular expression of a [`Quantity`] that is not negative.
const QUANTITY_PATTERN: &str =
    r"^([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})(n|u|m|k|Ki|Mi|Gi|Ti|Pi|Ei|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?$";

const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Quantity {
    /// The number of units (bytes, cores); `None` where the text is no quantity or negative.
    pub fn parse(&self) -> Option<f64> {
        let text = self.0.as_str();
        let (number, scale) = SUFFIXES
            .iter()
            .find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, *scale)))
            .unwrap_or((text, 1.0));
        let plain = number
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_digit() || b == b'.')
            && number
                .bytes()
                .all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
        if !plain || number.len() > 32 {
            return None;
        }
        let value = number.parse::<f64>().ok()? * scale;
        value.is_finite().then_some(value)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string such as 512Mi or 200m, or a whole number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
                Ok(text.into())
            }

            fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "pattern": QUANTITY_PATTERN, "maxLength": 32})
    }
}

/// Bounds of one quantity field, for the CRD's rule and for runs without an API server alike.
#[derive(Debug, Clone, Copy)]
pub struct QuantityBounds {
    /// Path of the field.
    pub field: &'static str,
    /// Least allowed, as text.
    pub min: &'static str,
    /// Most allowed, as text.
    pub max: &'static str,
}

impl QuantityBounds {
    fn remedy(&self) -> String {
        format!("write a quantity from {} to {}", self.min, self.max)
    }

    /// The CEL rules of the field, for `x-kubernetes-validations`.
    pub fn rules(&self) -> Value {
        json!([{
            "rule": format!(
                "!quantity(string(self)).isLessThan(quantity('{}')) && !quantity(string(self)).isGreaterThan(quantity('{}'))",
                self.min, self.max
            ),
            "message": format!("{}: {}", self.field, self.remedy()),
        }])
    }

    /// Reads the field's text within the bounds, in bytes or cores.
    pub fn read(&self, text: &Quantity) -> Result<f64, FieldError> {
        let limit = |text: &str| Quantity::from(text).parse().unwrap_or_default();
        text.parse()
            .filter(|value| (limit(self.min)..=limit(self.max)).contains(value))
            .ok_or_else(|| FieldError::new(self.field, format!("{:?}", text.0), self.remedy()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("30m", Some(1_800_000))]
    #[case("1m30s", Some(90_000))]
    #[case("250ms", Some(250))]
    #[case("1h2m3s4ms", Some(3_723_004))]
    #[case("0s", Some(0))]
    #[case("", None)]
    #[case("30", None)]
    #[case("30 m", None)]
    #[case("-5s", None)]
    #[case("1.5s", None)]
    #[case("1d", None)]
    #[case("100000s", None)]
    #[case("1s1s1s1s1s", None)]
    #[case("5s\n", None)]
    fn a_duration_is_read_exactly_or_not_at_all(#[case] text: &str, #[case] millis: Option<u64>) {
        assert_eq!(
            DurationText::from(text).parse(),
            millis.map(Duration::from_millis)
        );
    }

    #[rstest]
    #[case("512Mi", Some(536_870_912.0))]
    #[case("200m", Some(0.2))]
    #[case("1", Some(1.0))]
    #[case("0.5", Some(0.5))]
    #[case("1e3", Some(1000.0))]
    #[case("2E", Some(2e18))]
    #[case("1k", Some(1000.0))]
    #[case("100M", Some(1e8))]
    #[case("", None)]
    #[case("Mi", None)]
    #[case("-1", None)]
    #[case("inf", None)]
    #[case("NaN", None)]
    #[case("1KiB", None)]
    #[case("1 Mi", None)]
    fn a_quantity_is_read_as_kubernetes_reads_it(#[case] text: &str, #[case] value: Option<f64>) {
        let read = Quantity::from(text).parse();
        match (read, value) {
            (Some(read), Some(value)) => assert!((read - value).abs() <= value * 1e-12, "{read} for {text}"),
            (read, value) => assert_eq!(read, value, "for {text}"),
        }
    }

    #[test]
    fn an_error_names_field_value_and_remedy() {
        let bounds = DurationBounds {
            field: "spec.reports.interval",
            min: "1s",
            max: "5m",
        };
        let error = bounds.read(&"6m".into()).unwrap_err().to_string();
        assert_eq!(
            error,
            "spec.reports.interval: \"6m\": write a duration from 1s to 5m, such as 30s, 5m or 1m30s"
        );
        assert!(FieldError::new("f", "ä".repeat(500), "r").to_string().len() < 200);
    }
}
