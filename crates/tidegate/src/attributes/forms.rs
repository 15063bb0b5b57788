//! The one form of names and values of attributes.

use std::borrow::Cow;

use super::{AttributeError, MAX_NAME};
use crate::credentials::{are_credentials, credentials, credentials_in, folded};
use crate::host::{self, HostError};
use crate::path::{self, EncodedSlashes, PathError, shortened};
use crate::value::AttributeValue;

/// The meaning of an attribute, by its name. It decides how the value is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Address,
    Path,
    Host,
    Method,
    Credentials,
    Other,
}

impl Meaning {
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "ip" => Self::Address,
            "path" => Self::Path,
            "host" => Self::Host,
            "method" => Self::Method,
            _ if are_credentials(name) => Self::Credentials,
            _ => Self::Other,
        }
    }
}

/// The form of credentials, whose bytes need not be text, and whether they are valid.
pub(super) fn credentials_of(value: AttributeValue<'_>) -> (Cow<'_, str>, bool) {
    match value.into_text() {
        Ok(text) => {
            let form = credentials(text.clone());
            let is_valid = form.is_ok();
            let form = form.unwrap_or_else(|_| folded(text));
            (AttributeValue::from(form).into_form(), is_valid)
        }
        Err(bytes) => match credentials_in(bytes.as_bytes()) {
            Ok(form) => (AttributeValue::from(form.into_owned()).into_form(), true),
            Err(_) => (folded(bytes.into_form()), false),
        },
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), AttributeError> {
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(AttributeError::BadName {
        name: shortened(name),
    })
}

#[inline]
pub(super) fn lower_case_header(name: &mut Cow<'_, str>) {
    if name.starts_with("header.") && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_mut().make_ascii_lowercase();
    }
}

pub(super) fn normal_path(
    value: Cow<'_, str>,
    slashes: EncodedSlashes,
) -> Result<Cow<'_, str>, PathError> {
    match value {
        Cow::Borrowed(text) => path::normalise(text, slashes),
        Cow::Owned(text) => {
            let normal = path::normalise(&text, slashes)?.into_owned();
            Ok(Cow::Owned(normal))
        }
    }
}

pub(super) fn normal_host(value: Cow<'_, str>) -> Result<Cow<'_, str>, HostError> {
    match value {
        Cow::Borrowed(text) => host::normalise(text),
        Cow::Owned(text) => {
            let normal = host::normalise(&text)?.into_owned();
            Ok(Cow::Owned(normal))
        }
    }
}

pub(super) fn upper_case(value: Cow<'_, str>) -> Cow<'_, str> {
    if value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Cow::Owned(value.to_ascii_uppercase());
    }
    value
}
