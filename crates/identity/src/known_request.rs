//! One request and its identity: for each attribute the first of its sources that is present. An invalid source is not
//! treated as missing.

use http::HeaderMap;
use serde_json::{Map, Value};
use tidegate::{AttributeError, AttributeValue, CredentialProblem};

use crate::clients::ClientRecord;
use crate::source::{self, Unusable};
use crate::tokens::{self, RefusedToken, Tokens};
use crate::{AttributeSource, Identity};

/// One request and its identity.
pub(crate) struct KnownRequest<'i, 'r> {
    identity: &'i Identity,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
    pub(crate) client: ClientOfRequest,
    /// Its token, once it was read.
    token: Option<TokenOfRequest>,
}

/// The result of reading the sources of an attribute.
pub(crate) enum FoundAttribute<'r> {
    Nothing,
    Value(AttributeValue<'r>),
    Refused(CredentialProblem),
}

/// The client that a request's key belongs to.
pub(crate) enum ClientOfRequest {
    /// There is no key, or it is not in the table.
    Unknown,
    Known(ClientRecord),
    /// The key is not valid.
    Refused(CredentialProblem),
}

/// The token of a request.
enum TokenOfRequest {
    None,
    Claims(Map<String, Value>),
    /// A value that does not have the form of a token.
    Other,
    Refused(RefusedToken),
}

impl<'i, 'r> KnownRequest<'i, 'r> {
    pub(crate) fn new(
        identity: &'i Identity,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
    ) -> Self {
        Self {
            identity,
            headers,
            query,
            client: ClientOfRequest::Unknown,
            token: None,
        }
    }

    /// Whether its token names an unknown key that may be fetched now.
    pub(crate) fn awaits_key(&self) -> bool {
        matches!(&self.token, Some(TokenOfRequest::Refused(refused)) if refused.awaits_key)
    }

    /// The first source that is present. Sources that the client writes must all agree, because the service may use
    /// another one. A value without the form of a token is skipped; any other invalid source is final.
    pub(crate) fn first(
        &mut self,
        name: &str,
        sources: &[AttributeSource],
    ) -> Result<FoundAttribute<'r>, AttributeError> {
        let mut first: Option<AttributeValue<'r>> = None;
        let mut written: Option<AttributeValue<'r>> = None;
        let (mut refused, mut is_other) = (None, false);
        for source in sources {
            let is_decided = first.is_some() || refused.is_some();
            let value = match source {
                AttributeSource::Jwt(_) | AttributeSource::Client(_) if is_decided => continue,
                AttributeSource::Jwt(claim) => match self.token()? {
                    TokenOfRequest::None => None,
                    TokenOfRequest::Claims(claims) => tokens::claim(claims, claim),
                    TokenOfRequest::Other => {
                        is_other = true;
                        None
                    }
                    TokenOfRequest::Refused(token) => {
                        refused = Some(token.problem);
                        None
                    }
                }
                .map(AttributeValue::from),
                AttributeSource::Client(column) => match &self.client {
                    ClientOfRequest::Known(client) => client.column(column),
                    ClientOfRequest::Unknown => None,
                    ClientOfRequest::Refused(problem) => {
                        refused = Some(*problem);
                        None
                    }
                }
                .map(|value| AttributeValue::from(value.to_owned())),
                AttributeSource::Header(_)
                | AttributeSource::Query(_)
                | AttributeSource::Cookie(_) => {
                    match source::find(source, self.headers, self.query) {
                        Ok(value) => {
                            let value = value.filter(|value| !value.is_empty());
                            if value.is_some() && written.is_some() && value != written {
                                let name = name.to_owned();
                                return Err(AttributeError::Contradiction { name });
                            }
                            written = value.clone().or(written);
                            value
                        }
                        Err(Unusable::Several) => return Err(twice(name)),
                        Err(Unusable::Invalid) => {
                            refused = Some(CredentialProblem::Invalid);
                            None
                        }
                    }
                }
            };
            first = first.or(value.filter(|value| !value.is_empty()));
        }
        Ok(match (refused, first) {
            (Some(problem), _) => FoundAttribute::Refused(problem),
            (None, Some(value)) => FoundAttribute::Value(value),
            (None, None) if is_other => FoundAttribute::Refused(CredentialProblem::Invalid),
            (None, None) => FoundAttribute::Nothing,
        })
    }

    /// Its token. Read once, because it is verified.
    fn token(&mut self) -> Result<&TokenOfRequest, AttributeError> {
        let token = match self.token.take() {
            Some(token) => token,
            None => match &self.identity.tokens {
                Some(tokens) => TokenOfRequest::read(tokens, self.headers, self.query)?,
                None => TokenOfRequest::None,
            },
        };
        Ok(self.token.insert(token))
    }
}

impl TokenOfRequest {
    fn read(
        tokens: &Tokens,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Self, AttributeError> {
        let text = match source::find_token(tokens.from(), headers, query) {
            Ok(Some(text)) if !text.is_empty() => text,
            Ok(_) => return Ok(Self::None),
            Err(Unusable::Several) => return Err(twice("jwt")),
            Err(Unusable::Invalid) => return Ok(Self::Refused(tokens.malformed())),
        };
        // Another scheme. Some servers look for a token in the second word whatever the first is.
        if text.contains(' ') {
            return Ok(if text.split(' ').any(tokens::is_in_form) {
                Self::Refused(tokens.malformed())
            } else {
                Self::Other
            });
        }
        Ok(match tokens.claims(&text) {
            Ok(claims) => Self::Claims(claims),
            Err(refused) if tokens::is_in_form(&text) => Self::Refused(refused),
            Err(_) => Self::Other,
        })
    }
}

fn twice(name: &str) -> AttributeError {
    AttributeError::Twice {
        name: name.to_owned(),
    }
}
