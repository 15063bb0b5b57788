//! What Tidegate's own tests share: the contract of a store, known answers of other limiters, random
//! limits and timelines.

mod block_on;
pub mod conformance;
pub mod timeline;
pub mod vectors;

pub use block_on::block_on;
