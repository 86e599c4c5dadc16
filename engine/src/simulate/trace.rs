//! A day of arrivals as CSV, read strictly: bytes in, rows or the first thing that is wrong out; opens no file.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::share::Share;

/// The first line of a trace.
pub const HEADER: &str = "time,logins,mean_stay_seconds,cost_percent";
/// No trace that can be used is larger, in bytes: reading stops there.
pub const LARGEST: usize = MOST_ROWS * (LONGEST_LINE + 2) + 1000;
/// A line may not be longer, in bytes.
pub const LONGEST_LINE: usize = 200;
const MOST_ROWS: usize = 50_000;
const LONGEST_ROW: u64 = 86_400;
const MOST_LOGINS: f64 = 1e6;
const LONGEST_STAY: f64 = 604_800.0;
const MOST_USER_SECONDS: f64 = 2e9;
const MOST_WORKER_SECONDS: f64 = 1e8;

/// One line: what happens from its time to the next line's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Logins expected in this span; 0 to 10^6, fractions allowed.
    pub logins: f64,
    /// Mean stay of those who log in now; 1 s to 7 days.
    pub mean_stay: Duration,
    /// Part of one worker that one of them needs on average, active and idle phases together; 0 to 1.
    pub cost: Share,
}

/// A trace: rows of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Time of day of the first row.
    pub start: Duration,
    /// Length of every row.
    pub step: Duration,
    /// The rows, at least two.
    pub rows: Vec<Row>,
}

/// A trace that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line}: {problem}")]
pub struct TraceError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Trace {
    /// How long the trace lasts.
    pub fn span(&self) -> Duration {
        self.step
            .saturating_mul(u32::try_from(self.rows.len()).unwrap_or(u32::MAX))
    }

    /// Reads a trace: the header, then at least two lines, each as far from the one before as the second from the first.
    ///
    /// Lines end with `\n` or `\r\n`. Errors: the first line that is wrong, with what would be right.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let mut lines = Lines { rest: bytes, line: 0 };
        match lines.next().transpose()? {
            Some(line) if line == HEADER => {}
            Some(line) => {
                return Err(lines.wrong(format!("the header is {}, must be {HEADER}", quoted(line))));
            }
            None => {
                return Err(error(
                    1,
                    format!("the trace is empty, must begin with the line {HEADER}"),
                ));
            }
        }
        let mut trace = Self {
            start: Duration::ZERO,
            step: Duration::ZERO,
            rows: Vec::new(),
        };
        while let Some(line) = lines.next().transpose()? {
            let (time, row) = row(line).map_err(|problem| lines.wrong(problem))?;
            trace.accept(time, row).map_err(|problem| lines.wrong(problem))?;
        }
        if trace.rows.len() < 2 {
            let found = trace.rows.len();
            let problem = format!(
                "the trace ends after {found} rows, must have at least 2: their distance is the length of every row"
            );
            return Err(error(lines.line + 1, problem));
        }
        trace.bounded().map_err(|problem| lines.wrong(problem))?;
        Ok(trace)
    }

    fn accept(&mut self, time: Duration, row: Row) -> Result<(), String> {
        match self.rows.len() {
            0 => self.start = time,
            MOST_ROWS => return Err(format!("more than {MOST_ROWS} rows: take longer ones")),
            n => {
                let last = self.time(n - 1);
                if time <= last {
                    return Err(format!(
                        "time runs backwards: {} after {}",
                        Clock(time),
                        Clock(last)
                    ));
                }
                if n == 1 {
                    self.step = time.saturating_sub(last);
                    if self.step > Duration::from_secs(LONGEST_ROW) {
                        return Err(format!(
                            "the row before lasts until {}, must last at most a day",
                            Clock(time)
                        ));
                    }
                }
                let next = self.time(n);
                if time != next {
                    let kind = if time > next {
                        "a gap in time"
                    } else {
                        "a row too early"
                    };
                    return Err(format!(
                        "{kind}: {} after {}, must be {}",
                        Clock(time),
                        Clock(last),
                        Clock(next)
                    ));
                }
            }
        }
        self.rows.push(row);
        Ok(())
    }

    fn time(&self, index: usize) -> Duration {
        self.start + self.step.saturating_mul(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// What a simulation of it would cost stays within reason.
    fn bounded(&self) -> Result<(), String> {
        let (mut logins, mut user_seconds, mut worker_seconds) = (0.0, 0.0, 0.0);
        for (index, row) in self.rows.iter().enumerate() {
            let left = self
                .span()
                .saturating_sub(self.time(index).saturating_sub(self.start));
            let stay = row.logins * row.mean_stay.min(left).as_secs_f64();
            logins += row.logins;
            user_seconds += stay;
            worker_seconds += stay * row.cost.as_f64();
        }
        let bounds = [
            ("logins", logins, MOST_LOGINS),
            ("seconds of users' stay", user_seconds, MOST_USER_SECONDS),
            ("seconds of full workers", worker_seconds, MOST_WORKER_SECONDS),
        ];
        match bounds.into_iter().find(|(_, found, most)| found > most) {
            None => Ok(()),
            Some((what, found, most)) => Err(format!(
                "the trace comes to {found:.0} {what}, must be at most {most:.0}: take a part of it"
            )),
        }
    }
}

struct Lines<'a> {
    rest: &'a [u8],
    line: usize,
}

