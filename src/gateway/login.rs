//! The login at the gateway (L1-L7): reads the app's Pool-User, has the commander place the user, says what the next cookie holds.

use std::sync::Arc;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode;

use super::front::Front;
use super::hygiene::{POOL_GROUP, POOL_USER};
use super::identity::{Visitor, Who};
use super::metrics::Outcome;
use crate::channel::proto::{Place, Placed};

/// What an answer says of its user.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    LoggedOut,
    LoggedIn(UserId),
}

fn said(headers: &HeaderMap) -> Said {
    let Some(value) = headers.get(POOL_USER).map(HeaderValue::as_bytes) else {
        return Said::Nothing;
    };
    if value.is_empty() {
        return Said::LoggedOut;
    }
    let user = percent_decode(value)
        .decode_utf8()
        .ok()
        .and_then(|user| UserId::new(&user).ok());
    user.map_or_else(
        || {
            tracing::warn!("an app's Pool-User breaks the bounds of a user id; it is ignored");
            Said::Nothing
        },
        Said::LoggedIn,
    )
}

/// Settles a login or logout that an answer of worker `birth` carries. `visitor` becomes what the next cookie says.
/// Returns whom to report as quiet when the answer ends (L3), or how the request ends instead.
pub(crate) async fn settle(
    front: &Front,
    headers: &HeaderMap,
    visitor: &mut Visitor,
    who: &Who,
    birth: Birth,
    started: std::time::Duration,
) -> Result<Option<(UserId, ClientId)>, Outcome> {
    match said(headers) {
        Said::Nothing => Ok(None),
        // P7: in such a group a client id is the user, whatever the app says.
        _ if is_session(front, visitor) => Ok(None),
        Said::LoggedOut => {
            if let Some(user) = who.user() {
                log_out(front, visitor, &user, birth);
            }
            Ok(None)
        }
        Said::LoggedIn(user) if who.user_text() == Some(user.as_str()) => Ok(None),
        Said::LoggedIn(user) => log_in(front, headers, visitor, user, birth, started).await,
    }
}

fn is_session(front: &Front, visitor: &Visitor) -> bool {
    front
        .table
        .topology()
        .group(&visitor.group)
        .is_some_and(|group| group.session)
}

fn log_out(front: &Front, visitor: &mut Visitor, user: &UserId, birth: Birth) {
    front.table.release_client(visitor.client, user);
    front.holds.release_client(user, &visitor.client);
    visitor.user = None;
    visitor.epoch = Epoch::PROVISIONAL;
    visitor.reception = Some(birth);
    visitor.set_cookie = true;
    visitor.unowned = false;
}

async fn log_in(
    front: &Front,
    headers: &HeaderMap,
    visitor: &mut Visitor,
    user: UserId,
    birth: Birth,
    started: std::time::Duration,
) -> Result<Option<(UserId, ClientId)>, Outcome> {
    let group = headers
        .get(POOL_GROUP)
        .and_then(|group| group.to_str().ok())
        .unwrap_or_default();
    let place = Place {
        request: 0,
        user: user.as_str().to_owned(),
        client: visitor.client.to_string(),
        birth: birth.0,
        group: group.to_owned(),
    };
    // P6: somebody known lives elsewhere perhaps, so only the commander may say; a stranger is kept.
    let is_resident = front.table.owner(&user).is_some();
    let patience = if is_resident {
        front.left(started).max(front.commander.place_timeout())
    } else {
        front.commander.place_timeout()
    };
    visitor.set_cookie = true;
    visitor.unowned = false;
    match front.commander.place(place, patience).await {
        Some(placed) => Ok(place_known(front, visitor, user, birth, &placed)),
        None if is_resident => Err(Outcome::HeldTooLong),
        None => {
            front.metrics.provisional.inc();
            visitor.user = Some(user);
            visitor.epoch = Epoch::PROVISIONAL;
            visitor.reception = Some(birth);
            Ok(None)
        }
    }
}

fn place_known(
    front: &Front,
    visitor: &mut Visitor,
    user: UserId,
    birth: Birth,
    placed: &Placed,
) -> Option<(UserId, ClientId)> {
    front.metrics.logins.inc();
    let owner = placed.user.as_ref().filter(|owner| owner.birth != 0);
    visitor.epoch = Epoch(owner.map_or(0, |owner| owner.epoch));
    // Whom nobody owns yet is provisional, and his cookie says where.
    visitor.reception = (visitor.epoch == Epoch::PROVISIONAL).then_some(birth);
    if let Some(worker) = owner.and_then(|owner| front.table.worker(Birth(owner.birth))) {
        visitor.group = Arc::clone(&worker.group);
    }
    let quiet = placed.move_follows.then(|| (user.clone(), visitor.client));
    visitor.user = Some(user);
    quiet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_user_is_read_in_percent_encoding_and_within_bounds() {
        let said_of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(POOL_USER, HeaderValue::from_static(value));
            said(&headers)
        };
        assert_eq!(said(&HeaderMap::new()), Said::Nothing);
        assert_eq!(said_of(""), Said::LoggedOut);
        assert_eq!(
            said_of("%C3%84nne%20B"),
            Said::LoggedIn(UserId::new("Änne B").unwrap())
        );
        assert_eq!(said_of("%ff"), Said::Nothing);
        assert_eq!(said_of("a%0ab"), Said::Nothing);
    }
}
