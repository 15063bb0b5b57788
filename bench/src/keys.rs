//! Streams of key numbers, the same for everyone.

/// How often each key comes.
#[derive(Clone, Copy)]
pub enum Spread {
    /// Each of so many keys alike.
    Uniform(u32),
    /// The n-th of so many keys with a weight of 1/n.
    Zipf(u32),
}

impl Spread {
    pub fn keys(self) -> u32 {
        match self {
            Self::Uniform(keys) | Self::Zipf(keys) => keys,
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Uniform(keys) => keys.to_string(),
            Self::Zipf(keys) => format!("{keys} zipf"),
        }
    }

    /// `len` key numbers, drawn with `seed`.
    pub fn stream(self, len: usize, seed: u64) -> Vec<u32> {
        let mut random = Random(seed | 1);
        match self {
            Self::Uniform(keys) => (0..len).map(|_| random.below(keys)).collect(),
            Self::Zipf(keys) => {
                let mut sum = 0.0;
                let weights: Vec<f64> = (1..=keys)
                    .map(|rank| {
                        sum += 1.0 / f64::from(rank);
                        sum
                    })
                    .collect();
                // The ranks are scattered over the keys, so that popular keys are not neighbours.
                (0..len)
                    .map(|_| {
                        // Drawn once: a search that draws anew at each step finds other ranks.
                        let drawn = random.unit() * sum;
                        let rank = weights.partition_point(|weight| *weight < drawn) as u64;
                        (rank * 2_654_435_761 % u64::from(keys)) as u32
                    })
                    .collect()
            }
        }
    }
}

/// xorshift64*: good enough to scatter keys.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u32) -> u32 {
        ((self.next() >> 32) * u64::from(end) >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_as_often_as_its_rank_says() {
        let (keys, draws) = (1_000_u32, 200_000);
        let stream = Spread::Zipf(keys).stream(draws, 7);
        let harmonic: f64 = (1..=keys).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let key = (u64::from(rank - 1) * 2_654_435_761 % u64::from(keys)) as u32;
            let came = stream.iter().filter(|drawn| **drawn == key).count() as f64;
            let expected = draws as f64 / f64::from(rank) / harmonic;
            assert!(
                (came / expected - 1.0).abs() < 0.15,
                "{rank}: {came} of {expected}"
            );
        }
    }
}