impl Lines<'_> {
    fn wrong(&self, problem: String) -> TraceError {
        error(self.line, problem)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a str, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let searched = &self.rest[..self.rest.len().min(LONGEST_LINE + 2)];
        let (line, rest) = match searched.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LONGEST_LINE {
            let problem = format!("the line is longer than {LONGEST_LINE} bytes, must be {HEADER}");
            return Some(Err(error(self.line, problem)));
        }
        self.rest = rest;
        let text = std::str::from_utf8(line);
        Some(text.map_err(|_| error(self.line, format!("the line is not UTF-8, must be {HEADER}"))))
    }
}

fn error(line: usize, problem: String) -> TraceError {
    TraceError { line, problem }
}

fn row(line: &str) -> Result<(Duration, Row), String> {
    let fields: Vec<&str> = line.split(',').collect();
    let &[at, logins, stay, cost] = fields.as_slice() else {
        let what = if line.is_empty() {
            "the line is empty".to_owned()
        } else {
            format!("{} fields", fields.len())
        };
        return Err(format!("{what}, must be 4: {HEADER}"));
    };
    let row = Row {
        logins: number("logins", logins, 0.0, MOST_LOGINS)?,
        mean_stay: Duration::from_secs_f64(number("mean_stay_seconds", stay, 1.0, LONGEST_STAY)?),
        cost: Share::from_f64(number("cost_percent", cost, 0.0, 100.0)? / 100.0).unwrap_or_default(),
    };
    Ok((time(at)?, row))
}

fn number(field: &str, text: &str, least: f64, most: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        // -0.0 is within the bounds and must not divide as such.
        Ok(value) if (least..=most).contains(&value) => Ok(value + 0.0),
        _ => Err(format!(
            "{field} is {}, must be a number from {least} to {most}",
            quoted(text)
        )),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "time is {}, must be HH:MM or HH:MM:SS, such as 09:30; hours may go on over 24, up to 99",
            quoted(text)
        )
    };
    let mut parts = text.split(':').map(|part| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .then(|| part.parse::<u64>().ok())
            .flatten()
            .ok_or_else(wrong)
    });
    let (Some(hours), Some(minutes)) = (parts.next().transpose()?, parts.next().transpose()?) else {
        return Err(wrong());
    };
    let seconds = parts.next().transpose()?.unwrap_or(0);
    if parts.next().is_some() || minutes > 59 || seconds > 59 {
        return Err(wrong());
    }
    Ok(Duration::from_secs(hours * 3600 + minutes * 60 + seconds))
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{dots}")
}

