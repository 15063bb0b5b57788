//! Paths: one normal form, that what is forwarded has too, and that is one of the readings.

use tidegate::path::{EncodedSlashes, encode, forwarded, has_hidden_slash, normalise, readings};

/// More readings than any path has: four resolutions of each decoded form.
const MOST_READINGS: usize = 129;

/// Normalising is idempotent, and every form of a path has the same normal form.
pub fn check(bytes: &[u8]) {
    let Ok(path) = std::str::from_utf8(bytes) else {
        return;
    };
    for slashes in [EncodedSlashes::Decode, EncodedSlashes::Keep] {
        let normal = normalise(path, slashes);
        let sent = forwarded(path, slashes);
        assert_eq!(
            normal.as_ref().err(),
            sent.as_ref().err(),
            "matching and forwarding refuse the same paths"
        );
        let (Ok(normal), Ok(sent)) = (normal, sent) else {
            continue;
        };
        is_normal(&normal);
        let encoded = encode(&normal, slashes);
        assert!(is_visible(&encoded), "`{encoded}` may be sent");
        assert_eq!(normalise(&encoded, slashes).as_deref(), Ok(&*normal));
        assert!(is_visible(&sent), "`{sent}` may be sent");
        assert_eq!(
            normalise(&sent, slashes).as_deref(),
            Ok(&*normal),
            "`{sent}` is forwarded"
        );
        let again = forwarded(&sent, slashes);
        assert_eq!(again.as_deref(), Ok(&*sent), "forwarding is idempotent");
        check_readings(path, &normal, slashes);
    }
}

/// Nothing is left to resolve.
fn is_normal(normal: &str) {
    assert!(normal.starts_with('/'), "`{normal}`");
    assert!(!normal.contains(['\0', ';']), "`{normal}`");
    let mut segments = normal.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        assert!(is_last || !segment.is_empty(), "`{normal}` has `//`");
        assert!(!matches!(segment, "." | ".."), "`{normal}`");
    }
}

fn is_visible(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'?' && byte != b'#')
}

fn check_readings(path: &str, normal: &str, slashes: EncodedSlashes) {
    // A fragment is read too, and may be malformed.
    let Ok(read) = readings(path, slashes) else {
        assert!(
            path.contains('#'),
            "`{path}` has a normal form and no readings"
        );
        return;
    };
    assert_eq!(read.normal, normal);
    assert!(read.others.len() <= MOST_READINGS, "{read:?}");
    for (index, reading) in read.others.iter().enumerate() {
        assert!(reading.starts_with('/'), "{read:?}");
        assert!(!reading.contains("//"), "{read:?}");
        assert_ne!(reading, normal, "{read:?}");
        assert!(!read.others[..index].contains(reading), "{read:?}");
    }
    let is_plain = !path.contains(['#', ';', '.', '%', '\\'])
        && !has_hidden_slash(path)
        && !path.starts_with("//");
    assert!(!is_plain || read.others.is_empty(), "{read:?} of `{path}`");
}
