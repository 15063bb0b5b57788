//! Where JavaScript and Rust exchange texts and numbers: one buffer for texts that come in, one for texts that go out,
//! and one for numbers that go out. JavaScript asks for their addresses.

use std::cell::RefCell;

use tidegate_core::{Micros, Outcome, Retry};

/// Numbers of an outcome: allowed, limit, remaining, retry, reset, delay, time.
pub(crate) const OUTCOME_NUMBERS: usize = 7;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static NUMBERS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes room for a text of `length` bytes that comes in, and returns its address.
pub(crate) fn reserve_input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        if input.len() < length {
            input.resize(length, 0);
        }
        input.as_mut_ptr()
    })
}

/// Makes room for `count` numbers that go out, and returns their address.
pub(crate) fn reserve_numbers(count: usize) -> *mut f64 {
    NUMBERS.with_borrow_mut(|numbers| {
        if numbers.len() < count {
            numbers.resize(count, 0.0);
        }
        numbers.as_mut_ptr()
    })
}

/// Reads the bytes that JavaScript has written.
pub(crate) fn with_bytes<T>(length: usize, read: impl FnOnce(&[u8]) -> T) -> T {
    INPUT.with_borrow(|input| read(input.get(..length).unwrap_or_default()))
}

/// Reads the text that JavaScript has written, which is encoded by `TextEncoder`.
#[inline]
pub(crate) fn with_text<T>(length: usize, read: impl FnOnce(&str) -> T) -> T {
    with_bytes(length, |bytes| {
        read(std::str::from_utf8(bytes).unwrap_or_default())
    })
}

/// Reads the numbers that JavaScript has written back.
pub(crate) fn with_numbers<T>(read: impl FnOnce(&[f64]) -> T) -> T {
    NUMBERS.with_borrow(|numbers| read(numbers))
}

/// Writes numbers for JavaScript.
pub(crate) fn put_numbers(written: &[f64]) {
    NUMBERS.with_borrow_mut(|numbers| {
        for (number, value) in numbers.iter_mut().zip(written) {
            *number = *value;
        }
    });
}

/// Writes the numbers of outcomes for JavaScript.
#[inline]
pub(crate) fn put_outcomes(outcomes: &[Outcome]) {
    NUMBERS.with_borrow_mut(|numbers| {
        let places = numbers.as_chunks_mut::<OUTCOME_NUMBERS>().0;
        for (place, outcome) in places.iter_mut().zip(outcomes) {
            *place = numbers_of(outcome);
        }
    });
}

/// All of them are below 2^53, except for the limit of nothing that is ever asked.
#[expect(clippy::cast_precision_loss, reason = "see above")]
#[inline]
fn numbers_of(outcome: &Outcome) -> [f64; OUTCOME_NUMBERS] {
    let retry = match outcome.retry {
        Retry::Now => 0.0,
        Retry::After(wait) => micros(wait),
        Retry::Never => -1.0,
    };
    [
        f64::from(u8::from(outcome.allowed)),
        outcome.limit as f64,
        outcome.remaining as f64,
        retry,
        outcome.reset_at.as_micros() as f64,
        micros(outcome.delay),
        outcome.at.as_micros() as f64,
    ]
}

#[expect(clippy::cast_precision_loss, reason = "spans are below 2^53")]
pub(crate) fn micros(span: Micros) -> f64 {
    span.get() as f64
}

/// Hands a text to JavaScript and returns its length, which follows its address.
pub(crate) fn put_text(written: String) -> usize {
    TEXT.with_borrow_mut(|text| {
        *text = written;
        text.len()
    })
}

/// The address of the text that was put last.
pub(crate) fn text_address() -> *const u8 {
    TEXT.with_borrow(|text| text.as_ptr())
}
