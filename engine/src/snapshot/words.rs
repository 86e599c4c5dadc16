//! The words that a snapshot uses for the engine's closed sets; nothing else.

use super::Stays;
use crate::group::{DrainKind, DrainProgress, SpawnFault, WorkerState};
use crate::thresholds::{Mode, MoveMode, UpdateType};

pub(super) const MODES: [Mode; 4] = [Mode::Active, Mode::Recommend, Mode::Frozen, Mode::Evacuate];
pub(super) const MOVES: [MoveMode; 2] = [MoveMode::Live, MoveMode::Drain];
pub(super) const KINDS: [DrainKind; 3] = [DrainKind::Compaction, DrainKind::MustGo, DrainKind::Update];
pub(super) const UPDATES: [UpdateType; 3] = [UpdateType::Move, UpdateType::Drain, UpdateType::OnDelete];
pub(super) const PROGRESS: [DrainProgress; 3] =
    [DrainProgress::Running, DrainProgress::Empty, DrainProgress::Stuck];
pub(super) const FAULTS: [SpawnFault; 3] =
    [SpawnFault::TimedOut, SpawnFault::NoCapacity, SpawnFault::Mistake];

pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Active => "Active",
        Mode::Recommend => "Recommend",
        Mode::Frozen => "Frozen",
        Mode::Evacuate => "Evacuate",
    }
}

pub(super) fn moves(moves: MoveMode) -> &'static str {
    match moves {
        MoveMode::Live => "Live",
        MoveMode::Drain => "Drain",
    }
}

pub(super) fn update(update: UpdateType) -> &'static str {
    match update {
        UpdateType::Move => "Move",
        UpdateType::Drain => "Drain",
        UpdateType::OnDelete => "OnDelete",
    }
}

pub(super) fn kind(kind: DrainKind) -> &'static str {
    match kind {
        DrainKind::Compaction => "compaction",
        DrainKind::MustGo => "must_go",
        DrainKind::Update => "update",
    }
}

pub(super) fn progress(progress: DrainProgress) -> &'static str {
    match progress {
        DrainProgress::Running => "running",
        DrainProgress::Empty => "empty",
        DrainProgress::Stuck => "stuck",
    }
}

pub(super) fn state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Nascent { .. } => "nascent",
        WorkerState::Routable => "routable",
        WorkerState::Draining(_) => "draining",
        WorkerState::Retiring { .. } => "retiring",
    }
}

pub(super) fn fault(fault: SpawnFault) -> &'static str {
    match fault {
        SpawnFault::TimedOut => "it took too long",
        SpawnFault::NoCapacity => "there is no capacity for it",
        SpawnFault::Mistake => "it cannot run as declared",
    }
}

pub(super) fn stays(stays: Stays) -> &'static str {
    match stays {
        Stays::PinnedStream => "pinned_stream",
        Stays::PackageTooLarge => "package_too_large",
        Stays::BackingOff { .. } => "backing_off",
    }
}
