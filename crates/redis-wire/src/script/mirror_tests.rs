//! The script's algorithms against those of `tidegate_core`, in this process: the same timelines,
//! the same answers, to the microsecond.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the script's numbers are doubles that hold whole numbers below 2^53"
)]

use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::algorithm::fixed_window::MAX_USED;
use tidegate_core::algorithm::{Form, Hold};
use tidegate_core::{
    Algorithm, Anchor, Limit, Micros, Outcome, PermitId, Rate, Retry, Timestamp, Window,
};
use tidegate_testkit::ModelState;
use tidegate_testkit::timeline::{START, TimelineStep, any_limit, steps_for};

/// The script's functions, and a key as they keep it.
struct Mirror {
    lua: Lua,
    functions: Table,
}

impl Mirror {
    fn new() -> Self {
        let lua = Lua::new();
        let source = [super::ALGORITHMS, include_str!("mirror.lua")].concat();
        let functions = lua.load(source).eval().unwrap();
        Self { lua, functions }
    }

    fn call<R: mlua::FromLuaMulti>(&self, name: &str, args: impl IntoLuaMulti) -> R {
        let function: Function = self.functions.get(name).unwrap();
        function.call(args).unwrap()
    }

    fn limit(&self, limit: &Limit) -> (Table, &'static str) {
        let table = self.lua.create_table().unwrap();
        let set = |name: &str, number: u64| table.set(name, number as f64).unwrap();
        let name = match limit.form() {
            Form::Bucket(form) => {
                set("count", form.count());
                set("window", form.window().get());
                set("burst", form.burst());
                set("to_full", form.to_full().get());
                match form.hold() {
                    Hold::UpTo(longest) => set("hold", longest.get()),
                    Hold::Queue => table.set("hold", -1).unwrap(),
                }
                "bucket"
            }
            Form::FixedWindow(form) => {
                set("count", form.count());
                match form.window() {
                    Window::Span(span) => set("window", span.get()),
                    window => table.set("window", window.to_string()).unwrap(),
                }
                table
                    .set("from_first", form.anchor() == Anchor::FirstRequest)
                    .unwrap();
                table
                    .set("from_epoch", form.anchor() == Anchor::Epoch)
                    .unwrap();
                "fixed_window"
            }
            Form::SlidingCounter(form) => {
                set("count", form.count());
                set("window", form.window().get());
                "sliding_window_counter"
            }
            Form::SlidingSlots(form) => {
                set("count", form.count());
                set("window", form.window().get());
                set("slot", form.slot().get());
                set("counted", form.counted());
                "sliding_window_slots"
            }
            Form::SlidingLog(form) => {
                set("count", form.count());
                set("window", form.window().get());
                "sliding_window_log"
            }
            Form::Concurrency(form) => {
                set("holders", form.holders());
                set("lease_ttl", form.lease_ttl().get());
                "concurrency"
            }
        };
        (table, name)
    }

    fn outcome(&self, name: &str, args: impl IntoLuaMulti) -> [f64; 6] {
        let values: MultiValue = self.call(name, args);
        let numbers: Vec<f64> = values
            .iter()
            .map(|value| {
                value
                    .as_f64()
                    .unwrap_or_else(|| value.as_i64().unwrap() as f64)
            })
            .collect();
        numbers.try_into().unwrap()
    }
}

fn numbers(outcome: Outcome) -> [f64; 6] {
    let retry = match outcome.retry {
        Retry::Now => 0.0,
        Retry::After(wait) => wait.get() as f64,
        Retry::Never => -1.0,
    };
    [
        f64::from(u8::from(outcome.allowed)),
        outcome.remaining as f64 - outcome.exceeded as f64,
        retry,
        outcome.reset_at.as_micros() as f64,
        outcome.delay.get() as f64,
        outcome.at.as_micros() as f64,
    ]
}

/// An event of a timeline, chosen by a number.
#[derive(Debug, Clone, Copy)]
struct Event {
    step: TimelineStep,
    choice: u8,
    back: u64,
    change: u64,
}

