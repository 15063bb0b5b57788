//! Values by network, found for an address with one lookup for each prefix length in use.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use ipnet::IpNet;

/// Values by network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Networks<T> {
    /// Longest prefixes first.
    levels: Vec<PrefixLevel<T>>,
}

/// The networks of one family with prefixes of one length.
#[derive(Debug, Clone, PartialEq)]
struct PrefixLevel<T> {
    is_v6: bool,
    length: u8,
    by_bits: HashMap<u128, T, RandomState>,
}

impl<T> Default for Networks<T> {
    fn default() -> Self {
        Self { levels: Vec::new() }
    }
}

impl<T> Networks<T> {
    /// The value of a network, added if there is none.
    pub(super) fn value(&mut self, network: IpNet) -> &mut T
    where
        T: Default,
    {
        let (is_v6, bits) = bits_of(network.addr());
        let length = network.prefix_len();
        let known = self
            .levels
            .iter()
            .position(|level| level.is_v6 == is_v6 && level.length == length);
        let at = known.unwrap_or_else(|| {
            let at = self.levels.partition_point(|level| level.length > length);
            let by_bits = HashMap::default();
            self.levels.insert(
                at,
                PrefixLevel {
                    is_v6,
                    length,
                    by_bits,
                },
            );
            at
        });
        self.levels[at]
            .by_bits
            .entry(bits & mask(length))
            .or_default()
    }

    /// The values of the networks that contain an address, longest prefix first.
    pub(super) fn covering(&self, ip: IpAddr) -> impl Iterator<Item = &T> {
        let (is_v6, bits) = bits_of(ip);
        let levels = self.levels.iter().filter(move |level| level.is_v6 == is_v6);
        levels.filter_map(move |level| level.by_bits.get(&(bits & mask(level.length))))
    }
}

/// Whether an address is IPv6, and its bits, from the highest.
fn bits_of(ip: IpAddr) -> (bool, u128) {
    match ip {
        IpAddr::V4(ip) => (false, u128::from(ip.to_bits()) << 96),
        IpAddr::V6(ip) => (true, ip.to_bits()),
    }
}

fn mask(length: u8) -> u128 {
    let rest = 128_u32.saturating_sub(u32::from(length));
    u128::MAX.checked_shl(rest).unwrap_or(0)
}

/// Networks as written, with a fast test whether one of them contains an address.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct NetworkList {
    written: Vec<IpNet>,
    /// Only of long lists: a few are compared faster than looked up.
    index: Option<Networks<()>>,
}

impl NetworkList {
    const COMPARED: usize = 8;

    pub(super) fn new(written: Vec<IpNet>) -> Self {
        let index = (written.len() > Self::COMPARED).then(|| {
            let mut index = Networks::default();
            for network in &written {
                index.value(*network);
            }
            index
        });
        Self { written, index }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, IpNet> {
        self.written.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        match &self.index {
            Some(index) => index.covering(ip).next().is_some(),
            None => self.iter().any(|network| network.contains(&ip)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_prefix_comes_first() {
        let mut networks: Networks<u32> = Networks::default();
        let all = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3/32",
            "::/0",
            "2001:db8::/32",
            "2001:db8:0:1::/64",
        ];
        for (number, network) in (0..).zip(all) {
            *networks.value(network.parse().unwrap()) = number;
        }
        #[rustfmt::skip]
        let table = [
            ("10.1.2.3",          vec![3, 2, 1, 0]),
            ("10.1.2.4",          vec![2, 1, 0]),
            ("10.2.0.1",          vec![1, 0]),
            ("192.0.2.1",         vec![0]),
            ("2001:db8:0:1::5",   vec![6, 5, 4]),
            ("2001:db8::5",       vec![5, 4]),
            ("2002::1",           vec![4]),
        ];
        for (ip, expected) in table {
            let found: Vec<u32> = networks.covering(ip.parse().unwrap()).copied().collect();
            assert_eq!(found, expected, "{ip}");
        }
    }

    proptest! {
        /// Few bits, so that networks hold each other often.
        #[test]
        fn a_long_list_holds_what_its_networks_hold(
            nets in prop::collection::vec((any::<bool>(), 0_u8..=3, 0_u8..=32), 9..40),
            (is_v6, byte) in (any::<bool>(), 0_u8..=3),
        ) {
            let ip = |is_v6: bool, byte: u8| if is_v6 {
                IpAddr::from([byte, 0, 0, byte, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
            } else {
                IpAddr::from([byte, 0, 0, byte])
            };
            let nets: Vec<IpNet> = nets
                .into_iter()
                .map(|(is_v6, byte, length)| IpNet::new(ip(is_v6, byte), length).unwrap().trunc())
                .collect();
            let asked = ip(is_v6, byte);
            let holds = nets.iter().any(|network| network.contains(&asked));
            prop_assert_eq!(NetworkList::new(nets).contains(asked), holds);
        }
    }
}
