//! Counts over time, in at most 600 steps. They begin with seconds and become longer as the log does.

const SECOND: u64 = 1_000_000;
const MOST_STEPS: usize = 600;
/// The lengths of steps in seconds; each is a multiple of the one before. The last are for times that are mistakes.
const STEPS: [u64; 12] = [
    1,
    10,
    60,
    300,
    900,
    3_600,
    21_600,
    86_400,
    864_000,
    8_640_000,
    86_400_000,
    8_640_000_000,
];

/// What was allowed and denied over time, for several rows: the total and each rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    step: usize,
    /// The number of the first step since the epoch.
    first: u64,
    steps: usize,
    rows: Vec<Vec<[u64; 2]>>,
}

impl Timeline {
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows: vec![Vec::new(); rows],
            ..Self::default()
        }
    }

    /// The index of the step of a time, which is made if it is not there.
    pub(crate) fn at(&mut self, time: u64) -> usize {
        loop {
            let number = time / (STEPS[self.step] * SECOND);
            if self.steps == 0 {
                (self.first, self.steps) = (number, 1);
            }
            let first = self.first.min(number);
            let last = number.max(self.first + self.steps as u64 - 1);
            let needed = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
            if needed > MOST_STEPS && self.step + 1 < STEPS.len() {
                self.coarsen();
                continue;
            }
            if first < self.first {
                let before = usize::try_from(self.first - first).unwrap_or(0);
                for row in self.rows.iter_mut().filter(|row| !row.is_empty()) {
                    row.splice(0..0, std::iter::repeat_n([0; 2], before));
                }
            }
            (self.first, self.steps) = (first, needed);
            return usize::try_from(number - first).unwrap_or(0);
        }
    }

    fn coarsen(&mut self) {
        let ratio = STEPS[self.step + 1] / STEPS[self.step];
        let first = self.first / ratio;
        for row in &mut self.rows {
            let mut coarse: Vec<[u64; 2]> = Vec::new();
            for (number, [allowed, denied]) in (self.first..).zip(row.iter()) {
                let index = usize::try_from(number / ratio - first).unwrap_or(0);
                if coarse.len() <= index {
                    coarse.resize(index + 1, [0; 2]);
                }
                coarse[index][0] += allowed;
                coarse[index][1] += denied;
            }
            *row = coarse;
        }
        let last = (self.first + self.steps as u64 - 1) / ratio;
        self.steps = usize::try_from(last - first + 1).unwrap_or(1);
        self.first = first;
        self.step += 1;
    }

    pub(crate) fn count(&mut self, row: usize, at: usize, is_denied: bool) {
        let row = &mut self.rows[row];
        if row.len() <= at {
            row.resize(at + 1, [0; 2]);
        }
        row[at][usize::from(is_denied)] += 1;
    }

    /// When it begins, in seconds.
    pub(crate) fn from(&self) -> u64 {
        self.first * STEPS[self.step]
    }

    /// The length of its steps, in seconds.
    pub(crate) fn step(&self) -> u64 {
        STEPS[self.step]
    }

    /// What a row allowed and what it denied in each step.
    pub(crate) fn row(&self, row: usize) -> [Vec<u64>; 2] {
        [0, 1].map(|kind| {
            let counts = self.rows[row].iter().map(|counts| counts[kind]);
            let mut counts: Vec<u64> = counts.collect();
            counts.resize(self.steps, 0);
            counts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(seconds: &[u64]) -> Timeline {
        let mut timeline = Timeline::new(1);
        for second in seconds {
            let at = timeline.at(second * SECOND + 5);
            timeline.count(0, at, false);
        }
        timeline
    }

    #[test]
    fn steps_grow_with_the_log_and_lose_nothing() {
        #[rustfmt::skip]
        let table: [(&[u64], u64, u64, usize); 7] = [
            (&[1_000],                      1_000,  1,      1),
            (&[1_000, 1_599],               1_000,  1,      600),
            (&[1_005, 1_605],               1_000,  10,     61),
            (&[1_605, 1_005],               1_000,  10,     61),
            (&[10_000, 16_000, 9_990],      9_960,  60,     101),
            (&[0, 86_400 * 500],            0,      86_400, 501),
            (&[7, 7, 7],                    7,      1,      1),
        ];
        for (seconds, from, step, steps) in table {
            let timeline = timeline(seconds);
            let [allowed, denied] = timeline.row(0);
            assert_eq!(
                (timeline.from(), timeline.step(), allowed.len()),
                (from, step, steps),
                "{seconds:?}"
            );
            assert_eq!(allowed.iter().sum::<u64>(), seconds.len() as u64);
            assert_eq!(denied.iter().sum::<u64>(), 0);
            assert!(timeline.from().is_multiple_of(step));
        }
        assert!(timeline(&[0, 9_007_199_254]).row(0)[0].len() <= MOST_STEPS);
    }
}
