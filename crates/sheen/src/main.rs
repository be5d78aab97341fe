//! One binary, called by subcommand or by link name.

fn main() {}
