//! Credentials in one form, so that each has one counter whatever its spelling, and the handling of invalid ones.

use std::borrow::Cow;

use crate::reason::Reason;

/// The alphabet of base64, in the order of its values.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How a gate handles invalid credentials, if a rule that applies to the request reads an attribute that they should
/// provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InvalidCredentials {
    /// It is denied.
    #[default]
    Deny,
    /// It is treated as a request without them.
    Missing,
}

/// Why an attribute has no value although the request has credentials that should give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialProblem {
    /// They are malformed, expired, forged or unknown.
    Invalid,
    /// They cannot be verified: no key was ever loaded.
    NoKeys,
}

impl CredentialProblem {
    /// Why a rule that reads the attribute denies the request, if it does.
    pub(crate) fn reason(self, invalid: InvalidCredentials) -> Option<Reason> {
        match (self, invalid) {
            (Self::Invalid, InvalidCredentials::Deny) => Some(Reason::InvalidCredentials),
            (Self::Invalid, InvalidCredentials::Missing) => None,
            (Self::NoKeys, _) => Some(Reason::KeysUnavailable),
        }
    }
}

/// Why credentials have no form: servers read different things in them, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// Many servers take the first word for the whole.
    #[error("`Bearer` is followed by more than one word")]
    SeveralWords,
    /// Basic credentials that no server can decode, or not all in the same way.
    #[error("`Basic` is not followed by base64")]
    NotBase64,
}

/// Whether an attribute of this name holds [`credentials`].
pub(crate) fn are_credentials(name: &str) -> bool {
    matches!(name, "authorization" | "header.authorization")
}

/// Credentials, as in `Authorization`, in one form: the scheme in lower case, one space for spaces and tabs, none
/// around them. A value without a space has no scheme and stays as it is. The part after `Basic` is decoded as lenient
/// servers do and encoded again.
///
/// ```
/// use tidegate::credentials;
///
/// assert_eq!(credentials("BEARER \t t1 ".into()).unwrap(), "bearer t1");
/// assert_eq!(credentials("Basic dT.pw".into()).unwrap(), "basic dTpw");
/// assert_eq!(credentials("aToken".into()).unwrap(), "aToken");
/// assert!(credentials("Bearer t1 x".into()).is_err());
/// ```
pub fn credentials(value: Cow<'_, str>) -> Result<Cow<'_, str>, CredentialError> {
    Ok(match credentials_in(value.as_bytes())? {
        Cow::Borrowed(form) if form.len() == value.len() => value,
        form => text(&form),
    })
}

/// [Credentials](credentials) that need not be text.
pub fn credentials_in(value: &[u8]) -> Result<Cow<'_, [u8]>, CredentialError> {
    let (form, words) = folded_in(value);
    if form.starts_with(b"basic ") {
        return basic(form);
    }
    if words > 2 && form.starts_with(b"bearer ") {
        return Err(CredentialError::SeveralWords);
    }
    Ok(form)
}

/// The form of credentials that need not be valid, such as a pattern: scheme and spaces alone.
pub(crate) fn folded(value: Cow<'_, str>) -> Cow<'_, str> {
    match folded_in(value.as_bytes()).0 {
        Cow::Borrowed(form) if form.len() == value.len() => value,
        form => text(&form),
    }
}

/// Cut and joined at ASCII characters, so that text stays text.
fn text(form: &[u8]) -> Cow<'static, str> {
    Cow::Owned(String::from_utf8_lossy(form).into_owned())
}

/// The scheme in lower case and the other words, and how many words there are.
fn folded_in(value: &[u8]) -> (Cow<'_, [u8]>, usize) {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut words = value.split(is_blank).filter(|word| !word.is_empty());
    let Some(scheme) = words.next() else {
        return (Cow::Borrowed(b""), 0);
    };
    let (mut form, mut count) = (Vec::new(), 1);
    for word in words {
        if form.is_empty() {
            form.reserve_exact(value.len());
            form.extend(scheme.iter().map(u8::to_ascii_lowercase));
        }
        form.push(b' ');
        form.extend_from_slice(word);
        count += 1;
    }
    let form = match form.as_slice() {
        [] => Cow::Borrowed(scheme),
        form if form == value => Cow::Borrowed(value),
        _ => Cow::Owned(form),
    };
    (form, count)
}

