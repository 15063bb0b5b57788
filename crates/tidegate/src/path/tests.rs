//! Paths by hand, and that no spelling of a path leads around its normal form.

use proptest::prelude::*;

use super::EncodedSlashes::{Decode, Keep};
use super::*;

#[test]
fn paths_by_hand() {
    let table = [
        // as it came, decoded, kept
        ("/", "/", "/"),
        ("", "/", "/"),
        ("a/b", "/a/b", "/a/b"),
        ("*", "/*", "/*"),
        (
            "/a/b.c/.d/..e/...",
            "/a/b.c/.d/..e/...",
            "/a/b.c/.d/..e/...",
        ),
        // queries and fragments
        ("/a?b=/../%zz;%00", "/a", "/a"),
        ("/a#b?c", "/a", "/a"),
        ("?x", "/", "/"),
        ("/a/..?x", "/", "/"),
        ("/a%3Fb%23c", "/a?b#c", "/a?b#c"),
        // escapes, once
        ("/%61%4A%c3%A9", "/aJé", "/aJé"),
        ("/é %20", "/é  ", "/é  "),
        ("/a%252fb", "/a%2fb", "/a%252fb"),
        ("/a%25252fb", "/a%252fb", "/a%25252fb"),
        ("/%252e%252e/a", "/%2e%2e/a", "/%252e%252e/a"),
        ("/100%25", "/100%", "/100%25"),
        ("/a%5cb\\c", "/a\\b\\c", "/a\\b\\c"),
        // encoded slashes
        ("/a%2fb", "/a/b", "/a%2Fb"),
        ("/a%2Fb", "/a/b", "/a%2Fb"),
        ("%2fa", "/a", "/%2Fa"),
        ("/a%2f%2e%2e%2fb", "/b", "/a%2F..%2Fb"),
        ("/a/b%2f..", "/a/", "/a/b%2F.."),
        ("/a/.%2F", "/a/", "/a/.%2F"),
        ("/a/%2f", "/a/", "/a/%2F"),
        // parameters
        ("/a;x/b;y=1;z", "/a/b", "/a/b"),
        ("/a%3bx/b%3B", "/a/b", "/a/b"),
        ("/a%253bx", "/a%3bx", "/a%253bx"),
        ("/a/..;x/b", "/b", "/b"),
        ("/a/%2e%2E%3b/b", "/b", "/b"),
        ("/a/;x/b", "/a/b", "/a/b"),
        ("/a/;x", "/a/", "/a/"),
        ("/a;x/", "/a/", "/a/"),
        ("/a;x%2fb", "/a/b", "/a"),
        (";x", "/", "/"),
        // slashes and dots
        ("//a///b//", "/a/b/", "/a/b/"),
        ("/a/", "/a/", "/a/"),
        ("/./a/./b/.", "/a/b/", "/a/b/"),
        ("/a/b/..", "/a/", "/a/"),
        ("/a/b/../", "/a/", "/a/"),
        ("/a/b/../..", "/", "/"),
        ("/a//../b", "/b", "/b"),
        ("/../../a/../../b", "/b", "/b"),
        ("..", "/", "/"),
        (".", "/", "/"),
        ("/%2e%2e/a", "/a", "/a"),
        ("/é/../a", "/a", "/a"),
    ];
    for (path, decoded, kept) in table {
        assert_eq!(normalise(path, Decode).unwrap(), decoded, "{path}");
        assert_eq!(normalise(path, Keep).unwrap(), kept, "{path}, kept");
    }
}

#[test]
fn a_normal_path_is_borrowed() {
    for path in ["/", "/v1/users/42", "/a/", "/.well-known/..x/...", "/é b"] {
        for slashes in [Decode, Keep] {
            for query in ["", "?a=%zz", "#/../"] {
                let path = format!("{path}{query}");
                let normal = normalise(&path, slashes).unwrap();
                assert!(matches!(normal, Cow::Borrowed(_)), "{path}");
            }
        }
    }
    let kept = normalise("/a%2Fb%25/.%2F", Keep).unwrap();
    assert!(matches!(kept, Cow::Borrowed("/a%2Fb%25/.%2F")));
    assert!(matches!(encode("/a,b/~c", Decode), Cow::Borrowed(_)));
    assert!(matches!(encode("/a%2Fb%25", Keep), Cow::Borrowed(_)));
}

#[test]
fn what_is_sent_by_hand() {
    let table = [
        ("/a-._~!$&'()*+,=:@/", "/a-._~!$&'()*+,=:@/"),
        ("/a b?c#d", "/a%20b%3Fc%23d"),
        (
            "/é\\\"<>[]{}|^`\n",
            "/%C3%A9%5C%22%3C%3E%5B%5D%7B%7D%7C%5E%60%0A",
        ),
    ];
    for (normal, sent) in table {
        assert_eq!(encode(normal, Decode), sent);
        assert_eq!(encode(normal, Keep), sent);
    }
    assert_eq!(encode("/a%2Fb%2f%25", Decode), "/a%252Fb%252f%2525");
    assert_eq!(encode("/a%2Fb%2f%25", Keep), "/a%2Fb%252f%25");
}

