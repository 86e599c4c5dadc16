//! What a new leader makes of one user from what it heard (D3, design: "A new leader, per user"); sends nothing.

use crate::ids::{Birth, Epoch};

/// How a worker's agent says that it holds a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// Epoch 0: logged in there, granted by nobody (P6), or a claim without a valid ticket.
    Provisional,
    /// Granted.
    Owned,
    /// Source of an open move.
    Frozen {
        /// Its id: the epoch that it would have granted.
        id: Epoch,
    },
    /// Target of an open move.
    Staged {
        /// Its id.
        id: Epoch,
        /// The whole package is there.
        complete: bool,
    },
    /// Granted once, given away since; remembered for 10 min.
    Past,
}

/// What one living worker holds of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The worker.
    pub worker: Birth,
    /// The epoch it was granted; of a frozen one, that before the move.
    pub epoch: Epoch,
    /// How it holds him.
    pub held: Held,
}

/// All that was heard of one user in this term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heard {
    /// The living workers' claims; every worker that may hold users has spoken or is dead (D1).
    pub claims: Vec<Claim>,
    /// The highest epoch of him that a gateway's table knows.
    pub gateways_saw: Option<Epoch>,
    /// Every gateway has spoken in this term or is gone, or the time for it is up.
    pub gateways_heard: bool,
    /// A worker of the earlier term that may have been the other end of a move is dead.
    pub worker_died: bool,
}

/// Where he lives from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// There, under the epoch he has.
    Keeps(Birth, Epoch),
    /// There, under a new epoch that the commander grants.
    Granted(Birth),
    /// There: the staged copy is activated under its move's id.
    Activated(Birth, Epoch),
    /// Nowhere; `lost` when he did not leave by himself (counted, named in the log).
    Nobody {
        /// His worker died with him.
        lost: bool,
    },
    /// Not to be said before every gateway was heard; he stays frozen, his requests wait, then 503.
    Unknown,
}

/// What an agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Serve again, under the new epoch.
    Thaw {
        /// The move that is undone.
        id: Epoch,
    },
    /// Turn the staged copy on, then Assign it.
    Activate {
        /// The move that goes through.
        id: Epoch,
    },
    /// Drop the staged copy.
    Discard {
        /// Of this move.
        id: Epoch,
    },
    /// Drop the copy: it is stale.
    Forget {
        /// The frozen one's move, or the epoch of an owner that lost.
        id: Epoch,
    },
    /// Take the new epoch (Assign).
    Grant,
    /// Join this slice to the owner, as a P5 join.
    Join,
}

/// The judgement about one user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Where he lives.
    pub owner: Owner,
    /// What the agents are told, in the order of the claims.
    pub orders: Vec<(Birth, Order)>,
    /// Two owners were heard: the alarm counter.
    pub alarm: bool,
}

/// Judges one user; the order of the claims does not matter.
pub fn resolve(heard: &Heard) -> Verdict {
    let mut claims = heard.claims.clone();
    claims.sort_by_key(|claim| (claim.worker, claim.epoch));
    let granted = claims
        .iter()
        .filter(|claim| claim.held == Held::Owned)
        .max_by_key(|claim| claim.epoch);
    let frozen = claims
        .iter()
        .filter(|claim| matches!(claim.held, Held::Frozen { .. }));
    let frozen = frozen.max_by_key(|claim| claim.epoch);
    let owner = match (granted, frozen) {
        (Some(owner), Some(frozen)) if frozen.epoch > owner.epoch => frozen_alone(heard, &claims, frozen),
        (Some(owner), _) => Owner::Keeps(owner.worker, owner.epoch),
        (None, Some(frozen)) => frozen_alone(heard, &claims, frozen),
        (None, None) => unowned(heard, &claims),
    };
    let orders = claims
        .iter()
        .filter_map(|claim| Some((claim.worker, order(claim, owner)?)))
        .collect();
    Verdict {
        owner,
        orders,
        alarm: is_alarming(&claims),
    }
}

/// What is done about a claim that comes after the judgement: an agent that (re)connects, or a frozen one that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    /// He is this worker's: it is told so again.
    Assign,
    /// The worker knows better than the surface, which takes its word.
    Take,
    /// He lives here and nowhere else: he is granted a new epoch and thawed under it.
    Thaw {
        /// The move that is undone.
        id: Epoch,
    },
    /// The worker is told to.
    Order(Order),
    /// As a login that no gateway has asked to place yet (P6).
    Born,
    /// Nothing is owed.
    Nothing,
}

