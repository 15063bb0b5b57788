//! What the middleware needs of the native module.
