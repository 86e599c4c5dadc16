//! One user of the table: who owns him, his client ids, his counters, in as little memory as they need; it looks nobody up.

use std::borrow::{Borrow, Cow};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use parking_lot::RwLock;
use percent_encoding::percent_encode_byte;

use super::clock::UserClock;
use crate::channel::proto;
use crate::credentials::{hex_decode, hex_digits, hex_encode};

/// A user id as `pool-user` carries it.
pub(crate) fn user_text(user: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if user.bytes().all(is_plain) {
        return Cow::Borrowed(user);
    }
    // Mail addresses have one byte that is not.
    let mut text = String::with_capacity(user.len() + 8);
    for byte in user.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(percent_encode_byte(byte));
        }
    }
    Cow::Owned(text)
}

/// Under what he is owned. A ticket of zeros is none.
#[derive(Debug)]
struct Place {
    birth: Birth,
    epoch: Epoch,
    ticket: [u8; 32],
    /// All his client ids, unless he has but his first.
    #[allow(
        clippy::box_collection,
        reason = "one word in each of many thousand, and not three"
    )]
    clients: Option<Box<Vec<ClientId>>>,
}

/// One user. He stays the same value while his owner changes.
#[derive(Debug)]
pub(crate) struct Resident {
    /// His id; one of the bounds of [`UserId`].
    pub(crate) user: Box<str>,
    /// The client id that he came with; zeros when he came with none.
    pub(crate) first: ClientId,
    pub(crate) clock: UserClock,
    place: RwLock<Place>,
}

/// A user's owner at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) resident: Arc<Resident>,
    pub(crate) birth: Birth,
    pub(crate) epoch: Epoch,
    ticket: [u8; 32],
}

fn clients_of(ownership: &proto::Ownership) -> Vec<ClientId> {
    let clients = ownership.clients.iter();
    clients.filter_map(|client| ClientId::parse(client)).collect()
}

impl Place {
    fn new(ownership: &proto::Ownership, first: ClientId) -> Self {
        let ticket = hex_decode(&ownership.ticket).and_then(|ticket| ticket.try_into().ok());
        let mut place = Self {
            birth: Birth(ownership.birth),
            epoch: Epoch(ownership.epoch),
            ticket: ticket.unwrap_or_default(),
            clients: None,
        };
        place.set_clients(first, clients_of(ownership));
        place
    }

    fn set_clients(&mut self, first: ClientId, mut clients: Vec<ClientId>) {
        self.clients = (clients != [first]).then(|| {
            clients.shrink_to_fit();
            Box::new(clients)
        });
    }

    fn clients<'a>(&'a self, first: &'a ClientId) -> &'a [ClientId] {
        self.clients
            .as_deref()
            .map_or(std::slice::from_ref(first), Vec::as_slice)
    }
}

fn ticket_text(ticket: [u8; 32]) -> String {
    if ticket == [0; 32] {
        String::new()
    } else {
        hex_encode(&ticket)
    }
}

impl Resident {
    pub(crate) fn new(user: &UserId, ownership: &proto::Ownership) -> Arc<Self> {
        let first = clients_of(ownership)
            .first()
            .copied()
            .unwrap_or(ClientId([0; 16]));
        Arc::new(Self {
            user: user.as_str().into(),
            first,
            clock: UserClock::default(),
            place: RwLock::new(Place::new(ownership, first)),
        })
    }

    /// His id, to be kept.
    pub(crate) fn id(&self) -> Option<UserId> {
        UserId::new(&self.user).ok()
    }

    pub(crate) fn owner(self: &Arc<Self>) -> Owner {
        let place = self.place.read();
        Owner {
            birth: place.birth,
            epoch: place.epoch,
            ticket: place.ticket,
            resident: Arc::clone(self),
        }
    }

    pub(crate) fn birth(&self) -> Birth {
        self.place.read().birth
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.place.read().epoch
    }

    pub(crate) fn clients(&self) -> Vec<ClientId> {
        self.place.read().clients(&self.first).to_vec()
    }

