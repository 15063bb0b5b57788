//! A connection in use: sends what gathers in the queue, hands out what is answered, and says what is late.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::batch::{Batch, Question};
use super::flight::{End, Flight, Found, ask};
use super::{BATCH, Shared, batch};
use crate::dial::Connected;
use crate::monotonic::{A_MOMENT, PUNCTUAL, now};

/// How many calls are under way at once: enough to keep the server busy, few enough that steps gather.
const FLIGHTS: usize = 2;
/// The same where each slot has a call of its own.
const FLIGHTS_IN_CLUSTER: usize = 64;
/// How many calls may fail with none that succeeds between them.
const FAILURES: u32 = 5;
/// How long a connection may lie idle before it is tried.
const IDLE: Duration = Duration::from_millis(500);
/// How long a server may be silent while it is asked.
const SILENCE: Duration = Duration::from_millis(100);

/// Serves until something is wrong; tells what.
pub(super) async fn serve(shared: &Shared, connected: Connected) -> String {
    let mut traffic = Traffic::new(shared);
    let mut answering = FuturesUnordered::new();
    let mut timer = pin!(tokio::time::sleep(IDLE));
    // Read once per turn: a stall between two readings would count against the server.
    let mut at = now();
    loop {
        for (id, question) in traffic.send_waiting(at) {
            answering.push(ask(id, connected.connection.clone(), question));
        }
        let waiting = traffic.due();
        let due = waiting.unwrap_or(at + IDLE);
        timer.as_mut().reset(due);
        let answer = tokio::select! {
            biased;
            () = shared.renew.notified() => return "another server is the master now".to_owned(),
            Some(answer) = answering.next(), if !answering.is_empty() => Some(answer),
            () = shared.wake.notified() => None,
            () = timer.as_mut() => None,
        };
        at = now();
        let late = at.checked_duration_since(due);
        if let (Some(late), true) = (late, waiting.is_some())
            && let Some(again) = traffic.grace.after_stall(late)
        {
            traffic.extend(late + again);
            if answer.is_none() {
                continue;
            }
        }
        let problem = match (answer, late) {
            (Some((id, answer)), _) => traffic.land(id, answer, at),
            // A connection that nobody uses would not notice its end.
            (None, Some(_)) if waiting.is_none() => {
                let (id, question) = traffic.send(batch::ping(), at);
                answering.push(ask(id, connected.connection.clone(), question));
                None
            }
            // Whatever has arrived is read before anything counts as late.
            (None, Some(late)) if connected.arrivals.are_waiting() => {
                match traffic.grace.for_reading() {
                    Some(again) => {
                        traffic.extend(late + again);
                        None
                    }
                    None => traffic.look(at),
                }
            }
            (None, _) => traffic.look(at),
        };
        if let Some(problem) = problem {
            return problem;
        }
    }
}

/// What is under way on a connection, and how it goes.
struct Traffic<'s> {
    shared: &'s Shared,
    flights: Vec<Flight>,
    /// How many calls may be under way, but for those that are late.
    most: usize,
    silence: Duration,
    sent: u64,
    failures: u32,
    expected: Expected,
    grace: Grace,
    /// Whether a job that came since the last look could have been sent immediately.
    had_room: bool,
}

impl<'s> Traffic<'s> {
    fn new(shared: &'s Shared) -> Self {
        let settings = &shared.settings;
        Self {
            shared,
            flights: Vec::new(),
            most: if settings.is_cluster {
                FLIGHTS_IN_CLUSTER
            } else {
                FLIGHTS
            },
            silence: SILENCE.max(settings.deadline),
            sent: 0,
            failures: 0,
            expected: Expected::default(),
            grace: Grace::new(settings.deadline),
            had_room: true,
        }
    }

    /// Takes from the queue what can be sent now.
    fn send_waiting(&mut self, now: Instant) -> Vec<(u64, Arc<Question>)> {
        let settings = &self.shared.settings;
        if self.had_room {
            // What waits could have been sent immediately: this process was late.
            let mut queue = self.shared.queue.lock();
            let waited = queue
                .jobs
                .front()
                .map(|job| now.saturating_duration_since(job.asked_at));
            if let Some(waited) = waited.filter(|waited| *waited > PUNCTUAL) {
                queue.extend(waited);
            }
        }
        let mut sent = Vec::new();
        let on_time = self.flights.iter().filter(|flight| !flight.is_late());
        let mut on_time = on_time.count();
        while on_time < self.most {
            // Never so long that nothing would be sent and nothing learned.
            let earliest = now + self.expected.call.min(settings.deadline / 2);
            let batches = {
                let mut queue = self.shared.queue.lock();
                queue.take(settings.is_cluster, earliest)
            };
            if batches.is_empty() {
                break;
            }
            on_time += batches.len();
            for batch in batches {
                settings.stats.add(&settings.stats.calls);
                let jobs = batch.jobs.len() as u64;
                settings.stats.add_many(&settings.stats.steps, jobs);
                sent.push(self.send(batch, now));
            }
        }
        self.had_room = on_time < self.most;
        sent
    }

