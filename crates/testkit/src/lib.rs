//! What Tidegate's own tests share.

pub mod timeline;
pub mod vectors;