#[test]
fn bad_paths_are_refused_with_advice() {
    let advice =
        "is not an escape; write `%` and two hexadecimal digits, and `%25` for a percent sign";
    let table = [
        ("/a%", format!("`%` in the path `/a%` {advice}")),
        ("/a%2", format!("`%2` in the path `/a%2` {advice}")),
        (
            "/%zz/../a?b",
            format!("`%zz` in the path `/%zz/../a` {advice}"),
        ),
        ("/a;%+1", format!("`%+1` in the path `/a;%+1` {advice}")),
        ("/%2é\n", format!("`%2é` in the path `/%2é\\n` {advice}")),
        (
            "/a%00",
            "the path `/a%00` has a NUL character in it; leave it out".into(),
        ),
        (
            "/a\0/..",
            "the path `/a\\u{0}/..` has a NUL character in it; leave it out".into(),
        ),
        (
            "/%ff/../a",
            "the path `/%ff/../a` is not UTF-8 once decoded; escape the bytes of UTF-8 text".into(),
        ),
        (
            "/%c3%2f%a9",
            "the path `/%c3%2f%a9` is not UTF-8 once decoded; escape the bytes of UTF-8 text"
                .into(),
        ),
    ];
    for (path, message) in table {
        for slashes in [Decode, Keep] {
            assert_eq!(normalise(path, slashes).unwrap_err().to_string(), message);
        }
    }
}

#[test]
fn a_long_path_is_shortened_in_its_error() {
    let path = format!("/{}%zz", "é".repeat(1_000));
    let error = normalise(&path, Decode).unwrap_err();
    let short = format!("/{}…", "é".repeat(SHOWN - 1));
    let escape = "%zz".to_owned();
    assert_eq!(
        error,
        PathError::BadEscape {
            escape,
            path: short
        }
    );
}

#[test]
fn what_is_sent_on_is_as_it_was_written_where_nothing_changed() {
    #[rustfmt::skip]
    let table = [
        // path                     decoded slashes         kept slashes
        ("/",                       "/",                    "/"),
        ("/a/b?q=//../;",           "/a/b",                 "/a/b"),
        ("/caf%c3%A9",              "/caf%c3%A9",           "/caf%c3%A9"),
        ("/a%2c,b%20c",             "/a%2c,b%20c",          "/a%2c,b%20c"),
        ("/{id}|\"x\"",             "/{id}|\"x\"",          "/{id}|\"x\""),
        ("/%61dmin",                "/admin",               "/admin"),
        ("/a%2fb",                  "/a/b",                 "/a%2fb"),
        ("/a%2f..%2fb",             "/b",                   "/a%2f..%2fb"),
        ("/a\\b%5c",                "/a%5Cb%5c",            "/a%5Cb%5c"),
        ("/a/%2e%2e/b%2c",          "/b,",                  "/b,"),
        ("//a;x=1//b",              "/a/b",                 "/a/b"),
        ("/a%3bx/b",                "/a/b",                 "/a/b"),
        ("/100%25",                 "/100%25",              "/100%25"),
        ("/%252f",                  "/%252f",               "/%252f"),
        ("",                        "/",                    "/"),
    ];
    for (path, decoded, kept) in table {
        assert_eq!(forwarded(path, Decode).unwrap(), decoded, "{path}");
        assert_eq!(forwarded(path, Keep).unwrap(), kept, "{path}");
    }
    assert!(forwarded("/a%00", Decode).is_err() && forwarded("/a%zz", Keep).is_err());
}

