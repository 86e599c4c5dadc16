//! Messages from a worker's app to a user (V10, V11): in order, held while he is moved, told to his owner one at a time.
//!
//! The sender's agent keeps each until it hears what became of it and offers it again to the next leader, so nothing is
//! kept here that a change of leader could lose.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use elastic_pool_engine::ids::{Birth, UserId};

use super::Commander;
use super::operation::Subject;
use super::worker::Worker;
use crate::channel::proto::deposited::Outcome;
use crate::channel::proto::{self, Deposited, agent_command, nack};

/// Messages for one user that may wait.
const PER_USER: usize = 64;
/// Bytes of all messages that may wait.
const MAX_BYTES: usize = 64 << 20;
/// One that nobody took for this long is refused.
const KEPT: Duration = Duration::from_mins(1);
/// Before one that was not taken is told again.
const AGAIN: Duration = Duration::from_millis(500);
/// An agent that has not answered by then has lost it.
const TAKEN: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Letter {
    offer: proto::Offer,
    from: Birth,
    since: Duration,
    /// The sender knows that it waits.
    held: bool,
}

/// What waits for one user, in order of arrival.
#[derive(Debug, Default)]
struct Mailbox {
    letters: VecDeque<Letter>,
    /// The first is under way: the command, to whom and since when.
    told: Option<(u64, Birth, Duration)>,
    again_at: Duration,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Deposits {
    boxes: HashMap<Subject, Mailbox>,
    commands: HashMap<u64, Subject>,
    bytes: usize,
}

impl Deposits {
    /// One is on its way to the user's owner: no other operation of his starts (V11).
    pub(super) fn is_told(&self, subject: &Subject) -> bool {
        self.boxes
            .get(subject)
            .is_some_and(|mailbox| mailbox.told.is_some())
    }

    /// What was told to this worker and not answered is told again; whoever took it knows it by its number.
    pub(super) fn cut(&mut self, birth: Birth) {
        for mailbox in self.boxes.values_mut() {
            if let Some((id, ..)) = mailbox.told.take_if(|(_, to, _)| *to == birth) {
                self.commands.remove(&id);
            }
        }
    }

    fn pop(&mut self, subject: &Subject) -> Option<Letter> {
        let mailbox = self.boxes.get_mut(subject)?;
        let letter = mailbox.letters.pop_front()?;
        self.bytes = self.bytes.saturating_sub(letter.offer.body.len());
        if let Some((id, ..)) = mailbox.told.take() {
            self.commands.remove(&id);
        }
        if mailbox.letters.is_empty() {
            self.boxes.remove(subject);
        }
        Some(letter)
    }
}

impl Commander {
    /// V10: an app sends a message to a user, wherever he lives.
    pub(super) fn offered(&mut self, from: Birth, offer: proto::Offer) {
        let (Ok(user), Some(key)) = (UserId::new(&offer.user), self.pool_of_worker(from)) else {
            return self.answer_offer(from, offer.number, Outcome::Refused, "no such user");
        };
        let subject = (key, user);
        if self.is_nobody(&subject) {
            return self.answer_offer(
                from,
                offer.number,
                Outcome::Refused,
                "nobody of this name lives here",
            );
        }
        let number = offer.number;
        let mailbox = self.deposits.boxes.entry(subject.clone()).or_default();
        let same = |letter: &&mut Letter| {
            (&letter.offer.sender, letter.offer.number) == (&offer.sender, offer.number)
        };
        if let Some(letter) = mailbox.letters.iter_mut().find(same) {
            // Its agent dialled anew.
            letter.from = from;
        } else if mailbox.letters.len() >= PER_USER || self.deposits.bytes + offer.body.len() > MAX_BYTES {
            return self.answer_offer(
                from,
                number,
                Outcome::Refused,
                "too many messages wait for this user",
            );
        } else {
            self.deposits.bytes += offer.body.len();
            mailbox.letters.push_back(Letter {
                offer,
                from,
                since: self.now,
                held: false,
            });
        }
        self.forward_deposit(&subject);
        if !self.deposits.is_told(&subject) {
            self.say_held(&subject);
        }
    }

    /// He lives nowhere, as far as is known, and nothing is under way that could change it.
    fn is_nobody(&self, (key, user): &Subject) -> bool {
        let Some(pool) = self.pools.get(key).filter(|pool| pool.live) else {
            return false;
        };
        let expected = self.operations.is_busy(key, user)
            || self.operations.is_born(key, user)
            || self.recovery.is_open(key, user);
        pool.surface.get(user).is_none() && !expected
    }

