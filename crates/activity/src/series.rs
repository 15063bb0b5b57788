//! Counts by second for the last five minutes and by minute for the last day.

use crate::budget::MemoryBudget;
use crate::counts::OutcomeCounts;
use crate::part::PartSeries;
use crate::series_log::SeriesLog;

/// How many seconds a series has.
pub const SECONDS: u64 = 300;
/// How many minutes a series has.
pub const MINUTES: u64 = 1_440;

/// A clock that is set back by more than this starts a series again.
pub(crate) const SET_BACK: u64 = 60;

/// A part of a series: equal steps, the last of which is the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesSpan {
    /// The beginning of the first step, in Unix seconds.
    pub from: u64,
    /// The length of a step in seconds: 1 or 60.
    pub step: u64,
    /// How many steps there are.
    pub count: u64,
}

impl SeriesSpan {
    /// The last `seconds` before and with `now`: in steps of a second up to five minutes, else of a minute.
    pub fn ending(now: u64, seconds: u64) -> Self {
        let (step, count) = if seconds <= SECONDS {
            (1, seconds.max(1))
        } else {
            (60, seconds.div_ceil(60).min(MINUTES))
        };
        let last = now / step;
        Self {
            from: last.saturating_sub(count - 1) * step,
            step,
            count,
        }
    }
}

/// The counts of one rule, or of all requests.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The counters when they were last read.
    read: OutcomeCounts,
    second: (u64, OutcomeCounts),
    minute: (u64, OutcomeCounts),
    seconds: SeriesLog,
    minutes: SeriesLog,
}

impl Series {
    /// Returns the counts since the last read.
    pub(crate) fn read(&mut self, counters: &OutcomeCounts) -> OutcomeCounts {
        let new = counters.since(&self.read);
        self.read = *counters;
        new
    }

    /// Adds counts of a second.
    pub(crate) fn add(&mut self, at: u64, counts: &OutcomeCounts, budget: &MemoryBudget) {
        if at + SET_BACK < self.second.0 {
            self.clear(budget);
        }
        let at = at.max(self.second.0);
        let second = (&mut self.second, &mut self.seconds, at, SECONDS);
        let minute = (&mut self.minute, &mut self.minutes, at / 60, MINUTES);
        for (current, log, number, most) in [second, minute] {
            if number > current.0 {
                if !current.1.is_zero() {
                    log.push(current.0, &current.1, budget);
                }
                log.expire((number + 1).saturating_sub(most), budget);
                *current = (number, OutcomeCounts::default());
            }
            current.1 = current.1.plus(counts);
        }
    }

    /// The counts of each step.
    pub(crate) fn points(&self, span: &SeriesSpan) -> Vec<OutcomeCounts> {
        let (log, current) = if span.step == 1 {
            (&self.seconds, self.second)
        } else {
            (&self.minutes, self.minute)
        };
        let count = usize::try_from(span.count).unwrap_or(0);
        let mut points = vec![OutcomeCounts::default(); count];
        let first = span.from / span.step;
        for (number, counts) in log.iter().chain([current]) {
            let index = number
                .checked_sub(first)
                .and_then(|index| usize::try_from(index).ok());
            if let Some(point) = index.and_then(|index| points.get_mut(index)) {
                *point = counts;
            }
        }
        points
    }

    /// All seconds and all minutes, with the current ones.
    pub(crate) fn part(&self) -> PartSeries {
        let records = |log: &SeriesLog, current: (u64, OutcomeCounts)| {
            let current = Some(current).filter(|(_, counts)| !counts.is_zero());
            log.iter().chain(current).collect()
        };
        PartSeries {
            seconds: records(&self.seconds, self.second),
            minutes: records(&self.minutes, self.minute),
        }
    }

    /// Begins with counts that were kept, as far as they are not too old and not in the future.
    pub(crate) fn restore(&mut self, kept: &PartSeries, now: u64, budget: &MemoryBudget) {
        let seconds = (&mut self.second, &mut self.seconds, &kept.seconds);
        let minutes = (&mut self.minute, &mut self.minutes, &kept.minutes);
        let spans = [(now, SECONDS), (now / 60, MINUTES)];
        for ((current, log, records), (now, most)) in [seconds, minutes].into_iter().zip(spans) {
            let first = (now + 1).saturating_sub(most);
            for (number, counts) in records {
                if *number > current.0 && (first..=now).contains(number) {
                    if !current.1.is_zero() {
                        log.push(current.0, &current.1, budget);
                    }
                    *current = (*number, *counts);
                }
            }
        }
    }

