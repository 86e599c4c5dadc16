//! One row in as few bytes as hold it exactly, so that a worker's window stays below 6 KB; judges nothing.

use std::time::Duration;

use super::Row;
use crate::forward::Forwards;
use crate::report::{Executor, Report};

/// No row takes more bytes: its head, its arrival, and fifteen numbers of eight bytes.
pub(super) const MOST: usize = HEAD + 12 + 15 * 8;
const HEAD: usize = 4;
/// Bits of the head that say how a number is held.
const BITS: u32 = 2;
const ABSENT: u32 = 0;
const SHORT: u32 = 1;
const LONG: u32 = 2;
const WHOLE: u32 = 3;

/// Writes `row` to the front of `bytes`; how many it took.
pub(super) fn pack(row: &Row, bytes: &mut [u8; MOST]) -> usize {
    let mut out = Writer {
        bytes,
        at: HEAD,
        head: 0,
        numbers: 0,
    };
    let report = &row.report;
    for field in [
        report.cpu,
        report.rss,
        report.executor.busy,
        report.executor.total,
        report.users,
        report.pages,
        report.connections,
        report.active_users,
        report.executor.queue_depth,
        report.backlog_pending,
        report.backlog_outbox,
        report.load,
    ] {
        out.reading(field);
    }
    out.counter(row.forward.requests);
    out.counter(row.forward.errors);
    out.reading(Some(row.forward.seconds));
    out.arrival(row.at);
    out.end()
}

/// Reads what [`pack`] wrote.
pub(super) fn unpack(bytes: &[u8]) -> Row {
    let mut read = Reader::new(bytes);
    let cpu = read.reading();
    let rss = read.reading();
    let busy = read.reading();
    let total = read.reading();
    let [users, pages, connections, active_users] = [(); 4].map(|()| read.reading());
    let [queue_depth, backlog_pending, backlog_outbox, load] = [(); 4].map(|()| read.reading());
    let report = Report {
        users,
        pages,
        connections,
        active_users,
        executor: Executor {
            busy,
            total,
            queue_depth,
        },
        cpu,
        rss,
        backlog_pending,
        backlog_outbox,
        load,
    };
    let forward = Forwards {
        requests: read.counter(),
        errors: read.counter(),
        seconds: read.reading().unwrap_or_default(),
    };
    let at = read.arrival();
    Row { at, report, forward }
}

/// What E1 reads of a packed row; the rest stays absent. These numbers stand first, so that a report's occupancy costs little.
pub(super) fn unpack_gauges(bytes: &[u8]) -> Report {
    let mut read = Reader::new(bytes);
    let (cpu, rss) = (read.reading(), read.reading());
    let executor = Executor {
        busy: read.reading(),
        total: read.reading(),
        queue_depth: None,
    };
    Report {
        executor,
        cpu,
        rss,
        ..Report::default()
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; MOST],
    at: usize,
    head: u32,
    numbers: u32,
}

impl Writer<'_> {
    /// A whole number that fits into two or four bytes takes no more; any other keeps all its bits.
    fn reading(&mut self, value: Option<f64>) {
        let Some(value) = value else {
            return self.held(ABSENT, &[]);
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "what does not fit saturates, and is told by the comparison"
        )]
        let (short, long) = (value as u16, value as u32);
        let same = |whole: f64| whole.to_bits() == value.to_bits();
        if same(f64::from(short)) {
            self.held(SHORT, &short.to_le_bytes());
        } else if same(f64::from(long)) {
            self.held(LONG, &long.to_le_bytes());
        } else {
            self.held(WHOLE, &value.to_le_bytes());
        }
    }

    fn counter(&mut self, value: u64) {
        if value == 0 {
            self.held(ABSENT, &[]);
        } else if let Ok(short) = u16::try_from(value) {
            self.held(SHORT, &short.to_le_bytes());
        } else if let Ok(long) = u32::try_from(value) {
            self.held(LONG, &long.to_le_bytes());
        } else {
            self.held(WHOLE, &value.to_le_bytes());
        }
    }

    fn arrival(&mut self, at: Duration) {
        let nanos = at.subsec_nanos().to_le_bytes();
        if let Ok(seconds) = u32::try_from(at.as_secs()) {
            self.held(LONG, &seconds.to_le_bytes());
        } else {
            self.held(WHOLE, &at.as_secs().to_le_bytes());
        }
        self.put(&nanos);
    }

    fn held(&mut self, how: u32, number: &[u8]) {
        self.head |= how << (BITS * self.numbers);
        self.numbers += 1;
        self.put(number);
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        self.bytes[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }

    fn end(self) -> usize {
        self.bytes[..HEAD].copy_from_slice(&self.head.to_le_bytes());
        self.at
    }
}

