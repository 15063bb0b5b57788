//! Decides the requests of a run by multiplied limits, in threads of their own. Each has some of the factors, gets all
//! requests in their order and passes them on, so that what it counts does not depend on how fast it is.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use smallvec::SmallVec;
use tidegate::gate::{Asked, MatchedRequest, Observed};
use tidegate::rules::Verdict;

use super::gates::VirtualGate;
use super::scale::ScaleTally;
use crate::batch::RequestBatch;

/// How many threads decide; more have less to do than the one that gives them their requests.
const THREADS: usize = 2;
/// How many requests a thread gets together, and how many such batches wait for it.
const BATCH: usize = 256;
const WAITING: usize = 8;

/// The clients of a request: the indexes of a rule that took part in its decision, and of the client among those of the
/// rule.
pub(super) type RequestClients = SmallVec<[(usize, u32); 4]>;

/// A request that the rules as they are have decided.
#[derive(Debug)]
pub(super) struct ScaledRequest {
    pub(super) time: u64,
    pub(super) ends: u64,
    pub(super) clients: RequestClients,
    pub(super) asked: ScaledAsk,
}

/// What is decided.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are matched, and a box would allocate"
)]
pub(super) enum ScaledAsk {
    /// The rules that apply do not depend on their limits.
    Matched(MatchedRequest),
    /// The request with this index, whose rules are still to be found.
    Unmatched(Arc<RequestBatch>, usize),
}

/// What a thread counted.
#[derive(Debug, Default)]
pub(super) struct ScaledCounts {
    /// The indexes of the factors, and what was decided since the run began.
    pub(super) tallies: Vec<(usize, ScaleTally)>,
    /// For each rule and each of its clients, a bit for each factor by which it has a denied request, as far as it was
    /// not yet [collected](ScaledRun::collect).
    pub(super) denied_by: Vec<Vec<u32>>,
}

enum ToThread {
    Decide(Vec<ScaledRequest>),
    Count(SyncSender<ScaledCounts>),
}

/// The threads of a run; none if no limits are multiplied.
#[derive(Default)]
pub(super) struct ScaledRun {
    first: Option<SyncSender<ToThread>>,
    threads: usize,
    batch: Vec<ScaledRequest>,
}

impl ScaledRun {
    /// Starts the threads. Each gate has the index of its factor.
    pub(super) fn start(gates: Vec<(usize, VirtualGate)>, rules: usize) -> io::Result<Self> {
        let mut parts: [Vec<ScaledGate>; THREADS] = Default::default();
        for (place, (factor, gate)) in gates.into_iter().enumerate() {
            parts[place % THREADS].push(ScaledGate {
                factor,
                gate,
                tally: ScaleTally::new(rules),
            });
        }
        let (mut next, mut threads) = (None, 0);
        for gates in parts.into_iter().filter(|gates| !gates.is_empty()) {
            let (sender, receiver) = sync_channel(WAITING);
            let thread = ScaleThread {
                gates,
                denied_by: vec![Vec::new(); rules],
                next,
            };
            thread::Builder::new()
                .name("scale".to_owned())
                .spawn(move || thread.run(&receiver))?;
            next = Some(sender);
            threads += 1;
        }
        Ok(Self {
            first: next,
            threads,
            batch: Vec::with_capacity(BATCH),
        })
    }

    /// Whether there is anything to decide.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Decides a request, sooner or later.
    pub(super) fn push(&mut self, request: ScaledRequest) -> io::Result<()> {
        self.batch.push(request);
        if self.batch.len() < BATCH {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.send(ToThread::Decide(batch))
    }

    fn send(&self, message: ToThread) -> io::Result<()> {
        let first = self.first.as_ref().ok_or_else(ended)?;
        first.send(message).map_err(|_| ended())
    }

    /// What each thread counted, once it has decided all requests.
    pub(super) fn collect(&mut self) -> io::Result<Vec<ScaledCounts>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let batch = std::mem::take(&mut self.batch);
        self.send(ToThread::Decide(batch))?;
        let (sender, receiver) = sync_channel(THREADS);
        self.send(ToThread::Count(sender))?;
        let counts: Vec<ScaledCounts> = receiver.iter().collect();
        (counts.len() == self.threads)
            .then_some(counts)
            .ok_or_else(ended)
    }
}

