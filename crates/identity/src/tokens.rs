//! Verifies tokens: signature, audience, issuer and expiry. A refused token is counted; `known_request.rs` decides
//! about the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, decode, decode_header};
use serde_json::{Map, Value};
use tidegate::CredentialProblem;

use crate::IdentityError;
use crate::fetch::Fetcher;
use crate::keys::Keys;
use crate::remote_keys::RemoteKeys;
use crate::{AttributeSource, JwtKey, JwtSettings};

/// The longest accepted token, in bytes.
const LONGEST: usize = 8 * 1024;

/// How many keys are tried for a token that names none.
const MOST_TRIED: usize = 4;

/// Decodes as services do that ignore unused bits.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Verifies tokens.
pub(crate) struct Tokens {
    pub(crate) settings: JwtSettings,
    keys: ArcSwap<Keys>,
    /// Where the keys come from, if they are fetched.
    remote: Option<RemoteKeys>,
    pub(crate) refusals: Refusals,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JwtRefusal {
    Malformed,
    TooLong,
    UnknownKey,
    Algorithm,
    Signature,
    Expired,
    NotYetValid,
    Issuer,
    Audience,
    MissingClaim,
}

impl JwtRefusal {
    /// All of them with their names in metrics and logs, in their order.
    const ALL: [(Self, &str); 10] = [
        (Self::Malformed, "malformed"),
        (Self::TooLong, "too_long"),
        (Self::UnknownKey, "unknown_key"),
        (Self::Algorithm, "algorithm"),
        (Self::Signature, "signature"),
        (Self::Expired, "expired"),
        (Self::NotYetValid, "not_yet_valid"),
        (Self::Issuer, "issuer"),
        (Self::Audience, "audience"),
        (Self::MissingClaim, "missing_claim"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

impl From<Error> for JwtRefusal {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(_) => Self::MissingClaim,
            ErrorKind::InvalidAlgorithm
            | ErrorKind::UnsupportedAlgorithm
            | ErrorKind::InvalidAlgorithmName => Self::Algorithm,
            ErrorKind::InvalidToken
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Base64(_)
            | ErrorKind::Json(_)
            | ErrorKind::Utf8(_) => Self::Malformed,
            _ => Self::Signature,
        }
    }
}

/// A token that is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedToken {
    pub(crate) problem: CredentialProblem,
    /// Whether it names an unknown key that may be fetched now.
    pub(crate) awaits_key: bool,
}

/// How often tokens were refused, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; JwtRefusal::ALL.len()]);

impl Refusals {
    fn count(&self, refusal: JwtRefusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The count of every reason.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = JwtRefusal::ALL.into_iter().zip(&self.0);
        counts.map(|((_, name), count)| (name, count.load(Ordering::Relaxed)))
    }
}

impl Tokens {
    pub(crate) fn open(settings: JwtSettings) -> Result<Self, IdentityError> {
        let remote = match &settings.key {
            JwtKey::JwksUrl { url, ca } => {
                let fetcher = Fetcher::new(url.clone(), ca.as_deref());
                Some(RemoteKeys::new(fetcher?))
            }
            _ => None,
        };
        Ok(Self {
            keys: ArcSwap::from_pointee(Keys::read(&settings)?),
            settings,
            remote,
            refusals: Refusals::default(),
        })
    }

    /// Reloads the keys, or requests a fetch.
    pub(crate) fn reload(&self) -> Result<(), IdentityError> {
        match &self.remote {
            Some(remote) => remote.ask(),
            None => self.put(Keys::read(&self.settings)?),
        }
        Ok(())
    }

    /// Replaces the keys.
    pub(crate) fn put(&self, keys: Keys) {
        self.keys.store(Arc::new(keys));
    }

    pub(crate) fn remote(&self) -> Option<&RemoteKeys> {
        self.remote.as_ref()
    }

    /// Where a request has its token.
    pub(crate) fn from(&self) -> &AttributeSource {
        &self.settings.from
    }

    /// Whether no key was ever loaded.
    pub(crate) fn lacks_keys(&self) -> bool {
        self.remote.as_ref().is_some_and(RemoteKeys::is_empty)
    }

    /// The claims of a valid token.
    pub(crate) fn claims(&self, token: &str) -> Result<Map<String, Value>, RefusedToken> {
        self.verify(token).map_err(|refusal| self.refuse(refusal))
    }

    /// Refuses credentials that are no token, and that some servers find one in.
    pub(crate) fn malformed(&self) -> RefusedToken {
        self.refuse(JwtRefusal::Malformed)
    }

    #[cold]
    fn refuse(&self, refusal: JwtRefusal) -> RefusedToken {
        let remote = self.remote.as_ref();
        let remote = remote.filter(|_| refusal == JwtRefusal::UnknownKey);
        let problem = match remote {
            Some(remote) if remote.is_empty() => CredentialProblem::NoKeys,
            _ => CredentialProblem::Invalid,
        };
        let awaits_key = remote.is_some_and(RemoteKeys::fetches_for_unknown);
        // Such a token is verified again.
        if !awaits_key {
            self.refusals.count(refusal);
            tracing::debug!(reason = refusal.name(), "a token was refused");
        }
        if let Some(remote) = remote {
            remote.miss();
        }
        RefusedToken {
            problem,
            awaits_key,
        }
    }

    pub(crate) fn verify(&self, token: &str) -> Result<Map<String, Value>, JwtRefusal> {
        if token.len() > LONGEST {
            return Err(JwtRefusal::TooLong);
        }
        let header = decode_header(token).map_err(|error| unreadable(token, error))?;
        // A critical header parameter that is not supported.
        if header.crit.is_some() {
            return Err(JwtRefusal::Malformed);
        }
        let keys = self.keys.load();
        let mut refusal = JwtRefusal::UnknownKey;
        let mut tried = 0;
        for key in keys.named(header.kid.as_deref()) {
            if !key.validation.algorithms.contains(&header.alg) {
                if tried == 0 {
                    refusal = JwtRefusal::Algorithm;
                }
                continue;
            }
            match decode(token, &key.verifies, &key.validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => refusal = error.into(),
            }
            tried += 1;
            if refusal != JwtRefusal::Signature || tried == MOST_TRIED {
                break;
            }
        }
        Err(refusal)
    }
}

/// Why the header of a token is unreadable: an unsupported algorithm, such as `none`, or a malformed token.
fn unreadable(token: &str, error: Error) -> JwtRefusal {
    let header = header_of(token);
    let algorithm = header
        .as_ref()
        .and_then(|header| header.get("alg")?.as_str());
    match algorithm.map(str::parse::<Algorithm>) {
        Some(Err(_)) => JwtRefusal::Algorithm,
        _ => error.into(),
    }
}

/// Whether a text is a token in form: three parts, of which the first is an object with `alg`. The others are not
/// looked at: servers accept signatures with unused bits, padding and other characters.
pub(crate) fn is_in_form(text: &str) -> bool {
    text.split('.').count() == 3 && header_of(text).is_some_and(|header| header.contains_key("alg"))
}

fn header_of(token: &str) -> Option<Map<String, Value>> {
    let header = token.split('.').next()?;
    let header = LENIENT.decode(header.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&header).ok()
}

/// The claim with this name, or at this dotted path; as text, if it is a single value.
pub(crate) fn claim(claims: &Map<String, Value>, name: &str) -> Option<String> {
    let found = claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        let mut found = claims.get(first)?;
        for part in rest.split('.') {
            found = found.get(part)?;
        }
        Some(found)
    });
    match found? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