    /// Takes another owner over; returns the client ids that are his no more.
    pub(crate) fn change_owner(&self, ownership: &proto::Ownership) -> Vec<ClientId> {
        let next = Place::new(ownership, self.first);
        let before = std::mem::replace(&mut *self.place.write(), next);
        let place = self.place.read();
        let now = place.clients(&self.first);
        let gone = before
            .clients(&self.first)
            .iter()
            .filter(|client| !now.contains(client));
        gone.copied().collect()
    }

    /// Adds a client id, or takes it away.
    pub(crate) fn change_client(&self, client: ClientId, is_his: bool) {
        let mut place = self.place.write();
        let mut clients = place.clients(&self.first).to_vec();
        clients.retain(|known| *known != client);
        if is_his {
            clients.push(client);
        }
        place.set_clients(self.first, clients);
    }

    /// As a Hello says it.
    pub(crate) fn ownership(&self) -> proto::Ownership {
        let place = self.place.read();
        proto::Ownership {
            user: self.user.to_string(),
            birth: place.birth.0,
            epoch: place.epoch.0,
            ticket: ticket_text(place.ticket),
            clients: place
                .clients(&self.first)
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

impl Owner {
    /// 64 hex digits; `None` when there is no ticket.
    pub(crate) fn ticket(&self) -> Option<[u8; 64]> {
        let mut text = [0; 64];
        for (digits, byte) in text.chunks_exact_mut(2).zip(self.ticket) {
            digits.copy_from_slice(&hex_digits(byte));
        }
        (self.ticket != [0; 32]).then_some(text)
    }
}

/// A resident as a key of his own: found by his user id, so that the id is held once.
#[derive(Debug, Clone)]
pub(crate) struct ByUser(pub(crate) Arc<Resident>);

impl Borrow<str> for ByUser {
    fn borrow(&self) -> &str {
        &self.0.user
    }
}

impl Hash for ByUser {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.user.hash(state);
    }
}

impl PartialEq for ByUser {
    fn eq(&self, other: &Self) -> bool {
        self.0.user == other.0.user
    }
}

impl Eq for ByUser {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ownership(epoch: u64, clients: &[u8]) -> proto::Ownership {
        proto::Ownership {
            user: "alice".to_owned(),
            birth: 1,
            epoch,
            ticket: format!("{epoch:064x}"),
            clients: clients
                .iter()
                .map(|byte| ClientId([*byte; 16]).to_string())
                .collect(),
        }
    }

    #[test]
    fn what_was_told_is_what_a_hello_says() {
        for clients in [&[][..], &[1], &[1, 2, 3]] {
            let told = ownership(7, clients);
            let resident = Resident::new(&UserId::new("alice").unwrap(), &told);
            assert_eq!(resident.ownership(), told);
            assert_eq!(
                resident.owner().ticket().as_ref().map(<[u8; 64]>::as_slice),
                Some(told.ticket.as_bytes())
            );
        }
        let bare = proto::Ownership {
            ticket: "no ticket".to_owned(),
            ..ownership(7, &[])
        };
        assert_eq!(
            Resident::new(&UserId::new("alice").unwrap(), &bare)
                .owner()
                .ticket(),
            None
        );
    }

    #[test]
    fn a_user_id_is_written_so_that_every_reader_finds_it_again() {
        for (user, text) in [
            ("alice-1._~", "alice-1._~"),
            ("a@b.test", "a%40b.test"),
            ("é %", "%C3%A9%20%25"),
        ] {
            assert_eq!(user_text(user), text);
            assert_eq!(
                percent_encoding::percent_decode_str(text).decode_utf8().unwrap(),
                user
            );
        }
    }

    #[test]
    fn a_change_of_owner_says_who_is_his_no_more() {
        let resident = Resident::new(&UserId::new("alice").unwrap(), &ownership(7, &[1, 2]));
        let before = resident.owner();
        assert_eq!(resident.change_owner(&ownership(8, &[2, 3])), [ClientId([1; 16])]);
        assert_eq!((before.epoch, resident.epoch()), (Epoch(7), Epoch(8)));
        resident.change_client(ClientId([3; 16]), false);
        resident.change_client(ClientId([4; 16]), true);
        assert_eq!(resident.clients(), [ClientId([2; 16]), ClientId([4; 16])]);
    }

    #[test]
    fn a_resident_is_small() {
        assert!(size_of::<Resident>() <= 120, "{}", size_of::<Resident>());
    }
}