struct Reader<'a> {
    head: u32,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Self { head: 0, rest: bytes };
        reader.head = u32::from_le_bytes(reader.take());
        reader
    }

    fn how(&mut self) -> u32 {
        let how = self.head & ((1 << BITS) - 1);
        self.head >>= BITS;
        how
    }

    fn reading(&mut self) -> Option<f64> {
        match self.how() {
            ABSENT => None,
            SHORT => Some(u16::from_le_bytes(self.take()).into()),
            LONG => Some(u32::from_le_bytes(self.take()).into()),
            _ => Some(f64::from_le_bytes(self.take())),
        }
    }

    fn counter(&mut self) -> u64 {
        match self.how() {
            ABSENT => 0,
            SHORT => u16::from_le_bytes(self.take()).into(),
            LONG => u32::from_le_bytes(self.take()).into(),
            _ => u64::from_le_bytes(self.take()),
        }
    }

    fn arrival(&mut self) -> Duration {
        let seconds = self.counter();
        Duration::new(seconds, u32::from_le_bytes(self.take()))
    }

    /// The next bytes; zeros where a row ends early, which no packed row does.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return [0; N];
        };
        self.rest = rest;
        *bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Row, pack, unpack, unpack_gauges};
    use crate::forward::Forwards;
    use crate::report::{Executor, Report};
    use proptest::prelude::*;
    use std::time::Duration;

    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![
            (0u64..1 << 53).prop_map(|whole| whole as f64),
            (0u32..70_000).prop_map(f64::from),
            any::<f64>().prop_filter("a row holds no NaN", |number| !number.is_nan()),
        ]
    }

    fn any_row() -> impl Strategy<Value = Row> {
        let readings = prop::collection::vec(prop::option::of(any_number()), 12);
        (readings, any::<(u64, u64)>(), any_number(), any::<Duration>()).prop_map(
            |(readings, (requests, errors), seconds, at)| Row {
                at,
                report: Report {
                    users: readings[0],
                    pages: readings[1],
                    connections: readings[2],
                    active_users: readings[3],
                    executor: Executor {
                        busy: readings[4],
                        total: readings[5],
                        queue_depth: readings[6],
                    },
                    cpu: readings[7],
                    rss: readings[8],
                    backlog_pending: readings[9],
                    backlog_outbox: readings[10],
                    load: readings[11],
                },
                forward: Forwards {
                    requests,
                    errors,
                    seconds,
                },
            },
        )
    }

    proptest! {
        #[test]
        fn a_packed_row_reads_back_to_the_last_bit(row in any_row()) {
            let mut bytes = [0xff; MOST];
            let length = pack(&row, &mut bytes);
            prop_assert_eq!(unpack(&bytes[..length]), row);
            let gauges = unpack_gauges(&bytes[..length]);
            prop_assert_eq!((gauges.cpu, gauges.rss), (row.report.cpu, row.report.rss));
            prop_assert_eq!(gauges.executor.busy, row.report.executor.busy);
            prop_assert_eq!(gauges.executor.total, row.report.executor.total);
        }
    }

    #[test]
    fn a_negative_zero_stays_one() {
        let report = Report {
            load: Some(-0.0),
            ..Report::default()
        };
        let row = Row {
            at: Duration::MAX,
            report,
            forward: Forwards::default(),
        };
        let mut bytes = [0; MOST];
        let length = pack(&row, &mut bytes);
        let load = unpack(&bytes[..length]).report.load;
        assert_eq!(load.map(f64::to_bits), Some((-0.0_f64).to_bits()));
    }
}
