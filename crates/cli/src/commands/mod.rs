//! The commands that call a server, one file each.

mod attributes;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod console;
mod decision;
pub(crate) mod denied;
pub(crate) mod explain;
pub(crate) mod import;
mod logs;
pub(crate) mod overrides;
mod question;
pub(crate) mod reservations;
pub(crate) mod reset;
pub(crate) mod rules;
pub(crate) mod settings;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod top;
