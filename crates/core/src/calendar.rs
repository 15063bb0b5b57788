//! Months and years of the proleptic Gregorian calendar in UTC, by whole-number arithmetic.
//!
//! Years are counted from 1 March, so that the leap day is the last of its year and the months
//! before it follow one formula. All cycles of 400 years have the same number of days.

use crate::time::{Micros, Timestamp};

const DAYS_IN_400_YEARS: u64 = 146_097;
/// Days from 0000-03-01, where the count starts, to the Unix epoch.
const DAYS_TO_EPOCH: u64 = 719_468;

/// The month that holds `at`: its first instant, and the first of the next month.
pub(crate) fn month_around(at: Timestamp) -> (Timestamp, Timestamp) {
    let (year, month) = year_and_month(at);
    let (next_year, next_month) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    (first_of(year, month), first_of(next_year, next_month))
}

/// The year that holds `at`: its first instant, and the first of the next year.
pub(crate) fn year_around(at: Timestamp) -> (Timestamp, Timestamp) {
    let (year, _) = year_and_month(at);
    (first_of(year, 1), first_of(year + 1, 1))
}

/// Year, month and day of the month.
pub(crate) fn date_of(at: Timestamp) -> (u64, u64, u64) {
    let (year, month) = year_and_month(at);
    let days = at.since(first_of(year, month)).get() / Micros::DAY.get();
    (year, month, days + 1)
}

fn year_and_month(at: Timestamp) -> (u64, u64) {
    let days = at.as_micros() / Micros::DAY.get() + DAYS_TO_EPOCH;
    let cycle = days / DAYS_IN_400_YEARS;
    let day_of_cycle = days % DAYS_IN_400_YEARS;
    // Take the leap days out, so that every year has 365 days.
    let leap_days = day_of_cycle / 1_460 + day_of_cycle / 146_096 - day_of_cycle / 36_524;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // Months from March have 31, 30, 31, 30, 31 days, over and over: 153 days for five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let year_from_march = cycle * 400 + year_of_cycle;
    if month_from_march < 10 {
        (year_from_march, month_from_march + 3)
    } else {
        (year_from_march + 1, month_from_march - 9)
    }
}

fn first_of(year: u64, month: u64) -> Timestamp {
    let (year, month_from_march) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let day_of_year = (153 * month_from_march + 2) / 5;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    Timestamp::EPOCH + Micros::DAY.times(days.saturating_sub(DAYS_TO_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts forward day by day from the epoch, by the rule that everyone knows.
    #[test]
    fn every_day_to_2255_agrees_with_counting() {
        let (mut year, mut month, mut day) = (1970_u64, 1_u64, 1_u64);
        let mut month_start = 0_u64;
        let mut year_start = 0_u64;
        for days in 0..104_000_u64 {
            let at = Timestamp::EPOCH + Micros::DAY.times(days) + Micros::HOUR;
            assert_eq!(year_and_month(at), (year, month), "day {days}");
            let first = |days: u64| Timestamp::EPOCH + Micros::DAY.times(days);
            assert_eq!(
                month_around(at).0,
                first(month_start),
                "month of day {days}"
            );
            assert_eq!(year_around(at).0, first(year_start), "year of day {days}");

            let leap =
                year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
                if month > 12 {
                    (month, year) = (1, year + 1);
                    year_start = days + 1;
                }
                assert_eq!(
                    month_around(at).1,
                    first(days + 1),
                    "end of the month of day {days}"
                );
                month_start = days + 1;
            }
        }
    }
}
