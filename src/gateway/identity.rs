//! Who a request comes from and whither it goes: cookie and table in, a way out; it waits for nothing and sends nothing.

use std::sync::Arc;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use http::HeaderValue;

use super::cookie::Cookie;
use super::jar::Known;
use super::resident::{Owner, Resident};
use super::table::{Group, Table, Topology};
use super::upstream::Upstream;
use crate::credentials::{NoRandomness, random_bytes};

/// The client of one request, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub(crate) client: ClientId,
    pub(crate) client_header: HeaderValue,
    /// Group that took him in; empty: the default one.
    pub(crate) group: Arc<str>,
    /// Who logged in, as the cookie says.
    pub(crate) user: Option<UserId>,
    pub(crate) epoch: Epoch,
    pub(crate) reception: Option<Birth>,
    /// The answer carries a new cookie for what stands here.
    pub(crate) set_cookie: bool,
    /// Told apart by a header or a token: a client of the same name comes again without a cookie.
    pub(crate) named: bool,
    /// The commander said that nobody owns him: his reception it is (L6).
    pub(crate) unowned: bool,
}

impl Visitor {
    /// Somebody with a cookie of ours.
    pub(crate) fn known(known: &Known) -> Self {
        let Cookie {
            client,
            group,
            user,
            epoch,
            reception,
        } = &known.cookie;
        Self {
            client: *client,
            client_header: known.client.clone(),
            group: Arc::clone(group),
            user: user.clone(),
            epoch: *epoch,
            reception: *reception,
            set_cookie: false,
            named: false,
            unowned: false,
        }
    }

    /// Somebody who is told apart by what he sends instead of a cookie.
    pub(crate) fn named(client: ClientId) -> Self {
        let text = client.to_string();
        Self {
            client,
            client_header: HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("")),
            group: Arc::from(""),
            user: None,
            epoch: Epoch::PROVISIONAL,
            reception: None,
            set_cookie: false,
            named: true,
            unowned: false,
        }
    }

    /// Somebody new.
    pub(crate) fn guest(group: Arc<str>) -> Result<Self, NoRandomness> {
        let client = ClientId(random_bytes()?);
        Ok(Self {
            client,
            client_header: HeaderValue::from_str(&client.to_string()).map_err(|_| NoRandomness)?,
            group,
            user: None,
            epoch: Epoch::PROVISIONAL,
            reception: None,
            set_cookie: true,
            named: false,
            unowned: false,
        })
    }

    /// Whoever it is, a guest of the present reception: what is left when the accounting is compiled out.
    pub(crate) fn nobody(topology: &Topology) -> Self {
        let group = topology.default_group();
        Self {
            client: ClientId([0; 16]),
            client_header: HeaderValue::from_static("00000000000000000000000000000000"),
            group: group.map_or_else(|| Arc::from(""), |group| Arc::clone(&group.name)),
            user: None,
            epoch: Epoch::PROVISIONAL,
            reception: group.and_then(Group::entrance),
            set_cookie: false,
            named: false,
            unowned: false,
        }
    }

    /// What his next cookie says.
    pub(crate) fn cookie(&self) -> Cookie {
        Cookie {
            client: self.client,
            group: Arc::clone(&self.group),
            user: self.user.clone(),
            epoch: self.epoch,
            reception: self.reception,
        }
    }
}

/// As whom a request is forwarded.
#[derive(Debug, Clone)]
pub(crate) enum Who {
    /// Nobody logged in.
    Guest,
    /// The table names his owner.
    Owned(Owner),
    /// Epoch 0: provisional (P6), or a session that is not confirmed yet (P7).
    Unowned(UserId),
}

impl Who {
    pub(crate) fn user(&self) -> Option<UserId> {
        match self {
            Self::Guest => None,
            Self::Owned(owner) => owner.resident.id(),
            Self::Unowned(user) => Some(user.clone()),
        }
    }

    /// The same as text, for which nothing has to be copied.
    pub(crate) fn user_text(&self) -> Option<&str> {
        match self {
            Self::Guest => None,
            Self::Owned(owner) => Some(&owner.resident.user),
            Self::Unowned(user) => Some(user.as_str()),
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            Self::Owned(owner) => owner.epoch,
            Self::Guest | Self::Unowned(_) => Epoch::PROVISIONAL,
        }
    }

    /// Where the user's counters are; somebody whom no table names has none.
    pub(crate) fn resident(&self) -> Option<Arc<Resident>> {
        match self {
            Self::Owned(owner) => Some(Arc::clone(&owner.resident)),
            Self::Guest | Self::Unowned(_) => None,
        }
    }
}

/// Whither a request goes next.
#[derive(Debug)]
pub(crate) enum Way {
    /// To this worker as this one.
    Forward(Arc<Upstream>, Who),
    /// The commander must say who owns this user.
    Ask(UserId, Epoch),
    /// The user is gone: from here on a new guest.
    Gone,
    /// Nobody is there to take the request: wait for the table to change.
    Nobody,
    /// No group takes newcomers, and waiting would not help.
    Closed,
}

