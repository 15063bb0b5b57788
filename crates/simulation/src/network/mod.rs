//! The network between an instance and the server: how long bytes take, and what is lost.
//!
//! Connections keep the order of their bytes and lose none of them unless they end or are cut, as TCP does.
//! What is sent on one connection may overtake what is sent on another.

mod connection;

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_redis::{ConnectingToRedis, RedisNetwork};

use crate::random::SeededRandom;

pub(crate) use connection::SimulatedConnection;

/// How long bytes take in one direction, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// The shortest time.
    pub least: u64,
    /// The longest time, unless there is a spike.
    pub most: u64,
    /// How many of a thousand messages take up to `spike` longer.
    pub spikes: u64,
    /// How much longer those take at the most.
    pub spike: u64,
}

impl Latency {
    /// A network within one data centre.
    pub const LOCAL: Self = Self {
        least: 100,
        most: 400,
        spikes: 0,
        spike: 0,
    };

    pub(crate) fn draw(self, random: &mut SeededRandom) -> u64 {
        let usual = random.between(self.least, self.most);
        let is_spike = random.happens(self.spikes);
        usual
            + if is_spike {
                random.below(self.spike + 1)
            } else {
                0
            }
    }
}

/// What is lost on the connections that are open when this is applied. Neither end notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// What the instance sends.
    Requests,
    /// What the server sends: it has acted on the requests.
    Replies,
    /// Both.
    All,
}

/// The network as one instance sees it.
#[derive(Debug)]
pub(crate) struct InstanceNetwork {
    /// Connections that the world has not seen yet.
    dialed: Mutex<Vec<Arc<SimulatedConnection>>>,
    random: Mutex<SeededRandom>,
}

impl InstanceNetwork {
    pub(crate) fn new(random: SeededRandom) -> Self {
        Self {
            dialed: Mutex::default(),
            random: Mutex::new(random),
        }
    }

    pub(crate) fn take_dialed(&self) -> Vec<Arc<SimulatedConnection>> {
        std::mem::take(&mut *self.dialed.lock())
    }
}

impl RedisNetwork for InstanceNetwork {
    fn connect(&self) -> ConnectingToRedis {
        let connection = Arc::new(SimulatedConnection::default());
        self.dialed.lock().push(Arc::clone(&connection));
        Box::pin(connection.dialed())
    }

    fn chance(&self) -> f64 {
        self.random.lock().chance()
    }
}
