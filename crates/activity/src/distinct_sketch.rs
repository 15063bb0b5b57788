//! The distinct keys of several instances together: each publishes a sketch, and the union of sketches counts a key
//! once.
//!
//! Few keys are exact: the first 40 bits of each hash. More keys are registers (`distinct.rs`), 4,096 of them, or fewer
//! if there is no room. Sketches can be merged if their instances hash keys alike, which a probe says.

use crate::distinct::{BITS, estimate, mixed, register_of};
use crate::record::{put, take};

/// The bits of a hash that are not kept.
const CUT: u32 = 24;

/// The most keys that are kept one by one.
const MOST_KEYS: usize = 16_384;

/// The numbers of registers, as bits of a hash that choose one, the most first.
const PRECISIONS: [u32; 3] = [BITS, 10, 8];

/// The forms of the bytes. Registers are marked with their bits.
const AT_LEAST: u8 = 0;
const ALL: u8 = 1;
/// Only the registers that are not empty.
const SPARSE: u8 = 1 << 6;
/// The bits of a register.
const RUN_BITS: u32 = 6;

/// The distinct keys of a rule over a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DistinctSketch {
    /// The same for instances that hash alike.
    probe: u64,
    keys: SketchedKeys,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SketchedKeys {
    /// The beginning of the mixed hash of each key, in rising order.
    All(Box<[u64]>),
    /// The longest run of each register. A power of two.
    Registers(Box<[u8]>),
    /// They cannot be merged: there are at least so many.
    AtLeast(u64),
}

impl Default for SketchedKeys {
    fn default() -> Self {
        Self::All(Box::default())
    }
}

impl DistinctSketch {
    pub(crate) fn of_hashes(probe: u64, hashes: impl Iterator<Item = u64>) -> Self {
        let begin = |hash| mixed(hash) >> CUT << CUT;
        let mut keys: Vec<u64> = hashes.map(begin).collect();
        keys.sort_unstable();
        keys.dedup();
        let keys = SketchedKeys::All(keys.into());
        Self { probe, keys }
    }

    pub(crate) fn of_registers(probe: u64, registers: &[u8]) -> Self {
        let keys = SketchedKeys::Registers(registers.into());
        Self { probe, keys }
    }

    pub(crate) fn at_least(count: u64) -> Self {
        let keys = SketchedKeys::AtLeast(count);
        Self { probe: 0, keys }
    }

    /// How many keys there are.
    pub fn count(&self) -> u64 {
        match &self.keys {
            SketchedKeys::All(keys) => keys.len() as u64,
            SketchedKeys::Registers(registers) => estimate(registers),
            SketchedKeys::AtLeast(count) => *count,
        }
    }

    /// The standard error of the count, as a part of it: 0 if it is exact, `None` if there may be more keys.
    #[expect(clippy::cast_precision_loss, reason = "there are few registers")]
    pub fn error(&self) -> Option<f64> {
        match &self.keys {
            SketchedKeys::All(_) => Some(0.0),
            SketchedKeys::Registers(registers) => Some(1.04 / (registers.len() as f64).sqrt()),
            SketchedKeys::AtLeast(_) => None,
        }
    }

    fn is_empty(&self) -> bool {
        match &self.keys {
            SketchedKeys::All(keys) => keys.is_empty(),
            SketchedKeys::Registers(registers) => registers.iter().all(|run| *run == 0),
            SketchedKeys::AtLeast(count) => *count == 0,
        }
    }

    fn is_mergeable(&self) -> bool {
        !matches!(self.keys, SketchedKeys::AtLeast(_))
    }

