//! Lines that are JSON objects. Members are read one by one; numbers stay as they are written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::line::{LineProblem, LineValue, present};

/// The members of a JSON object, in their order. Of equal names the last counts, as in most readers.
#[derive(Debug, Default)]
pub(crate) struct JsonObject<'l>(Vec<(Cow<'l, str>, &'l RawValue)>);

/// A text that is borrowed where it has no escapes.
struct Text<'l>(Cow<'l, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de> Deserialize<'de> for JsonObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberVisitor;
        impl<'de> Visitor<'de> for MemberVisitor {
            type Value = JsonObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some((Text(name), value)) =
                    map.next_entry::<Text<'de>, &'de RawValue>()?
                {
                    members.push((name, value));
                }
                Ok(JsonObject(members))
            }
        }
        deserializer.deserialize_map(MemberVisitor)
    }
}

impl<'l> JsonObject<'l> {
    /// The object that a line is.
    pub(crate) fn read(line: &'l [u8]) -> Result<Self, LineProblem> {
        let not_an_object = LineProblem::Malformed("it is not a JSON object");
        if line.first() != Some(&b'{') {
            return Err(not_an_object);
        }
        serde_json::from_slice(line).map_err(|_| not_an_object)
    }

    fn raw(&self, name: &str) -> Option<&'l RawValue> {
        let mut members = self.0.iter().rev();
        members
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Cow<'l, str>, &'l RawValue)> {
        self.0.iter().map(|(name, value)| (name, *value))
    }

    /// Whether it has a member, whatever its value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// The text or number of a member; of a list, of its first item. None for a value that stands for an absent one.
    pub(crate) fn text(&self, name: &str) -> Option<LineValue<'l>> {
        self.raw(name).and_then(text_of).and_then(present)
    }

    /// A member that is an object.
    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        self.raw(name).and_then(object_of)
    }

    /// A member that is a list of objects.
    pub(crate) fn objects(&self, name: &str) -> Option<Vec<Self>> {
        let items: Vec<&'l RawValue> = serde_json::from_str(self.raw(name)?.get()).ok()?;
        items.into_iter().map(object_of).collect()
    }

    /// The value of a path: the member with this whole name, else by steps with a dot between them.
    pub(crate) fn by_path(&self, path: &str) -> Option<LineValue<'l>> {
        match self.raw(path) {
            Some(raw) => text_of(raw),
            None if path.contains('.') => self.by_steps(path.split('.')),
            None => None,
        }
    }

    /// The value of a path by its steps. A step into a list is an index, or else means its first item.
    pub(crate) fn by_steps<'s>(
        &self,
        steps: impl Iterator<Item = &'s str>,
    ) -> Option<LineValue<'l>> {
        let mut steps = steps;
        let mut value = self.raw_in_any_case(steps.next()?)?;
        for step in steps {
            value = match value.get().as_bytes().first()? {
                b'{' => object_of(value)?.raw_in_any_case(step)?,
                b'[' => {
                    let items: Vec<&'l RawValue> = serde_json::from_str(value.get()).ok()?;
                    match step.parse::<usize>() {
                        Ok(index) => *items.get(index)?,
                        Err(_) => object_of(items.first()?)?.raw_in_any_case(step)?,
                    }
                }
                _ => return None,
            };
        }
        text_of(value)
    }

    /// A member, by its name in any case if there is none with exactly this name: headers are written either way.
    fn raw_in_any_case(&self, name: &str) -> Option<&'l RawValue> {
        self.raw(name).or_else(|| {
            let mut members = self.0.iter();
            members
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| *value)
        })
    }
}

fn object_of(raw: &RawValue) -> Option<JsonObject<'_>> {
    serde_json::from_str(raw.get()).ok()
}

/// The text or number that a value is; of a list its first item.
pub(crate) fn text_of(raw: &RawValue) -> Option<LineValue<'_>> {
    let text = raw.get();
    match text.as_bytes().first()? {
        b'"' => {
            let Text(text) = serde_json::from_str(text).ok()?;
            Some(match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            })
        }
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(text.as_bytes())),
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items
                .first()
                .filter(|item| !item.get().starts_with('['))
                .and_then(|item| text_of(item))
        }
        _ => None,
    }
}

/// Every text in a list, or the text that a value is.
pub(crate) fn texts_of(raw: &RawValue) -> Vec<LineValue<'_>> {
    if !raw.get().starts_with('[') {
        return text_of(raw).into_iter().collect();
    }
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    items.into_iter().filter_map(text_of).collect()
}
