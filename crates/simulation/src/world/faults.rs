//! What can go wrong: with processes, the server, the network and the clocks.

use std::time::Duration;

use super::World;
use crate::clocks::Drift;
use crate::network::{Latency, Loss};

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl World {
    /// An instance does not run for a time; its clocks do. What arrives meanwhile waits to be read.
    pub fn pause(&mut self, instance: usize, time: Duration) {
        let until = self.now() + micros(time);
        let slot = &mut self.instances[instance];
        slot.paused_until = slot.paused_until.max(until);
    }

    /// An instance ends without notice. What it kept on its disk is what it knew of the others.
    pub fn crash(&mut self, instance: usize) {
        let slot = &mut self.instances[instance];
        if let Some(process) = slot.process.take() {
            slot.known = process.gate.store().known_instances().0;
            drop(process);
        }
        self.collect(instance);
    }

    /// Nothing passes between an instance and the server for a time. Bytes wait, and none are lost.
    pub fn hold_network(&mut self, instance: usize, time: Duration) {
        let until = self.now() + micros(time);
        let slot = &mut self.instances[instance];
        slot.held_until = slot.held_until.max(until);
    }

    /// Changes how long bytes take from now on.
    pub fn set_latency(&mut self, instance: usize, latency: Latency) {
        self.instances[instance].settings.latency = latency;
    }

    /// Loses what is sent from now on over the connections that an instance has. New ones work.
    pub fn lose(&mut self, instance: usize, loss: Loss) {
        let of_instance = self
            .paths
            .values_mut()
            .filter(|path| path.instance == instance);
        for path in of_instance {
            path.loss = Some(loss);
        }
    }

    /// Ends the connections of an instance; both ends notice immediately. What is on its way is lost.
    pub fn reset_connections(&mut self, instance: usize) {
        self.paths.retain(|_, path| {
            let is_kept = path.instance != instance;
            if !is_kept {
                path.connection.end();
            }
            is_kept
        });
    }

    /// The server does not run for a time; its clock does.
    pub fn pause_server(&mut self, time: Duration) {
        let until = self.now() + micros(time);
        self.server.busy_until = self.server.busy_until.max(until);
    }

    /// The server ends, and is back after a time: with all its keys, or empty.
    pub fn restart_server(&mut self, time: Duration, is_empty: bool) {
        let until = self.now() + micros(time);
        self.server.down_until = self.server.down_until.max(until);
        for instance in 0..self.instances.len() {
            self.reset_connections(instance);
        }
        if is_empty {
            self.server.redis.lose_everything();
        } else {
            self.server.redis.forget_scripts();
        }
    }

    /// Sets the wall clock of the server forward, or back if negative, by so many microseconds.
    pub fn step_server_clock(&mut self, by: i64) {
        self.server.wall.ahead += by;
    }

    /// Sets how fast the clock of the server runs. To be called at the begin.
    pub fn set_server_drift(&mut self, drift: Drift) {
        self.server.wall.drift = drift;
    }

    /// Sets the wall clock of an instance forward, or back if negative, by so many microseconds.
    pub fn step_clock(&mut self, instance: usize, by: i64) {
        self.instances[instance].wall.ahead += by;
    }
}
