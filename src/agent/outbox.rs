//! Messages of this app to users wherever they live (V10): kept, in order and bounded, until the commander says what became of them; it delivers nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use elastic_pool_engine::ids::UserId;
use tokio::sync::oneshot;

use crate::channel::proto::deposited::Outcome;
use crate::channel::proto::{Deposited, Offer};

/// Messages that may wait here.
const MAX_LETTERS: usize = 256;
/// Their bytes together.
const MAX_BYTES: usize = 8 << 20;

/// What the app is told of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The user has it.
    Delivered,
    /// He will get it: he is being moved, or nobody leads at the moment.
    Held,
    /// He will not get it.
    Refused(String),
}

#[derive(Debug)]
struct Letter {
    user: UserId,
    body: Bytes,
    kind: String,
    /// The stream it was offered on; 0: on none yet.
    offered_on: u64,
    waiter: Option<oneshot::Sender<Answer>>,
}

/// All of them, by number.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Names this outbox, so that its numbers are told from another's.
    sender: String,
    last: u64,
    letters: BTreeMap<u64, Letter>,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn new(sender: String) -> Self {
        Self {
            sender,
            last: 0,
            letters: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Takes a message; `None` when too many wait.
    pub(crate) fn put(
        &mut self,
        user: UserId,
        body: Bytes,
        kind: String,
    ) -> Option<oneshot::Receiver<Answer>> {
        if self.letters.len() >= MAX_LETTERS || self.bytes + body.len() > MAX_BYTES {
            return None;
        }
        let (waiter, answered) = oneshot::channel();
        self.last += 1;
        self.bytes += body.len();
        let letter = Letter {
            user,
            body,
            kind,
            offered_on: 0,
            waiter: Some(waiter),
        };
        self.letters.insert(self.last, letter);
        Some(answered)
    }

    /// Offers what was not offered on this stream, in order; stops where `send` takes no more.
    pub(crate) fn offer(&mut self, stream: u64, mut send: impl FnMut(Offer) -> bool) {
        for (number, letter) in &mut self.letters {
            if letter.offered_on == stream {
                continue;
            }
            let offer = Offer {
                number: *number,
                user: letter.user.as_str().to_owned(),
                body: letter.body.to_vec(),
                content_type: letter.kind.clone(),
                sender: self.sender.clone(),
            };
            if !send(offer) {
                return;
            }
            letter.offered_on = stream;
        }
    }

    /// The commander's word about one.
    pub(crate) fn answered(&mut self, deposited: &Deposited) {
        let Some(letter) = self.letters.get_mut(&deposited.number) else {
            return;
        };
        let answer = match deposited.outcome() {
            Outcome::Unknown => return,
            Outcome::Delivered => Answer::Delivered,
            Outcome::Held => Answer::Held,
            Outcome::Refused => Answer::Refused(deposited.reason.clone()),
        };
        let held = answer == Answer::Held;
        if let Some(waiter) = letter.waiter.take() {
            // An app that hung up is told nothing; its message goes on.
            let _ = waiter.send(answer);
        }
        if !held && let Some(letter) = self.letters.remove(&deposited.number) {
            self.bytes = self.bytes.saturating_sub(letter.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &mut Outbox, body: &'static [u8]) -> Option<oneshot::Receiver<Answer>> {
        let alice = UserId::new("alice").unwrap();
        outbox.put(alice, Bytes::from_static(body), String::new())
    }

    fn offered(outbox: &mut Outbox, stream: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        outbox.offer(stream, |offer| {
            numbers.push(offer.number);
            true
        });
        numbers
    }

    fn said(number: u64, outcome: Outcome) -> Deposited {
        Deposited {
            number,
            outcome: outcome.into(),
            reason: String::new(),
        }
    }

    #[test]
    fn what_is_not_delivered_is_offered_again_on_the_next_stream_in_order() {
        let mut outbox = Outbox::new("s".into());
        let mut first = put(&mut outbox, b"one").unwrap();
        let mut second = put(&mut outbox, b"two").unwrap();
        assert_eq!(offered(&mut outbox, 1), [1, 2]);
        assert_eq!(offered(&mut outbox, 1), Vec::<u64>::new());
        outbox.answered(&said(1, Outcome::Held));
        outbox.answered(&said(2, Outcome::Delivered));
        assert_eq!(
            (first.try_recv(), second.try_recv()),
            (Ok(Answer::Held), Ok(Answer::Delivered))
        );
        assert_eq!(offered(&mut outbox, 2), [1]);
        outbox.answered(&said(1, Outcome::Delivered));
        assert_eq!(offered(&mut outbox, 3), Vec::<u64>::new());
    }

    #[test]
    fn what_does_not_fit_is_refused_at_once() {
        let mut outbox = Outbox::new("s".into());
        assert!((0..MAX_LETTERS).all(|_| put(&mut outbox, b"x").is_some()));
        assert!(put(&mut outbox, b"x").is_none());
        outbox.answered(&said(1, Outcome::Refused));
        assert!(put(&mut outbox, b"x").is_some());
    }
}
