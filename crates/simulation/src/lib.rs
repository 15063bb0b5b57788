//! Tidegate's gates over a simulated Redis and network, in virtual time: for tests.
//!
//! The gates, stores, leases, links and scripts are those of production. Simulated are the server that runs
//! the scripts ([`SimulatedRedis`]), the network, the clocks, and when each process runs. All of it follows
//! from a seed: the same seed gives the same run.
//!
//! ```
//! use std::time::Duration;
//!
//! use tidegate_simulation::{InstanceSettings, Question, World};
//!
//! let rules = "
//! rules:
//!   - {id: api, per: [user_id], limit: 5/second, algorithm: fixed_window, sync: leased}
//! ";
//! let mut world = World::new(7);
//! let instances = [0; 3].map(|_| world.add(InstanceSettings::new(rules)));
//! // Connects, and lets the instances count each other.
//! world.run_for(Duration::from_secs(1));
//! for instance in instances {
//!     for _ in 0..10 {
//!         world.ask(instance, Question::new("user_id", "u1"));
//!     }
//! }
//! world.run_for(Duration::from_millis(500));
//! let answers = world.take_answers();
//! assert_eq!(answers.len(), 30);
//! assert_eq!(answers.iter().filter(|answer| answer.is_allowed).count(), 5);
//! ```

#![forbid(unsafe_code)]

mod clocks;
mod instance;
mod network;
mod question;
mod random;
mod redis;
pub mod seeds;
mod trace;
mod world;

pub use clocks::{BEGIN, Drift, TrueTime};
pub use instance::{InstanceSettings, SimulatedGate};
pub use network::{Latency, Loss};
pub use question::{GateAnswer, Question};
pub use random::SeededRandom;
pub use redis::{ScriptChange, SimulatedRedis};
pub use world::World;
