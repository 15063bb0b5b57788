//! Conditional reads: a caller that has the current state already gets 304 and no body.

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::problem::Reply;

/// The reply to a read of what has this tag, if the caller has it already.
pub(super) fn not_modified(headers: &HeaderMap, tag: &str) -> Option<Reply> {
    if !has_one_of(headers, tag) {
        return None;
    }
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = StatusCode::NOT_MODIFIED;
    let tag = HeaderValue::from_str(tag).ok()?;
    reply.headers_mut().insert(ETAG, tag);
    Some(reply)
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
            let reply = not_modified(&headers, "\"a\"");
            assert_eq!(reply.is_some(), expected, "{given:?}");
            if let Some(reply) = reply {
                assert_eq!(reply.status(), 304);
                assert_eq!(reply.headers()[ETAG], "\"a\"");
            }
        }
    }
}
