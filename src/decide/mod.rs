//! `elastic-pool decide`: what would happen and why, for cases, for saved snapshots and for a live group. The answers
//! are the engine's; nothing is done to anybody.

mod answer;
mod lines;
mod live;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use elastic_pool_engine::snapshot::Saved;
use thiserror::Error;

use answer::{Kind, Reply, reply};
use lines::{LineError, Lines};
use live::Wanted;

/// After this many lines that cannot be read, the rest is not looked at.
const MOST_ERRORS: usize = 20;

/// Arguments of the subcommand.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Files of decision cases, one JSON object a line; standard input when none is given
    #[arg(conflicts_with_all = ["snapshot", "group"])]
    pub files: Vec<PathBuf>,
    /// Files of saved snapshots, one JSON object a line; - is standard input
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "group")]
    pub snapshot: Vec<PathBuf>,
    /// A live group: what it would do now. NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// The group's namespace; not needed where its name is the only one of its kind
    #[arg(long)]
    pub namespace: Option<String>,
    /// Where the commander answers: its monitor's port, on loopback
    #[arg(
        long,
        env = "ELASTIC_POOL_COMMANDER",
        default_value = live::COMMANDER
    )]
    pub commander: String,
    /// The group's last decisions, oldest first, instead of what it would do now
    #[arg(long)]
    pub past: bool,
    /// Write what the commander sent, with the answers, into this file, to be asked again with --snapshot
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare: cases with what they expect, numbers to 1e-9; snapshots with the answer given when they were taken, byte by byte
    #[arg(long, conflicts_with = "group")]
    pub check: bool,
    /// Form of the answers; text when standard output is a terminal, else json
    #[arg(long, value_enum)]
    pub output: Option<Output>,
}

/// Form of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Sentences and tables, for people
    Text,
    /// One JSON object a line
    Json,
}

/// Where a run reads and writes.
pub struct Streams<'a> {
    /// Standard input.
    pub input: &'a mut dyn BufRead,
    /// Answers.
    pub out: &'a mut dyn Write,
    /// What is wrong.
    pub err: &'a mut dyn Write,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Answered, or checked and right.
    pub passed: usize,
    /// Checked and not right; unreadable ones too, where there is a check.
    pub failed: usize,
    /// Lines that are no case or no snapshot.
    pub unreadable: usize,
}

impl Outcome {
    /// 0 when all went well, 1 when a check failed, 2 for bad input.
    pub fn code(self) -> u8 {
        match (self.unreadable, self.failed) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        }
    }
}