/// A time of day as traces write it.
pub(super) struct Clock(pub(super) Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        write!(f, "{:02}:{:02}", seconds / 3600, seconds / 60 % 60)?;
        match seconds % 60 {
            0 => Ok(()),
            rest => write!(f, ":{rest:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, LARGEST, Row, Trace};
    use crate::share::Share;
    use proptest::prelude::*;
    use rstest::rstest;
    use std::time::Duration;

    fn parse(rows: &str) -> Result<Trace, String> {
        Trace::parse(format!("{HEADER}\n{rows}").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_trace_reads_back_what_it_says() {
        let trace = parse("09:00,30,600,0.8\r\n09:05,12.5,900,1\n").unwrap();
        assert_eq!(trace.start, Duration::from_hours(9));
        assert_eq!(
            (trace.step, trace.span()),
            (Duration::from_mins(5), Duration::from_mins(10))
        );
        let second = Row {
            logins: 12.5,
            mean_stay: Duration::from_mins(15),
            cost: Share::from_percent(1),
        };
        assert_eq!(trace.rows[1], second);
    }

    #[test]
    fn no_logins_are_none_whatever_their_sign() {
        let trace = parse("09:00,-0.0,60,1\n09:05,1,60,1\n").unwrap();
        assert!(trace.rows[0].logins.is_sign_positive());
    }

    #[rstest]
    #[case("09:00,1,60,1", "3: the trace ends after 1 rows, must have at least 2")]
    #[case("09:00,1,60,1\n\n", "3: the line is empty, must be 4: time,logins")]
    #[case("09:00,1,60,1\n09:05,1,60\n", "3: 3 fields, must be 4")]
    #[case("09:00,1,60,1\n09:05,1,60,1,\n", "3: 5 fields, must be 4")]
    #[case(
        "09:00,1,60,1\n09:05,1,60,1\n09:15,1,60,1\n",
        "4: a gap in time: 09:15 after 09:05, must be 09:10"
    )]
    #[case(
        "09:00,1,60,1\n09:05,1,60,1\n09:06,1,60,1\n",
        "4: a row too early: 09:06 after 09:05, must be 09:10"
    )]
    #[case("09:00,1,60,1\n08:55,1,60,1\n", "3: time runs backwards: 08:55 after 09:00")]
    #[case("09:00,1,60,1\n09:00,1,60,1\n", "3: time runs backwards: 09:00 after 09:00")]
    #[case(
        "09:00,1,60,1\n48:00,1,60,1\n",
        "3: the row before lasts until 48:00, must last at most a day"
    )]
    #[case("9:00,1,60,1\n", "2: time is \"9:00\", must be HH:MM or HH:MM:SS")]
    #[case("09:60,1,60,1\n", "2: time is \"09:60\", must be")]
    #[case("09:00:00:00,1,60,1\n", "2: time is \"09:00:00:00\", must be")]
    #[case("+9:00,1,60,1\n", "2: time is \"+9:00\", must be")]
    #[case("09:00,-1,60,1\n", "2: logins is \"-1\", must be a number from 0 to 1000000")]
    #[case("09:00,NaN,60,1\n", "2: logins is \"NaN\", must be")]
    #[case("09:00,inf,60,1\n", "2: logins is \"inf\", must be")]
    #[case("09:00,,60,1\n", "2: logins is \"\", must be")]
    #[case(
        "09:00,1,0.5,1\n",
        "2: mean_stay_seconds is \"0.5\", must be a number from 1 to 604800"
    )]
    #[case(
        "09:00,1,60,101\n",
        "2: cost_percent is \"101\", must be a number from 0 to 100"
    )]
    #[case(
        "00:00,1,60,1\n24:00,1000000,60,1\n",
        "3: the trace comes to 1000001 logins, must be at most 1000000"
    )]
    fn what_is_wrong_is_said_with_line_and_remedy(#[case] rows: &str, #[case] says: &str) {
        let error = parse(rows).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn an_empty_file_and_a_wrong_header_are_line_one() {
        let error = |bytes: &[u8]| Trace::parse(bytes).unwrap_err().to_string();
        assert_eq!(
            error(b""),
            format!("1: the trace is empty, must begin with the line {HEADER}")
        );
        assert_eq!(
            error(b"time;logins\n"),
            format!("1: the header is \"time;logins\", must be {HEADER}")
        );
        assert_eq!(
            error(&[0xFF, b'\n']),
            format!("1: the line is not UTF-8, must be {HEADER}")
        );
    }

    #[test]
    fn a_line_of_ten_megabytes_is_refused_without_being_repeated() {
        let error = parse(&"9".repeat(10 << 20)).unwrap_err();
        assert_eq!(
            error,
            format!("2: the line is longer than 200 bytes, must be {HEADER}")
        );
        let error = parse(&"x\n".repeat(LARGEST)).unwrap_err();
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn what_would_take_hours_to_simulate_is_refused() {
        let error = parse("00:00,500000,6000,1\n01:00,1,60,1\n02:00,1,60,1\n").unwrap_err();
        assert!(error.starts_with("4: the trace comes to 3000000"), "{error}");
        let error = parse("00:00,500000,3000,100\n01:00,1,60,1\n").unwrap_err();
        assert!(
            error.contains("seconds of full workers, must be at most 100000000"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_they_are_read_or_refused_at_a_line_of_theirs(
            lines in prop::collection::vec("([0-9]{2}:[0-9]{2})?[-0-9.,:eE]{0,24}|[ -~]{0,20}|\\PC{0,8}", 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..4),
            headed: bool,
        ) {
            let mut bytes = if headed { format!("{HEADER}\n").into_bytes() } else { Vec::new() };
            bytes.extend(lines.join("\n").into_bytes());
            bytes.extend(tail);
            let count = bytes.split(|byte| *byte == b'\n').count();
            match Trace::parse(&bytes) {
                Ok(trace) => prop_assert!(headed && trace.rows.len() >= 2),
                Err(error) => prop_assert!((1..=count + 1).contains(&error.line), "{error} in {count} lines"),
            }
        }
    }
}
