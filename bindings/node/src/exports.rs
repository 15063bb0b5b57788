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
use crate::memory_limiter::{MemoryAnswer, MemoryLimiter, MemoryQuestion, MemoryTurn, TurnAttempt};

thread_local! {
    static LIMITERS: RefCell<Numbered<MemoryLimiter>> = const { RefCell::new(Numbered::new()) };
    static TURNS: RefCell<Numbered<MemoryTurn>> = const { RefCell::new(Numbered::new()) };
}

/// Values by number. Numbers are used again.
struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    const fn new() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    fn add(&mut self, value: T) -> usize {
        if let Some(number) = self.free.pop() {
            self.values[number] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    #[inline]
    fn get(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number)?.as_mut()
    }

    fn take(&mut self, number: usize) -> Option<T> {
        let value = self.values.get_mut(number)?.take();
        if value.is_some() {
            self.free.push(number);
        }
        value
    }
}

/// Calls a function with a limiter. Nothing happens if there is none with this number.
#[inline]
fn with_limiter<T: Default>(number: usize, call: impl FnOnce(&mut MemoryLimiter) -> T) -> T {
    LIMITERS.with_borrow_mut(|limiters| limiters.get(number).map(call).unwrap_or_default())
}

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
