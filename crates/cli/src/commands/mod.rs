//! The commands that call a server, one file each.

pub(crate) mod attributes;
pub(crate) mod check;
pub(crate) mod reset;
pub(crate) mod rules;
pub(crate) mod status;
