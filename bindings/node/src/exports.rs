//! The functions that JavaScript calls. Limiters, counters and turns are numbers to it; texts and outcomes go through
//! the buffers. A negative result is the length of an error's text, negated.
#![expect(
    unsafe_code,
    reason = "an exported name is an unsafe attribute; there is no other unsafe code"
)]

use std::cell::RefCell;

use tidegate_core::{Algorithm, Limit, Micros, Timestamp};

use crate::buffers::{self, OUTCOME_NUMBERS};
use crate::described::{header_lines, whole};
use crate::given_limits::{read_limits, store_limit};
use crate::memory_limiter::{MemoryAnswer, MemoryLimiter, MemoryQuestion, TurnAttempt};
use crate::numbered::{LIMITERS, TURNS, WIRE_LIMITERS, WIRE_STEPS, with_limiter, with_wire};
use crate::redis_limiter::{WireLimiter, WireLimiterSettings, WireQuestion, WireStep};

/// Unix milliseconds as a point in time.
#[inline]
fn timestamp(millis: f64) -> Timestamp {
    Timestamp::from_micros(whole(millis * 1000.0))
}

fn span(millis: f64) -> Micros {
    Micros::new(whole(millis * 1000.0))
}

fn failed(error: &dyn std::fmt::Display) -> i32 {
    let length = buffers::put_text(error.to_string());
    i32::try_from(length).map_or(i32::MIN, |length| -length)
}

