//! The same seed gives the same run.

use tidegate_simulation::seeds::run_seed;

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 1..=20 {
        let [once, again] = [(); 2].map(|()| run_seed(seed, &[]));
        assert_eq!(once.trace, again.trace, "seed {seed}");
        assert_eq!(once.answers, again.answers, "seed {seed}");
    }
}

#[test]
fn seeds_give_different_runs() {
    let traces: std::collections::BTreeSet<u64> =
        (1..=10).map(|seed| run_seed(seed, &[]).trace).collect();
    assert_eq!(traces.len(), 10);
}