    /// The keys of all sketches, each counted once. If some cannot be merged, the largest number is a lower bound.
    pub(crate) fn union<'s>(sketches: impl Iterator<Item = &'s Self>) -> Self {
        let (mut union, mut least) = (None::<Self>, None::<u64>);
        for sketch in sketches {
            match &mut union {
                // A rule without denials fits to any other, unless keys may be missing.
                _ if sketch.is_empty() && sketch.is_mergeable() => {}
                None if sketch.is_mergeable() => union = Some(sketch.clone()),
                Some(union) if sketch.is_mergeable() && sketch.probe == union.probe => {
                    union.merge(sketch);
                }
                _ => least = Some(sketch.count().max(least.unwrap_or(0))),
            }
        }
        let union = union.unwrap_or_default();
        match least {
            None => union,
            Some(least) => Self::at_least(least.max(union.count())),
        }
    }

    fn merge(&mut self, other: &Self) {
        if let (SketchedKeys::All(own), SketchedKeys::All(other)) = (&self.keys, &other.keys)
            && own.len() + other.len() <= MOST_KEYS
        {
            let mut keys = [&**own, &**other].concat();
            keys.sort_unstable();
            keys.dedup();
            self.keys = SketchedKeys::All(keys.into());
            return;
        }
        let (mut own, mut other) = (self.registers(), other.registers());
        let most = own.len().min(other.len());
        for registers in [&mut own, &mut other] {
            while registers.len() > most {
                *registers = halved(registers);
            }
        }
        for (own, other) in own.iter_mut().zip(other) {
            *own = other.max(*own);
        }
        self.keys = SketchedKeys::Registers(own.into());
    }

    fn registers(&self) -> Vec<u8> {
        match &self.keys {
            SketchedKeys::All(keys) => {
                let mut registers = vec![0; 1 << BITS];
                for key in keys {
                    let (register, run) = register_of(*key);
                    registers[register] = run.max(registers[register]);
                }
                registers
            }
            SketchedKeys::Registers(registers) => registers.to_vec(),
            SketchedKeys::AtLeast(_) => Vec::new(),
        }
    }

    /// The same in fewer bytes, with a larger error, if there is such a form.
    fn reduced(&self) -> Option<Self> {
        let registers = match &self.keys {
            SketchedKeys::All(_) => self.registers(),
            SketchedKeys::Registers(registers) if registers.len() > 1 << PRECISIONS[2] => {
                halved(&halved(registers))
            }
            _ => return None,
        };
        Some(Self::of_registers(self.probe, &registers))
    }

    /// The bytes of sketches in at most `room` bytes together, if that is possible: the longest lose precision first.
    pub(crate) fn all_to_bytes<'s>(
        sketches: impl Iterator<Item = &'s Self>,
        room: usize,
    ) -> Vec<Vec<u8>> {
        let written = |sketch: &Self| {
            let mut bytes = Vec::new();
            sketch.put(&mut bytes);
            bytes
        };
        let mut all: Vec<(&Self, Self, Vec<u8>)> = sketches
            .map(|sketch| (sketch, sketch.clone(), written(sketch)))
            .collect();
        let mut sum: usize = all.iter().map(|(_, _, bytes)| bytes.len()).sum();
        while sum > room {
            let reducible = all.iter_mut().filter(|(_, now, _)| now.is_mergeable());
            let Some((whole, now, bytes)) = reducible.max_by_key(|(_, _, bytes)| bytes.len())
            else {
                break;
            };
            *now = now
                .reduced()
                .unwrap_or_else(|| Self::at_least(whole.count()));
            sum -= bytes.len();
            *bytes = written(now);
            sum += bytes.len();
        }
        all.into_iter().map(|(_, _, bytes)| bytes).collect()
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        match &self.keys {
            SketchedKeys::AtLeast(count) => {
                bytes.push(AT_LEAST);
                put(bytes, *count);
            }
            SketchedKeys::All(keys) if keys.len() <= MOST_KEYS => {
                bytes.push(ALL);
                put(bytes, keys.len() as u64);
                let mut last = 0;
                for key in keys {
                    put(bytes, (key >> CUT) - last);
                    last = key >> CUT;
                }
            }
            SketchedKeys::All(_) => put_registers(bytes, &self.registers()),
            SketchedKeys::Registers(registers) => put_registers(bytes, registers),
        }
    }

    /// Reads a sketch of an instance with this probe.
    pub(crate) fn take(bytes: &mut impl Iterator<Item = u8>, probe: u64) -> Option<Self> {
        let form = bytes.next()?;
        if form == AT_LEAST {
            return Some(Self::at_least(take(bytes)?));
        }
        let keys = if form == ALL {
            SketchedKeys::All(take_keys(bytes)?)
        } else {
            SketchedKeys::Registers(take_registers(bytes, form)?)
        };
        Some(Self { probe, keys })
    }
}

/// Half as many registers. The last bit of an index becomes the first of the rest of the hash.
fn halved(registers: &[u8]) -> Vec<u8> {
    let pair = |pair: &[u8]| match pair {
        // A run begins with the bit that is zero in the even one; in the odd one it is the end.
        [even, odd] => (even + u8::from(*even > 0)).max(u8::from(*odd > 0)),
        _ => 0,
    };
    registers.chunks(2).map(pair).collect()
}

fn put_registers(bytes: &mut Vec<u8>, registers: &[u8]) {
    #[expect(clippy::cast_possible_truncation, reason = "it is at most 12")]
    let precision = registers.len().trailing_zeros() as u8;
    let used = registers.iter().enumerate().filter(|(_, run)| **run > 0);
    let mut sparse = vec![SPARSE | precision];
    put(&mut sparse, used.clone().count() as u64);
    let mut next = 0;
    for (index, run) in used {
        put(&mut sparse, (index - next) as u64);
        sparse.push(*run);
        next = index + 1;
    }
    if sparse.len() <= registers.len() * RUN_BITS as usize / 8 {
        bytes.extend(sparse);
        return;
    }
    bytes.push(precision);
    for four in registers.chunks(4) {
        let packed = four.iter().fold(0, |packed: u32, run| {
            packed << RUN_BITS | u32::from(*run) & 0x3f
        });
        bytes.extend(&packed.to_be_bytes()[1..]);
    }
}

