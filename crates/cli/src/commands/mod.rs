//! The commands that call a server, one file each.

pub(crate) mod check;
mod decision;
pub(crate) mod explain;
mod question;
pub(crate) mod rules;
