//! The commands that call a server, one file each.

pub(crate) mod check;
pub(crate) mod console;
pub(crate) mod rules;
