//! How is decided and answered: modes of all limits, headers, metadata.

use super::reader::{MapOfSetting, Reader};

pub(super) fn read(reader: &mut Reader<'_>) {
    reader.pass_on("near_limit_ratio", "NEAR_LIMIT_RATIO");
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
