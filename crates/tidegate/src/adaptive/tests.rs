//! The estimate by hand, and on an upstream of 40 workers whose capacity is known.
//!
//! With work of 100 ms and a target of 125 ms, 50 requests at once are what 40 workers can bear. Without a
//! target, half as much again is tolerated, and a queue of the limit's square root.

use tidegate_core::Micros;

use super::estimator::Estimator;
use super::simulation_tests::{SimulatedWork, Simulation};
use super::{Adaptive, Ended, Sample};

const SECOND: u64 = 1_000_000;
const WORKERS: usize = 40;
const STEADY: SimulatedWork = SimulatedWork::Steady(100_000);
const NOISY: SimulatedWork = SimulatedWork::Noisy(100_000);
const TARGET: Option<Micros> = Some(Micros::from_millis(125));

fn bounds(min: u64, max: u64, target: Option<Micros>) -> Adaptive {
    Adaptive { min, max, target }
}

fn millis(millis: u64) -> Ended {
    Ended::Answered(Micros::from_millis(millis))
}

/// Lets ten requests end in the same way, so that a window is closed.
fn ten(estimator: &mut Estimator, ended: Ended, in_flight: u64) -> u64 {
    for _ in 0..10 {
        estimator.observe(Sample { ended, in_flight });
    }
    estimator.limit()
}

#[test]
fn one_window_by_hand() {
    let target = Some(Micros::from_millis(100));
    #[rustfmt::skip]
    let table = [
        // name                                        target  ended           in flight  limit, from 16
        ("far below the target: by the root",          target, millis(10),     8,         20),
        ("near the target: in proportion",             target, millis(90),     8,         17),
        ("at the target",                              target, millis(100),    8,         16),
        ("above: in proportion",                       target, millis(114),    8,         14),
        ("far above: by a fifth",                      target, millis(1_000),  8,         12),
        ("above, though hardly used",                  target, millis(200),    1,         12),
        ("below, but hardly used",                     target, millis(10),     7,         16),
        ("dropped: by a tenth",                        target, Ended::Dropped, 8,         14),
        ("no time at all",                             target, millis(0),      8,         20),
        ("the longest time",                           target, Ended::Answered(Micros::MAX), 8, 12),
        ("without a target: a fifth of the root",      None,   millis(10),     8,         16),
        ("without a target, dropped",                  None,   Ended::Dropped, 8,         14),
    ];
    for (name, target, ended, in_flight, limit) in table {
        let mut estimator = Estimator::new(bounds(2, 100, target), 16);
        assert_eq!(ten(&mut estimator, ended, in_flight), limit, "{name}");
    }
}

#[test]
fn parts_of_a_place_add_up_without_a_target() {
    let mut estimator = Estimator::new(bounds(2, 100, None), 16);
    // 16, 16.8, 17.6: a fifth of the root each time.
    let limits = [0; 3].map(|_| ten(&mut estimator, millis(10), 10));
    assert_eq!(limits, [16, 17, 18]);
    // Three times as slow: half of the limit, and its root, a fifth of the way.
    assert_eq!(ten(&mut estimator, millis(30), 10), 17);
}

#[test]
fn what_an_earlier_limit_led_to_is_not_held_against_the_next() {
    let mut estimator = Estimator::new(bounds(2, 100, TARGET), 50);
    let limits = [0; 4].map(|_| ten(&mut estimator, millis(1_000), 10));
    assert_eq!(limits, [40, 40, 32, 32]);
}

#[test]
fn few_drops_and_few_stragglers_change_nothing() {
    let mut estimator = Estimator::new(bounds(2, 100, TARGET), 50);
    for number in 0..1_000 {
        let ended = match number % 25 {
            0 => Ended::Dropped,
            1..5 => millis(60_000),
            _ => millis(125),
        };
        estimator.observe(Sample {
            ended,
            in_flight: 25,
        });
    }
    assert_eq!(estimator.limit(), 50);
}