/// Chooses a way by P1, P7, L4 and L6. A guest's reception is filled in.
pub(crate) fn choose(table: &Table, visitor: &mut Visitor, commander_is_up: bool) -> Way {
    if (!visitor.set_cookie || visitor.named)
        && let Some(resident) = table.bound(&visitor.client)
    {
        return owned(table, resident.owner());
    }
    let topology = table.topology();
    let Some(user) = visitor.user.clone() else {
        return guest(table, &topology, visitor);
    };
    let owner = table.owner(&user);
    if visitor.epoch == Epoch::PROVISIONAL || visitor.unowned {
        return unowned(table, &topology, visitor, user, owner, commander_is_up);
    }
    match owner {
        // His client id is not bound: an earlier life of his, or a login that this table has not heard of.
        Some(_) if commander_is_up => Way::Ask(user, visitor.epoch),
        Some(owner) => owned(table, owner),
        None if table.covers(visitor.epoch) => Way::Gone,
        None => Way::Ask(user, visitor.epoch),
    }
}

fn owned(table: &Table, owner: Owner) -> Way {
    match table.worker(owner.birth) {
        Some(upstream) => Way::Forward(upstream, Who::Owned(owner)),
        None => Way::Nobody,
    }
}

/// P6: to the reception that took him in, while it lives and nobody is known to own him.
fn unowned(
    table: &Table,
    topology: &Topology,
    visitor: &Visitor,
    user: UserId,
    owner: Option<Owner>,
    commander_is_up: bool,
) -> Way {
    let reception = visitor.reception.and_then(|birth| topology.workers.get(&birth));
    match (owner, reception) {
        (Some(owner), _) if Some(owner.birth) == visitor.reception => owned(table, owner),
        (Some(_), _) if commander_is_up && !visitor.unowned => Way::Ask(user, visitor.epoch),
        (_, Some(reception)) => Way::Forward(Arc::clone(reception), Who::Unowned(user)),
        (Some(owner), None) => owned(table, owner),
        // A table of before may not know his reception yet.
        (None, None) if commander_is_up && table.covers(visitor.epoch) => Way::Gone,
        (None, None) => Way::Ask(user, visitor.epoch),
    }
}

fn guest(table: &Table, topology: &Topology, visitor: &mut Visitor) -> Way {
    let Some(group) = topology.group(&visitor.group) else {
        return if table.is_live() { Way::Closed } else { Way::Nobody };
    };
    if group.session && visitor.named {
        return named_session(table, topology, group, visitor);
    }
    if let Some(reception) = visitor.reception.and_then(|birth| topology.workers.get(&birth)) {
        if !group.session || visitor.set_cookie {
            return Way::Forward(Arc::clone(reception), Who::Guest);
        }
        // P7: a client that came back is a user under its own id.
        let Ok(user) = UserId::new(&visitor.client.to_string()) else {
            return Way::Gone;
        };
        if let Some(owner) = table.owner(&user) {
            return owned(table, owner);
        }
        return Way::Forward(Arc::clone(reception), Who::Unowned(user));
    }
    if visitor.reception.is_some() && !visitor.set_cookie {
        // The reception that took him in is dead, and what he had with it.
        return Way::Gone;
    }
    let Some(group) = topology.open_group(group) else {
        return Way::Closed;
    };
    let entrance = group.entrance().and_then(|birth| topology.workers.get(&birth));
    let Some(upstream) = entrance.filter(|upstream| upstream.is_routable()) else {
        visitor.reception = None;
        return Way::Nobody;
    };
    visitor.group = Arc::clone(&group.name);
    visitor.reception = Some(upstream.birth);
    visitor.set_cookie = true;
    Way::Forward(Arc::clone(upstream), Who::Guest)
}

/// P7 for somebody who comes again without a cookie: a user under his own id from the first request on.
fn named_session(table: &Table, topology: &Topology, group: &Group, visitor: &Visitor) -> Way {
    let Ok(user) = UserId::new(&visitor.client.to_string()) else {
        return Way::Nobody;
    };
    if let Some(owner) = table.owner(&user) {
        return owned(table, owner);
    }
    let Some(group) = topology.open_group(group) else {
        return Way::Closed;
    };
    let entrance = group.entrance().and_then(|birth| topology.workers.get(&birth));
    match entrance.filter(|upstream| upstream.is_routable()) {
        Some(upstream) => Way::Forward(Arc::clone(upstream), Who::Unowned(user)),
        None => Way::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Key;

    /// Found by the simulation: a gateway that had just started made guests of them (L6).
    #[test]
    fn a_table_that_is_not_live_says_of_no_provisional_user_that_he_is_gone() {
        let table = Table::new(Key::random().unwrap(), Arc::default());
        let mut visitor = Visitor::known(&Known::new(Cookie {
            client: ClientId([1; 16]),
            group: Arc::from("blue"),
            user: Some(UserId::new("alice").unwrap()),
            epoch: Epoch::PROVISIONAL,
            reception: Some(Birth(1)),
        }));
        assert!(matches!(choose(&table, &mut visitor, false), Way::Ask(..)));
    }
}
