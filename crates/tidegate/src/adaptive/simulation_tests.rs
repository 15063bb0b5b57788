//! An upstream with so many workers and a queue before them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::Micros;

use super::estimator::Estimator;
use super::{Adaptive, Ended, Sample};

/// The time that a worker takes for a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum SimulatedWork {
    /// The same for all.
    Steady(u64),
    /// Between half and one and a half of it; one in fifty takes ten times as long.
    Noisy(u64),
}

/// The upstream, the clients before it, and the limit between them.
pub(super) struct Simulation {
    pub(super) estimator: Estimator,
    settings: Adaptive,
    /// When each worker is free.
    workers: Vec<u64>,
    work: SimulatedWork,
    /// How many clients ask at once, each again as soon as it can.
    clients: u64,
    /// The queue that the upstream accepts; what is more it drops.
    queue: u64,
    in_flight: BinaryHeap<Reverse<(u64, u64, u64, bool)>>,
    now: u64,
    random: u64,
}

impl Simulation {
    pub(super) fn new(settings: Adaptive, start: u64, workers: usize, work: SimulatedWork) -> Self {
        Self {
            estimator: Estimator::new(settings, start),
            settings,
            workers: vec![0; workers],
            work,
            clients: u64::MAX,
            queue: u64::MAX,
            in_flight: BinaryHeap::new(),
            now: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    pub(super) fn set_workers(&mut self, workers: usize) {
        self.workers.resize(workers, self.now);
    }

    pub(super) fn set_work(&mut self, work: SimulatedWork) {
        self.work = work;
    }

    pub(super) fn set_clients(&mut self, clients: u64) {
        self.clients = clients;
    }

    pub(super) fn set_queue(&mut self, queue: u64) {
        self.queue = queue;
    }

    /// Lets so many requests end. The limits that were in force meanwhile, lowest and highest.
    pub(super) fn run(&mut self, requests: u64) -> (u64, u64) {
        let (mut lowest, mut highest) = (u64::MAX, 0);
        for _ in 0..requests {
            let limit = self.estimator.limit();
            let bounds = self.settings.min..=self.settings.max;
            assert!(bounds.contains(&limit), "{limit} is out of bounds");
            (lowest, highest) = (lowest.min(limit), highest.max(limit));
            while (self.in_flight.len() as u64) < limit.min(self.clients) {
                self.begin();
            }
            self.end_one();
        }
        (lowest, highest)
    }

    /// Lets requests end until so much time has passed.
    pub(super) fn run_for(&mut self, micros: u64) -> (u64, u64) {
        let end = self.now + micros;
        let (mut lowest, mut highest) = (u64::MAX, 0);
        while self.now < end {
            let (low, high) = self.run(1);
            (lowest, highest) = (lowest.min(low), highest.max(high));
        }
        (lowest, highest)
    }

    fn begin(&mut self) {
        let in_flight = self.in_flight.len() as u64 + 1;
        let is_dropped = in_flight > (self.workers.len() as u64).saturating_add(self.queue);
        // A client that was dropped comes back after a millisecond.
        let mut end = self.now + 1_000;
        if !is_dropped {
            let takes = self.takes();
            if let Some(worker) = self.workers.iter_mut().min() {
                end = self.now.max(*worker) + takes;
                *worker = end;
            }
        }
        self.in_flight
            .push(Reverse((end, self.now, in_flight, is_dropped)));
    }

    fn end_one(&mut self) {
        let Some(Reverse((end, began, in_flight, is_dropped))) = self.in_flight.pop() else {
            return;
        };
        self.now = end;
        let ended = if is_dropped {
            Ended::Dropped
        } else {
            Ended::Answered(Micros::new(end - began))
        };
        self.estimator.observe(Sample { ended, in_flight });
    }

    fn takes(&mut self) -> u64 {
        let random = self.next();
        match self.work {
            SimulatedWork::Steady(micros) => micros,
            SimulatedWork::Noisy(micros) if random.is_multiple_of(50) => micros * 10,
            SimulatedWork::Noisy(micros) => micros / 2 + random / 50 % micros,
        }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
