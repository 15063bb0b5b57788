//! The attributes of a request, the same for every front end.

mod forms;
mod terms;

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;
use tidegate_core::{Costs, Timestamp};

use crate::address::{self, AddressError};
use crate::credentials::{CredentialProblem, are_credentials, credentials, folded};
use crate::host::HostError;
use crate::path::{self, EncodedSlashes, PathError, shortened};
use crate::value::AttributeValue;
pub(crate) use forms::check_name;
pub(crate) use terms::MONEY;

use forms::{Meaning, credentials_of, lower_case_header, normal_host, normal_path, upper_case};

/// How many attributes a request may have.
pub const MAX_ATTRIBUTES: usize = 128;
/// The longest name of an attribute.
pub const MAX_NAME: usize = 128;
/// The longest value of an attribute, in bytes.
pub const MAX_VALUE: usize = 8_192;

/// The attributes of a request: named texts, its cost, and its time if it has one.
///
/// Some names have a meaning and are brought into one form: `ip` is an address, `path` is
/// normalised, `host` is [normalised](crate::host::normalise) too, `method` is upper-case, `authorization` and
/// `header.authorization` are [credentials](crate::credentials). The names of `header.*` are lower-case. An empty
/// attribute is a missing one. Values need not be text: see [`AttributeValue`].
///
/// ```
/// use tidegate::Attributes;
///
/// let mut attributes = Attributes::new();
/// attributes.insert("path", "/v1//users/%37?page=2")?;
/// attributes.insert("user_id", "")?;
/// assert_eq!(attributes.get("path"), Some("/v1/users/7"));
/// assert_eq!(attributes.get("user_id"), None);
/// # Ok::<(), tidegate::AttributeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    entries: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 8]>,
    ip: Option<IpAddr>,
    /// Other readings of the path by some servers, besides the entry `path`.
    pub(crate) other_paths: Vec<String>,
    /// The attributes without a value because the request's credentials are not valid. Those that are credentials
    /// are among the entries too, in a form.
    refused: Vec<(Cow<'a, str>, CredentialProblem)>,
    awaits_key: bool,
    /// Whether its cost in [`MONEY`] is not known.
    is_unpriced: bool,
    costs: Costs,
    at: Option<Timestamp>,
}

/// The names of what is known of nearly every request.
const USUAL_NAMES: [&str; 5] = ["method", "path", "host", "ip", "api_key"];

/// Whether a path goes on in the form in which it is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathForm {
    Normal,
    Raw,
}

/// Why an attribute was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// An `ip` that is not an address.
    #[error("attribute `ip` must be an IPv4 or IPv6 address, not `{value}`")]
    NotAnAddress {
        /// The given value.
        value: String,
    },
    /// A path that cannot be normalised.
    #[error("attribute `path`: {0}")]
    Path(#[from] PathError),
    /// A host that is malformed.
    #[error("attribute `host`: {0}")]
    Host(#[from] HostError),
    /// A name that cannot be one.
    #[error(
        "`{name}` cannot be the name of an attribute; use 1 to {MAX_NAME} printable ASCII characters, without spaces"
    )]
    BadName {
        /// The given value, shortened.
        name: String,
    },
    /// The same name a second time.
    #[error("attribute `{name}` is given twice")]
    Twice {
        /// Its name.
        name: String,
    },
    /// Different values of one attribute, all written by the client.
    #[error(
        "the request gives two different values for `{name}`, in headers, parameters of the query or cookies; send one"
    )]
    Contradiction {
        /// Its name.
        name: String,
    },
    /// The client's address is not known.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A value that is too long.
    #[error("attribute `{name}` is {length} bytes long; give at most {MAX_VALUE}")]
    TooLong {
        /// Its name.
        name: String,
        /// How long it is.
        length: usize,
    },
    /// More attributes than a request may have.
    #[error("there are more than {MAX_ATTRIBUTES} attributes")]
    TooMany,
}

