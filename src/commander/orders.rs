//! What goes down to the vehicle, kept up to date group by group; it decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Commander;
use crate::vehicle::{ObjectKey, Orders};

/// Figures that nobody acts on are brought up to date this often; everything else at once.
const FIGURES: Duration = Duration::from_secs(1);

/// A group of more workers is looked over for its status with the next tick, not with every worker that changes.
const LARGE: usize = 200;

/// The orders as they stand, and what of them may not be so any more.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    orders: Arc<Orders>,
    taken: bool,
    /// Groups whose workers, conditions or decisions changed.
    changed: BTreeSet<ObjectKey>,
    /// Groups whose figures may have changed: every report does that.
    figures: BTreeSet<ObjectKey>,
    figures_due: Duration,
    /// Large groups that wait for the next tick.
    late: BTreeSet<ObjectKey>,
    is_tick: bool,
}

impl Outlet {
    /// Something in the group changed that somebody acts on.
    pub(super) fn mark(&mut self, key: &ObjectKey) {
        if !self.changed.contains(key) {
            self.changed.insert(key.clone());
        }
    }

    /// Figures of the group may have changed.
    pub(super) fn mark_figures(&mut self, key: &ObjectKey) {
        if !self.figures.contains(key) {
            self.figures.insert(key.clone());
        }
    }

    /// Time went on; true about once a second.
    pub(super) fn tick(&mut self, now: Duration) -> bool {
        self.is_tick = true;
        self.changed.append(&mut self.late);
        let due = now >= self.figures_due;
        if due {
            self.figures_due = now + FIGURES;
            self.changed.append(&mut self.figures);
        }
        due
    }

    fn take(&mut self) -> Option<Arc<Orders>> {
        (!std::mem::replace(&mut self.taken, true)).then(|| Arc::clone(&self.orders))
    }
}

impl Commander {
    /// What is wanted of the vehicle, when it changed since the last call.
    pub fn take_orders(&mut self) -> Option<Arc<Orders>> {
        self.outlet.take()
    }

    /// Brings the orders of the groups that changed up to date.
    pub(super) fn refresh_orders(&mut self) {
        let is_tick = std::mem::take(&mut self.outlet.is_tick);
        for key in std::mem::take(&mut self.outlet.changed) {
            let fresh = self.groups.get(&key).map(|group| {
                let is_late = !is_tick && group.engine.workers().len() > LARGE;
                (group.desired(), (!is_late).then(|| self.group_view(group)))
            });
            let Outlet {
                orders, taken, late, ..
            } = &mut self.outlet;
            let Some((desired, view)) = fresh else {
                if orders.desired.contains_key(&key) {
                    let orders = Arc::make_mut(orders);
                    orders.desired.remove(&key);
                    orders.views.remove(&key);
                    *taken = false;
                }
                continue;
            };
            if orders.desired.get(&key) != Some(&desired) {
                Arc::make_mut(orders).desired.insert(key.clone(), desired);
                *taken = false;
            }
            let Some(view) = view else {
                late.insert(key);
                continue;
            };
            if orders.views.get(&key).is_none_or(|told| **told != view) {
                Arc::make_mut(orders).views.insert(key, Arc::new(view));
                *taken = false;
            }
        }
    }
}
