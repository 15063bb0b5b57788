//! The commands that call a server, one file each.

pub(crate) mod check;
pub(crate) mod overrides;
pub(crate) mod rules;