    /// Whether nothing happened within a day.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.minute.0 + MINUTES < now / 60
            || (self.minute.1.is_zero() && self.minutes.iter().next().is_none())
    }

    /// Forgets everything except the last values of the counters.
    pub(crate) fn clear(&mut self, budget: &MemoryBudget) {
        self.seconds.clear(budget);
        self.minutes.clear(budget);
        *self = Self {
            read: self.read,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(allowed: u64) -> OutcomeCounts {
        OutcomeCounts {
            allowed,
            ..OutcomeCounts::default()
        }
    }

    fn points(series: &Series, now: u64, seconds: u64) -> Vec<u64> {
        let points = series.points(&SeriesSpan::ending(now, seconds));
        points.iter().map(|point| point.allowed).collect()
    }

    #[test]
    fn spans_end_with_the_current_step() {
        let span = |from, step, count| SeriesSpan { from, step, count };
        assert_eq!(SeriesSpan::ending(1_000, 60), span(941, 1, 60));
        assert_eq!(SeriesSpan::ending(1_000, 300), span(701, 1, 300));
        assert_eq!(SeriesSpan::ending(100_000, 301), span(99_660, 60, 6));
        assert_eq!(SeriesSpan::ending(100_000, 86_400), span(13_620, 60, 1_440));
    }

    #[test]
    fn counts_are_in_their_second_and_minute_until_they_expire() {
        let budget = MemoryBudget::new(1 << 20);
        let mut series = Series::default();
        for at in [60_000, 60_000, 60_001, 60_059, 60_060] {
            series.add(at, &allowed(1), &budget);
        }
        let minute = points(&series, 60_060, 61);
        assert_eq!((minute[0], minute[1], minute[59], minute[60]), (2, 1, 1, 1));
        assert_eq!(minute.iter().sum::<u64>(), 5);
        let hour = points(&series, 60_061, 3_600);
        assert_eq!((hour[58], hour[59]), (4, 1));
        series.add(60_300, &OutcomeCounts::default(), &budget);
        assert_eq!(points(&series, 60_300, 300)[0], 1);
        series.add(60_360, &OutcomeCounts::default(), &budget);
        assert_eq!(points(&series, 60_360, 300).iter().sum::<u64>(), 0);
        assert_eq!(points(&series, 60_360, 86_400).iter().sum::<u64>(), 5);
        assert!(!series.is_idle(60_360));
        series.add(60_000 + 86_400, &OutcomeCounts::default(), &budget);
        assert_eq!(points(&series, 146_400, 86_400).iter().sum::<u64>(), 1);
        series.add(146_460, &OutcomeCounts::default(), &budget);
        assert!(series.is_idle(146_460));
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_changes_nothing_and_a_lot_starts_again() {
        let budget = MemoryBudget::new(1 << 20);
        let mut series = Series::default();
        series.add(1_000, &allowed(1), &budget);
        series.add(990, &allowed(1), &budget);
        assert_eq!(points(&series, 1_000, 60)[59], 2);
        series.add(500, &allowed(1), &budget);
        assert_eq!(points(&series, 500, 60)[59], 1);
        assert_eq!(points(&series, 1_000, 60).iter().sum::<u64>(), 0);
    }

    #[test]
    fn counts_that_were_kept_go_on_in_their_second_and_minute() {
        let budget = MemoryBudget::new(1 << 20);
        let mut series = Series::default();
        for at in [60_000, 60_100, 60_101, 60_101] {
            series.add(at, &allowed(1), &budget);
        }
        let kept = series.part();
        let restored = |now| {
            let mut series = Series::default();
            series.restore(&kept, now, &budget);
            series
        };
        let mut same = restored(60_101);
        assert_eq!(same.part(), kept);
        same.add(60_101, &allowed(5), &budget);
        assert_eq!(points(&same, 60_101, 60)[58..], [1, 7]);
        assert_eq!(points(&same, 60_101, 301)[5], 8);
        // Later, the seconds are gone; a day later, all is.
        let mut later = restored(60_500);
        later.add(60_500, &allowed(1), &budget);
        assert_eq!(points(&later, 60_500, 300).iter().sum::<u64>(), 1);
        assert_eq!(points(&later, 60_500, 3_600).iter().sum::<u64>(), 5);
        assert_eq!(restored(60_000 + 90_000).part(), PartSeries::default());
        // By a clock that was set back, what is in the future did not happen.
        let mut earlier = restored(60_050);
        assert_eq!(earlier.part().seconds, [(60_000, allowed(1))]);
        earlier.add(60_050, &allowed(1), &budget);
        assert_eq!(points(&earlier, 60_050, 60).iter().sum::<u64>(), 2);
    }

    #[test]
    fn counters_that_start_again_count_from_zero() {
        let mut series = Series::default();
        assert_eq!(series.read(&allowed(5)).allowed, 5);
        assert_eq!(series.read(&allowed(7)).allowed, 2);
        assert_eq!(series.read(&allowed(3)).allowed, 3);
    }
}
