//! Accuracy of a limiter: arrivals that are the same for every limiter, and figures of what it decided about them.
//!
//! Everything is in virtual time and follows from a seed. [`ArrivalPlan`] draws the arrivals, any limiter decides
//! them, [`Judge`] compares its decisions with the reference and with the promise of the algorithm.

mod algorithms;
mod arrivals;
mod judge;
mod memory;
mod promise;
mod random;

pub use algorithms::{all_algorithms, title, worst_in_window};
pub use arrivals::{Arrival, ArrivalPattern, ArrivalPlan};
pub use judge::{Accuracy, DecidedArrival, Judge};
pub use memory::{MemoryRun, RETRIED_COSTS};
pub use promise::{AdmittedArrival, most_in_any_window, over_promise};
pub use random::ArrivalRandom;
