//! Bytes on their way between instances and the server.

use std::sync::Arc;

use super::{World, WorldEvent};
use crate::network::{Loss, SimulatedConnection};
use crate::redis::ReceivedBytes;

/// A connection as the network sees it.
pub(super) struct NetworkPath {
    pub(super) connection: Arc<SimulatedConnection>,
    pub(super) instance: usize,
    /// Whether the server has accepted it.
    is_accepted: bool,
    /// Whether the instance has closed it.
    is_closed: bool,
    /// What the server has received and not run.
    received: ReceivedBytes,
    /// When the last bytes arrive in either direction: later ones do not overtake them.
    last_request: u64,
    last_reply: u64,
    pub(super) loss: Option<Loss>,
}

impl World {
    /// Takes what an instance has dialed, written and closed since its last tick.
    pub(super) fn collect(&mut self, instance: usize) {
        for connection in self.instances[instance].network.take_dialed() {
            self.dialed += 1;
            let path = NetworkPath {
                connection,
                instance,
                is_accepted: false,
                is_closed: false,
                received: ReceivedBytes::default(),
                last_request: 0,
                last_reply: 0,
                loss: None,
            };
            self.paths.insert(self.dialed, path);
            let (at, connection) = (self.arrival(instance), self.dialed);
            self.schedule(at, WorldEvent::Dialed { connection });
        }
        let of_instance = |(id, path): (&u64, &NetworkPath)| {
            (path.instance == instance && !path.is_closed).then_some(*id)
        };
        let ids: Vec<u64> = self.paths.iter().filter_map(of_instance).collect();
        for id in ids {
            self.collect_from(id);
        }
    }

    fn collect_from(&mut self, connection: u64) {
        let Some(path) = self.paths.get_mut(&connection) else {
            return;
        };
        let (bytes, is_dropped) = path.connection.take_written();
        path.is_closed = is_dropped;
        if bytes.is_empty() && !is_dropped {
            return;
        }
        let (instance, loss) = (path.instance, path.loss);
        let at = self.arrival(instance);
        let Some(path) = self.paths.get_mut(&connection) else {
            return;
        };
        let at = at.max(path.last_request);
        path.last_request = at;
        if !bytes.is_empty() && !matches!(loss, Some(Loss::Requests | Loss::All)) {
            self.schedule(at, WorldEvent::Request { connection, bytes });
        }
        if is_dropped {
            self.schedule(at, WorldEvent::Closed { connection });
        }
    }

    /// When something that is sent now between an instance and the server arrives.
    fn arrival(&mut self, instance: usize) -> u64 {
        let slot = &self.instances[instance];
        let (latency, held_until) = (slot.settings.latency, slot.held_until);
        self.now().max(held_until) + latency.draw(&mut self.random)
    }

    /// A dial reaches the server.
    pub(super) fn dialed(&mut self, connection: u64) {
        let is_accepted = self.now() >= self.server.down_until;
        let Some(path) = self.paths.get_mut(&connection) else {
            return;
        };
        path.is_accepted = is_accepted;
        let instance = path.instance;
        let at = self.arrival(instance);
        let answered = WorldEvent::DialAnswered {
            connection,
            is_accepted,
        };
        self.schedule(at, answered);
    }

    /// The answer to a dial reaches the instance.
    pub(super) fn dial_answered(&mut self, connection: u64, is_accepted: bool) {
        let now = self.now();
        self.trace
            .add(&[1, now, connection, u64::from(is_accepted)]);
        if let Some(path) = self.paths.get_mut(&connection) {
            path.connection.answer_dial(is_accepted);
            if !is_accepted {
                self.paths.remove(&connection);
            }
        }
    }

    /// Bytes reach the server.
    pub(super) fn request(&mut self, connection: u64, bytes: &[u8]) {
        let (now, busy_until) = (self.now(), self.server.busy_until);
        self.trace.add(&[2, now, connection, bytes.len() as u64]);
        let path = self.paths.get_mut(&connection);
        let Some(path) = path.filter(|path| path.is_accepted) else {
            return;
        };
        path.received.push(bytes);
        if now < busy_until {
            self.schedule(busy_until, WorldEvent::Serve { connection });
        } else {
            self.serve(connection);
        }
    }

    /// The server runs what it has received on a connection.
    pub(super) fn serve(&mut self, connection: u64) {
        let now = self.now();
        if now < self.server.busy_until {
            let at = self.server.busy_until;
            self.schedule(at, WorldEvent::Serve { connection });
            return;
        }
        let time = self.server_time();
        let Some(path) = self.paths.get_mut(&connection) else {
            return;
        };
        self.server.redis.set_time(time);
        let mut bytes = Vec::new();
        while let Some(command) = path.received.next() {
            bytes.extend(self.server.redis.run(&command));
        }
        if bytes.is_empty() {
            return;
        }
        let (instance, loss) = (path.instance, path.loss);
        let at = self.arrival(instance);
        let Some(path) = self.paths.get_mut(&connection) else {
            return;
        };
        let at = at.max(path.last_reply);
        path.last_reply = at;
        if !matches!(loss, Some(Loss::Replies | Loss::All)) {
            self.schedule(at, WorldEvent::Reply { connection, bytes });
        }
    }

    /// Bytes reach the instance.
    pub(super) fn reply(&mut self, connection: u64, bytes: &[u8]) {
        let now = self.now();
        self.trace.add(&[3, now, connection, bytes.len() as u64]);
        if let Some(path) = self.paths.get(&connection) {
            path.connection.deliver(bytes);
        }
    }
}
