//! The surface of one pool: client id to user, user to worker; it holds what was decided and decides nothing.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use elastic_pool_engine::ownership;

/// Client ids kept per user; the oldest binding goes first. A browser is one client.
const CLIENTS_PER_USER: usize = 32;

/// A user who lives somewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    /// The one worker that owns him.
    pub owner: Birth,
    /// Under which epoch (V8).
    pub epoch: Epoch,
    /// His browsers (L4), oldest binding first.
    pub clients: Vec<ClientId>,
    /// U1: cumulative, kept over moves.
    pub consumption: Forwards,
    /// When a gateway last told of a request of his.
    pub active_at: Option<Duration>,
}

/// Who lives where. Every change marks its user, so that gateways hear of it.
#[derive(Debug, Default)]
pub struct Surface {
    users: HashMap<UserId, Resident>,
    clients: HashMap<ClientId, UserId>,
    by_worker: HashMap<Birth, BTreeSet<UserId>>,
    changed: BTreeSet<UserId>,
    version: Epoch,
}

impl Surface {
    /// The resident, if the user lives anywhere.
    pub fn get(&self, user: &UserId) -> Option<&Resident> {
        self.users.get(user)
    }

    /// Whose browser this is (L4).
    pub fn user_of(&self, client: ClientId) -> Option<&UserId> {
        self.clients.get(&client)
    }

    /// All residents, in no order.
    pub fn residents(&self) -> impl Iterator<Item = (&UserId, &Resident)> {
        self.users.iter()
    }

    /// How many live in the pool.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True when nobody lives in the pool.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Users of a worker, in order of their ids.
    pub fn of_worker(&self, birth: Birth) -> impl Iterator<Item = &UserId> {
        self.by_worker.get(&birth).into_iter().flatten()
    }

    /// How many live on a worker.
    pub fn count(&self, birth: Birth) -> usize {
        self.by_worker.get(&birth).map_or(0, BTreeSet::len)
    }

    /// The highest epoch granted so far: the table's version (L6).
    pub fn version(&self) -> Epoch {
        self.version
    }

    /// Names the owner of a user under `epoch`. An epoch that is not above the present one changes nothing
    /// and answers false (V8).
    pub fn settle(&mut self, user: &UserId, owner: Birth, epoch: Epoch) -> bool {
        let present = self.users.get(user).map(|resident| resident.epoch);
        if !ownership::supersedes(present, epoch) {
            return false;
        }
        let resident = match self.users.remove(user) {
            Some(before) => {
                self.unlist(user, before.owner);
                Resident {
                    owner,
                    epoch,
                    ..before
                }
            }
            None => Resident {
                owner,
                epoch,
                clients: Vec::new(),
                consumption: Forwards::default(),
                active_at: None,
            },
        };
        self.users.insert(user.clone(), resident);
        self.by_worker.entry(owner).or_default().insert(user.clone());
        self.version = self.version.max(epoch);
        self.changed.insert(user.clone());
        true
    }

    /// L4: `client` is a browser of `user` from now on, and of nobody else.
    pub fn bind(&mut self, client: ClientId, user: &UserId) {
        if self.clients.get(&client) == Some(user) || !self.users.contains_key(user) {
            return;
        }
        self.unbind(client);
        if let Some(resident) = self.users.get_mut(user) {
            if resident.clients.len() == CLIENTS_PER_USER {
                let oldest = resident.clients.remove(0);
                self.clients.remove(&oldest);
            }
            resident.clients.push(client);
            self.clients.insert(client, user.clone());
            self.changed.insert(user.clone());
        }
    }

    /// L5: `client` is a guest again; nobody else is touched.
    pub fn unbind(&mut self, client: ClientId) {
        let Some(user) = self.clients.remove(&client) else {
            return;
        };
        if let Some(resident) = self.users.get_mut(&user) {
            resident.clients.retain(|bound| *bound != client);
            self.changed.insert(user);
        }
    }

    /// The user left, or died with his worker.
    pub fn remove(&mut self, user: &UserId) -> Option<Resident> {
        let resident = self.users.remove(user)?;
        self.unlist(user, resident.owner);
        for client in &resident.clients {
            self.clients.remove(client);
        }
        self.changed.insert(user.clone());
        Some(resident)
    }

    /// U1: adds to a user's consumption; nobody hears of it.
    pub fn consume(&mut self, user: &UserId, more: Forwards, now: Duration) {
        if let Some(resident) = self.users.get_mut(user) {
            resident.consumption.add(more);
            if more.requests > 0 {
                resident.active_at = Some(now);
            }
        }
    }

    /// Every gateway is to hear of every user anew.
    pub fn tell_all(&mut self) {
        self.changed.extend(self.users.keys().cloned());
    }

    /// The users that changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<UserId> {
        std::mem::take(&mut self.changed)
    }

    fn unlist(&mut self, user: &UserId, owner: Birth) {
        if let Some(users) = self.by_worker.get_mut(&owner) {
            users.remove(user);
            if users.is_empty() {
                self.by_worker.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    #[test]
    fn an_older_epoch_never_takes_a_user() {
        let mut surface = Surface::default();
        assert!(surface.settle(&user("alice"), Birth(1), Epoch(5)));
        assert!(!surface.settle(&user("alice"), Birth(2), Epoch(5)));
        assert!(!surface.settle(&user("alice"), Birth(2), Epoch(4)));
        assert_eq!(surface.get(&user("alice")).unwrap().owner, Birth(1));
        assert!(surface.settle(&user("alice"), Birth(2), Epoch(6)));
        assert_eq!((surface.count(Birth(1)), surface.count(Birth(2))), (0, 1));
    }

    #[test]
    fn a_client_belongs_to_one_user_and_moves_with_him() {
        let mut surface = Surface::default();
        let client = ClientId([1; 16]);
        surface.settle(&user("alice"), Birth(1), Epoch(1));
        surface.settle(&user("bob"), Birth(1), Epoch(2));
        surface.bind(client, &user("alice"));
        surface.bind(client, &user("bob"));
        assert_eq!(surface.user_of(client), Some(&user("bob")));
        assert!(surface.get(&user("alice")).unwrap().clients.is_empty());
        surface.settle(&user("bob"), Birth(2), Epoch(3));
        assert_eq!(surface.get(&user("bob")).unwrap().clients, [client]);
        surface.remove(&user("bob"));
        assert_eq!(surface.user_of(client), None);
    }

    #[test]
    fn consumption_survives_a_move() {
        let mut surface = Surface::default();
        surface.settle(&user("alice"), Birth(1), Epoch(1));
        surface.consume(
            &user("alice"),
            Forwards {
                requests: 3,
                errors: 0,
                seconds: 0.5,
            },
            Duration::ZERO,
        );
        surface.settle(&user("alice"), Birth(2), Epoch(2));
        assert_eq!(surface.get(&user("alice")).unwrap().consumption.requests, 3);
    }

    #[test]
    fn a_user_keeps_a_bounded_number_of_browsers() {
        let mut surface = Surface::default();
        surface.settle(&user("alice"), Birth(1), Epoch(1));
        for n in 0..40 {
            surface.bind(ClientId([n; 16]), &user("alice"));
        }
        assert_eq!(
            surface.get(&user("alice")).unwrap().clients.len(),
            CLIENTS_PER_USER
        );
        assert_eq!(surface.user_of(ClientId([0; 16])), None);
        assert_eq!(surface.user_of(ClientId([39; 16])), Some(&user("alice")));
    }
}