    fn send(&mut self, batch: Batch, now: Instant) -> (u64, Arc<Question>) {
        self.sent += 1;
        let patience = (self.shared.settings.deadline, self.silence);
        let flight = Flight::new(self.sent, batch, now, patience);
        let question = flight.question();
        self.flights.push(flight);
        (self.sent, question)
    }

    /// When something that waits is to be looked at.
    fn due(&self) -> Option<Instant> {
        let queued = self.shared.queue.lock().due;
        self.flights.iter().map(Flight::due).chain(queued).min()
    }

    /// Gives all that waits more time.
    fn extend(&mut self, by: Duration) {
        self.shared.queue.lock().extend(by);
        for flight in &mut self.flights {
            flight.extend(by);
        }
    }

    /// Fails what is late. A problem, if the connection is not to be used any more.
    fn look(&mut self, now: Instant) -> Option<String> {
        self.shared.queue.lock().expire(now);
        let stats = &self.shared.settings.stats;
        for flight in &mut self.flights {
            match flight.look(now) {
                Found::Nothing => {}
                Found::Late => {
                    self.failures += 1;
                    stats.add(&stats.failures);
                }
                Found::Silent => return Some(format!("it was silent for {:?}", self.silence)),
            }
        }
        let failures = self.failures;
        (failures >= FAILURES)
            .then(|| format!("{failures} calls in a row were not answered in time"))
    }

    /// Hands out an answer. A problem, if the connection is not to be used any more.
    fn land(&mut self, id: u64, answer: Result<Value, RedisError>, now: Instant) -> Option<String> {
        let settings = &self.shared.settings;
        let place = self.flights.iter().position(|flight| flight.id() == id)?;
        let flight = self.flights.swap_remove(place);
        let (is_late, took) = (flight.is_late(), flight.took(now));
        match flight.land(answer) {
            End::Answered if is_late => None,
            End::Answered => {
                self.failures = 0;
                self.grace = Grace::new(settings.deadline);
                self.expected.learn(took);
                let room = self.expected.room(settings.deadline, self.most);
                self.shared.room.store(room, Ordering::Relaxed);
                None
            }
            End::Refused(problem) => {
                self.failures += 1;
                settings.stats.add(&settings.stats.failures);
                (self.failures >= FAILURES).then_some(problem)
            }
            End::ReadOnly => Some("it has become a replica".to_owned()),
            End::Lost(problem) => Some(problem),
        }
    }
}

/// The time that a server is given again after this process did not run, or has not read what has arrived.
/// Bounded between two answers that are on time: a server that does not answer is found out on a busy
/// machine, too.
struct Grace {
    deadline: Duration,
    after_stalls: Duration,
    for_reading: Duration,
}

impl Grace {
    fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            after_stalls: deadline * 3,
            for_reading: SILENCE,
        }
    }

    /// What is given after a stall: as much as this process is `late`, and no more than a whole deadline.
    /// What was sent before a stall may not have been written, or the server was stalled with this process.
    fn after_stall(&mut self, late: Duration) -> Option<Duration> {
        let again = late.min(self.deadline);
        (late > PUNCTUAL && spend(&mut self.after_stalls, again)).then_some(again)
    }

    /// A moment to read what has arrived, if any is left.
    fn for_reading(&mut self) -> Option<Duration> {
        spend(&mut self.for_reading, A_MOMENT).then_some(A_MOMENT)
    }
}

fn spend(left: &mut Duration, time: Duration) -> bool {
    let rest = left.checked_sub(time);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// How long calls take, as far as the latest of them tell.
#[derive(Default)]
struct Expected {
    call: Duration,
}

impl Expected {
    fn learn(&mut self, took: Duration) {
        self.call = (self.call * 7 + took) / 8;
    }

    /// How many steps may wait so that the last of them is answered within `deadline`, if it takes as
    /// long as it did of late.
    fn room(&self, deadline: Duration, flights: usize) -> u64 {
        let call = self.call.max(Duration::from_micros(20)).as_micros();
        let rounds = (deadline.as_micros() / call).max(1);
        let steps = rounds.saturating_mul(flights.min(8) as u128 * BATCH as u128);
        u64::try_from(steps).unwrap_or(u64::MAX)
    }
}
