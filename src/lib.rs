//! elastic-pool: places sessions, grows on measured occupancy, shrinks by moving live users.
