//! Hosts by hand, and that one host has one form.

use proptest::prelude::*;

use super::*;

#[test]
fn hosts_by_hand() {
    #[rustfmt::skip]
    let table = [
        ("api.example.com",             "api.example.com"),
        ("API.Example.com:8080",        "api.example.com"),
        ("api.example.com.",            "api.example.com"),
        ("api.example.com.:80",         "api.example.com"),
        ("localhost:0",                 "localhost"),
        ("my_service-1",                "my_service-1"),
        ("203.0.113.7:80",              "203.0.113.7"),
        ("[::1]",                       "[::1]"),
        ("[::1]:80",                    "[::1]"),
        ("[2001:DB8:0:0::0:7]:8443",    "[2001:db8::7]"),
        ("[::ffff:203.0.113.7]",        "[::ffff:203.0.113.7]"),
    ];
    for (host, normal) in table {
        assert_eq!(normalise(host).unwrap(), normal, "{host}");
    }
    assert!(matches!(
        normalise("api.example.com:80"),
        Ok(Cow::Borrowed(_))
    ));
}

#[test]
fn a_host_in_any_other_form_is_refused() {
    for host in [
        "",
        ".",
        "..",
        ".example.com",
        "api..example.com",
        "api.example.com..",
        "api.example.com:",
        "api.example.com:x",
        "api.example.com:8x",
        "api.example.com:80:80",
        "api.example.com:+80",
        "api.example.com:80.",
        "api.example.com: 80",
        "api%2eexample.com",
        "api.example.com%00",
        "user@api.example.com",
        "api.example.com/",
        "api.example.com\\x",
        "api.example.com, other",
        " api.example.com",
        "api.exämple.com",
        "*.example.com",
        "::1",
        "2001:db8::7",
        "[]",
        "[name]",
        "[203.0.113.7]",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[::1]:x",
        "[::1]:80:80",
        "[::1].",
        "[fe80::1%25eth0]",
        "[[::1]]",
        ":80",
    ] {
        let error = normalise(host).unwrap_err().to_string();
        assert!(error.contains("is not a host; write"), "{host}: {error}");
    }
}

/// The virtual host that nginx serves: the name up to the first colon.
fn nginx(host: &str) -> String {
    let name = host.split(':').next().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase()
}

/// `req.hostname` of Express: up to the first colon after an address in brackets.
fn express(host: &str) -> String {
    let from = host.find(']').map_or(0, |end| end + 1);
    let end = host[from..].find(':').map_or(host.len(), |at| from + at);
    host[..end].to_ascii_lowercase()
}

/// The host without its last colon and what follows it, as WSGI applications do.
fn wsgi(host: &str) -> String {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.trim_end_matches('.').to_ascii_lowercase()
}

proptest! {
    #[test]
    fn spellings_that_a_server_takes_for_one_host_have_one_form_or_are_refused(
        name in prop::sample::select(vec!["api.example.com", "API.Example.com", "[::1]", "other"]),
        rest in prop::collection::vec(prop::sample::select(vec![".", ":", "80", "x", "]", "[", "%2e", "@a", "-"]), 0..5),
    ) {
        let host = name.to_owned() + &rest.concat();
        let Ok(normal) = normalise(&host) else {
            return Ok(());
        };
        for server in [nginx, express, wsgi] {
            if server(&host) == "api.example.com" {
                prop_assert_eq!(&normal, "api.example.com", "{}", &host);
            }
        }
    }

    #[test]
    fn spellings_of_a_host_have_one_form(
        labels in prop::collection::vec("[a-z0-9_-]{1,8}", 1..5),
        capitals in any::<u64>(),
        dot in any::<bool>(),
        port in prop::option::of(any::<u16>()),
    ) {
        let name = labels.join(".");
        let capital = |(index, c): (usize, char)| {
            let is_capital = capitals.rotate_right(u32::try_from(index).unwrap_or(0)) & 1 == 1;
            if is_capital { c.to_ascii_uppercase() } else { c }
        };
        let mut spelled: String = name.chars().enumerate().map(capital).collect();
        if dot {
            spelled.push('.');
        }
        if let Some(port) = port {
            spelled = format!("{spelled}:{port}");
        }
        prop_assert_eq!(normalise(&spelled).unwrap(), &*name);
    }

    #[test]
    fn a_normal_host_is_its_own_form(host in any::<String>(), like in r"[a-c.:\[\]0-9%@A-C_-]{0,16}") {
        for host in [&host, &like] {
            if let Ok(normal) = normalise(host) {
                prop_assert_eq!(&*normalise(&normal).unwrap(), &*normal);
                prop_assert!(!normal.ends_with('.') && normal.is_ascii());
            }
        }
    }
}
