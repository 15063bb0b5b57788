//! Conditional reads: a caller that already has the current state gets 304 and no body.

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::problem::ApiReply;

/// The reply to a read, or 304 if the caller already has the state that its tag names.
pub(super) fn unless_known(headers: &HeaderMap, reply: ApiReply) -> ApiReply {
    let tag = reply.headers().get(ETAG);
    let is_known = |tag: &&HeaderValue| tag.to_str().is_ok_and(|tag| has_one_of(headers, tag));
    let Some(tag) = tag.filter(is_known) else {
        return reply;
    };
    let mut known = Response::new(Full::default());
    *known.status_mut() = StatusCode::NOT_MODIFIED;
    known.headers_mut().insert(ETAG, tag.clone());
    known
}

/// Whether `If-None-Match` names this tag. Compared weakly, as RFC 9110 says: a proxy may have marked the tag as
/// weak when it compressed the answer.
fn has_one_of(headers: &HeaderMap, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let tag = strong(tag);
    headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        let list = value.to_str().unwrap_or_default();
        list.trim() == "*" || list.split(',').any(|known| strong(known) == tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_any_list_and_also_if_it_is_weak() {
        #[rustfmt::skip]
        let table: [(&[&str], bool); 9] = [
            (&[],                         false),
            (&["\"b\""],                  false),
            (&["\"a\""],                  true),
            (&["W/\"a\""],                true),
            (&["\"b\", \"a\""],           true),
            (&["\"b\"", "W/\"c\",\"a\""], true),
            (&["*"],                      true),
            (&["a"],                      false),
            (&["\"ab\""],                 false),
        ];
        for (given, expected) in table {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
            }
            let mut reply = Response::new(Full::default());
            let tag = HeaderValue::from_static("\"a\"");
            reply.headers_mut().insert(ETAG, tag);
            let reply = unless_known(&headers, reply);
            let status = if expected { 304 } else { 200 };
            assert_eq!(reply.status(), status, "{given:?}");
            assert_eq!(reply.headers()[ETAG], "\"a\"");
        }
    }
}