impl Default for Attributes<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Attributes<'a> {
    /// Nothing is known; the cost is 1.
    pub fn new() -> Self {
        Self {
            entries: SmallVec::new(),
            ip: None,
            other_paths: Vec::new(),
            refused: Vec::new(),
            awaits_key: false,
            is_unpriced: false,
            costs: Costs::from(1),
            at: None,
        }
    }

    /// Adds an attribute.
    pub fn insert(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<AttributeValue<'a>>,
    ) -> Result<(), AttributeError> {
        let slashes = EncodedSlashes::Decode;
        self.insert_with(name.into(), value.into(), slashes, PathForm::Normal)
    }

    fn insert_with(
        &mut self,
        mut name: Cow<'a, str>,
        value: AttributeValue<'a>,
        slashes: EncodedSlashes,
        form: PathForm,
    ) -> Result<(), AttributeError> {
        lower_case_header(&mut name);
        check_name(&name)?;
        let meaning = Meaning::from_name(&name);
        let mut is_refused = false;
        let value = match meaning {
            Meaning::Path => value.into_text().map_err(|bytes| PathError::NotUtf8 {
                path: shortened(&bytes.into_form()),
            })?,
            // Before bytes that are not text are written out.
            Meaning::Credentials => {
                let (form, is_valid) = credentials_of(value);
                is_refused = !is_valid;
                form
            }
            _ => value.into_form(),
        };
        if value.len() > MAX_VALUE {
            return Err(AttributeError::TooLong {
                name: name.into_owned(),
                length: value.len(),
            });
        }
        if self.entries.iter().any(|(known, _)| *known == name) {
            return Err(AttributeError::Twice {
                name: name.into_owned(),
            });
        }
        if value.is_empty() {
            return Ok(());
        }
        if self.entries.len() >= MAX_ATTRIBUTES {
            return Err(AttributeError::TooMany);
        }
        let value = match meaning {
            Meaning::Address => self.take_address(value)?,
            Meaning::Path if form == PathForm::Raw => self.take_raw_path(value, slashes)?,
            Meaning::Path => normal_path(value, slashes)?,
            Meaning::Host => normal_host(value)?,
            Meaning::Method => upper_case(value),
            Meaning::Credentials | Meaning::Other => value,
        };
        if is_refused {
            let problem = CredentialProblem::Invalid;
            self.refused.push((name.clone(), problem));
        }
        if !value.is_empty() {
            self.entries.push((name, value));
        }
        Ok(())
    }

    /// Adds an entry of a descriptor as it is: in no other form but for [`credentials`], also if it is empty
    /// or its name was there before. For rules that are written as descriptors, which go by the order of
    /// entries.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, mut value) = (name.into(), value.into());
        if are_credentials(&name) {
            value = credentials(value.clone()).unwrap_or_else(|_| {
                let problem = CredentialProblem::Invalid;
                self.refused.push((name.clone(), problem));
                folded(value)
            });
        }
        self.entries.push((name, value));
    }

    /// Adds the address of the client.
    pub fn insert_address(&mut self, ip: IpAddr) -> Result<(), AttributeError> {
        if self.get("ip").is_some() {
            return Err(AttributeError::Twice {
                name: "ip".to_owned(),
            });
        }
        let ip = address::canonical(ip);
        let mut text = String::with_capacity("255.255.255.255".len());
        address::push_address(&mut text, ip);
        self.ip = Some(ip);
        self.push("ip", text);
        Ok(())
    }

    /// Adds the path of a request. `slashes` says how an encoded slash is read.
    pub fn insert_path(
        &mut self,
        path: impl Into<Cow<'a, str>>,
        slashes: EncodedSlashes,
    ) -> Result<(), AttributeError> {
        self.insert_with("path".into(), path.into().into(), slashes, PathForm::Normal)
    }

    /// Adds the path of a request that goes on in the spelling in which it came, so that a server may take
    /// it for another than its normal form. A rule applies if any of the [readings](path::readings) matches.
    /// The attribute `path`, and with it the key of a rule that counts by it, is the normal form.
    ///
    /// ```
    /// use tidegate::Attributes;
    /// use tidegate::path::EncodedSlashes;
    ///
    /// let mut attributes = Attributes::new();
    /// attributes.insert_raw_path("/v1/files/..;/../login", EncodedSlashes::Keep)?;
    /// assert_eq!(attributes.get("path"), Some("/login"));
    /// # Ok::<(), tidegate::AttributeError>(())
    /// ```
    pub fn insert_raw_path(
        &mut self,
        path: impl Into<AttributeValue<'a>>,
        slashes: EncodedSlashes,
    ) -> Result<(), AttributeError> {
        self.insert_with("path".into(), path.into(), slashes, PathForm::Raw)
    }

    /// [Adds](Self::insert_raw_path) a path, or replaces the current one.
    pub fn set_raw_path(
        &mut self,
        path: impl Into<AttributeValue<'a>>,
        slashes: EncodedSlashes,
    ) -> Result<(), AttributeError> {
        self.remove("path");
        self.insert_raw_path(path, slashes)
    }

    /// Adds another path under which the service may know the request, besides that of the attribute `path`, such as
    /// the one relative to the prefix that the service is mounted at. A rule applies if it or any of its
    /// [readings](path::readings) matches. The attribute `path` stays as it is.
    ///
    /// ```
    /// use tidegate::path::EncodedSlashes;
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, Gate, MemoryStore};
    ///
    /// let rules = RuleSet::from_yaml("rules: [{id: login, match: {path: /login}, per: [], limit: 1/minute}]")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    /// let mut attributes = Attributes::new();
    /// attributes.insert_raw_path("/shop/login", EncodedSlashes::Decode)?;
    /// assert!(gate.try_decide(&attributes)?.is_unmatched());
    /// attributes.add_path_reading("/login", EncodedSlashes::Decode)?;
    /// assert_eq!(gate.try_decide(&attributes)?.rule(), Some("login"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_path_reading(
        &mut self,
        path: &str,
        slashes: EncodedSlashes,
    ) -> Result<(), AttributeError> {
        let read = path::readings(path, slashes)?;
        for reading in std::iter::once(read.normal.into_owned()).chain(read.others) {
            if self.get("path") != Some(&reading) && !self.other_paths.contains(&reading) {
                self.other_paths.push(reading);
            }
        }
        Ok(())
    }

    /// Adds or replaces an attribute. An empty value removes it.
    ///
    /// ```
    /// use tidegate::Attributes;
    ///
    /// let mut attributes = Attributes::new();
    /// attributes.insert("tier", "free")?;
    /// attributes.set("tier", "pro")?;
    /// assert_eq!(attributes.get("tier"), Some("pro"));
    /// # Ok::<(), tidegate::AttributeError>(())
    /// ```
    pub fn set(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<AttributeValue<'a>>,
    ) -> Result<(), AttributeError> {
        let mut name = name.into();
        lower_case_header(&mut name);
        self.remove(&name);
        self.insert(name, value)
    }

    fn remove(&mut self, name: &str) {
        self.entries.retain(|(known, _)| known != name);
        match name {
            "ip" => self.ip = None,
            "path" => self.other_paths.clear(),
            _ => {}
        }
        self.refused.retain(|(known, _)| known != name);
    }

    /// Marks this attribute as missing because the credentials that should provide it are invalid. It then has no
    /// value, and a rule that applies to the request and reads the attribute denies the request, unless the gate
    /// [treats](crate::Gate::with_invalid_credentials) such credentials as missing ones. A value that is set later
    /// replaces it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, CredentialProblem, Gate, MemoryStore, Reason};
    ///
    /// let rules = RuleSet::from_yaml("rules: [{id: a, per: [user_id], limit: 1/minute}]")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    /// let mut attributes = Attributes::new();
    /// attributes.refuse("user_id", CredentialProblem::Invalid);
    /// assert_eq!(gate.decide(&attributes).await.reason(), Some(Reason::InvalidCredentials));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn refuse(&mut self, name: impl Into<Cow<'a, str>>, problem: CredentialProblem) {
        let name = name.into();
        self.remove(&name);
        self.refused.push((name, problem));
    }

    /// The attributes without a value because of the request's credentials.
    pub fn refused(&self) -> &[(Cow<'a, str>, CredentialProblem)] {
        &self.refused
    }

    /// Marks the credentials as possibly valid in a moment: they name a key that is still being fetched.
    pub fn await_key(&mut self) {
        self.awaits_key = true;
    }

    /// Whether the credentials [may become valid](Self::await_key) in a moment.
    pub fn awaits_key(&self) -> bool {
        self.awaits_key
    }

    /// An owned copy, for a request that is decided later.
    pub fn into_owned<'b>(self) -> Attributes<'b> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        // Most names are known, and need no copy.
        let name_of = |name: Cow<'a, str>| {
            let known = USUAL_NAMES.iter().find(|known| **known == name);
            known.map_or_else(|| owned(name), |known| Cow::Borrowed(*known))
        };
        let entries = self.entries.into_iter();
        let refused = self.refused.into_iter();
        Attributes {
            entries: entries
                .map(|(name, value)| (name_of(name), owned(value)))
                .collect(),
            ip: self.ip,
            other_paths: self.other_paths,
            refused: refused
                .map(|(name, problem)| (owned(name), problem))
                .collect(),
            awaits_key: self.awaits_key,
            is_unpriced: self.is_unpriced,
            costs: self.costs,
            at: self.at,
        }
    }

    fn take_address(&mut self, value: Cow<'a, str>) -> Result<Cow<'a, str>, AttributeError> {
        let Some(ip) = address::parse(&value) else {
            return Err(AttributeError::NotAnAddress {
                value: shortened(&value),
            });
        };
        self.ip = Some(ip);
        // The text of an IPv4 address has one form only.
        if matches!(ip, IpAddr::V4(_)) && !value.contains(':') {
            return Ok(value);
        }
        Ok(Cow::Owned(ip.to_string()))
    }

    fn take_raw_path(
        &mut self,
        value: Cow<'a, str>,
        slashes: EncodedSlashes,
    ) -> Result<Cow<'a, str>, PathError> {
        let (normal, others) = match value {
            Cow::Borrowed(text) => {
                let read = path::readings(text, slashes)?;
                (read.normal, read.others)
            }
            Cow::Owned(text) => {
                let read = path::readings(&text, slashes)?;
                (Cow::Owned(read.normal.into_owned()), read.others)
            }
        };
        self.other_paths = others;
        Ok(normal)
    }

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|(known, _)| known == name)?;
        (!self.is_refused(name)).then_some(&*entry.1)
    }

    /// Everything that is known, in the order in which it was added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries().filter(|(name, _)| !self.is_refused(name))
    }

    /// Everything in the order in which it was added, with credentials that are not valid: an entry that is left
    /// out makes another descriptor of the others.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (&**name, &**value))
    }

    #[inline]
    fn is_refused(&self, name: &str) -> bool {
        let mut refused = self.refused.iter();
        !self.refused.is_empty() && refused.any(|(known, _)| known == name)
    }

    /// The client's address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<Option<String>, AttributeError> {
        let mut attributes = Attributes::new();
        attributes.insert(name.to_owned(), value.to_owned())?;
        let name = name.to_lowercase();
        Ok(attributes.get(&name).map(str::to_owned))
    }

    #[test]
    fn forms_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("ip",          "203.0.113.7",          Some("203.0.113.7")),
            ("ip",          "::ffff:203.0.113.7",   Some("203.0.113.7")),
            ("ip",          "2001:DB8:0::1",        Some("2001:db8::1")),
            ("host",        "API.Example.com:8080", Some("api.example.com")),
            ("host",        "api.example.com.",     Some("api.example.com")),
            ("host",        "[::1]:80",             Some("[::1]")),
            ("method",      "get",                  Some("GET")),
            ("path",        "users",                Some("/users")),
            ("header.X-A",  "Red",                  Some("Red")),
            ("header.Authorization", "Bearer  T",   Some("bearer T")),
            ("authorization", "BASIC\tdTpw ",       Some("basic dTpw")),
            ("authorization", "  ",                 None),
            ("authorization", "Bearer a b",         None),
            ("user_id",     "",                     None),
            ("user_id",     "U1",                   Some("U1")),
        ];
        for (name, value, expected) in table {
            assert_eq!(
                one(name, value).unwrap().as_deref(),
                expected,
                "{name} {value}"
            );
        }
    }

    #[test]
    fn values_that_are_not_utf8_do_not_collide() {
        let of = |value: &'static [u8]| {
            let mut attributes = Attributes::new();
            attributes.insert("api_key", value).unwrap();
            attributes.get("api_key").unwrap().to_owned()
        };
        assert_eq!(of(b"k\xff"), "k\u{fffd}FF");
        assert_ne!(of(b"k\xff"), of(b"k\xfe"));
        assert_ne!(of(b"k\xff"), of("k\u{fffd}".as_bytes()));
        assert_ne!(of(b"k\xff"), of("k\u{fffd}FF".as_bytes()));
        let mut attributes = Attributes::new();
        attributes
            .insert("authorization", &b"Basic dT\xffpw"[..])
            .unwrap();
        assert_eq!(attributes.get("authorization"), Some("basic dTpw"));
        let path = attributes.insert("path", &b"/\xff"[..]);
        assert!(matches!(path, Err(AttributeError::Path(_))), "{path:?}");
        assert!(attributes.insert("ip", &b"\xff"[..]).is_err());
    }

    #[test]
    fn what_is_refused() {
        let long = "x".repeat(MAX_VALUE + 1);
        for (name, value) in [
            ("ip", "300.1.1.1"),
            ("ip", "localhost"),
            ("ip", "1.2.3.4:80"),
            ("path", "/%zz"),
            ("path", "/%00"),
            ("host", "::1"),
            ("host", "api.example.com:x"),
            ("", "x"),
            ("two words", "x"),
            ("größe", "x"),
            ("user_id", long.as_str()),
        ] {
            assert!(one(name, value).is_err(), "{name} {value}");
        }
        let mut attributes = Attributes::new();
        let mapped = "::ffff:203.0.113.7".parse().unwrap();
        attributes.insert_address(mapped).unwrap();
        assert_eq!(attributes.get("ip"), Some("203.0.113.7"));
        assert_eq!(attributes.ip(), Some("203.0.113.7".parse().unwrap()));
        assert!(attributes.insert_address(mapped).is_err());
        assert!(attributes.insert("ip", "203.0.113.8").is_err());
        attributes.insert("a", "1").unwrap();
        assert!(matches!(
            attributes.insert("a", "2"),
            Err(AttributeError::Twice { .. })
        ));
    }
}
