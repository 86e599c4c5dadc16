//! Reads who lives on a worker and who of them is busy, in any of the forms that cases use.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::field::{Field, FieldError};

/// The most users that a case may give one worker.
const MOST: usize = 1_000_000;

/// Users of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    /// By name, in the order given.
    pub(super) names: Vec<String>,
    /// How many, also where a case gives only the number.
    pub(super) count: usize,
    /// Open requests of those who have any.
    pub(super) open: BTreeMap<String, usize>,
}

impl Users {
    /// A list of names or of `{"user", "open_requests"}`, a map of name to open requests, or a number.
    pub(super) fn read(field: &Field<'_>) -> Result<Self, FieldError> {
        let mut users = Self::default();
        match field.value() {
            Value::Null => {}
            Value::Number(_) => users.count = field.count(0)?.unwrap_or_default(),
            Value::Array(_) => {
                for user in field.items()? {
                    users.add_item(&user)?;
                }
            }
            Value::Object(map) => {
                for name in map.keys() {
                    users.add(name, &field.get(name))?;
                }
            }
            _ => return field.wrong("a list of users, a map of users to open requests, or their number"),
        }
        users.count = users.count.max(users.names.len());
        if users.count > MOST {
            return field.wrong(&format!("at most {MOST} users"));
        }
        let mut seen = BTreeSet::new();
        match users.names.iter().find(|name| !seen.insert(*name)) {
            Some(_) => field.wrong("a list in which nobody stands twice"),
            None => Ok(users),
        }
    }

    fn add_item(&mut self, user: &Field<'_>) -> Result<(), FieldError> {
        match user.value() {
            Value::String(name) => {
                self.names.push(name.clone());
                Ok(())
            }
            Value::Object(_) => self.add(user.get("user").text()?, &user.get("open_requests")),
            _ => user.wrong("a user's name, or {\"user\", \"open_requests\"}"),
        }
    }

    fn add(&mut self, name: &str, open: &Field<'_>) -> Result<(), FieldError> {
        let open = match open.value() {
            Value::Object(_) => open.get("open_requests").count(0)?,
            _ => open.count(0)?,
        };
        self.names.push(name.to_owned());
        self.add_open(name, open.unwrap_or_default());
        Ok(())
    }

    fn add_open(&mut self, name: &str, open: usize) {
        if open > 0 {
            let sum = self.open.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(open);
        }
    }

    /// `open_requests` beside the workers or inside one: a map of user to number, or a worker's total, which says nothing of anybody.
    pub(super) fn add_open_requests(&mut self, field: &Field<'_>) -> Result<(), FieldError> {
        match field.value() {
            Value::Number(_) => field.count(0).map(drop),
            Value::Null => Ok(()),
            _ => {
                for name in field.object()?.keys() {
                    let open = field.get(name).count(0)?.unwrap_or_default();
                    self.add_open(name, open);
                }
                Ok(())
            }
        }
    }
}
