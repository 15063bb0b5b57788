//! How is decided and answered: modes of all limits, headers, metadata.

use tidegate::document::Node;

use super::go;
use super::reader::{MapOfSetting, Reader};

pub(super) fn read(reader: &mut Reader<'_>) {
    let name = "NEAR_LIMIT_RATIO";
    let ratio = reader.text(name).and_then(|text| go::number(&text).ok());
    if let Some(ratio) = ratio {
        // Beyond 1 nothing is near a limit, as with 1.
        let ratio = ratio.clamp(0.0, 1.0);
        reader.set(
            "near_limit_ratio",
            Node::setting(name, &ratio.to_string()),
            &[name],
        );
    }
    for (key, name) in [
        ("all_or_nothing", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
        ("shadow", "SHADOW_MODE"),
        ("quota", "QUOTA_MODE"),
        ("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA"),
    ] {
        reader.pass_on_boolean(key, name);
    }
    let enabled = "LIMIT_RESPONSE_HEADERS_ENABLED";
    if reader.is_true(enabled) {
        let mut headers = MapOfSetting::of(enabled);
        for (key, name) in [
            ("limit", "LIMIT_LIMIT_HEADER"),
            ("remaining", "LIMIT_REMAINING_HEADER"),
            ("reset", "LIMIT_RESET_HEADER"),
        ] {
            headers.put_text(key, name, &reader.text_or_default(name));
        }
        reader.set("envoy_headers", headers.into_node(), &[enabled]);
    }
}
