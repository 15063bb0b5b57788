//! Checks in the form in which nearly all of them come: attributes as strings without escapes, and perhaps a cost.
//!
//! Read in one pass. Any other body, also an invalid one, is left to the complete parser, which explains errors. The
//! result must be the same as that of the complete parser.

use tidegate::{Attributes, MAX_ATTRIBUTES};

/// More digits than a cost may have.
const LONGEST_COST: usize = 15;

/// Adds the attributes and the cost of a check to `attributes`, which are large to move. `None` if it has another form:
/// then some may have been added.
#[inline]
pub(super) fn read<'b>(body: &'b [u8], attributes: &mut Attributes<'b>) -> Option<()> {
    let mut json = PlainJson {
        text: std::str::from_utf8(body).ok()?,
        at: 0,
    };
    let (mut has_attributes, mut has_cost) = (false, false);
    json.expect(b'{')?;
    loop {
        let name = json.string()?;
        json.expect(b':')?;
        match name {
            "attributes" if !has_attributes => {
                json.attributes(attributes)?;
                has_attributes = true;
            }
            "cost" if !has_cost => {
                attributes.set_cost(json.digits()?);
                has_cost = true;
            }
            _ => return None,
        }
        if json.is_last()? {
            break;
        }
    }
    json.skip_space();
    (has_attributes && json.at == json.text.len()).then_some(())
}

/// The rest of a body.
struct PlainJson<'b> {
    text: &'b str,
    at: usize,
}

impl<'b> PlainJson<'b> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Takes this byte, after spaces.
    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.skip_space();
        let is_there = self.byte()? == wanted;
        self.at += 1;
        is_there.then_some(())
    }

    /// Takes a comma, or the end of an object: whether it is the end.
    fn is_last(&mut self) -> Option<bool> {
        self.skip_space();
        let byte = self.byte()?;
        self.at += 1;
        match byte {
            b',' => Some(false),
            b'}' => Some(true),
            _ => None,
        }
    }

    /// Takes a string without escapes.
    fn string(&mut self) -> Option<&'b str> {
        self.expect(b'"')?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        let string = self.text.get(self.at..self.at + length)?;
        let is_closed = rest.get(length) == Some(&b'"');
        self.at += length + 1;
        is_closed.then_some(string)
    }

    /// Takes a whole number.
    fn digits(&mut self) -> Option<u64> {
        self.skip_space();
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let digits = rest.get(..length)?;
        // Zeros in front are not JSON. The caller refuses other characters after the digits, such as a point.
        if length > LONGEST_COST || (length > 1 && digits.starts_with('0')) {
            return None;
        }
        self.at += length;
        digits.parse().ok()
    }

    /// Takes an object of strings. Invalid attributes are left to the complete parser.
    fn attributes(&mut self, attributes: &mut Attributes<'b>) -> Option<()> {
        self.expect(b'{')?;
        for _ in 0..MAX_ATTRIBUTES {
            let name = self.string()?;
            self.expect(b':')?;
            let value = self.string()?;
            attributes.insert(name, value).ok()?;
            if self.is_last()? {
                return Some(());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::question::CheckRequest;
    use super::*;

    /// What the complete parser reads.
    fn complete(body: &[u8]) -> Option<Attributes<'_>> {
        let request: CheckRequest<'_> = super::super::parse(body).ok()?;
        request.attributes(false).ok()
    }

    fn is_plain(body: &str) -> bool {
        let mut plain = Attributes::new();
        let is_plain = read(body.as_bytes(), &mut plain).is_some();
        if is_plain {
            let complete = complete(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(format!("{plain:?}"), format!("{complete:?}"), "{body}");
        }
        is_plain
    }

    #[test]
    fn forms_by_hand() {
        #[rustfmt::skip]
        let table = [
            (r#"{"attributes":{"user_id":"u1"}}"#,                  true),
            (r#" { "attributes" : { "user_id" : "u1" } } "#,        true),
            (r#"{"attributes":{"ip":"::1","path":"/a//b"},"cost":3}"#, true),
            (r#"{"cost":0,"attributes":{"a":"ü","b":""}}"#,         true),
            (r#"{"attributes":{}}"#,                                false),
            (r#"{"attributes":{"a":"1"},"cost":03}"#,               false),
            (r#"{"attributes":{"a":"1"},"cost":3.0}"#,              false),
            (r#"{"attributes":{"a":"1"},"cost":}"#,                 false),
            (r#"{"attributes":{"a":"1"},"cost":9007199254740992}"#, false),
            (r#"{"attributes":{"a":"1"},"cost":1,"cost":1}"#,       false),
            (r#"{"attributes":{"a":"1"},"timestamp":1}"#,           false),
            (r#"{"attributes":{"a":"\u0031"}}"#,                    false),
            (r#"{"attributes":{"a":"1","a":"2"}}"#,                 false),
            (r#"{"attributes":{"ip":"x"}}"#,                        false),
            (r#"{"attributes":{"a":"1",}}"#,                        false),
            (r#"{"attributes":{"a":"1"}"#,                          false),
            (r#"{"attributes":{"a":"1"}}x"#,                        false),
            (r#"{"attributes":{"a":1}}"#,                           false),
            ("{\"attributes\":{\"a\":\"\n\"}}",                    false),
            ("{}",                                                  false),
            ("",                                                    false),
        ];
        for (body, expected) in table {
            assert_eq!(is_plain(body), expected, "{body}");
        }
    }

    #[test]
    fn too_many_attributes_are_not_plain() {
        let body = |count: usize| {
            let attributes: Vec<String> = (0..count).map(|n| format!(r#""a{n}":"""#)).collect();
            format!(r#"{{"attributes":{{{}}}}}"#, attributes.join(","))
        };
        assert!(is_plain(&body(MAX_ATTRIBUTES)));
        assert!(!is_plain(&body(MAX_ATTRIBUTES + 1)));
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_complete_parser_reads(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "{", "}", ":", ",", "\"", "\"attributes\"", "\"cost\"", "\"a\"", "\"b\":\"1\"", "{\"attributes\":{",
                "\"ip\":\"1.2.3.4\"", "\"path\":\"/x/%41\"", " ", "1", "0", ".5", "e3", "-", "\\", "\n", "é", "null", "[", "]",
            ]), 0..12),
        ) {
            is_plain(&pieces.concat());
        }
    }
}
