//! The capacity ledger of a group (C1) and the load in transit (C4); never chooses a victim.

use std::fmt;

use crate::group::Group;
use crate::ids::Birth;
use crate::share::Share;
use crate::thresholds::Policy;

/// The figures of C1 for the workers that are routable and not draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// N.
    pub workers: usize,
    /// C = reception threshold + (N-1) x admission threshold; 0 without workers.
    pub capacity: Share,
    /// O, load in transit included.
    pub occupied: Share,
    /// H = C - O; may be negative.
    pub headroom: Share,
    /// Headroom above which a worker may go.
    pub margin: Share,
}

impl Ledger {
    /// The ledger of a group now.
    pub fn of(group: &Group, policy: &Policy) -> Self {
        let workers = group.placeable_count();
        let capacity = match workers {
            0 => Share::ZERO,
            n => policy.reception + policy.admission.times_count(n - 1),
        };
        let (measured, transit) = group.load();
        let occupied = measured + transit;
        Self {
            workers,
            capacity,
            occupied,
            headroom: capacity - occupied,
            margin: policy.margin,
        }
    }

    /// H is above the margin by more than the tolerance (C2).
    pub fn is_above_margin(&self) -> bool {
        self.headroom.exceeds(self.margin)
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers,
            capacity,
            occupied,
            headroom,
            margin,
        } = self;
        write!(
            f,
            "{workers} {}, C {capacity} - O {occupied} = H {headroom}, margin {margin}",
            if *workers == 1 { "worker" } else { "workers" }
        )
    }
}

/// Load that a drain moved to one worker and that its smoothed reading does not show in full yet (C4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Who took it.
    pub target: Birth,
    /// The part of the drained worker's occupancy that went there.
    pub moved: Share,
    /// Rows of the target since it went.
    pub rows: usize,
}

impl Transit {
    /// What the target's smoothed reading lacks: all of it at first, none after `smoothing_rows` new rows.
    pub fn remaining(&self, smoothing_rows: usize) -> Share {
        let missing = smoothing_rows.saturating_sub(self.rows);
        self.moved.times_count(missing).divided(smoothing_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Transit};
    use crate::group::{Group, WorkerView};
    use crate::ids::Birth;
    use crate::share::Share;
    use crate::thresholds::Policy;

    fn group(loads: &[u32]) -> Group {
        let worker = |(load, birth): (&u32, u64)| WorkerView {
            occupancy: Share::from_percent(*load),
            ..WorkerView::new(Birth(birth), "w")
        };
        loads.iter().zip(1..).map(worker).collect()
    }

    #[test]
    fn the_worked_example_holds_in_points() {
        let points = |loads: &[u32]| {
            let ledger = Ledger::of(&group(loads), &Policy::default());
            [ledger.capacity, ledger.occupied, ledger.headroom]
        };
        assert_eq!(points(&[50, 60, 60, 60]), [290, 230, 60].map(Share::from_percent));
        assert_eq!(
            points(&[40, 50, 40, 20]),
            [290, 150, 140].map(Share::from_percent)
        );
        assert_eq!(points(&[40, 60, 50]), [210, 150, 60].map(Share::from_percent));
    }

    #[test]
    fn four_workers_at_one_point_seven_are_exactly_on_the_margin() {
        let ledger = Ledger::of(&group(&[50, 40, 40, 40]), &Policy::default());
        assert_eq!(ledger.headroom, ledger.margin);
        assert!(!ledger.is_above_margin());
    }

    #[test]
    fn load_in_transit_counts_as_occupied_and_shrinks_with_each_row() {
        let mut before = group(&[40, 50, 40]);
        let moved = Transit {
            target: Birth(2),
            moved: Share::from_percent(30),
            rows: 0,
        };
        before.update(Birth(2), |worker| worker.transit = moved.remaining(6));
        assert_eq!(
            Ledger::of(&before, &Policy::default()).occupied,
            Share::from_percent(160)
        );
        let left = |rows| Transit { rows, ..moved }.remaining(6);
        assert_eq!([1, 5, 6, 9].map(left), [25, 5, 0, 0].map(Share::from_percent));
    }
}
