//! Overrides for networks, where a rule counts by address.

use tidegate::{Attributes, Reason};

use super::{NOW, decide, gate, request};

const RULES: &str = "
- id: r
  per: [ip]
  limit: 5/minute
  overrides:
    0.0.0.0/0: 6/minute
    10.0.0.0/8: 10/minute
    10.1.0.0/16: unlimited
    10.1.2.0/24: blocked
    10.1.2.3: 3/minute
    2001:db8::/32: 20/minute
    2001:db8:1::/48: blocked
    2001:db8:1:2::5: 4/minute
";

#[test]
fn the_longest_prefix_decides() {
    let gate = gate(RULES);
    #[rustfmt::skip]
    let table = [
        ("192.0.2.1",           Some(6)),
        ("10.2.0.1",            Some(10)),
        ("::ffff:10.2.0.2",     Some(10)),
        ("10.1.0.1",            None),
        ("10.1.2.4",            Some(0)),
        ("10.1.2.3",            Some(3)),
        ("2001:db9::1",         Some(5)),
        ("2001:db8::1",         Some(20)),
        ("2001:db8:1::1",       Some(0)),
        // A bare address stands for its network of 64 bits.
        ("2001:db8:1:2::5",     Some(4)),
        ("2001:db8:1:2:9::9",   Some(4)),
    ];
    for (ip, limit) in table {
        let decision = decide(&gate, &request(&format!("ip={ip}")));
        let granted = decision.headline().map(|answer| answer.outcome.limit);
        assert_eq!(granted, limit, "{ip}");
        let expected = (limit == Some(0)).then_some(Reason::Blocked);
        assert_eq!(decision.reason(), expected, "{ip}");
    }
}

#[test]
fn the_limit_of_a_network_is_for_each_address() {
    let gate = gate("- {id: r, per: [ip], limit: 1/minute, overrides: {10.0.0.0/8: 2/minute}}");
    for ip in ["10.0.0.1", "10.0.0.2", "10.200.0.1"] {
        let allowed = [(); 3].map(|()| decide(&gate, &request(&format!("ip={ip}"))).is_allowed());
        assert_eq!(allowed, [true, true, false], "{ip}");
    }
}

#[test]
fn a_network_goes_by_the_first_attribute_only() {
    let list = "- {id: r, per: [ip, user_id], limit: 1/minute, overrides: {10.0.0.0/8: unlimited}}\n- {id: s, per: [user_id, ip], missing: deny, limit: 1/minute, overrides: {10.0.0.0/8: blocked}}";
    let gate = gate(list);
    let decision = decide(&gate, &request("ip=10.0.0.1 user_id=u"));
    // For the second rule it is the name of a user.
    assert_eq!(decision.rule(), Some("s"));
    assert!(decision.is_allowed());
    let mut named = Attributes::new().at(NOW);
    named.insert("user_id", "10.0.0.0/8").unwrap();
    named.insert("ip", "192.0.2.1").unwrap();
    assert_eq!(decide(&gate, &named).reason(), Some(Reason::Blocked));
}

#[test]
fn an_override_for_a_network_beats_the_tier() {
    let gate = gate(
        "- {id: r, per: [ip], limit: 1/minute, tiers: {pro: 9/minute}, overrides: {10.0.0.0/8: 2/minute}}",
    );
    let limit = |text: &str| {
        let decision = decide(&gate, &request(text));
        decision.headline().unwrap().outcome.limit
    };
    assert_eq!(limit("ip=10.0.0.1 tier=pro"), 2);
    assert_eq!(limit("ip=192.0.2.1 tier=pro"), 9);
}
