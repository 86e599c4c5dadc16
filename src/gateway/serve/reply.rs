//! What becomes of a worker's answer: login settled, headers cleaned, cookie set, body passed on; it asks no worker.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, response};
use hyper::upgrade::OnUpgrade;

use super::super::access::X_REQUEST_ID;
use super::super::answer::{AnswerBody, Ending, Finish, Relay};
use super::super::body::ForwardBody;
use super::super::identity::Who;
use super::super::metrics::Outcome;
use super::super::open::Open;
use super::super::{hygiene, login, websocket};
use super::Journey;
use crate::exchange::{Answer, Reply, Upgraded};

impl Journey {
    pub(super) async fn answer(
        &mut self,
        mut head: response::Parts,
        reply: Reply<ForwardBody>,
        open: Open,
        who: &Who,
        began: Duration,
    ) -> Result<Response<AnswerBody>, Outcome> {
        let birth = open.upstream().birth;
        let is_resident = matches!(who, Who::Owned(_)) && self.visitor.user.is_some();
        if is_resident && *self.visitor.group != *open.upstream().group {
            // He was moved to another group (V9): that one is his from now on.
            self.visitor.group = Arc::clone(&open.upstream().group);
            self.visitor.set_cookie = true;
        }
        let mut finish = Finish {
            front: Arc::clone(&self.front),
            open,
            user: who.resident(),
            began,
            quiet: None,
            counted: false,
            entry: None,
            speaks: true,
        };
        self.ended = true;
        let visitor = &mut self.visitor;
        let settled = login::settle(&self.front, &head.headers, visitor, who, birth, self.started).await;
        finish.quiet = settled.inspect_err(|_| finish.speaks = false)?;
        let client = match &reply {
            Reply::Switched(_) => self.upgrade.take(),
            Reply::Whole(..) | Reply::Streamed(_) => None,
        };
        hygiene::strip_pool(&mut head.headers);
        hygiene::strip_hop_by_hop(&mut head.headers);
        if self.held {
            hygiene::set_held(&mut head.headers, began.saturating_sub(self.started));
        }
        if self.closes && self.is_h1 {
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.visitor.set_cookie && !self.visitor.named {
            if self.visitor.user.is_none() {
                self.front.metrics.guests.inc();
            }
            self.front
                .set_cookie(&mut head.headers, &self.visitor.cookie(), self.secure);
        }
        if (client.is_some() || !matches!(reply, Reply::Switched(_)))
            && let Some(mut entry) = self.entry.take()
        {
            entry.ends(Outcome::Answered, head.status);
            entry.worker.clone_from(&finish.open.upstream().name);
            head.headers.insert(X_REQUEST_ID, entry.id());
            if let Reply::Whole(body, _) = &reply {
                entry.bytes = body.len() as u64;
            }
            finish.entry = Some(entry);
        }
        Ok(match (reply, client) {
            (Reply::Switched(worker), Some(client)) => self.switch(head, client, worker, finish, who),
            (Reply::Streamed(body), _) => self.relay(head, body, finish, who),
            (Reply::Whole(body, connection), _) => {
                finish.complete(connection);
                Response::from_parts(head, AnswerBody::whole(body))
            }
            // It switched unasked.
            (Reply::Switched(_), None) => {
                finish.speaks = false;
                finish.count(true);
                return Err(Outcome::Broken);
            }
        })
    }

    /// 101: from here on bytes go through.
    fn switch(
        &self,
        mut head: response::Parts,
        client: OnUpgrade,
        worker: Upgraded,
        mut finish: Finish,
        who: &Who,
    ) -> Response<AnswerBody> {
        if self.is_h1 {
            hygiene::set_websocket(&mut head.headers);
        } else {
            hygiene::to_h2_websocket(&mut head);
        }
        finish.count(false);
        let registered = self.front.streams.open(self.visitor.client, who.user());
        self.front.tunnels.spawn(async move {
            // The worker's place in the count lives as long as the tunnel.
            let _finish = finish;
            websocket::run(client, worker, registered).await;
        });
        Response::from_parts(head, AnswerBody::Empty)
    }

    fn relay(
        &self,
        head: response::Parts,
        body: Box<Answer<ForwardBody>>,
        mut finish: Finish,
        who: &Who,
    ) -> Response<AnswerBody> {
        let is_event_stream = head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes()
                .get(..17)
                .is_some_and(|k| k.eq_ignore_ascii_case(b"text/event-stream"))
        });
        let ending = is_event_stream.then(|| {
            finish.count(false);
            Ending::new(self.front.streams.open(self.visitor.client, who.user()))
        });
        Response::from_parts(
            head,
            AnswerBody::Relay(Box::new(Relay {
                body: Some(body),
                finish,
                ending,
            })),
        )
    }
}
