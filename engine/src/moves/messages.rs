//! The words of a move: what happens, what is to be done, how it ends; never decides.

use std::time::Duration;

use crate::ids::{Birth, ClientId, Epoch, GatewayId, UserId};

/// A package that waits at the source for its Fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Package {
    /// Size.
    pub bytes: u64,
    /// Checksum, lower-case hex.
    pub sha256: String,
    /// The app's format tag.
    pub format: String,
}

/// Whether the user moves, or a slice of him joins the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The user goes from source to target and gets the move's id as his epoch.
    Move,
    /// The slice (epoch 0) that a resident's login left at the source is merged into the owner, the target (P5).
    Join {
        /// The new browser: only its requests wait.
        client: ClientId,
    },
}

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timeouts {
    /// Until every gateway has answered Held.
    pub held: Duration,
    /// Quiesce, streams and snapshot at the source (V2 and V3).
    pub snapshot: Duration,
    /// Transfer and staging (V4).
    pub fetch: Duration,
    /// Turning the staged copy on.
    pub activate: Duration,
    /// Everything before the commit, so that held requests outlive it (V1).
    pub whole: Duration,
    /// Before a command that must succeed is sent again.
    pub resend: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            held: Duration::from_secs(1),
            snapshot: Duration::from_secs(3),
            fetch: Duration::from_secs(3),
            activate: Duration::from_secs(1),
            whole: Duration::from_millis(4_500),
            resend: Duration::from_secs(1),
        }
    }
}

/// Why a move did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A gateway did not answer Held in time.
    HeldTimeout,
    /// The snapshot took too long.
    SnapshotTimeout,
    /// The transfer took too long.
    FetchTimeout,
    /// The activation took too long.
    ActivateTimeout,
    /// An agent refused or failed a command.
    Nack(Nack),
    /// The source died (V7).
    SourceDead,
    /// The target died.
    TargetDead,
    /// The commander wants it no more: the user left, the drain was cancelled.
    Withdrawn,
}

/// Why an agent did not do what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Nack {
    /// An open request outlived the quiesce limit (V2).
    Busy,
    /// An open stream could not be ended, or the policy pins it.
    Stream,
    /// The app does not know the user; L7 decides about him.
    NotHere,
    /// The app cannot hand users out.
    Unsupported,
    /// Over the package limit.
    TooLarge,
    /// Checksum or format differs.
    Corrupt,
    /// The other agent or the app did not answer.
    Unreachable,
    /// Lower term, older epoch, other state.
    Refused,
    /// Anything else.
    Other,
}

impl Cause {
    /// The cause as a metric label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::HeldTimeout => "held_timeout",
            Self::SnapshotTimeout => "snapshot_timeout",
            Self::FetchTimeout => "fetch_timeout",
            Self::ActivateTimeout => "activate_timeout",
            Self::Nack(Nack::Busy) => "busy",
            Self::Nack(Nack::Stream) => "stream",
            Self::Nack(Nack::NotHere) => "not_here",
            Self::Nack(Nack::Unsupported) => "unsupported",
            Self::Nack(Nack::TooLarge) => "too_large",
            Self::Nack(Nack::Corrupt) => "corrupt",
            Self::Nack(Nack::Unreachable) => "unreachable",
            Self::Nack(Nack::Refused) => "refused",
            Self::Nack(Nack::Other) => "other",
            Self::SourceDead => "source_dead",
            Self::TargetDead => "target_dead",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// What happened. Acks and Nacks are those of this move's commands; late ones change nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A gateway flagged the user.
    Held(GatewayId),
    /// A gateway connected; it needs the Hold too.
    GatewayJoined(GatewayId),
    /// A gateway is gone: nothing is forwarded by it.
    GatewayGone(GatewayId),
    /// The source froze the user and keeps his package.
    Snapshotted(Package),
    /// The target staged the complete package.
    Fetched,
    /// The target turned it on; it serves from the Route on.
    Activated,
    /// The target's agent knows that it owns the user.
    Assigned,
    /// The source dropped its copy.
    Forgotten,
    /// The source serves the user again.
    Thawed,
    /// The target dropped its staged copy.
    Discarded,
    /// The command that is waited for failed; a Nack of an earlier one is not passed on.
    Failed(Nack),
    /// The source is dead (D1).
    SourceDied,
    /// The target is dead (D1).
    TargetDied,
    /// The commander wants the move no more.
    Withdrawn,
    /// The deadline is reached; earlier ones change nothing.
    Tick,
}

/// To whom a gateway's held requests go when there is no Route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Back {
    /// To the owner as he was: nothing had been frozen.
    Unchanged,
    /// To the source, under this new epoch.
    Source(Epoch),
    /// To nobody: the user is swept (V7), or the client of a failed join is a guest (P5).
    Nobody,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Tell this gateway to hold (V1).
    Hold(GatewayId),
    /// Tell the source to quiesce, freeze and package (V2, V3).
    Snapshot,
    /// Tell the target to fetch and stage (V4).
    Fetch(Package),
    /// Tell the target to turn the staged copy on.
    Activate,
    /// The commit (V5): the surface names the target; tell every gateway.
    Route,
    /// Tell the target that it owns the user under the move's id (a join: the owner keeps his epoch, with one more client).
    Assign,
    /// Tell the source to drop its copy.
    Forget,
    /// Tell the target to drop the staged copy.
    Discard,
    /// Tell the source to serve again under this epoch.
    Thaw(Epoch),
    /// Tell every gateway to release what it holds.
    Cancel(Back),
    /// The operation is over; the user's next one may start (V11).
    Finish(Outcome),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// He lives at the target.
    Moved,
    /// He lives where he lived; try again after a pause (V6).
    Aborted(Cause),
    /// His worker died and he with it, or a joining slice is forgotten (V7, P5).
    Lost(Cause),
}

/// Who moves where under which epochs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Order {
    /// Who.
    pub user: UserId,
    /// Epoch that the move grants; its id.
    pub id: Epoch,
    /// Epoch of an abort, greater than `id`.
    pub back: Epoch,
    /// From.
    pub source: Birth,
    /// To.
    pub target: Birth,
    /// Move or join.
    pub kind: Kind,
}