/// Basic credentials as they are encoded canonically. Lenient servers skip characters outside of the alphabet, need no
/// padding and ignore unused bits. They do not agree on `-`, `_` and characters after the padding, nor on a NUL, at
/// which PHP ends a name and a password.
fn basic(folded: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, CredentialError> {
    const SCHEME: &[u8] = b"basic ";
    let mut form = Vec::with_capacity(folded.len() + 3);
    form.extend_from_slice(SCHEME);
    let mut is_padded = false;
    for byte in &folded[SCHEME.len()..] {
        match byte {
            b'=' => is_padded = true,
            b'-' | b'_' => return Err(CredentialError::NotBase64),
            byte if value_of(*byte).is_none() => {}
            _ if is_padded => return Err(CredentialError::NotBase64),
            byte => form.push(*byte),
        }
    }
    let characters = form.len() - SCHEME.len();
    let unused = match characters % 4 {
        0 => 0b0,
        1 => {
            form.pop();
            0b0
        }
        2 => 0b1111,
        _ => 0b11,
    };
    if form.len() == SCHEME.len() {
        return Err(CredentialError::NotBase64);
    }
    if let Some(last) = form.last_mut() {
        let value = value_of(*last).unwrap_or_default();
        *last = BASE64[usize::from(value & !unused)];
    }
    if has_nul(&form[SCHEME.len()..]) {
        return Err(CredentialError::NotBase64);
    }
    while !(form.len() - SCHEME.len()).is_multiple_of(4) {
        form.push(b'=');
    }
    Ok(if *form == *folded {
        folded
    } else {
        Cow::Owned(form)
    })
}

/// Whether a NUL is among the bytes that characters of base64 stand for.
fn has_nul(characters: &[u8]) -> bool {
    characters.chunks(4).any(|chunk| {
        let values = chunk.iter().map(|byte| value_of(*byte).unwrap_or_default());
        let bits = values.fold(0_u32, |bits, value| bits << 6 | u32::from(value));
        let [_, bytes @ ..] = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        bytes[..chunk.len() - 1].contains(&0)
    })
}

/// The value of a character of base64.
fn value_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_one_form() {
        #[rustfmt::skip]
        let table = [
            ("Bearer t",            "bearer t"),
            ("bearer t",            "bearer t"),
            ("BEARER   t",          "bearer t"),
            ("Bearer\tt",           "bearer t"),
            (" bearer \t t \t",     "bearer t"),
            ("Basic dTpw",          "basic dTpw"),
            ("Digest a=\"b\",  c",  "digest a=\"b\", c"),
            ("Token a b",           "token a b"),
            ("TokeN",               "TokeN"),
            (" TokeN ",             "TokeN"),
            ("Basic",               "Basic"),
            (" \t ",                ""),
            ("",                    ""),
        ];
        for (written, form) in table {
            assert_eq!(credentials(written.into()).unwrap(), form, "{written:?}");
            assert_eq!(
                credentials(form.into()).unwrap(),
                form,
                "a form is its own form"
            );
            assert_eq!(
                *credentials_in(written.as_bytes()).unwrap(),
                *form.as_bytes()
            );
        }
    }

    #[test]
    fn basic_credentials_have_one_form_for_all_spellings() {
        for written in [
            "Basic dXNlcjpwYXNzMQ==",
            "Basic dXNlcjpwYXNzMQ",
            "BASIC \t dXNlcjpwYXNzMQ=",
            "basic dXNlcjpwYXNzMQ====",
            "Basic dXNlcjpwYXNzMR==",
            "Basic dXNlcjpwYXNzMf",
            "Basic dXNl.cjpwYXNzMQ==",
            "Basic dX~NlcjpwYXNz,MQ=!=",
            "Basic dXNl cjpw YXNzMQ ==",
            "Basic =!",
        ] {
            let expected = match written {
                "Basic =!" => Err(CredentialError::NotBase64),
                _ => Ok(Cow::Borrowed("basic dXNlcjpwYXNzMQ==")),
            };
            assert_eq!(credentials(written.into()), expected, "{written}");
        }
        // The last character is one that no decoder can use.
        assert_eq!(credentials("Basic dTpwZ".into()).unwrap(), "basic dTpw");
        assert_eq!(
            credentials("Basic dTpwZWE".into()).unwrap(),
            "basic dTpwZWE="
        );
        assert_eq!(
            credentials("Basic dTpwZWH".into()).unwrap(),
            "basic dTpwZWE="
        );
    }

    #[test]
    fn credentials_that_servers_read_in_different_ways_have_no_form() {
        for (written, error) in [
            ("Bearer t x", CredentialError::SeveralWords),
            ("bearer\tt\t\tx y", CredentialError::SeveralWords),
            ("Basic !", CredentialError::NotBase64),
            ("Basic a", CredentialError::NotBase64),
            // Node reads `+` here, PHP and Python nothing.
            ("Basic dTp-", CredentialError::NotBase64),
            ("Basic dT_pw", CredentialError::NotBase64),
            // PHP goes on after the padding, Python stops.
            ("Basic dQ==dQ==", CredentialError::NotBase64),
            // `u:p` and a NUL.
            ("Basic dTpwAA==", CredentialError::NotBase64),
            ("Basic AHU6cA", CredentialError::NotBase64),
        ] {
            assert_eq!(credentials(written.into()), Err(error), "{written}");
        }
    }

    #[test]
    fn credentials_that_are_not_text_have_one_form_too() {
        assert_eq!(&*credentials_in(b"BEARER\t \xff ").unwrap(), b"bearer \xff");
        assert_eq!(&*credentials_in(b" T\xff ").unwrap(), b"T\xff");
        assert_eq!(&*credentials_in(b"Basic dT\xffpw").unwrap(), b"basic dTpw");
    }

    proptest::proptest! {
        /// Any credentials are read, and a form is its own form.
        #[test]
        fn a_form_stays_as_it_is(value in "(Basic|bearer|Token) [ a-zA-Z0-9+/=._~-]{0,20}") {
            if let Ok(form) = credentials(value.as_str().into()) {
                proptest::prop_assert_eq!(credentials(form.clone()), Ok(form));
            }
        }
    }
}
