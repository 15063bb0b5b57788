//! The commands that need a decision: decided immediately with the in-memory store, else collected and asked
//! together.

use futures_util::future::join_all;
use tidegate::gate::{Charged, Decision, ReservationError, StoreIsRemote};
use tidegate::rules::FrontEnd;
use tidegate::store::{Charge, Scope};
use tidegate::{Attributes, Limit};
use tidegate_codec::CodecError;
use tidegate_codec::resp::reservation::{self, ReservationCommand, ReservationRefusal};
use tidegate_codec::resp::throttle::{self, ThrottleLimits};
use tidegate_codec::resp::{Replies, RespCommand, check};

use super::reservations::{self, ReservationAnswer};
use crate::decider::Decider;

/// The most questions that are asked together.
const TOGETHER: usize = 128;

/// The questions of one connection.
pub(super) struct Questions {
    /// The scope of the keys of `CL.THROTTLE`.
    scope: Scope,
    limits: ThrottleLimits,
    waiting: Vec<RespQuestion>,
}

/// A question that waits to be asked, or the error of one that is not.
#[expect(
    clippy::large_enum_variant,
    reason = "few wait, and only for one round trip"
)]
enum RespQuestion {
    Throttle {
        key: String,
        limit: Limit,
        cost: u64,
    },
    Check(Attributes<'static>),
    Reservation(ReservationCommand),
    Refused(String),
}

#[expect(
    clippy::large_enum_variant,
    reason = "few wait, and only for one round trip"
)]
enum RespAnswer<'q> {
    Throttle(Charged),
    Check(Decision),
    Reservation(ReservationAnswer),
    Refused(&'q str),
}

impl Questions {
    pub(super) fn new() -> Self {
        Self {
            scope: Scope::new("cl.throttle"),
            limits: ThrottleLimits::default(),
            waiting: Vec::new(),
        }
    }

    /// `CL.THROTTLE`.
    #[inline]
    pub(super) fn throttle(
        &mut self,
        command: RespCommand<'_>,
        decider: &Decider,
        replies: &mut Replies,
    ) {
        let asked = match throttle::read(command, &mut self.limits) {
            Ok(asked) => asked,
            Err(problem) => return self.refuse(&problem, replies),
        };
        let charge = Charge {
            scope: &self.scope,
            limit: asked.limit,
            key: &asked.key,
            cost: asked.cost,
        };
        match decider.gate.try_charge(&charge) {
            Ok(charged) => throttle::write(&charged, replies),
            Err(StoreIsRemote) => self.waiting.push(RespQuestion::Throttle {
                key: asked.key.into_owned(),
                limit: asked.limit.clone(),
                cost: asked.cost,
            }),
        }
    }

    /// `TG.CHECK`.
    pub(super) fn check(
        &mut self,
        command: RespCommand<'_>,
        decider: &Decider,
        replies: &mut Replies,
    ) {
        if let Err(problem) = decider.need_rules() {
            return self.refuse_as("UNAVAILABLE", &problem, replies);
        }
        match check::read(command) {
            Err(problem) => self.refuse(&problem, replies),
            Ok(attributes) => {
                let (gate, rules) = (&decider.gate, decider.gate.rules());
                match gate.try_decide_by(&rules, FrontEnd::Resp, &attributes) {
                    Ok(receipt) => check::write(receipt.decision(), replies),
                    Err(StoreIsRemote) => self.waiting.push(RespQuestion::Check(attributes)),
                }
            }
        }
    }

    /// `TG.RESERVE`, `TG.SETTLE` and the other commands about reservations and leases. They wait for their turn also in
    /// memory.
    pub(super) fn reservation(
        &mut self,
        name: &[u8],
        command: RespCommand<'_>,
        decider: &Decider,
        replies: &mut Replies,
    ) {
        match reservation::read(name, command) {
            Err(ReservationRefusal::Malformed(problem)) => self.refuse(&problem, replies),
            Err(ReservationRefusal::Unknown) => {
                self.refuse_as("NOTFOUND", &ReservationError::Unknown.to_string(), replies);
            }
            Ok(ReservationCommand::Reserve(..)) if decider.need_rules().is_err() => {
                let problem = decider.need_rules().err().unwrap_or_default();
                self.refuse_as("UNAVAILABLE", &problem, replies);
            }
            Ok(command) => self.waiting.push(RespQuestion::Reservation(command)),
        }
    }

    fn refuse(&mut self, problem: &CodecError, replies: &mut Replies) {
        self.refuse_as("ERR", &problem.to_string(), replies);
    }

    /// Writes an error in its turn, after the answers to earlier questions.
    fn refuse_as(&mut self, code: &str, problem: &str, replies: &mut Replies) {
        if self.waiting.is_empty() {
            replies.error(code, problem);
        } else {
            self.waiting
                .push(RespQuestion::Refused(format!("{code} {problem}")));
        }
    }

    /// Whether a command may join those that wait: they are all about reservations, or none is. A check in memory is
    /// answered immediately, and would overtake a reservation.
    pub(super) fn may_join(&self, is_reservation: bool) -> bool {
        let reserves = |question: &RespQuestion| matches!(question, RespQuestion::Reservation(_));
        self.waiting.len() < TOGETHER && self.waiting.iter().any(reserves) == is_reservation
    }

    /// Whether questions wait, so that later commands must wait too.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Asks all waiting questions together, and writes the answers in their order.
    pub(super) async fn ask(&mut self, decider: &Decider, replies: &mut Replies) {
        let scope = &self.scope;
        let asking = self.waiting.iter().map(|question| async move {
            match question {
                RespQuestion::Throttle { key, limit, cost } => {
                    let charge = Charge {
                        scope,
                        limit,
                        key,
                        cost: *cost,
                    };
                    let on_failure = decider.throttle_on_failure;
                    RespAnswer::Throttle(decider.gate.charge(&charge, on_failure).await)
                }
                RespQuestion::Check(attributes) => {
                    RespAnswer::Check(decider.decide(attributes, FrontEnd::Resp).await)
                }
                RespQuestion::Reservation(command) => {
                    RespAnswer::Reservation(reservations::answer(decider, command).await)
                }
                RespQuestion::Refused(problem) => RespAnswer::Refused(problem),
            }
        });
        for answer in join_all(asking).await {
            match answer {
                RespAnswer::Throttle(charged) => throttle::write(&charged, replies),
                RespAnswer::Check(decision) => check::write(&decision, replies),
                RespAnswer::Reservation(answer) => answer.write(replies),
                RespAnswer::Refused(problem) => {
                    let (code, message) = problem.split_once(' ').unwrap_or(("ERR", problem));
                    replies.error(code, message);
                }
            }
        }
        self.waiting.clear();
    }
}
