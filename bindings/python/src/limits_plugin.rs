//! What the plugin of `limits` needs of the native module.