fn any_limit_or_month() -> impl Strategy<Value = Limit> {
    let of_calendar = (1..20_u64, any::<bool>()).prop_map(|(count, is_month)| {
        let window = if is_month {
            Window::Month
        } else {
            Window::Year
        };
        let rate = Rate::new(count, window);
        Limit::new(rate, Algorithm::FIXED_WINDOW).unwrap()
    });
    let counts = prop_oneof![0..20_u64, 0..=u64::from(u32::MAX)];
    let windows = prop::sample::select(vec![
        Window::Span(Micros::MINUTE),
        Window::Span(Micros::WEEK),
        Window::Month,
    ]);
    let anchors = prop::sample::select(vec![Anchor::Clock, Anchor::Epoch]);
    let of_descriptors = (counts, windows, anchors)
        .prop_map(|(count, window, anchor)| Limit::fixed_window(count, window, anchor).unwrap());
    prop_oneof![14 => any_limit(), 1 => of_calendar, 2 => of_descriptors]
}

fn any_timeline() -> impl Strategy<Value = (Limit, Vec<Event>)> {
    any_limit_or_month().prop_flat_map(|limit| {
        let steps = steps_for(&limit);
        let chosen = prop::collection::vec((0..40_u8, any::<u64>(), any::<u64>()), 60);
        (Just(limit), steps, chosen).prop_map(|(limit, steps, chosen)| {
            let events = steps.into_iter().zip(chosen).map(|(step, chosen)| Event {
                step,
                choice: chosen.0,
                back: chosen.1,
                change: chosen.2,
            });
            (limit, events.collect())
        })
    })
}

/// The same limit with another count and burst, if there is such a limit.
fn changed(limit: &Limit, change: u64) -> Limit {
    let mut rate = limit.rate();
    rate.count = (rate.count / 2 + change % rate.count.max(4)).max(1);
    if let (Form::FixedWindow(form), Some(window)) = (limit.form(), rate.window) {
        let changed = Limit::fixed_window(rate.count, window, form.anchor());
        return changed.unwrap_or_else(|_| limit.clone());
    }
    rate.burst = rate
        .burst
        .map(|burst| (burst / 2 + change % burst.max(4)).max(1));
    Limit::new(rate, limit.algorithm()).unwrap_or_else(|_| limit.clone())
}

/// Plays one timeline on both sides.
fn play(mirror: &Mirror, limit: &Limit, events: &[Event]) -> Result<(), TestCaseError> {
    let mut limit = limit.clone();
    let (mut table, name) = mirror.limit(&limit);
    let ours: Table = mirror.call("fresh", name);
    let mut key = ModelState::fresh(limit.form());
    let (mut now, mut ids) = (START, 0_u32);
    let mut charged: Option<(u64, Outcome, PermitId)> = None;
    for event in events {
        let cost = event.step.cost;
        now = now + event.step.pause;
        match event.choice {
            0 => now = now - Micros::new(event.back % 100_000_000),
            1 => now = now - Micros::new(event.back % (1 << 51)),
            2 => now = now + Micros::new(event.back % (1 << 51)),
            3 | 4 => {
                limit = changed(&limit, event.change);
                table = mirror.limit(&limit).0;
            }
            _ => {}
        }
        let at = now.as_micros() as f64;
        let form = limit.form();
        match (event.choice % 10, charged) {
            (5, Some((cost, outcome, id))) => {
                let charged_at = outcome.at + outcome.delay;
                if let ModelState::HeldPermits(permits) = &mut key {
                    let released: bool = mirror.call("release", (&ours, id.to_string(), at));
                    prop_assert_eq!(permits.release(id, Some(now)), released);
                } else {
                    let given_back = key.given_back(form, cost, charged_at, now);
                    key.give_back(form, cost, charged_at, now);
                    let args = (
                        &ours,
                        &table,
                        cost as f64,
                        charged_at.as_micros() as f64,
                        at,
                    );
                    let answer: f64 = mirror.call("given_back", args);
                    prop_assert_eq!(given_back as f64, answer, "{} {:?}", &limit, event);
                    let () = mirror.call("give_back", args);
                }
                charged = None;
            }
            (6, _) if limit.holds_excess() && event.back % 2 == 0 => {
                // Sometimes more than can be counted.
                let cost = if event.back % 8 == 0 { MAX_USED } else { cost };
                key.settle_in_full(form, cost, now);
                let () = mirror.call("settle_in_full", (&ours, &table, cost as f64, at));
            }
            (6, _) if !matches!(form, Form::Concurrency(_)) => {
                key.settle(form, cost, now);
                let () = mirror.call("settle", (&ours, &table, cost as f64, at));
            }
            (6, Some((_, _, id))) => {
                let ModelState::HeldPermits(permits) = &mut key else {
                    continue;
                };
                let without_time = event.back % 4 == 0;
                let (time, number) = if without_time {
                    (None, None)
                } else {
                    (Some(now), Some(at))
                };
                let renewed: bool = mirror.call("renew", (&ours, id.to_string(), number));
                prop_assert_eq!(permits.renew(id, time), renewed);
            }
            _ => {
                ids += 1;
                let id = PermitId::from_u128(u128::from(ids));
                let outcome = key.charge(form, cost, now, id);
                let args = (&ours, &table, cost as f64, at, id.to_string());
                let answer = mirror.outcome("charge", args);
                prop_assert_eq!(numbers(outcome), answer, "{} {:?}", &limit, event);
                if outcome.allowed && cost > 0 {
                    charged = Some((cost, outcome, id));
                }
            }
        }
        for cost in [0, cost] {
            let wanted = numbers(key.ask(form, cost, now));
            let answer = mirror.outcome("ask", (&ours, &table, cost as f64, at));
            prop_assert_eq!(wanted, answer, "{} after {:?}", &limit, event);
        }
    }
    Ok(())
}

