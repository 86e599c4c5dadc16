//! Builds the objects that the controller applies, as plain values; it reads and writes nothing.
