//! Addresses by hand, attempts to pass for another, and that none of them leads anywhere.

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn trusted() -> TrustedProxies {
    ["10.0.0.0/8", "fd00::/8", "192.0.2.1"]
        .into_iter()
        .map(parse_network)
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn addresses_are_parsed_whole_and_mapped_ones_as_ipv4() {
    let table = [
        ("203.0.113.7", Some("203.0.113.7")),
        ("::ffff:203.0.113.7", Some("203.0.113.7")),
        ("::FFFF:cb00:7107", Some("203.0.113.7")),
        ("2001:DB8:0:0::1", Some("2001:db8::1")),
        ("::203.0.113.7", Some("::cb00:7107")),
        ("", None),
        (" 203.0.113.7", None),
        ("203.0.113.7:80", None),
        ("203.0.113.007", None),
        ("203.0.113", None),
        ("3405803783", None),
        ("[2001:db8::1]", None),
        ("fe80::1%eth0", None),
        ("10.0.0.0/8", None),
    ];
    for (text, wanted) in table {
        assert_eq!(parse(text), wanted.map(ip), "{text}");
    }
}

#[test]
fn keys_by_hand() {
    let longest = "2001:db8:1234:5678:9abc:def0:1234:5679";
    let table = [
        ("203.0.113.7", 64, "203.0.113.7"),
        ("203.0.113.7", 8, "203.0.113.7"),
        ("::ffff:203.0.113.7", 64, "203.0.113.7"),
        ("2001:db8::1", 64, "2001:db8::/64"),
        ("2001:db8:1:2:ffff::1", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2ff::1", 56, "2001:db8:1:200::/56"),
        ("2001:db8::1", 0, "::/0"),
        ("ffff::1", 1, "8000::/1"),
        ("2001:db8::1", 128, "2001:db8::1"),
        ("2001:db8::1", 255, "2001:db8::1"),
        (longest, 127, "2001:db8:1234:5678:9abc:def0:1234:5678/127"),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            127,
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
        ),
    ];
    for (address, prefix, wanted) in table {
        let key = key_of(ip(address), prefix);
        assert_eq!(&*key, wanted);
        assert_eq!(key.to_string(), wanted);
        assert!(key == key_of(ip(address), prefix));
    }
    assert_eq!(format!("{:?}", key_of(ip("::1"), 128)), r#"IpKey("::1")"#);
}

#[test]
fn networks_are_trusted_in_their_own_family() {
    let table = [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "::ffff:10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.1.2.3/8", "10.9.9.9", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("::ffff:10.0.0.0/104", "10.255.0.1", true),
        ("::ffff:10.0.0.0/104", "11.0.0.1", false),
        ("::ffff:192.0.2.1", "192.0.2.1", true),
        ("::ffff:0:0/96", "203.0.113.7", true),
        ("::ffff:0:0/95", "203.0.113.7", false),
        ("::/0", "203.0.113.7", false),
        ("::/0", "::ffff:203.0.113.7", false),
        ("::/0", "2001:db8::1", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
    ];
    for (network, peer, wanted) in table {
        let parsed: TrustedProxies = [parse_network(network).unwrap()].into_iter().collect();
        assert_eq!(parsed.is_trusted(ip(peer)), wanted, "{peer} in {network}");
        if let Ok(raw) = network.parse::<IpNet>() {
            assert_eq!(TrustedProxies::from_iter([raw]), parsed);
        }
    }
    assert!(!TrustedProxies::default().is_trusted(ip("127.0.0.1")));
}

#[test]
fn what_is_not_a_network_is_refused_with_advice() {
    for text in [
        "",
        "proxy",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10/8",
        "10.0.0.1:80",
        "fe80::1%eth0",
    ] {
        assert_eq!(
            parse_network(text).unwrap_err().to_string(),
            format!(
                "`{text}` is neither an address nor a network; write for example `203.0.113.7`, `10.0.0.0/8` or `2001:db8::/32`"
            )
        );
    }
}

#[test]
fn lists_by_hand() {
    const PEER: &str = "10.0.0.1";
    let table: &[(&[&str], &str)] = &[
        (&[], PEER),
        (&["203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6,203.0.113.7\t, 10.0.0.2 ,fd00::1"], "203.0.113.7"),
        (&["6.6.6.6", "203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (&["10.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, ::ffff:192.0.2.1"], "6.6.6.6"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // ports
        (&["6.6.6.6, 203.0.113.7:80"], "203.0.113.7"),
        (&["[2001:db8::1]:80"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (
            &["2001:db8::1, [fd00::2]:65535, [::ffff:10.0.0.2]:1"],
            "2001:db8::1",
        ),
        // what is not an address
        (&["203.0.113.7, unknown"], PEER),
        (&["203.0.113.7, _hidden, 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.7, , 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.7", "", "10.0.0.3", "10.0.0.2"], "10.0.0.3"),
        (&["203.0.113.7,"], PEER),
        (&[""], PEER),
        (&["203.0.113.7, fe80::1%eth0"], PEER),
        (&["203.0.113.7, 1.2.3.4:"], PEER),
        (&["203.0.113.7, 1.2.3.4:+80"], PEER),
        (&["203.0.113.7, 1.2.3.4:65536"], PEER),
        (&["203.0.113.7, 1.2.3.4:80:80"], PEER),
        (&["203.0.113.7, [1.2.3.4]:80"], PEER),
        (&["203.0.113.7, [2001:db8::1"], PEER),
        (&["203.0.113.7, [2001:db8::1]80"], PEER),
        (&["203.0.113.7, \"1.2.3.4\""], PEER),
    ];
    for (fields, client) in table {
        let by_x = trusted().client_address(ip(PEER), fields.iter().copied(), [""; 0]);
        assert_eq!(by_x, Ok(ip(client)), "{fields:?}");
        let untrusted = trusted().client_address(ip("6.6.6.6"), fields.iter().copied(), [""; 0]);
        assert_eq!(untrusted, Ok(ip("6.6.6.6")), "{fields:?} from any peer");
    }
    let bytes: [&[u8]; 1] = [b"\xff\xfe, 203.0.113.7"];
    assert_eq!(
        trusted().client_address(ip(PEER), bytes, [""; 0]),
        Ok(ip("203.0.113.7"))
    );
}

#[test]
fn forwarded_by_hand() {
    const PEER: &str = "10.0.0.1";
    let table: &[(&[&str], &str)] = &[
        (&["for=203.0.113.7"], "203.0.113.7"),
        (&["For=6.6.6.6, FOR=\"203.0.113.7:4711\""], "203.0.113.7"),
        (&["for=\"[2001:db8::1]:4711\";proto=https"], "2001:db8::1"),
        (
            &["proto=https;by=10.0.0.9; for=203.0.113.7 ;"],
            "203.0.113.7",
        ),
        (&["for=203.0.113.7:80"], "203.0.113.7"),
        (&["for=\"203.0.113.7:_x.y-1\""], "203.0.113.7"),
        (
            &["for=6.6.6.6", "for=203.0.113.7;host=a, for=10.0.0.2"],
            "203.0.113.7",
        ),
        (&["for=10.0.0.3, for=\"[fd00::2]\""], "10.0.0.3"),
        // separators and quotes in quotes
        (&["for=203.0.113.7;host=\"a, for=6.6.6.6\""], "203.0.113.7"),
        (
            &["for=203.0.113.7;host=\"a;for=6.6.6.6;\\\", for=7.7.7.7\""],
            "203.0.113.7",
        ),
        (&["host=\"a\\\\\";for=203.0.113.7"], "203.0.113.7"),
        (&["host=\"=\";for=203.0.113.7"], "203.0.113.7"),
        // quotes that a client left open
        (&["for=\"6.6.6.6, for=203.0.113.7"], "203.0.113.7"),
        (&["for=\"6.6.6.6, for=\"203.0.113.7\""], "203.0.113.7"),
        (
            &["for=\"6.6.6.6\\, for=\"203.0.113.7\";host=\"a\""],
            "203.0.113.7",
        ),
        (&["for=\"6.6.6.6", "for=203.0.113.7"], "203.0.113.7"),
        // what is not an address
        (&["for=203.0.113.7, for=unknown"], PEER),
        (&["for=203.0.113.7, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.7, proto=https"], PEER),
        (&["for=203.0.113.7, for"], PEER),
        (&["for=203.0.113.7, for="], PEER),
        (&["for=203.0.113.7, for=\""], PEER),
        (&["for=203.0.113.7, for=6.6.6.6;for=7.7.7.7"], PEER),
        (&["for=203.0.113.7, for=\"6.6.6.\\6\""], PEER),
        (&["for=203.0.113.7, for=\"6.6.6.6"], PEER),
        // Malformed, although the address itself could be read.
        (&["by=\"a;for=6.6.6.6"], PEER),
        (&["for=6.6.6.6;by=a\""], PEER),
        (&["for=6.6.6.6;by=\\\"a"], PEER),
        (&["for=6.6.6.6;b\"", "by=\"a\"b\""], PEER),
        (&["for=6.6.6.6;by=\"", "for=10.0.0.3"], "10.0.0.3"),
        (&["for=203.0.113.7,"], PEER),
        (&["203.0.113.7"], PEER),
        (&[""], PEER),
    ];
    for (fields, client) in table {
        let by_forwarded = trusted().client_address(ip(PEER), [""; 0], fields.iter().copied());
        assert_eq!(by_forwarded, Ok(ip(client)), "{fields:?}");
    }
}

#[test]
fn elements_are_passed_on_up_to_a_malformed_one() {
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &[]),
        (&["a , b", "c"], &["c", "b", "a"]),
        (&["a", ""], &["", "a"]),
        (&["a=\"b, c\\\", d\", e"], &["e", "a=\"b, c\\\", d\""]),
        (&["a", "b=\"c", "d"], &["d"]),
        (&["a", "b=\"c, d"], &["d"]),
        (&["a=\"b", "c\""], &[]),
        (&["a", "b\\"], &[]),
        (&["a", "\"b\\"], &[]),
        (&["a", "b\\\", c"], &["c"]),
    ];
    for (fields, expected) in cases {
        let found: Vec<&[u8]> =
            forwarded_elements(fields.iter().map(|field| field.as_bytes())).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn a_malformed_element_has_no_parameters() {
    for (field, expected) in [
        ("host=a", Some("a")),
        ("host=b, host=a", Some("a")),
        ("for=\"x;host=a", None),
        ("host=a;for=x\"", None),
        ("host=a\\", None),
        ("for=\"x, host=a", Some("a")),
    ] {
        let found = forwarded_parameter(field.as_bytes(), "host");
        assert_eq!(found, expected.map(str::as_bytes), "{field}");
    }
}

#[test]
fn two_headers_that_name_different_clients_are_an_error() {
    #[rustfmt::skip]
    let table = [
        ("203.0.113.7", "for=203.0.113.7",                                  Some("203.0.113.7")),
        ("203.0.113.7", "for=\"[::ffff:203.0.113.7]:80\", for=10.0.0.2",    Some("203.0.113.7")),
        ("203.0.113.7", "for=6.6.6.6",                                      None),
        ("6.6.6.6",     "for=203.0.113.7",                                  None),
        ("203.0.113.7", "for=unknown",                                      None),
        ("203.0.113.7", "proto=https",                                      None),
        ("203.0.113.7", "",                                                 Some("203.0.113.7")),
        (" ",           "for=203.0.113.7",                                  Some("203.0.113.7")),
        ("",            "",                                                 Some("10.0.0.1")),
    ];
    for (x_forwarded_for, forwarded, client) in table {
        let answer = trusted().client_address(ip("10.0.0.1"), [x_forwarded_for], [forwarded]);
        let expected = client.map(ip).ok_or(AddressError::TwoClients);
        assert_eq!(answer, expected, "{x_forwarded_for} and {forwarded}");
    }
}

/// Headers that a client might send to pass for another.
fn any_attempt() -> impl Strategy<Value = String> {
    let pieces = vec![
        "6.6.6.6",
        "10.6.6.6",
        "[fd00::6]:6",
        "for=",
        "FOR=",
        "for=6.6.6.6",
        "\"",
        "\\",
        "\\\"",
        ",",
        ", ",
        ";",
        "=",
        "host=",
        "unknown",
        "_x",
        " ",
        "[",
        "]",
        ":80",
        "é",
        "x",
    ];
    let attempt = prop::collection::vec(prop::sample::select(pieces), 0..10);
    prop_oneof![attempt.prop_map(|pieces| pieces.concat()), any::<String>()]
}

/// Addresses that are no proxy's.
fn any_client() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits | 0xe000_0000).into());
    let v6 = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits((bits >> 8) | (0x20 << 120)).into());
    prop_oneof![v4, v6]
}

/// The addresses that trusted proxies append: the client, and then each other.
fn any_chain() -> impl Strategy<Value = (IpAddr, Vec<(IpAddr, u8)>)> {
    let hop = prop::sample::select(vec![ip("10.0.0.2"), ip("192.0.2.1"), ip("fd00::2")]);
    (
        any_client(),
        any::<u8>(),
        prop::collection::vec((hop, any::<u8>()), 0..3),
    )
        .prop_map(|(client, form, hops)| (client, iter::once((client, form)).chain(hops).collect()))
}

fn x_entry(&(ip, form): &(IpAddr, u8)) -> String {
    match (form % 3, ip) {
        (0, IpAddr::V4(ip)) => format!("{ip}:80"),
        (1, IpAddr::V4(ip)) => format!("::ffff:{ip}"),
        (0, IpAddr::V6(ip)) => format!("[{ip}]:80"),
        _ => ip.to_string(),
    }
}

fn forwarded_element(&(ip, form): &(IpAddr, u8)) -> String {
    let node = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("\"[{ip}]\""),
    };
    match form % 4 {
        0 => format!("for={node}"),
        1 => format!("proto=http;For={node};by=_x"),
        2 => format!("host=\"a, for=7.7.7.7;\\\"\\\\\";for={node}"),
        _ => format!("for={node};host=\"\\\\\\\", for=7.7.7.7\""),
    }
}

/// The values of the fields when the `entries` come after the client's own: each in its field, or
/// all in the client's.
fn fields(own: String, entries: Vec<String>, is_one_field: bool) -> Vec<String> {
    let fields: Vec<_> = iter::once(own).chain(entries).collect();
    if is_one_field {
        vec![fields.join(", ")]
    } else {
        fields
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn an_address_is_written_as_everybody_writes_it(ip: IpAddr) {
        let mut text = String::from("for=");
        push_address(&mut text, ip);
        prop_assert_eq!(text, format!("for={ip}"));
    }

    #[test]
    fn what_a_client_puts_to_the_left_changes_nothing(
        attempt in any_attempt(), (client, chain) in any_chain(), is_one_field in any::<bool>(),
    ) {
        let peer = ip("10.0.0.1");
        let x = fields(attempt.clone(), chain.iter().map(x_entry).collect(), is_one_field);
        let forwarded = fields(attempt, chain.iter().map(forwarded_element).collect(), is_one_field);
        prop_assert_eq!(trusted().client_address(peer, &x, [""; 0]), Ok(client));
        prop_assert_eq!(trusted().client_address(peer, [""; 0], &forwarded), Ok(client), "{:?}", forwarded);
        prop_assert_eq!(trusted().client_address(peer, &x, &forwarded), Ok(client));
    }

    /// The other header is the client's own work: at the most it spoils the proxy's word.
    #[test]
    fn the_header_that_no_proxy_wrote_names_no_client(
        attempt in any_attempt(), (client, chain) in any_chain(),
    ) {
        let peer = ip("10.0.0.1");
        let x: Vec<_> = chain.iter().map(x_entry).collect();
        let forwarded: Vec<_> = chain.iter().map(forwarded_element).collect();
        for answer in [
            trusted().client_address(peer, &x, [&attempt]),
            trusted().client_address(peer, [&attempt], &forwarded),
        ] {
            let is_refused = answer == Err(AddressError::TwoClients);
            prop_assert!(answer == Ok(client) || is_refused, "{:?}", answer);
        }
    }

    #[test]
    fn no_header_speaks_for_an_untrusted_peer(
        attempt in any_attempt(), peer in any_client(), prefix in any::<u8>(),
    ) {
        prop_assert_eq!(trusted().client_address(peer, [&attempt], [&attempt]), Ok(peer));
        prop_assert!(!key_of(peer, prefix).is_empty());
    }

    #[test]
    fn a_key_is_shared_within_a_network_and_not_beyond(
        bits in any::<u128>(), other in any::<u128>(), prefix in 1..=128_u8,
    ) {
        let key = |bits: u128| key_of(Ipv6Addr::from_bits(bits).into(), prefix);
        let mask = u128::MAX << (128 - prefix);
        let next_network = bits ^ (1 << (128 - prefix));
        prop_assert_eq!(key(bits), key((bits & mask) | (other & !mask)));
        prop_assert_ne!(key(bits), key(next_network));
    }
}