#[test]
fn the_script_decides_like_the_library() {
    let mirror = Mirror::new();
    let mut steps = 0;
    let mut round = 0;
    while steps < 100_000 {
        round += 1;
        assert!(round < 100, "timelines have steps");
        let played = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(Config {
            cases: 1_000,
            failure_persistence: None,
            ..Config::default()
        });
        runner
            .run(&any_timeline(), |(limit, events)| {
                played.set(played.get() + events.len());
                play(&mirror, &limit, &events)
            })
            .unwrap();
        steps += played.get();
    }
}

/// Where whole numbers end.
const END: u128 = 1 << 53;

/// Numbers below `2^bits`, of every length.
fn below(bits: u32) -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..bits).prop_map(move |(number, shift)| number >> (64 - bits + shift))
}

#[test]
fn wide_products_are_divided_exactly() {
    let mirror = Mirror::new();
    let mut runner = TestRunner::new(Config {
        cases: 20_000,
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(
            &(below(53), below(45), below(45), below(45)),
            |(a, b, c, divisor)| {
                let divisor = divisor.max(1);
                let product = u128::from(a) * u128::from(b);
                let args = (a as f64, b as f64, divisor as f64);
                let (whole, rest): (f64, f64) = mirror.call("mul_div", args);
                let exact = product / u128::from(divisor);
                if exact < END {
                    prop_assert_eq!(whole as u128, exact);
                    prop_assert_eq!(rest as u128, product % u128::from(divisor));
                } else {
                    prop_assert!(whole as u128 >= END);
                }
                let args = (a as f64, b as f64, c as f64, divisor as f64);
                let ceil: f64 = mirror.call("mul_add_div_ceil", args);
                let exact = (product + u128::from(c)).div_ceil(divisor.into());
                if exact < END {
                    prop_assert_eq!(ceil as u128, exact);
                } else {
                    prop_assert!(ceil as u128 >= END);
                }
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn windows_begin_and_end_where_the_library_says() {
    let mirror = Mirror::new();
    for day in (0..104_000_u64).step_by(3) {
        let at = Timestamp::EPOCH + Micros::DAY.times(day) + Micros::new(day * 7_919);
        let number = at.as_micros() as f64;
        let around = |window: Window| {
            let (start, end) = window.around(at);
            (start.as_micros() as f64, end.as_micros() as f64)
        };
        let month: (f64, f64) = mirror.call("around", ("month", number));
        let year: (f64, f64) = mirror.call("around", ("year", number));
        let week: (f64, f64) = mirror.call("around", (Micros::WEEK.get() as f64, number));
        assert_eq!(month, around(Window::Month), "day {day}");
        assert_eq!(year, around(Window::Year), "day {day}");
        assert_eq!(week, around(Micros::WEEK.into()), "day {day}");
    }
}
