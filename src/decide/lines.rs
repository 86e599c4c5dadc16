//! Lines of a source, one at a time and bounded; knows not what they mean.

use std::io::{self, BufRead, Read as _};

use thiserror::Error;

/// Why a source cannot be read on.
#[derive(Debug, Error)]
pub enum LineError {
    /// The system refused.
    #[error("{origin}:{line}: cannot read: {source}")]
    Read {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A line is too long.
    #[error("{origin}:{line}: the line is longer than {limit} MiB, must be shorter: one JSON object a line")]
    TooLong {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A line is no UTF-8.
    #[error("{origin}:{line}: byte {byte} of the line is not UTF-8, must be: save the file as UTF-8")]
    NotUtf8 {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// Position in the line, from 1.
        byte: usize,
    },
    /// So many lines were wrong that it is most likely another kind of file.
    #[error("{origin}:{line}: too many lines are wrong, the rest is not read; is it the right file?")]
    TooManyWrong {
        /// Name of the source.
        origin: String,
        /// Line number, from 1.
        line: usize,
    },
}

/// Some editors put this in front of UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The lines of a source that are not blank, with their numbers.
pub(super) struct Lines<'a> {
    origin: &'a str,
    input: &'a mut dyn BufRead,
    limit: usize,
    number: usize,
    bytes: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Lines of at most `limit` bytes; `origin` names the source in errors.
    pub(super) fn new(origin: &'a str, input: &'a mut dyn BufRead, limit: usize) -> Self {
        Self {
            origin,
            input,
            limit,
            number: 0,
            bytes: Vec::new(),
        }
    }

    /// The next line that is not blank, without spaces around it; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(usize, &str)>, LineError> {
        loop {
            if !self.fill()? {
                return Ok(None);
            }
            if !self.text()?.is_empty() {
                return Ok(Some((self.number, self.text()?)));
            }
        }
    }

    fn fill(&mut self) -> Result<bool, LineError> {
        self.number += 1;
        self.bytes.clear();
        let limit = self.limit as u64 + 1;
        let read = self.input.take(limit).read_until(b'\n', &mut self.bytes);
        let length = read.map_err(|source| LineError::Read {
            origin: self.origin.to_owned(),
            line: self.number,
            source,
        })?;
        if length > self.limit {
            return Err(LineError::TooLong {
                origin: self.origin.to_owned(),
                line: self.number,
                limit: self.limit >> 20,
            });
        }
        Ok(length > 0)
    }

    fn text(&self) -> Result<&str, LineError> {
        let text = std::str::from_utf8(&self.bytes).map_err(|error| LineError::NotUtf8 {
            origin: self.origin.to_owned(),
            line: self.number,
            byte: error.valid_up_to() + 1,
        })?;
        let text = match self.number {
            1 => text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text),
            _ => text,
        };
        Ok(text.trim())
    }
}
