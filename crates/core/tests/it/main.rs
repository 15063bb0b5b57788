//! The memory store and the algorithms from outside. Allocations are counted in a program of their own.

mod accuracy;
mod conformance;
mod known_answers;
mod memory;
mod promises;
mod reservations;
mod snapshots;
mod threads;