fn ended() -> io::Error {
    io::Error::other("a thread that decides by multiplied limits has ended")
}

/// A gate with multiplied limits.
struct ScaledGate {
    factor: usize,
    gate: VirtualGate,
    tally: ScaleTally,
}

struct ScaleThread {
    gates: Vec<ScaledGate>,
    denied_by: Vec<Vec<u32>>,
    /// The thread that gets the requests afterwards.
    next: Option<SyncSender<ToThread>>,
}

impl ScaleThread {
    fn run(mut self, receiver: &Receiver<ToThread>) {
        while let Ok(mut message) = receiver.recv() {
            match &mut message {
                ToThread::Decide(batch) => {
                    for request in batch {
                        self.decide(request);
                    }
                }
                // The run has ended early if no one receives them.
                ToThread::Count(sender) => drop(sender.send(self.counts())),
            }
            if let Some(next) = &self.next {
                // A thread that has ended sends no counts, which the run notices.
                drop(next.send(message));
            }
        }
    }

    fn counts(&mut self) -> ScaledCounts {
        let tallies = self.gates.iter();
        let tallies = tallies.map(|scaled| (scaled.factor, scaled.tally.clone()));
        let empty = vec![Vec::new(); self.denied_by.len()];
        ScaledCounts {
            tallies: tallies.collect(),
            denied_by: std::mem::replace(&mut self.denied_by, empty),
        }
    }

    fn decide(&mut self, request: &mut ScaledRequest) {
        let (time, ends) = (request.time, request.ends);
        let denied_by = &mut self.denied_by;
        match &mut request.asked {
            ScaledAsk::Matched(matched) => {
                for scaled in &mut self.gates {
                    scaled.gate.advance(time);
                    scaled.gate.decide_again(matched, ends);
                    let is_allowed = matched.is_allowed();
                    scaled.count(is_allowed, matched.verdicts(), &request.clients, denied_by);
                }
            }
            ScaledAsk::Unmatched(batch, index) => {
                let kept = &batch.requests()[*index];
                let attributes = batch.attributes(kept, time);
                let parts = batch.parts(kept, time);
                let asked = match &attributes {
                    Some(attributes) => Asked::from(attributes),
                    None => Asked::from(&parts[..]),
                };
                for scaled in &mut self.gates {
                    scaled.gate.advance(time);
                    let Some(decisions) = scaled.gate.decide_parts(asked, ends) else {
                        continue;
                    };
                    let observed = Observed::new(&decisions, asked);
                    let verdicts = observed.parts().flat_map(|part| part.own_limits());
                    let verdicts = verdicts.map(|rule| (rule.index(), is_denied(rule.verdict())));
                    let is_allowed = decisions.is_allowed();
                    scaled.count(is_allowed, verdicts, &request.clients, denied_by);
                }
            }
        }
    }
}

impl ScaledGate {
    /// Counts a decision, and what each rule said.
    fn count(
        &mut self,
        is_allowed: bool,
        verdicts: impl Iterator<Item = (usize, bool)>,
        clients: &RequestClients,
        denied_by: &mut [Vec<u32>],
    ) {
        self.tally.count(is_allowed);
        // The same rules in the same order, with the same keys.
        let mut clients = clients.iter().peekable();
        for (rule, is_denied) in verdicts {
            self.tally.count_rule(rule, is_denied);
            let client = clients.next_if(|(of_rule, _)| *of_rule == rule);
            if let Some((_, client)) = client.filter(|_| is_denied) {
                let (client, of_rule) = (*client as usize, &mut denied_by[rule]);
                if of_rule.len() <= client {
                    of_rule.resize(client + 1, 0);
                }
                of_rule[client] |= 1 << self.factor;
            }
        }
    }
}

/// Whether a limit denies a request, also if it only counts.
pub(super) fn is_denied(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Denied | Verdict::ShadowDenied)
}