#[test]
fn the_limit_settles_near_what_the_upstream_can_bear() {
    #[rustfmt::skip]
    let table = [
        // name                  target  work    lowest highest  probes may go down to
        ("target, steady",       TARGET, STEADY, 40,    75,      40),
        ("target, noisy",        Some(Micros::from_millis(150)), NOISY, 40, 75, 40),
        ("no target, steady",    None,   STEADY, 40,    75,      10),
        ("no target, noisy",     None,   NOISY,  40,    90,      10),
    ];
    for (name, target, work, lowest, highest, probe) in table {
        for start in [5, 20, 500] {
            let mut simulation = Simulation::new(bounds(5, 500, target), start, WORKERS, work);
            simulation.run_for(90 * SECOND);
            for _ in 0..60 {
                let seen = simulation.run_for(5 * SECOND);
                let limit = simulation.estimator.limit();
                assert!(
                    seen.0 >= probe && seen.1 <= highest,
                    "{name} from {start}: {seen:?}"
                );
                // At the end of a stretch a probe may be on.
                assert!(
                    limit >= lowest || seen.0 < lowest,
                    "{name} from {start}: {limit}"
                );
            }
        }
    }
}

#[test]
fn the_limit_follows_a_capacity_that_halves_and_returns() {
    for (target, work) in [(TARGET, STEADY), (None, STEADY), (None, NOISY)] {
        let mut simulation = Simulation::new(bounds(5, 500, target), 20, WORKERS, work);
        simulation.run_for(60 * SECOND);
        simulation.set_workers(WORKERS / 2);
        simulation.run_for(15 * SECOND);
        let halved = simulation.run_for(10 * SECOND);
        assert!(halved.1 <= 45, "{target:?}: {halved:?}");
        simulation.set_workers(WORKERS);
        simulation.run_for(15 * SECOND);
        let back = simulation.run_for(10 * SECOND);
        assert!((46..=90).contains(&back.1), "{target:?}: {back:?}");
    }
}

#[test]
fn an_upstream_that_has_become_slower_is_a_new_baseline() {
    let mut simulation = Simulation::new(bounds(5, 500, None), 20, WORKERS, STEADY);
    simulation.run_for(60 * SECOND);
    simulation.set_work(SimulatedWork::Steady(300_000));
    let lower = simulation.run_for(30 * SECOND);
    assert!(lower.0 < 40, "slower looks like a queue: {lower:?}");
    simulation.run_for(300 * SECOND);
    let again = simulation.run_for(30 * SECOND);
    assert!(
        again.1 >= 40,
        "until a probe has shown otherwise: {again:?}"
    );
}

#[test]
fn an_upstream_that_drops_is_not_asked_for_more() {
    for target in [Some(Micros::from_seconds(10)), None] {
        let mut simulation = Simulation::new(bounds(5, 500, target), 400, WORKERS, STEADY);
        simulation.set_queue(5);
        simulation.run_for(30 * SECOND);
        let seen = simulation.run_for(30 * SECOND);
        assert!(seen.1 <= 60, "{target:?}: {seen:?}");
    }
}

#[test]
fn quiet_times_do_not_raise_the_limit() {
    for target in [TARGET, None] {
        let mut simulation = Simulation::new(bounds(5, 500, target), 20, WORKERS, NOISY);
        simulation.run_for(60 * SECOND);
        let busy = simulation.run_for(5 * SECOND).1;
        simulation.set_clients(2);
        simulation.run_for(3_600 * SECOND);
        assert!(simulation.estimator.limit() <= busy, "{target:?}");
    }
}

#[test]
fn the_bounds_hold_where_the_upstream_would_bear_more_or_less() {
    // The simulation itself fails where a limit is out of bounds.
    for target in [TARGET, None] {
        let mut simulation = Simulation::new(bounds(10, 30, target), 20, WORKERS, STEADY);
        simulation.run_for(30 * SECOND);
        assert_eq!(simulation.run_for(SECOND).1, 30);
        let mut simulation = Simulation::new(bounds(100, 200, target), 150, WORKERS, STEADY);
        simulation.run_for(60 * SECOND);
        // Without a target it cannot be known that even the lowest limit is too high.
        let lowest = if target.is_some() { 100 } else { 200 };
        assert!(simulation.run_for(SECOND).0 <= lowest, "{target:?}");
        let mut simulation = Simulation::new(bounds(1, 1, target), 1, 1, STEADY);
        assert_eq!(simulation.run_for(30 * SECOND), (1, 1));
    }
}