/// Weighs a late claim against `resident`, the surface's owner and epoch; no operation of the user is under way.
pub fn weigh(claim: &Claim, resident: Option<(Birth, Epoch)>) -> Late {
    let here = resident.is_some_and(|(owner, _)| owner == claim.worker);
    let newer = resident.is_none_or(|(_, epoch)| claim.epoch > epoch);
    match claim.held {
        Held::Owned if here && !newer => Late::Assign,
        Held::Owned if newer => Late::Take,
        Held::Owned => Late::Order(Order::Forget { id: claim.epoch }),
        Held::Frozen { id } if here || resident.is_none() => Late::Thaw { id },
        Held::Frozen { id } => Late::Order(Order::Forget { id }),
        // Committed, and what it was told then was lost.
        Held::Staged { id, complete: true } if resident == Some((claim.worker, id)) => {
            Late::Order(Order::Activate { id })
        }
        Held::Staged { id, .. } => Late::Order(Order::Discard { id }),
        Held::Past => Late::Nothing,
        Held::Provisional => Late::Born,
    }
}

/// "frozen, staged" and the rows about a frozen one whose target is dead or without the user.
///
/// The last leader may have routed the move: the target then serves from the next forward on, whatever it claims now.
/// Only gateways can tell, so nothing is undone before all of them were heard.
fn frozen_alone(heard: &Heard, claims: &[Claim], frozen: &Claim) -> Owner {
    let Held::Frozen { id } = frozen.held else {
        return Owner::Unknown;
    };
    let staged = claims
        .iter()
        .find(|claim| matches!(claim.held, Held::Staged { id: staged, .. } if staged == id));
    let fence_knows = claims
        .iter()
        .any(|claim| claim.held == Held::Past && claim.epoch >= id);
    let gateway_saw = heard.gateways_saw.is_some_and(|epoch| epoch >= id);
    match staged {
        Some(target) if heard.gateways_saw == Some(id) => Owner::Activated(target.worker, id),
        _ if fence_knows || gateway_saw => Owner::Nobody {
            lost: heard.worker_died && !fence_knows,
        },
        _ if heard.gateways_heard => Owner::Granted(frozen.worker),
        _ => Owner::Unknown,
    }
}

/// Neither owner nor frozen: "staged complete, source dead", "only provisional", or nobody.
fn unowned(heard: &Heard, claims: &[Claim]) -> Owner {
    let provisional = claims.iter().find(|claim| claim.held == Held::Provisional);
    let staged = claims.iter().filter_map(|claim| match claim.held {
        Held::Staged { id, complete } => Some((id, complete, claim.worker)),
        _ => None,
    });
    let Some((id, complete, worker)) = staged.max() else {
        return provisional.map_or(Owner::Nobody { lost: false }, |claim| {
            Owner::Granted(claim.worker)
        });
    };
    // A gateway that saw the move itself makes it a committed one; one that saw more makes the copy stale.
    let is_past = heard.gateways_saw.is_some_and(|epoch| epoch > id);
    if complete && !is_past {
        return if heard.gateways_heard || heard.gateways_saw == Some(id) {
            Owner::Activated(worker, id)
        } else {
            Owner::Unknown
        };
    }
    provisional.map_or(Owner::Nobody { lost: true }, |claim| Owner::Granted(claim.worker))
}

/// What the holder of `claim` is told once `owner` is known.
fn order(claim: &Claim, owner: Owner) -> Option<Order> {
    let (home, is_home) = match owner {
        Owner::Keeps(worker, _) | Owner::Granted(worker) | Owner::Activated(worker, _) => {
            (Some(worker), worker == claim.worker)
        }
        Owner::Nobody { .. } => (None, false),
        Owner::Unknown => return None,
    };
    match claim.held {
        Held::Owned if is_home => None,
        Held::Owned => Some(Order::Forget { id: claim.epoch }),
        Held::Frozen { id } if is_home => Some(Order::Thaw { id }),
        Held::Frozen { id } => Some(Order::Forget { id }),
        Held::Staged { id, .. } if owner == Owner::Activated(claim.worker, id) => {
            Some(Order::Activate { id })
        }
        Held::Staged { id, .. } => Some(Order::Discard { id }),
        Held::Provisional if is_home => Some(Order::Grant),
        // A provisional slice beside an owner is joined; without one it would have been granted.
        Held::Provisional => home.map(|_| Order::Join),
        Held::Past => None,
    }
}

/// Two granted owners, or a frozen one granted at or above the owner: V8 was broken.
fn is_alarming(claims: &[Claim]) -> bool {
    let owners = || claims.iter().filter(|claim| claim.held == Held::Owned);
    let above = |claim: &Claim| {
        matches!(claim.held, Held::Frozen { .. }) && owners().any(|owner| owner.epoch <= claim.epoch)
    };
    owners().count() > 1 || claims.iter().any(above)
}
