//! The commands that ask a server, one file each: arguments, and what is done with them.

pub(crate) mod check;
pub(crate) mod rules;
