//! What the other crates of this workspace need of this one, beyond its API: hidden from the documentation, and may
//! change with any version.

#[cfg(feature = "rules")]
pub mod document;
pub mod printable;
#[cfg(feature = "rules")]
pub mod white_space;