fn take_keys(bytes: &mut impl Iterator<Item = u8>) -> Option<Box<[u64]>> {
    let count = take(bytes).filter(|count| *count <= MOST_KEYS as u64)?;
    let mut keys = Vec::new();
    for index in 0..count {
        let distance = take(bytes)?;
        let last = keys.last().map_or(0, |last: &u64| last >> CUT);
        let key = last.checked_add(distance)?;
        if (index > 0 && distance == 0) || key >> (64 - CUT) != 0 {
            return None;
        }
        keys.push(key << CUT);
    }
    Some(keys.into())
}

fn take_registers(bytes: &mut impl Iterator<Item = u8>, form: u8) -> Option<Box<[u8]>> {
    let precision = u32::from(form & !SPARSE);
    if !PRECISIONS.contains(&precision) {
        return None;
    }
    let mut registers = vec![0; 1 << precision];
    if form & SPARSE == 0 {
        for four in registers.chunks_mut(4) {
            let mut rest = u32::from_be_bytes([0, bytes.next()?, bytes.next()?, bytes.next()?]);
            for run in four.iter_mut().rev() {
                #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
                let lowest = rest as u8 & 0x3f;
                *run = lowest;
                rest >>= RUN_BITS;
            }
        }
    } else {
        let mut next = 0_usize;
        for _ in 0..take(bytes).filter(|count| *count <= 1 << precision)? {
            let index = next.checked_add(usize::try_from(take(bytes)?).ok()?)?;
            *registers.get_mut(index)? = bytes.next()?;
            next = index + 1;
        }
    }
    // A hash has 64 bits.
    let longest = 65 - precision;
    let is_run = |run: &u8| u32::from(*run) <= longest;
    registers.iter().all(is_run).then(|| registers.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distinct::DistinctKeys;

    const PROBE: u64 = 7;

    /// A sketch as an instance has it: exact for few keys, else registers.
    fn sketch(keys: std::ops::Range<u64>) -> DistinctSketch {
        if keys.end - keys.start <= 1_000 {
            return DistinctSketch::of_hashes(PROBE, keys);
        }
        let mut distinct = DistinctKeys::default();
        keys.for_each(|key| distinct.add(key));
        DistinctSketch::of_registers(PROBE, distinct.registers())
    }

    fn union(sketches: &[DistinctSketch]) -> DistinctSketch {
        DistinctSketch::union(sketches.iter())
    }

    fn assert_within(sketch: &DistinctSketch, count: u64, error: f64) {
        let found = sketch.count();
        #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
        let (wrong, all) = (found.abs_diff(count) as f64, count as f64);
        let stated = sketch.error().unwrap();
        assert!((stated - error).abs() < 0.001, "{stated}");
        assert!(wrong <= 3.0 * stated * all, "{found} of {count}");
    }

    #[test]
    fn few_keys_of_several_instances_are_exact() {
        let all = union(&[sketch(0..60), sketch(60..120), sketch(30..90)]);
        assert_eq!((all.count(), all.error()), (120, Some(0.0)));
        assert_eq!(union(&[]).count(), 0);
        // An instance without denials changes nothing, whatever its seed.
        let none = DistinctSketch::default();
        assert_eq!(union(&[none.clone(), sketch(0..60), none]), sketch(0..60));
    }

    #[test]
    fn many_keys_are_within_three_standard_errors() {
        let all = union(&[sketch(0..50_000), sketch(50_000..100_000)]);
        assert_within(&all, 100_000, 0.016);
        assert_eq!(all, sketch(0..100_000));
        assert_eq!(
            union(&[sketch(0..50_000), sketch(0..50_000)]),
            sketch(0..50_000)
        );
        // Exact on one instance, registers on the other.
        let mixed = union(&[sketch(0..500), sketch(400..50_400)]);
        assert_eq!(mixed, union(&[sketch(400..50_400), sketch(0..500)]));
        assert_eq!(mixed, sketch(0..50_400));
    }

    #[test]
    fn fewer_registers_count_what_they_would_have_counted() {
        let (mut one, mut other) = (sketch(0..50_000), sketch(25_000..75_000));
        for error in [0.0325, 0.065] {
            one = one.reduced().unwrap();
            assert_within(&one, 50_000, error);
            // With more registers, those of the other are reduced too.
            assert_within(&union(&[one.clone(), other.clone()]), 75_000, error);
            other = other.reduced().unwrap();
            assert_eq!(
                union(&[one.clone(), sketch(25_000..75_000)]),
                union(&[one.clone(), other.clone()])
            );
        }
        assert_eq!(one.reduced(), None);
        let few = |times| (0..times).fold(sketch(0..100), |few, _| few.reduced().unwrap());
        assert_within(&few(1), 100, 0.016);
        assert_within(&few(3), 100, 0.065);
    }

    #[test]
    fn what_cannot_be_merged_is_a_lower_bound() {
        let stranger = DistinctSketch {
            probe: 8,
            ..sketch(0..200)
        };
        let all = union(&[sketch(0..60), stranger, sketch(60..120)]);
        assert_eq!((all.count(), all.error()), (200, None));
        let all = union(&[sketch(0..60), DistinctSketch::at_least(90), sketch(60..120)]);
        assert_eq!((all.count(), all.error()), (120, None));
        let all = union(&[DistinctSketch::at_least(0), sketch(0..60)]);
        assert_eq!((all.count(), all.error()), (60, None));
    }

    fn written(sketches: &[DistinctSketch], room: usize) -> Vec<Vec<u8>> {
        DistinctSketch::all_to_bytes(sketches.iter(), room)
    }

    fn read(bytes: &[u8]) -> Option<DistinctSketch> {
        let mut bytes = bytes.iter().copied();
        DistinctSketch::take(&mut bytes, PROBE).filter(|_| bytes.next().is_none())
    }

    #[test]
    fn each_form_is_read_as_it_was_written() {
        let mut forms = vec![
            (DistinctSketch::of_hashes(PROBE, 0..0), 2),
            (sketch(0..60), 60 * 6),
            (sketch(0..1_000), 1_000 * 6),
            (DistinctSketch::at_least(1 << 40), 8),
        ];
        for precision in 0..3 {
            let reduced = |sketch: DistinctSketch| {
                (0..precision).fold(sketch, |sketch, _| sketch.reduced().unwrap())
            };
            // Few registers are used, and all.
            forms.push((reduced(sketch(0..100).reduced().unwrap()), 100 * 2 + 20));
            forms.push((reduced(sketch(0..50_000)), [3_073, 769, 193][precision]));
        }
        for (sketch, most) in forms {
            let bytes = written(std::slice::from_ref(&sketch), usize::MAX).concat();
            assert!(bytes.len() <= most, "{} of {most}", bytes.len());
            assert_eq!(read(&bytes).as_ref(), Some(&sketch));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), None, "{end}");
            }
        }
    }

    #[test]
    fn the_longest_lose_precision_first() {
        let sketches = [
            sketch(0..60),
            sketch(0..50_000),
            sketch(7..50_000),
            sketch(0..900),
        ];
        for (room, errors) in [
            (12_000, [0.0, 0.016, 0.016, 0.0]),
            (8_500, [0.0, 0.016, 0.016, 0.016]),
            (4_000, [0.0, 0.0325, 0.0325, 0.016]),
            (1_500, [0.0, 0.0325, 0.065, 0.065]),
            (750, [0.016, 0.065, 0.065, 0.065]),
        ] {
            let bytes = written(&sketches, room);
            assert!(bytes.concat().len() <= room, "{room}");
            for (bytes, error) in bytes.iter().zip(errors) {
                let found = read(bytes).unwrap().error().unwrap();
                assert!((found - error).abs() < 0.001, "{found} of {room}");
            }
        }
        let none = written(&sketches, 0);
        assert!(none.concat().len() <= 16);
        assert_eq!(read(&none[0]), Some(DistinctSketch::at_least(60)));
    }

    #[test]
    fn bytes_that_are_not_a_sketch_are_refused() {
        let bytes = |parts: &[&[u8]]| parts.concat();
        for bytes in [
            bytes(&[&[2]]),
            bytes(&[&[11], &[0; 1_536]]),
            bytes(&[&[SPARSE + 13, 0]]),
            // More keys than there may be, the same key twice, and one that is too long.
            bytes(&[&[ALL, 0xff, 0xff, 0x7f]]),
            bytes(&[&[ALL, 2, 5, 0]]),
            bytes(&[&[ALL, 1], &[0xff; 5], &[0x7f]]),
            // A register that does not exist, and runs that no hash has.
            bytes(&[&[SPARSE + 8, 1, 0x80, 0x02, 1]]),
            bytes(&[&[SPARSE + 8, 1, 0, 58]]),
            bytes(&[&[12], &[0xff; 3_072]]),
        ] {
            assert_eq!(read(&bytes), None, "{:?}", &bytes[..bytes.len().min(8)]);
        }
        assert!(read(&[SPARSE + 8, 1, 0, 57]).is_some());
    }
}
