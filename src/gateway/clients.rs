//! Client ids to users (L4), in as little memory as almost all of them need: a user's first is found by itself; it binds and unbinds nobody.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use elastic_pool_engine::ids::ClientId;

use super::resident::Resident;
use super::shards::Sharded;
use super::spread::Spread;

/// A resident as a key of his own: found by the client id that he came with, so that the id is held once.
#[derive(Debug, Clone)]
struct ByFirst(Arc<Resident>);

impl Borrow<ClientId> for ByFirst {
    fn borrow(&self) -> &ClientId {
        &self.0.first
    }
}

impl Hash for ByFirst {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.first.hash(state);
    }
}

impl PartialEq for ByFirst {
    fn eq(&self, other: &Self) -> bool {
        self.0.first == other.0.first
    }
}

impl Eq for ByFirst {}

/// Who is bound to a client id.
#[derive(Default)]
pub(crate) struct Clients {
    firsts: Sharded<ByFirst, (), Spread>,
    /// Of further browsers.
    others: Sharded<ClientId, Arc<Resident>, Spread>,
}

impl Clients {
    pub(crate) fn get(&self, client: &ClientId) -> Option<Arc<Resident>> {
        let first = self.firsts.key(client).map(|known| known.0);
        first.or_else(|| self.others.get(client))
    }

    /// Whoever had this id before has it no more.
    pub(crate) fn insert(&self, client: ClientId, resident: Arc<Resident>) {
        if resident.first == client {
            self.firsts.change(&client, |firsts| {
                // The key that is there may be another resident's.
                firsts.remove(&client);
                firsts.insert(ByFirst(resident), ());
            });
            self.others.change(&client, |others| others.remove(&client));
        } else {
            self.others.insert(client, resident);
            self.firsts.change(&client, |firsts| firsts.remove(&client));
        }
    }

    /// Unless it is somebody else's than this user's.
    pub(crate) fn remove(&self, client: &ClientId, user: &str) {
        self.firsts.change(client, |firsts| {
            let known = firsts.get_key_value(client);
            if known.is_some_and(|(known, ())| *known.0.user == *user) {
                firsts.remove(client);
            }
        });
        self.others.change(client, |others| {
            if others.get(client).is_some_and(|known| *known.user == *user) {
                others.remove(client);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use elastic_pool_engine::ids::UserId;

    use super::*;
    use crate::channel::proto::Ownership;

    fn resident(user: &str, first: u8) -> Arc<Resident> {
        let ownership = Ownership {
            user: user.to_owned(),
            clients: vec![ClientId([first; 16]).to_string()],
            ..Ownership::default()
        };
        Resident::new(&UserId::new(user).unwrap(), &ownership)
    }

    #[test]
    fn an_id_is_the_user_s_who_was_bound_last_and_nobody_else_takes_it_away() {
        let (alice, bob) = (resident("alice", 1), resident("bob", 1));
        let (clients, id, more) = (Clients::default(), ClientId([1; 16]), ClientId([2; 16]));
        let of = |client: &ClientId| clients.get(client).map(|known| known.user.to_string());
        clients.insert(id, Arc::clone(&alice));
        clients.insert(more, Arc::clone(&alice));
        assert_eq!(
            (of(&id).as_deref(), of(&more).as_deref()),
            (Some("alice"), Some("alice"))
        );
        clients.insert(id, Arc::clone(&bob));
        clients.insert(more, bob);
        assert_eq!(
            (of(&id).as_deref(), of(&more).as_deref()),
            (Some("bob"), Some("bob"))
        );
        for client in [&id, &more] {
            clients.remove(client, "alice");
            assert_eq!(of(client).as_deref(), Some("bob"));
            clients.remove(client, "bob");
            assert_eq!(of(client), None);
        }
        // A first id comes back as one of another user's further ones, and the other way round.
        let carol = resident("carol", 3);
        clients.insert(id, Arc::clone(&carol));
        clients.insert(id, alice);
        assert_eq!(of(&id).as_deref(), Some("alice"));
        clients.insert(id, carol);
        assert_eq!(of(&id).as_deref(), Some("carol"));
        clients.remove(&id, "carol");
        assert_eq!(of(&id), None);
    }
}