#[test]
fn readings_by_hand() {
    #[rustfmt::skip]
    let table: [(&str, &str, &[&str]); 34] = [
        // path                     normal form     other readings, with slashes kept
        ("/v1/users?q=/../;",       "/v1/users",    &[]),
        ("/v1///users/",            "/v1/users/",   &[]),
        ("//v1///users/",           "/v1/users/",   &["/users/"]),
        ("//x/v1/search",           "/x/v1/search", &["/v1/search"]),
        ("///x:80/v1/a",            "/x:80/v1/a",   &["/v1/a"]),
        ("//x",                     "/x",           &["/"]),
        ("//",                      "/",            &[]),
        ("/\\x/v1/a",               "/\\x/v1/a",    &["/x/v1/a", "/v1/a"]),
        ("/\\x\\v1/a",              "/\\x\\v1/a",   &["/x/v1/a", "/v1/a"]),
        ("//x\\v1/a",               "/x\\v1/a",     &["/x/v1/a", "/a", "/v1/a"]),
        ("/%5cx/v1/a",              "/\\x/v1/a",    &[]),
        ("/v1/caf%c3%a9%20",        "/v1/café ",    &[]),
        ("/a%2fb",                  "/a%2Fb",       &[]),
        ("/a%2f..%2fb",             "/a%2F..%2Fb",  &[]),
        ("/a\\..\\b",               "/a\\..\\b",    &[]),
        ("/a/../b",                 "/b",           &["/a/../b"]),
        ("/a/%2e%2E/%62",           "/b",           &["/a/../b", "/a/%2e%2E/%62"]),
        ("/healt%68z",              "/healthz",     &["/healt%68z"]),
        ("/%7E%c3%a9//%41%20%2f;x", "/~é/A %2F",    &["/~é/A %2F;x", "/%7Eé/%41 %2F"]),
        ("/a/./b",                  "/a/b",         &["/a/./b"]),
        ("/../a",                   "/a",           &["/../a"]),
        ("/a/..",                   "/",            &["/a/.."]),
        ("/a//./b//",               "/a/b/",        &["/a/./b/"]),
        ("/a;x/b",                  "/a/b",         &["/a;x/b"]),
        ("/a%3bx/b",                "/a/b",         &["/a;x/b"]),
        ("/a/;x",                   "/a/",          &["/a/;x"]),
        ("/a/..;x/b",               "/b",           &["/a/..;x/b"]),
        ("/a/../b;x",               "/b",           &["/a/../b;x", "/b;x"]),
        ("/a//../b",                "/b",           &["/a/../b", "/a/b"]),
        ("/a/b/..;/../c",           "/c",           &["/a/b/..;/../c", "/a/b/c"]),
        ("/a/%3b/..;",              "/",            &["/a/;/..;", "/a/;/..", "/a/"]),
        ("/a#/b?#c",                "/a",           &["/a#/b"]),
        ("/a#/../b",                "/a",           &["/a#/../b", "/b"]),
        ("/a%23/b",                 "/a#/b",        &[]),
    ];
    for (path, normal, others) in table {
        let read = readings(path, Keep).unwrap();
        assert_eq!((&*read.normal, &*read.others), (normal, &*strings(others)));
        assert_eq!(read.normal, normalise(path, Keep).unwrap());
    }
    #[rustfmt::skip]
    let table: [(&str, &str, &[&str]); 4] = [
        // path         normal form     other readings, with slashes decoded
        ("/a%2fb",      "/a/b",         &["/a%2Fb"]),
        ("/a\\b",       "/a\\b",        &["/a/b"]),
        ("/a%5cb",      "/a\\b",        &["/a/b"]),
        ("/a%2f..%2fb", "/b",           &["/a/../b", "/a%2F..%2Fb"]),
    ];
    for (path, normal, others) in table {
        let read = readings(path, Decode).unwrap();
        assert_eq!((&*read.normal, &*read.others), (normal, &*strings(others)));
    }
    for path in ["/%zz/../a", "/a;%00", "/..%ff"] {
        assert!(readings(path, Keep).is_err() && readings(path, Decode).is_err());
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn hidden_slashes_by_hand() {
    for path in ["/a%2fb", "/a%2F", "/%5c", "/a%5Cb", "/a\\b"] {
        assert!(has_hidden_slash(path), "{path}");
    }
    for path in ["/a/b", "/a%252fb", "/2f", "/%2", "/%", ""] {
        assert!(!has_hidden_slash(path), "{path}");
    }
}

fn any_mode() -> impl Strategy<Value = EncodedSlashes> {
    prop::sample::select(vec![Decode, Keep])
}

/// Paths without mistakes that have much to normalise.
fn any_good_path() -> impl Strategy<Value = String> {
    let pieces = vec![
        "/", "/", "/", ".", "..", "/../", "//", "%2f", "%2F", "%2e", "%2E%2e", "%25", "%252f",
        "2f", ";", ";x=1", "%3b", "a", "b", "é", "%c3%a9", " ", "\\", "%5c", "%3f", "%23", "?",
        "#", "%0a",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|pieces| pieces.concat())
}

/// Another spelling of a normal path: each character is escaped, if it must be or the next of
/// `coins` says so, in capitals or not.
fn spelled_another_way(normal: &str, slashes: EncodedSlashes, coins: &[(bool, bool)]) -> String {
    let mut coins = coins.iter().cycle();
    let (mut path, mut rest) = (String::new(), normal);
    while let Some(first) = rest.chars().next() {
        let &(escape, capitals) = coins.next().unwrap();
        let is_kept = first == '%' && slashes == Keep;
        let (piece, after) = rest.split_at(if is_kept { 3 } else { first.len_utf8() });
        let must = matches!(first, '?' | '#' | '%');
        let may = first != '/' || slashes == Decode;
        let spelled = if is_kept || !(must || (may && escape)) {
            piece.to_owned()
        } else {
            let escapes = piece.bytes().map(|byte| format!("%{byte:02X}"));
            escapes.collect::<Vec<_>>().concat()
        };
        let lower = spelled.starts_with('%') && !capitals;
        path += &if lower {
            spelled.to_ascii_lowercase()
        } else {
            spelled
        };
        rest = after;
    }
    path
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn a_normal_path_has_nothing_to_walk_around_with(path in any_good_path(), slashes in any_mode()) {
        let normal = normalise(&path, slashes).unwrap();
        prop_assert!(normal.starts_with('/'));
        prop_assert!(!normal.contains("//"));
        prop_assert!(!normal.contains(';'));
        prop_assert!(!normal.split('/').any(|segment| matches!(segment, "." | "..")));
        if slashes == Keep {
            let rest = normal.replace("%2F", "").replace("%25", "");
            prop_assert!(!rest.contains('%'), "{normal}");
        }
    }

    #[test]
    fn what_is_sent_on_means_the_same_and_leaves_nothing_to_resolve(path in any_good_path(), slashes in any_mode()) {
        let normal = normalise(&path, slashes).unwrap();
        let sent = forwarded(&path, slashes).unwrap();
        prop_assert_eq!(normalise(&sent, slashes).unwrap(), &*normal, "{}", sent);
        prop_assert_eq!(forwarded(&sent, slashes).unwrap(), &*sent);
        prop_assert!(sent.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
        prop_assert!(!sent.contains("//") && !sent.contains(';') && !sent.contains('?'));
        prop_assert!(!sent.split('/').any(|segment| matches!(segment, "." | "..")));
        // As a naive server would decode it.
        prop_assert!(!sent.contains("%2e") && !sent.contains("%2E") && !sent.contains("%3b"));
    }

    #[test]
    fn what_a_gateway_sends_on_has_one_reading(path in any_good_path(), slashes in any_mode()) {
        let path = path.replace("%5c", "").replace('\\', "");
        let sent = forwarded(&path, slashes).unwrap();
        let read = readings(&sent, slashes).unwrap();
        prop_assert_eq!(&read.normal, &normalise(&path, slashes).unwrap());
        prop_assert_eq!(read.others, Vec::<String>::new());
    }

    #[test]
    fn readings_are_few_and_distinct(path in any_good_path(), slashes in any_mode()) {
        let read = readings(&path, slashes).unwrap();
        prop_assert_eq!(&read.normal, &normalise(&path, slashes).unwrap());
        prop_assert!(read.others.len() <= 79 && !read.others.contains(&read.normal.to_string()));
        for reading in &read.others {
            prop_assert!(reading.starts_with('/') && !reading.contains("//"), "{}", reading);
        }
        let is_plain =
            slashes == Keep && !read.normal.contains('\\') && !path.starts_with("//");
        let has_dots = |path: &str| path.split('/').any(|segment| matches!(segment, "." | ".."));
        if is_plain && !read.others.is_empty() {
            let raw = &read.others[0];
            prop_assert!(raw.contains([';', '#', '%']) || has_dots(raw), "{}", raw);
        }
    }

    #[test]
    fn what_is_sent_is_what_was_matched(path in any_good_path(), slashes in any_mode()) {
        let normal = normalise(&path, slashes).unwrap();
        let sent = encode(&normal, slashes);
        prop_assert!(sent.bytes().all(|byte| is_sendable(byte) || byte == b'%'));
        prop_assert_eq!(normalise(&sent, slashes).unwrap(), &*normal);
    }

    #[test]
    fn no_spelling_leads_elsewhere(
        path in any_good_path(),
        slashes in any_mode(),
        coins in prop::collection::vec(any::<(bool, bool)>(), 1..40),
    ) {
        let normal = normalise(&path, slashes).unwrap();
        let other = spelled_another_way(&normal, slashes, &coins);
        prop_assert_eq!(normalise(&other, slashes).unwrap(), normal, "{}", other);
    }

    #[test]
    fn the_two_modes_differ_in_nothing_but_slashes_and_percent_signs(path in any_good_path()) {
        let path = path.replace("%2f", "").replace("%2F", "").replace("%25", "");
        prop_assert_eq!(normalise(&path, Decode).unwrap(), normalise(&path, Keep).unwrap());
    }

    #[test]
    fn nothing_panics(path in any::<String>(), bad in "[%0-9a-fA-F/.;?\\x00é]{0,12}", slashes in any_mode()) {
        for path in [&path, &bad] {
            encode(path, slashes);
            let _ = forwarded(path, slashes);
            if let Err(error) = normalise(path, slashes) {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}
