//! The worlds that are explored: small ones whole with every test run, large ones by `make model`.

use crate::{Faults, World};

/// Worlds that are explored whole with every test run; together they have every fault at every step.
pub const SMALL: [World; 14] = [
    World {
        name: "a move, two gateways",
        gateways: 2,
        ..World::SMALL
    },
    World {
        name: "a move, two messages are lost",
        faults: Faults {
            lost: 2,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, a message is lost and one comes twice",
        faults: Faults {
            lost: 1,
            twice: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, a package is altered and a message lost",
        faults: Faults {
            altered: 1,
            lost: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, a worker dies and a message is lost",
        faults: Faults {
            workers: 1,
            lost: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, a stream breaks",
        faults: Faults {
            breaks: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, the leader changes",
        faults: Faults {
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, the leader changes and a worker dies",
        faults: Faults {
            leaders: 1,
            workers: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, two gateways, one dies",
        gateways: 2,
        faults: Faults {
            gateways: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "two moves between two workers",
        moves: 2,
        requests: 0,
        ..World::SMALL
    },
    World {
        name: "a login and a move",
        settled: false,
        ..World::SMALL
    },
    World {
        name: "a login, the leader changes",
        settled: false,
        moves: 0,
        faults: Faults {
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a login from a second browser",
        joins: 1,
        moves: 0,
        ..World::SMALL
    },
    World {
        name: "a move and a retirement",
        retirements: 1,
        ..World::SMALL
    },
];

/// Worlds that take minutes to hours; the last ones are explored as far as the time allows.
pub const LARGE: [World; 9] = [
    World {
        name: "a login and a move, the leader changes",
        settled: false,
        faults: Faults {
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a login from a second browser, a message is lost",
        joins: 1,
        moves: 0,
        faults: Faults {
            lost: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a login from a second browser, the leader changes",
        joins: 1,
        moves: 0,
        faults: Faults {
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "two moves over three workers, a message comes twice",
        workers: 3,
        moves: 2,
        requests: 0,
        faults: Faults {
            twice: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, two gateways, a stream breaks and the leader changes",
        gateways: 2,
        faults: Faults {
            breaks: 1,
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "a move, two gateways, a worker dies and the leader changes",
        gateways: 2,
        faults: Faults {
            workers: 1,
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "two users, two workers, a move each",
        users: 2,
        moves: 2,
        ..World::SMALL
    },
    World {
        name: "two moves, two leaders die",
        moves: 2,
        requests: 0,
        faults: Faults {
            leaders: 2,
            ..Faults::NONE
        },
        ..World::SMALL
    },
    World {
        name: "two users, three workers, two gateways, every fault",
        users: 2,
        workers: 3,
        gateways: 2,
        moves: 2,
        requests: 2,
        settled: false,
        faults: Faults {
            lost: 1,
            twice: 1,
            workers: 1,
            leaders: 1,
            ..Faults::NONE
        },
        ..World::SMALL
    },
];