fn number(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Where a text of this length is written that comes in.
#[unsafe(no_mangle)]
extern "C" fn input(length: usize) -> *mut u8 {
    buffers::reserve_input(length)
}

/// Where so many outcomes are read.
#[unsafe(no_mangle)]
extern "C" fn outcomes(count: usize) -> *mut f64 {
    buffers::reserve_numbers(count.max(1) * OUTCOME_NUMBERS)
}

/// Where the text is read that was put last.
#[unsafe(no_mangle)]
extern "C" fn text() -> *const u8 {
    buffers::text_address()
}

/// A new limiter for the limits in the first `limits` bytes of the input, by the algorithm named in the rest.
#[unsafe(no_mangle)]
extern "C" fn limiter_new(limits: usize, length: usize, max_keys: f64) -> i32 {
    let read = buffers::with_text(length, |text| {
        let (limits, algorithm) = text.split_at_checked(limits).unwrap_or((text, ""));
        read_limits(limits, algorithm)
    });
    match read {
        Ok(limits) => {
            let limiter = MemoryLimiter::new(limits, max_keys_of(max_keys));
            number(LIMITERS.with_borrow_mut(|limiters| limiters.add(limiter)))
        }
        Err(error) => failed(&error),
    }
}

/// A new limiter for the store of another library, by the algorithm that the input names.
#[unsafe(no_mangle)]
extern "C" fn store_new(length: usize, max_keys: f64) -> i32 {
    let read = buffers::with_text(length, |name| {
        let algorithm = Algorithm::named(name).map_err(|error| error.to_string())?;
        store_limit(1, Micros::SECOND, algorithm).map_err(|error| error.to_string())
    });
    match read {
        Ok(limit) => {
            let limiter = MemoryLimiter::new(vec![limit], max_keys_of(max_keys));
            number(LIMITERS.with_borrow_mut(|limiters| limiters.add(limiter)))
        }
        Err(error) => failed(&error),
    }
}

fn max_keys_of(given: f64) -> usize {
    usize::try_from(whole(given)).unwrap_or(usize::MAX)
}

/// Lets a limiter count by another limit from now on: `count` in so many milliseconds.
#[unsafe(no_mangle)]
extern "C" fn limiter_set(limiter: usize, count: f64, window: f64) -> i32 {
    with_limiter(limiter, |limiter| {
        let Some(algorithm) = limiter.limits().first().map(Limit::algorithm) else {
            return 0;
        };
        match limiter.set_limit(whole(count), span(window), algorithm) {
            Ok(()) => 0,
            Err(error) => failed(&error),
        }
    })
}

/// Begins to count, with the 32 bytes of the input as the secret of the hash.
#[unsafe(no_mangle)]
extern "C" fn limiter_open(limiter: usize) {
    let secret = buffers::with_bytes(32, |bytes| bytes.try_into().unwrap_or([0; 32]));
    with_limiter(limiter, |limiter| limiter.open(secret));
}

/// Forgets a limiter.
#[unsafe(no_mangle)]
extern "C" fn limiter_free(limiter: usize) {
    LIMITERS.with_borrow_mut(|limiters| drop(limiters.take(limiter)));
}

/// How many limits a limiter has.
#[unsafe(no_mangle)]
extern "C" fn limiter_count(limiter: usize) -> usize {
    with_limiter(limiter, |limiter| limiter.limits().len())
}

/// Checks, and answers only whether it is allowed.
#[unsafe(no_mangle)]
extern "C" fn limiter_allow(limiter: usize, key: usize, cost: f64, now: f64) -> bool {
    buffers::with_text(key, |key| {
        with_limiter(limiter, |limiter| {
            limiter.allow(key, whole(cost), timestamp(now))
        })
    })
}

/// Checks the key, and writes the outcomes. Returns the index of the limit that decided, doubled, and one if it is
/// allowed.
#[unsafe(no_mangle)]
extern "C" fn limiter_check(limiter: usize, key: usize, cost: f64, now: f64) -> u32 {
    buffers::with_text(key, |key| {
        with_limiter(limiter, |limiter| {
            let (cost, now) = (whole(cost), timestamp(now));
            if let Some(outcome) = limiter.check_only(key, cost, now) {
                buffers::put_outcomes(&[outcome]);
                return u32::from(outcome.allowed);
            }
            answered(&limiter.ask(MemoryQuestion::Check, key, cost))
        })
    })
}

/// Answers as a check would, and changes nothing.
#[unsafe(no_mangle)]
extern "C" fn limiter_peek(limiter: usize, key: usize, cost: f64, now: f64) -> u32 {
    ask(limiter, MemoryQuestion::Peek, key, cost, now)
}

/// Charges what is known only afterwards.
#[unsafe(no_mangle)]
extern "C" fn limiter_settle(limiter: usize, key: usize, cost: f64, now: f64) -> u32 {
    ask(limiter, MemoryQuestion::Settle, key, cost, now)
}

fn ask(limiter: usize, asked: MemoryQuestion, key: usize, cost: f64, now: f64) -> u32 {
    buffers::with_text(key, |key| {
        with_limiter(limiter, |limiter| {
            limiter.set_time(timestamp(now));
            answered(&limiter.ask(asked, key, whole(cost)))
        })
    })
}

/// Writes an answer: the outcomes, and after them the number of the permit, or zero.
fn answered(answer: &MemoryAnswer) -> u32 {
    buffers::put_outcomes(&answer.outcomes);
    PERMIT.with_borrow_mut(|permit| *permit = answer.permit.unwrap_or_default());
    answer.code()
}

thread_local! {
    static PERMIT: RefCell<u64> = const { RefCell::new(0) };
}

/// The number of the permit of the last check; zero if it holds none.
#[unsafe(no_mangle)]
#[expect(clippy::cast_precision_loss, reason = "they are counted from one")]
extern "C" fn permit() -> f64 {
    PERMIT.with_borrow_mut(std::mem::take) as f64
}

/// Releases a permit, and answers whether it was held.
#[unsafe(no_mangle)]
extern "C" fn limiter_release(limiter: usize, permit: f64, now: f64) -> bool {
    with_limiter(limiter, |limiter| {
        limiter.set_time(timestamp(now));
        limiter.release(whole(permit))
    })
}

/// Forgets what a key has used.
#[unsafe(no_mangle)]
extern "C" fn limiter_reset(limiter: usize, key: usize, now: f64) {
    buffers::with_text(key, |key| {
        with_limiter(limiter, |limiter| {
            limiter.set_time(timestamp(now));
            limiter.reset(key);
        });
    });
}

/// Forgets what all keys have used.
#[unsafe(no_mangle)]
extern "C" fn limiter_clear(limiter: usize) {
    with_limiter(limiter, MemoryLimiter::clear);
}

/// Forgets keys that have used nothing that still counts.
#[unsafe(no_mangle)]
extern "C" fn limiter_sweep(limiter: usize, now: f64) {
    with_limiter(limiter, |limiter| limiter.sweep(timestamp(now)));
}

/// Takes back a cost that was charged at `charged_at`.
#[unsafe(no_mangle)]
extern "C" fn limiter_give_back(limiter: usize, key: usize, cost: f64, charged_at: f64, now: f64) {
    buffers::with_text(key, |key| {
        with_limiter(limiter, |limiter| {
            limiter.set_time(timestamp(now));
            limiter.give_back(key, whole(cost), timestamp(charged_at));
        });
    });
}

/// Writes the number of keys, and of those that had to make room for others.
#[unsafe(no_mangle)]
#[expect(clippy::cast_precision_loss, reason = "they are counted")]
extern "C" fn limiter_stats(limiter: usize) {
    let stats = with_limiter(limiter, |limiter| limiter.stats());
    let (keys, evicted) = stats.map_or((0, 0), |stats| (stats.keys, stats.evicted));
    buffers::put_numbers(&[keys as f64, evicted as f64]);
}

/// The results of an attempt to get a turn.
const RESERVED: u32 = 0;
const ASK_AGAIN: u32 = 1;
const TOO_LONG: u32 = 2;
const NEVER: u32 = 3;

thread_local! {
    static ATTEMPT: RefCell<[f64; 2]> = const { RefCell::new([0.0; 2]) };
}

/// Attempts to get a turn within so many milliseconds. The wait and the number of the turn are in `attempt_wait` and
/// `attempt_turn`; the outcomes are written, unless it is to be asked again. In the upper bits is what a check returns.
#[unsafe(no_mangle)]
extern "C" fn limiter_reserve(
    limiter: usize,
    key: usize,
    cost: f64,
    max_wait: f64,
    now: f64,
) -> u32 {
    let attempt = buffers::with_text(key, |key| {
        LIMITERS.with_borrow_mut(|limiters| {
            let limiter = limiters.get(limiter)?;
            limiter.set_time(timestamp(now));
            Some(limiter.reserve(key, whole(cost), span(max_wait)))
        })
    });
    let (kind, code, wait, turn) = match attempt {
        Some(TurnAttempt::Reserved(turn, wait)) => {
            let code = answered(&turn.answer);
            let turn = TURNS.with_borrow_mut(|turns| turns.add(turn));
            (RESERVED, code, wait, turn)
        }
        Some(TurnAttempt::AskAgain(wait)) => (ASK_AGAIN, 0, wait, 0),
        Some(TurnAttempt::TooLong(wait, answer)) => (TOO_LONG, answered(&answer), wait, 0),
        Some(TurnAttempt::Never(answer)) => (NEVER, answered(&answer), Micros::ZERO, 0),
        None => (NEVER, 0, Micros::ZERO, 0),
    };
    let turn = u32::try_from(turn).unwrap_or_default();
    ATTEMPT.with_borrow_mut(|attempt| *attempt = [buffers::micros(wait), f64::from(turn)]);
    code << 2 | kind
}

/// The microseconds to wait after the last attempt.
#[unsafe(no_mangle)]
extern "C" fn attempt_wait() -> f64 {
    ATTEMPT.with_borrow(|attempt| attempt[0])
}

/// The number of the turn that the last attempt reserved.
#[unsafe(no_mangle)]
extern "C" fn attempt_turn() -> f64 {
    ATTEMPT.with_borrow(|attempt| attempt[1])
}

/// Takes a turn: what was charged stays charged.
#[unsafe(no_mangle)]
extern "C" fn turn_take(turn: usize) {
    TURNS.with_borrow_mut(|turns| drop(turns.take(turn)));
}

/// Gives a turn back.
#[unsafe(no_mangle)]
extern "C" fn turn_give_back(limiter: usize, turn: usize, now: f64) {
    if let Some(turn) = TURNS.with_borrow_mut(|turns| turns.take(turn)) {
        with_limiter(limiter, |limiter| {
            limiter.set_time(timestamp(now));
            limiter.give_back_turn(&turn);
        });
    }
}

/// Writes the headers of a decision whose outcomes JavaScript has written back, under the name in the input. Returns the
/// length of the text.
#[unsafe(no_mangle)]
extern "C" fn limiter_headers(limiter: usize, name: usize) -> usize {
    let lines = buffers::with_text(name, |name| {
        buffers::with_numbers(|numbers| {
            with_limiter(limiter, |limiter| {
                header_lines(name, limiter.limits(), numbers)
            })
        })
    });
    buffers::put_text(lines)
}

/// A new limiter over Redis. The input has a line each for limits, algorithm, name, attribute and namespace, and then
/// the secret.
#[unsafe(no_mangle)]
extern "C" fn wire_new(length: usize) -> i32 {
    let made = buffers::with_text(length, |text| {
        let mut lines = text.splitn(6, '\n');
        let mut line = || lines.next().unwrap_or_default();
        let limits = read_limits(line(), line())?;
        WireLimiter::new(WireLimiterSettings {
            limits,
            name: line(),
            per_attribute: line(),
            namespace: line(),
            key_secret: line(),
        })
    });
    match made {
        Ok(limiter) => number(WIRE_LIMITERS.with_borrow_mut(|limiters| limiters.add(limiter))),
        Err(error) => failed(&error),
    }
}

/// Forgets a limiter over Redis.
#[unsafe(no_mangle)]
extern "C" fn wire_free(limiter: usize) {
    WIRE_LIMITERS.with_borrow_mut(|limiters| drop(limiters.take(limiter)));
}

/// How many limits it has.
#[unsafe(no_mangle)]
extern "C" fn wire_count(limiter: usize) -> usize {
    with_wire(limiter, |limiter| Some(limiter.limits().len())).unwrap_or_default()
}

fn add_step(step: Option<WireStep>) -> i32 {
    match step {
        Some(step) => number(WIRE_STEPS.with_borrow_mut(|steps| steps.add(step))),
        None => -1,
    }
}

/// Begins a step: 0 checks, 1 peeks, 2 settles, 3 forgets. The input has 16 random bytes and the key. A check may wait
/// for so many milliseconds, unless that is negative.
#[unsafe(no_mangle)]
extern "C" fn wire_ask(limiter: usize, asked: u32, input: usize, cost: f64, max_wait: f64) -> i32 {
    let asked = match asked {
        0 => WireQuestion::Check,
        1 => WireQuestion::Peek,
        2 => WireQuestion::Settle,
        _ => WireQuestion::Forget,
    };
    let step = buffers::with_bytes(input, |bytes| {
        let (random, key) = bytes.split_first_chunk::<16>()?;
        let key = std::str::from_utf8(key).ok()?;
        let max_wait = (max_wait >= 0.0).then(|| span(max_wait));
        with_wire(limiter, |limiter| {
            let random = u128::from_le_bytes(*random);
            Some(limiter.ask(asked, (key, whole(cost)), max_wait, random))
        })
    });
    add_step(step)
}

/// Begins to take back a cost that was charged at this time.
#[unsafe(no_mangle)]
extern "C" fn wire_take_back(limiter: usize, key: usize, cost: f64, charged_at: f64) -> i32 {
    let step = buffers::with_text(key, |key| {
        with_wire(limiter, |limiter| {
            Some(limiter.take_back(key, whole(cost), timestamp(charged_at)))
        })
    });
    add_step(step)
}

/// Begins to take back what a step has charged. Negative if it has charged nothing.
#[unsafe(no_mangle)]
extern "C" fn wire_give_back(limiter: usize, step: usize) -> i32 {
    follow(limiter, step, WireLimiter::give_back)
}

/// Begins to release the permit of a step. Negative if it holds none.
#[unsafe(no_mangle)]
extern "C" fn wire_release(limiter: usize, step: usize) -> i32 {
    follow(limiter, step, WireLimiter::release)
}

fn follow(
    limiter: usize,
    step: usize,
    next: impl FnOnce(&WireLimiter, &WireStep) -> Option<WireStep>,
) -> i32 {
    let step = WIRE_STEPS.with_borrow_mut(|steps| {
        let charged = steps.get(step)?;
        with_wire(limiter, |limiter| next(limiter, charged))
    });
    add_step(step)
}

/// Puts the arguments of a step, after the name of the script, one on each line.
#[unsafe(no_mangle)]
extern "C" fn step_arguments(step: usize) -> usize {
    let arguments =
        WIRE_STEPS.with_borrow_mut(|steps| steps.get(step).map(|step| step.arguments()));
    buffers::put_text(arguments.unwrap_or_default())
}

/// Reads the reply to a step from the input. Returns what a check returns, or an error.
#[unsafe(no_mangle)]
extern "C" fn step_read(step: usize, length: usize) -> i32 {
    buffers::with_text(length, |reply| {
        WIRE_STEPS.with_borrow_mut(|steps| {
            let Some(step) = steps.get(step) else {
                return failed(&"there is no such step");
            };
            if let Err(error) = step.read(reply) {
                return failed(&error);
            }
            buffers::put_outcomes(step.outcomes());
            let decided_by = tidegate_core::outcome::deciding(step.outcomes());
            number(decided_by << 1 | usize::from(step.is_allowed()))
        })
    })
}

/// Microseconds that the request of a step has to wait; negative if it never may go on.
#[unsafe(no_mangle)]
extern "C" fn step_wait(step: usize) -> f64 {
    let wait = WIRE_STEPS.with_borrow_mut(|steps| steps.get(step).and_then(|step| step.wait()));
    wait.map_or(-1.0, buffers::micros)
}

/// Of a step: 1 if it is denied by holders of permits, 2 if it holds a permit, 4 if it has released one, 8 if it was
/// refused.
#[unsafe(no_mangle)]
extern "C" fn step_flags(step: usize) -> u32 {
    WIRE_STEPS.with_borrow_mut(|steps| {
        steps.get(step).map_or(0, |step| {
            u32::from(step.is_denied_by_holders())
                | u32::from(step.holds_permit()) << 1
                | u32::from(step.was_live()) << 2
                | u32::from(step.was_refused()) << 3
        })
    })
}

/// Forgets a step.
#[unsafe(no_mangle)]
extern "C" fn step_free(step: usize) {
    WIRE_STEPS.with_borrow_mut(|steps| drop(steps.take(step)));
}

/// Writes the headers of a decision of a limiter over Redis, as `limiter_headers` does.
#[unsafe(no_mangle)]
extern "C" fn wire_headers(limiter: usize, name: usize) -> usize {
    let lines = buffers::with_text(name, |name| {
        buffers::with_numbers(|numbers| {
            with_wire(limiter, |limiter| {
                Some(header_lines(name, limiter.limits(), numbers))
            })
        })
    });
    buffers::put_text(lines.unwrap_or_default())
}
