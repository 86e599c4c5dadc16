//! What a case asks: its event or, without one, its category; answers nothing.

use crate::field::{Field, FieldError};

/// What a case asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Components and occupancy of the first worker (E1-E3).
    Evaluator,
    /// Its rows' fullest components (E4).
    History,
    /// Its rates (E4).
    Rates,
    /// The rows kept of it (M4).
    Window,
    /// Where a login goes (P1-P3, L5).
    Login(Login),
    /// The same, then growth (G3).
    LoginThenCheck(Login),
    /// Where a request goes (P1).
    Request(Request),
    /// Growth (G).
    CheckCapacity,
    /// Compaction on one report (C).
    Report,
    /// What becomes of workers of an older template.
    Update,
    /// Compaction, report by report, until nobody goes any more.
    UntilStable,
    /// Where the users of one worker go (C6).
    Drain {
        /// Its name.
        worker: String,
    },
    /// The whole picture.
    Fixture,
}

/// Somebody logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) currently_on: Option<String>,
    pub(super) arriving_on: Option<String>,
}

/// Somebody asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) user: String,
    pub(super) guest: bool,
    pub(super) currently_on: Option<String>,
}

const EVENTS: &str = "login, request, check_capacity, login_then_check, occupancy_report, \
                      occupancy_reports_until_stable, update or drain";
const CATEGORIES: &str = "evaluator, history, rates, window, fixture, placement, routing, scale_up, compaction, \
                          compaction_sequence or update, or the case needs an input.event";

impl Question {
    pub(super) fn read(case: &Field<'_>) -> Result<Self, FieldError> {
        let event = case.get("input").get("event");
        match event.optional() {
            Some(event) => Self::of_event(event, &case.get("input").get("workers")),
            None => Self::of_category(&case.get("category")),
        }
    }

    fn of_category(category: &Field<'_>) -> Result<Self, FieldError> {
        let Some(name) = category.optional_text()? else {
            return category.wrong(CATEGORIES);
        };
        Ok(match name {
            "evaluator" => Self::Evaluator,
            "history" => Self::History,
            "rates" => Self::Rates,
            "window" => Self::Window,
            "fixture" => Self::Fixture,
            "placement" => Self::Login(Login::default()),
            "routing" => Self::Request(Request::default()),
            "scale_up" => Self::CheckCapacity,
            "compaction" => Self::Report,
            "compaction_sequence" => Self::UntilStable,
            "update" => Self::Update,
            _ => return category.wrong(CATEGORIES),
        })
    }

    fn of_event(event: &Field<'_>, workers: &Field<'_>) -> Result<Self, FieldError> {
        event.object()?;
        let kind = event.get("type");
        let Some(name) = kind.optional_text()? else {
            return kind.wrong(EVENTS);
        };
        Ok(match name {
            "login" => Self::Login(Login::read(event, workers)?),
            "login_then_check" => Self::LoginThenCheck(Login::read(event, workers)?),
            "request" => Self::Request(Request::read(event, workers)?),
            "check_capacity" => Self::CheckCapacity,
            "occupancy_report" => Self::Report,
            "occupancy_reports_until_stable" => Self::UntilStable,
            "update" => Self::Update,
            "drain" => match worker_name(&event.get("worker"), workers)? {
                Some(worker) => Self::Drain { worker },
                None => return event.get("worker").wrong("the name of a worker"),
            },
            _ => return kind.wrong(EVENTS),
        })
    }
}

impl Login {
    fn read(event: &Field<'_>, workers: &Field<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            user: user(event)?,
            currently_on: worker_name(&event.get("currently_on"), workers)?,
            arriving_on: worker_name(&event.get("arriving_on"), workers)?,
        })
    }
}

impl Request {
    fn read(event: &Field<'_>, workers: &Field<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            user: user(event)?,
            guest: event.get("guest").flag()?,
            currently_on: worker_name(&event.get("currently_on"), workers)?,
        })
    }
}

fn user(event: &Field<'_>) -> Result<String, FieldError> {
    Ok(event.get("user").optional_text()?.unwrap_or_default().to_owned())
}

fn worker_name(field: &Field<'_>, workers: &Field<'_>) -> Result<Option<String>, FieldError> {
    let Some(name) = field.optional_text()? else {
        return Ok(None);
    };
    let known = workers
        .items()?
        .iter()
        .any(|worker| worker.get("name").text() == Ok(name));
    if known {
        Ok(Some(name.to_owned()))
    } else {
        field.wrong("the name of a worker of this case, or null")
    }
}
