//! Load program: drives real users through a gateway and checks that nobody is lost.

fn main() {}
