//! `elastic-pool decide`: answers decision cases line by line, or checks them; the answers are the engine's.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use elastic_pool_engine::cases::{Case, CaseError};
use thiserror::Error;

/// A case line may not be longer: 16 MiB.
const LONGEST_LINE: u64 = 16 << 20;

/// Arguments of the subcommand.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Files of decision cases, one JSON object a line; standard input when none is given
    pub files: Vec<PathBuf>,
    /// Compare with what each case expects, numbers to 1e-9, and count
    #[arg(long)]
    pub check: bool,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cases answered, or checked and right.
    pub passed: usize,
    /// Cases whose answer differs from what they expect.
    pub failed: usize,
}

/// Why a run stopped.
#[derive(Debug, Error)]
pub enum Error {
    /// The source could not be opened or read.
    #[error("{origin}: cannot read")]
    Read {
        /// Name of the source.
        origin: String,
        /// What the system says.
        source: io::Error,
    },
    /// A line is no case.
    #[error("{origin}:{line}: {source}")]
    Case {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// What is wrong and what would be right.
        source: CaseError,
    },
    /// A line is too long.
    #[error("{origin}:{line}: the line is longer than 16 MiB, a case is one JSON object a line")]
    TooLong {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
    },
    /// `--check` met a case that expects nothing.
    #[error("{origin}:{line}: expect is missing, must be an object; without --check it is not needed")]
    NothingExpected {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
    },
    /// The answers could not be written.
    #[error("cannot write the answers")]
    Write(#[from] io::Error),
}

/// Answers every line of `input`, or with `check` compares and reports only what differs.
///
/// `origin` names the input in errors. Stops at the first line that is no case.
pub fn run(
    origin: &str,
    mut input: impl BufRead,
    mut out: impl Write,
    check: bool,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let read = input.by_ref().take(LONGEST_LINE + 1).read_line(&mut text);
        let length = read.map_err(|source| Error::Read {
            origin: format!("{origin}:{line}"),
            source,
        })?;
        if length as u64 > LONGEST_LINE {
            return Err(Error::TooLong {
                origin: origin.to_owned(),
                line,
            });
        }
        if length == 0 {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |source| Error::Case {
            origin: origin.to_owned(),
            line,
            source,
        };
        let case = Case::parse(text.trim()).map_err(wrong)?;
        if check && !case.expects() {
            return Err(Error::NothingExpected {
                origin: origin.to_owned(),
                line,
            });
        }
        if one(&case, &mut out, check)? {
            outcome.passed += 1;
        } else {
            outcome.failed += 1;
        }
    }
    Ok(outcome)
}

fn one(case: &Case, out: &mut impl Write, check: bool) -> Result<bool, io::Error> {
    let answer = case.answer();
    if !check {
        writeln!(out, "{}", serde_json::Value::Object(answer))?;
        return Ok(true);
    }
    let mismatches = case.check(&answer);
    for mismatch in &mismatches {
        writeln!(out, "{}: {mismatch}", case.name())?;
    }
    Ok(mismatches.is_empty())
}

/// The whole subcommand: 0 when all went well, 1 when a check failed, 2 for malformed input.
pub fn main(args: &Args) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = all(args, &mut out).and_then(|outcome| {
        if args.check {
            writeln!(out, "{} passed, {} failed", outcome.passed, outcome.failed)?;
        }
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(Outcome { failed: 0, .. }) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(Error::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            let message = error.to_string();
            let cause = if message.ends_with(&cause) {
                String::new()
            } else {
                format!(": {cause}")
            };
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(io::stderr(), "{message}{cause}");
            ExitCode::from(2)
        }
    }
}

fn all(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    if args.files.is_empty() {
        return run("standard input", io::stdin().lock(), out, args.check);
    }
    let mut sum = Outcome::default();
    for path in &args.files {
        let origin = path.display().to_string();
        let file = File::open(path).map_err(|source| Error::Read {
            origin: origin.clone(),
            source,
        })?;
        let outcome = run(&origin, BufReader::new(file), &mut *out, args.check)?;
        sum.passed += outcome.passed;
        sum.failed += outcome.failed;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, run};

    const CASES: &str = include_str!("../tests/cases/decisions.jsonl");

    fn decide(input: &str, check: bool) -> (Result<Outcome, String>, String) {
        let mut out = Vec::new();
        let outcome = run("cases.jsonl", input.as_bytes(), &mut out, check).map_err(|e| e.to_string());
        (outcome, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_given_cases_pass_their_check() {
        let (outcome, out) = decide(CASES, true);
        assert_eq!(
            (outcome, out.as_str()),
            (
                Ok(Outcome {
                    passed: 55,
                    failed: 0
                }),
                ""
            )
        );
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        let (first, second) = (decide(CASES, false), decide(CASES, false));
        assert_eq!(first.1.lines().count(), 55);
        assert_eq!(first, second);
    }

    #[test]
    fn a_wrong_expectation_is_counted_and_shown() {
        let line = r#"{"name":"x","category":"scale_up","input":{"workers":[{"name":"w1","occupancy":0.6}]},"expect":{"spawn":0}}"#;
        let (outcome, out) = decide(line, true);
        assert_eq!(outcome, Ok(Outcome { passed: 0, failed: 1 }));
        assert_eq!(out, "x: spawn: expected 0, found 1\n");
    }

    #[test]
    fn malformed_input_names_file_line_and_what_would_be_right() {
        let error = |line: &str, check| decide(&format!("\n{line}"), check).0.unwrap_err();
        assert!(error("{", false).starts_with("cases.jsonl:2: not JSON: "));
        assert_eq!(
            error("[]", false),
            "cases.jsonl:2: the line is [], must be an object"
        );
        let line =
            r#"{"name":"x","category":"fixture","input":{"workers":[{"name":"w1","state":"sleepy"}]}}"#;
        assert_eq!(
            error(line, false),
            "cases.jsonl:2: input.workers[0].state is \"sleepy\", must be routable, nascent, draining, evacuating, \
             retiring, dead, quitting, quitted or aborted"
        );
        assert!(error(&line.replace("sleepy", "dead"), true).contains("expect is missing"));
    }
}