    /// Tells the owner's agent the first message of a user, when nothing else of his is under way.
    pub(super) fn forward_deposit(&mut self, subject: &Subject) {
        let now = self.now;
        let Some(mailbox) = self.deposits.boxes.get(subject) else {
            return;
        };
        let Some(letter) = mailbox.letters.front() else {
            return;
        };
        if mailbox.told.is_some() || mailbox.again_at > now || self.operations.active.contains_key(subject) {
            return;
        }
        let deposit = proto::Deposit {
            user: letter.offer.user.clone(),
            sequence: letter.offer.number,
            body: letter.offer.body.clone(),
            content_type: letter.offer.content_type.clone(),
            sender: letter.offer.sender.clone(),
        };
        let resident = self
            .pools
            .get(&subject.0)
            .and_then(|pool| pool.surface.get(&subject.1));
        let Some(owner) = resident.map(|resident| resident.owner) else {
            return;
        };
        if !self.workers.get(&owner).is_some_and(Worker::is_connected) {
            return;
        }
        let id = self.next_command();
        if self
            .workers
            .get(&owner)
            .is_some_and(|worker| worker.tell(id, agent_command::Command::Deposit(deposit)))
        {
            self.deposits.commands.insert(id, subject.clone());
            if let Some(mailbox) = self.deposits.boxes.get_mut(subject) {
                mailbox.told = Some((id, owner, now));
            }
        }
    }

    /// An agent's Ack, if it is a deposit's.
    pub(super) fn deposit_taken(&mut self, id: u64) {
        let Some(subject) = self.deposits.commands.remove(&id) else {
            return;
        };
        if let Some(letter) = self.deposits.pop(&subject) {
            self.answer_offer(letter.from, letter.offer.number, Outcome::Delivered, "");
        }
        self.after_deposit(&subject);
    }

    /// An agent's Nack, if it is a deposit's.
    pub(super) fn deposit_refused(&mut self, id: u64, reason: nack::Reason) {
        let Some(subject) = self.deposits.commands.remove(&id) else {
            return;
        };
        if matches!(
            reason,
            nack::Reason::Unsupported | nack::Reason::TooLarge | nack::Reason::Corrupt
        ) {
            if let Some(letter) = self.deposits.pop(&subject) {
                self.answer_offer(
                    letter.from,
                    letter.offer.number,
                    Outcome::Refused,
                    "the app does not take it",
                );
            }
        } else if let Some(mailbox) = self.deposits.boxes.get_mut(&subject) {
            mailbox.told = None;
            mailbox.again_at = self.now + AGAIN;
            self.say_held(&subject);
        }
        self.after_deposit(&subject);
    }

    /// V11: whatever waited for the deposit goes first, then the next one.
    fn after_deposit(&mut self, subject: &Subject) {
        self.start_ready(&subject.0, &subject.1);
        self.forward_deposit(subject);
    }

    fn say_held(&mut self, subject: &Subject) {
        let Some(mailbox) = self.deposits.boxes.get_mut(subject) else {
            return;
        };
        let fresh = mailbox.letters.iter_mut().filter(|letter| !letter.held);
        let told: Vec<(Birth, u64)> = fresh
            .map(|letter| {
                letter.held = true;
                (letter.from, letter.offer.number)
            })
            .collect();
        for (from, number) in told {
            self.answer_offer(from, number, Outcome::Held, "");
        }
    }

    fn answer_offer(&self, from: Birth, number: u64, outcome: Outcome, reason: &str) {
        let deposited = Deposited {
            number,
            outcome: outcome.into(),
            reason: reason.to_owned(),
        };
        self.tell_agent(from, agent_command::Command::Deposited(deposited));
    }

    /// Messages whose user has left, that waited too long, or that are due again.
    pub(super) fn tick_deposits(&mut self) {
        let now = self.now;
        self.deposits
            .boxes
            .retain(|_, mailbox| !mailbox.letters.is_empty());
        let subjects: Vec<Subject> = self.deposits.boxes.keys().cloned().collect();
        for subject in subjects {
            if let Some(mailbox) = self.deposits.boxes.get_mut(&subject)
                && let Some((id, ..)) = mailbox
                    .told
                    .take_if(|(_, _, since)| now.saturating_sub(*since) > TAKEN)
            {
                self.deposits.commands.remove(&id);
            }
            while let Some(why) = self.hopeless(&subject) {
                if let Some(letter) = self.deposits.pop(&subject) {
                    self.answer_offer(letter.from, letter.offer.number, Outcome::Refused, why);
                }
            }
            self.forward_deposit(&subject);
        }
    }

    /// Why the first message of a user will not be delivered.
    fn hopeless(&self, subject: &Subject) -> Option<&'static str> {
        let mailbox = self.deposits.boxes.get(subject)?;
        let letter = mailbox.letters.front().filter(|_| mailbox.told.is_none())?;
        if self.is_nobody(subject) {
            return Some("the user has left");
        }
        (self.now.saturating_sub(letter.since) > KEPT).then_some("not delivered within a minute")
    }
}