/// Why a run stopped.
#[derive(Debug, Error)]
pub enum Error {
    /// A source could not be opened.
    #[error("{origin}: cannot open: {source}; give a file of {wanted}, one JSON object a line")]
    Open {
        /// Name of the source.
        origin: String,
        /// What would be right.
        wanted: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A source cannot be read on.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A source holds nothing.
    #[error("{origin}: is empty, must hold {wanted}, one JSON object a line")]
    Empty {
        /// Name of the source.
        origin: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A flag that speaks of a live group, and no group.
    #[error("{0} is given without --group, must be left out or used with it")]
    NoGroup(&'static str),
    /// The live group could not be asked.
    #[error(transparent)]
    Live(#[from] live::LiveError),
    /// The snapshot could not be saved.
    #[error("{}: cannot save: {source}; --save takes a file that may be written", path.display())]
    Save {
        /// Where it was to go.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The answers could not be written.
    #[error("cannot write the answers: {0}")]
    Write(#[from] io::Error),
}

/// The whole subcommand, on the process's own streams.
pub fn main(args: &Args) -> ExitCode {
    let stdout = io::stdout();
    let output = args.output.unwrap_or_else(|| {
        if stdout.is_terminal() {
            Output::Text
        } else {
            Output::Json
        }
    });
    let args = Args {
        output: Some(output),
        ..args.clone()
    };
    let mut out = io::BufWriter::new(stdout.lock());
    let streams = Streams {
        input: &mut io::stdin().lock(),
        out: &mut out,
        err: &mut io::stderr(),
    };
    ExitCode::from(run(&args, streams))
}

/// Answers what `args` ask for and gives the exit code; errors are written, not returned.
pub fn run(args: &Args, streams: Streams<'_>) -> u8 {
    let Streams { input, out, err } = streams;
    let result = all(args, input, out, err).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.code(),
        // Whoever reads answers may stop; a check that nobody heard to its end has not passed.
        Err(Error::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => u8::from(args.check),
        Err(error) => {
            let _ = out.flush();
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(err, "{error}");
            2
        }
    }
}

fn all(
    args: &Args,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Outcome, Error> {
    let output = args.output.unwrap_or(Output::Json);
    if let Some(group) = &args.group {
        let wanted = if args.past { Wanted::Past } else { Wanted::Now };
        let all = live::fetch(&args.commander, group, args.namespace.as_deref(), wanted)?;
        if let Some(path) = &args.save {
            save(&all, path)?;
        }
        for saved in &all {
            match (wanted, output) {
                (Wanted::Past, Output::Text) => write!(out, "{}", saved.answer().brief())?,
                _ => write_reply(out, output, &Reply::of_saved(saved))?,
            }
        }
        return Ok(Outcome {
            passed: all.len(),
            ..Outcome::default()
        });
    }
    // Said here: clap waives `requires` where files, which conflict with --group, are given.
    let orphans = [
        ("--namespace", args.namespace.is_some()),
        ("--save", args.save.is_some()),
        ("--past", args.past),
    ];
    if let Some((flag, _)) = orphans.into_iter().find(|(_, given)| *given) {
        return Err(Error::NoGroup(flag));
    }
    let (kind, paths) = if args.snapshot.is_empty() {
        (Kind::Case, &args.files)
    } else {
        (Kind::Snapshot, &args.snapshot)
    };
    let mut session = Session {
        kind,
        check: args.check,
        output,
        outcome: Outcome::default(),
    };
    if paths.is_empty() {
        session.source("standard input", input, out, err)?;
    }
    for path in paths {
        if path.as_os_str() == "-" {
            session.source("standard input", input, out, err)?;
        } else {
            let origin = path.display().to_string();
            session.source(&origin, &mut open(path, &origin, kind)?, out, err)?;
        }
    }
    let outcome = session.outcome;
    if args.check {
        writeln!(out, "{} passed, {} failed", outcome.passed, outcome.failed)?;
    }
    Ok(outcome)
}

fn open(path: &Path, origin: &str, kind: Kind) -> Result<BufReader<File>, Error> {
    let refused = |source| Error::Open {
        origin: origin.to_owned(),
        wanted: kind.plural(),
        source,
    };
    let file = File::open(path).map_err(refused)?;
    // A directory opens, and fails only when it is read.
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(BufReader::new(file))
}

/// Each with the answer given then, or now where none came with it.
fn save(all: &[Saved], path: &Path) -> Result<(), Error> {
    let answered = |saved: &Saved| match saved.given() {
        Some(_) => saved.to_json() + "\n",
        None => saved.clone().answered().to_json() + "\n",
    };
    std::fs::write(path, all.iter().map(answered).collect::<String>()).map_err(|source| Error::Save {
        path: path.to_owned(),
        source,
    })
}

struct Session {
    kind: Kind,
    check: bool,
    output: Output,
    outcome: Outcome,
}

impl Session {
    /// Answers every line of one source; a line that cannot be read is told and the others are answered all the same.
    fn source(
        &mut self,
        origin: &str,
        input: &mut dyn BufRead,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<(), Error> {
        let mut lines = Lines::new(origin, input, self.kind.longest());
        let mut seen = false;
        while let Some((number, line)) = lines.next()? {
            seen = true;
            match reply(self.kind, line, self.check) {
                Ok(answer) => self.tell(&answer, out)?,
                Err(wrong) => {
                    writeln!(err, "{origin}:{number}: {wrong}")?;
                    self.outcome.unreadable += 1;
                    self.outcome.failed += usize::from(self.check);
                    if self.outcome.unreadable >= MOST_ERRORS {
                        return Err(LineError::TooManyWrong {
                            origin: origin.to_owned(),
                            line: number,
                        }
                        .into());
                    }
                }
            }
        }
        if seen {
            Ok(())
        } else {
            Err(Error::Empty {
                origin: origin.to_owned(),
                wanted: self.kind.plural(),
            })
        }
    }

    fn tell(&mut self, answer: &Reply, out: &mut dyn Write) -> Result<(), Error> {
        if !self.check {
            self.outcome.passed += 1;
            return Ok(write_reply(out, self.output, answer)?);
        }
        for mismatch in &answer.mismatches {
            writeln!(out, "{}: {mismatch}", answer.name)?;
        }
        if answer.mismatches.is_empty() {
            self.outcome.passed += 1;
        } else {
            self.outcome.failed += 1;
        }
        Ok(())
    }
}

fn write_reply(out: &mut dyn Write, output: Output, answer: &Reply) -> io::Result<()> {
    match output {
        Output::Json => writeln!(out, "{}", answer.json),
        Output::Text => writeln!(out, "{}", answer.text),
    }
}

#[cfg(test)]
mod tests;
